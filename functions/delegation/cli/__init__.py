"""The console script `delegation`: runs the command, or names what to install for it. It needs no extra itself."""

import codecs
import io
import json
import sys
from collections.abc import Sequence
from typing import Final

OWN_ROOTS: Final = frozenset({"delegation", "polaris_common", "polaris_persistence"})
"""Import roots of this distribution: a module of theirs that is missing is a bug, not an extra."""
NEXT_STEP: Final = "Install the extra: pip install 'polaris-delegation-service[cli]'."


_PLAIN: Final = {"✓": "+", "✗": "x", "…": "...", "–": "-", "→": "->", "·": "-"}


def print_anywhere() -> None:
    """Replace characters that a terminal without Unicode cannot print; they ended in a traceback."""
    codecs.register_error("delegation", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="delegation")


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(character, "?") for character in error.object[error.start : error.end]), error.end


def start() -> None:
    """Run the command; exit status 1 without the extra `cli`."""
    print_anywhere()
    try:
        from delegation.cli.main import main as run  # noqa: PLC0415 - it needs the extra
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in OWN_ROOTS:
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
