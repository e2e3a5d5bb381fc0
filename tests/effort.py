"""How much work the generated tests do: little in each run, all of it in `make test THOROUGH=1`."""

import os

THOROUGH = "THOROUGH" in os.environ


def examples(most: int) -> int:
    """Return how many examples a property gets: `most` in a thorough run, otherwise a third of them."""
    return most if THOROUGH else max(1, most // 3)


def apart(calls: int) -> int:
    """Return how far apart the calls are at which a process is killed: each in a thorough run."""
    return 1 if THOROUGH else calls
