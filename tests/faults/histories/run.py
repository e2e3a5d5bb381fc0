"""Random histories of tables that borrow each other's files (`make histories`); prints totals as they go.

Exits with 1 if a file that a live table needs was deleted, or one that nothing needs was left and not listed. The steps
of such a history are printed, and `--seed` with `--histories 1` plays it again.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from tests.faults.histories.history import History, Verdict

_EVERY = 100


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first history")
    chosen = parser.parse_args(arguments)
    began = time.monotonic()
    bad = purges = succeeded = harmed = left = 0
    for number in range(chosen.histories):
        verdict = History(chosen.seed + number).play()
        purges += verdict.purges
        succeeded += verdict.succeeded
        harmed += len(verdict.harmed)
        left += len(verdict.left)
        if not verdict.is_good:
            bad += 1
            _show(verdict)
        if (number + 1) % _EVERY == 0 or number + 1 == chosen.histories:
            sys.stdout.write(
                f"{number + 1} histories, {purges} purges of which {succeeded} succeeded: {harmed} files wrongly "
                f"deleted, {left} left and not listed; {time.monotonic() - began:.0f} s\n"
            )
            sys.stdout.flush()
    return 1 if bad else 0


def _show(verdict: Verdict) -> None:
    lines = [f"seed {verdict.seed}:", *verdict.steps, *(f"harmed: {one}" for one in verdict.harmed)]
    sys.stdout.write("\n  ".join([*lines, *(f"left: {one}" for one in verdict.left)]) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
