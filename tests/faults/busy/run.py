"""Play histories of busy tables: `make busy HISTORIES=2000`.

`--mutation lots` is without the comparison before each lot; `make busy FILES=10800` works for ten hours of a virtual
clock at a table with a commit every second. Exits with 1 if a file that a table needs was deleted, or work did not end.
"""

import argparse
import sys
from collections.abc import Sequence

from tests.faults.busy.world import DONE, KINDS, MUTATIONS, BusyHistory, play_hours
from tests.kit.explorer import Explorer
from tests.kit.printing import print_now

EXPLORER = Explorer("tests.faults.busy.run", BusyHistory, mutations=MUTATIONS, seeds=2_000)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--files", type=int, default=0)
    chosen, others = parser.parse_known_args(arguments)
    return _hours(chosen.files) if chosen.files else EXPLORER.main(others)


def _hours(files: int) -> int:
    wrong = 0
    for kind in ("purge", *KINDS):
        found = play_hours(kind, files)
        wrong += found.status not in DONE or bool(found.missing)
        print_now(
            f"{kind}: {found.status} after {found.seconds:.0f} s with {found.taken} commits, "
            f"{found.deleted} of {files} files deleted, {len(found.missing)} missing"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
