"""Random histories of a table whose orphan files are swept (`make orphans-histories`), with five PYTHONHASHSEEDs."""

import sys

from tests.faults.orphans.history import History
from tests.faults.orphans.mutations import MUTATIONS
from tests.kit.explorer import Explorer

EXPLORER = Explorer(
    "tests.faults.orphans.run",
    History,
    lambda total: (
        f"sweeps deleted {total['swept']} files, expiries {total['expired']}, purges {total['purged']}; "
        f"{total['foreign']} sweeps kept files of unlisted tables, {total['landed']} commits in flight landed"
    ),
    MUTATIONS,
    hash_seeds=5,
    seeds=5_000,
)

if __name__ == "__main__":
    sys.exit(EXPLORER.main(sys.argv[1:]))
