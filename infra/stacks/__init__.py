"""Two stacks: data, which every deployment retains, and service, which can be deleted and deployed again."""

import os

# Under Node 20, which still works, jsii prints a banner on every start; this silences it for that version alone.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
