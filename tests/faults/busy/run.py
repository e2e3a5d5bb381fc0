"""Play histories of busy tables: `make busy HISTORIES=2000`.

`--mutation lots` is without the comparison before each lot; `make busy FILES=10800` works for ten hours of a virtual
clock at a table with a commit every second. Exits with 1 if a file that a table needs was deleted, or work did not end.
"""

import argparse
import sys
from collections import Counter

from tests.faults.busy.world import DONE, KINDS, MUTATIONS, play, play_hours
from tests.kit.printing import print_now


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutation", choices=MUTATIONS, default="none")
    parser.add_argument("--files", type=int, default=0)
    chosen = parser.parse_args()
    if chosen.files:
        return _hours(chosen.files)
    wrong, ended, deleted, taken = 0, Counter[str](), 0, 0
    with MUTATIONS[chosen.mutation]():
        for seed in range(chosen.seed, chosen.seed + chosen.histories):
            found = play(KINDS[seed % len(KINDS)], seed)
            ended[f"{found.kind} {found.status}"] += 1
            deleted, taken = deleted + found.deleted, taken + found.taken
            if found.missing or found.status not in DONE:
                wrong += 1
                print_now(f"seed {seed} {found.kind} {found.status}: {sorted(found.missing)[:3]}")
    print_now(f"{chosen.histories} histories, {wrong} wrong; {deleted} deleted, {taken} taken; {dict(ended)}")
    return 1 if wrong else 0


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
    sys.exit(main())
