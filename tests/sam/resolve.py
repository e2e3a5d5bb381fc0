"""Prints as JSON what the SAM command finds in a template; run by its own interpreter (`make sam-check`).

`sam local invoke` itself needs a container engine before it looks at the template; these are the classes it looks with.
"""

import json
import sys
from pathlib import Path

from samcli.lib.providers.sam_function_provider import SamFunctionProvider
from samcli.lib.providers.sam_stack_provider import SamLocalStackProvider


def main() -> None:
    """Print handler, runtime and code of each function by the name of `sam local invoke NAME`."""
    stacks, _ = SamLocalStackProvider.get_stacks(sys.argv[1])
    provider = SamFunctionProvider(stacks)
    found = {}
    for name in sys.argv[2:]:
        function = provider.get(name)
        if function is not None:
            has_code = Path(function.codeuri or "").exists()
            found[name] = {"handler": function.handler, "runtime": function.runtime, "has_code": has_code}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
