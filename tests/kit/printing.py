"""Lines that programs of the tests print."""

import sys


def print_now(line: str) -> None:
    """Print a line and do not buffer it, so that it is seen while the program works."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
