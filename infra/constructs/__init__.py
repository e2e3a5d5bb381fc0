"""One construct per capability; the stacks only wire them."""
