"""Random histories of tables that borrow each other's files (`make histories`)."""

import sys

from tests.faults.histories.history import History
from tests.faults.histories.mutations import MUTATIONS
from tests.kit.explorer import Explorer

EXPLORER = Explorer(
    "tests.faults.histories.run",
    History,
    lambda total: (
        f"{total['purges']} purges of which {total['succeeded']} succeeded, {total['not covered']} files left "
        f"as NOT_COVERED, {total['unlisted']} unlisted tables found"
    ),
    MUTATIONS,
    seeds=5_000,
)

if __name__ == "__main__":
    sys.exit(EXPLORER.main(sys.argv[1:]))
