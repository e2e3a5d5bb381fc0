"""The console script `delegation`: runs the command, or names what to install for it; it needs no extra itself."""

import json
import sys
from collections.abc import Sequence
from typing import Final

NEXT_STEP: Final = "Install what it needs: pip install 'polaris-delegation-service[cli]'."


def start() -> None:
    """Run the command; exit status 1 without the extra `cli`."""
    try:
        from delegation.cli.main import main as run  # noqa: PLC0415 - it needs the extra
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "delegation":
            raise
        sys.stderr.write(unavailable(error.name, sys.argv[1:]))
        sys.exit(1)
    run()


def unavailable(module: str, arguments: Sequence[str]) -> str:
    """Return the error for a missing module; with `--json` the document that any failing command prints."""
    message = f"the command `delegation` needs {module}, which is not installed"
    if "--json" in arguments:
        return json.dumps({"error_code": "COMMAND_UNAVAILABLE", "message": message, "next_step": NEXT_STEP}) + "\n"
    return f"Error: {message}\nNext: {NEXT_STEP}\n"
