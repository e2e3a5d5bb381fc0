"""One construct for each part of the deployment; the stacks wire them."""
