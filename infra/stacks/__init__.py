"""Two stacks: what must survive (data), and what can be thrown away and deployed again (service)."""

import os

# jsii prints a banner on every start under Node 20, which still runs it; any other version is reported as usual.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
