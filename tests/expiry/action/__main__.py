"""Compare expiries with Iceberg's ExpireSnapshots action on tables that Spark wrote: python -m tests.expiry.action.

Each table of tests/fixtures with several snapshots is expired on two copies, by the action (Spark's procedure
expire_snapshots) and by this service, with several sets of options: the same snapshots, refs, schemas and partition
specs must go, and the same files, or fewer for a reason that is counted.
"""

from tests.actions.records import Comparison
from tests.expiry.action.compare import RECORDED, compared
from tests.expiry.action.iceberg import answers
from tests.expiry.action.questions import questions

COMPARISON = Comparison("expiry-oracle", "expiries", questions, answers, compared, RECORDED)

if __name__ == "__main__":
    COMPARISON.main(__doc__)
