"""The deployment, and the local stack; a part of a checkout, not of the package."""

import os

# Under Node 20, which still works, jsii prints a banner on every start; this silences it for that version alone. It is
# here because it has to be set before the first import of aws_cdk, whichever module does that.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
