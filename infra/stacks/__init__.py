"""Stacks: data, which every deployment retains; service, which can be deleted and deployed again; and the gateway."""

import os

# Under Node 20, which still works, jsii prints a banner on every start; this silences it for that version alone.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
