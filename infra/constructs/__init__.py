"""One construct for each part of the deployment; the stacks wire them."""

import os

# Under Node 20, which still works, jsii prints a banner on every start; this silences it for that version alone. It has
# to be set before the first import of aws_cdk, and not in `infra`, which the local stack's functions import.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
