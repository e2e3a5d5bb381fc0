"""Compare removals of orphan files with Iceberg's DeleteOrphanFiles action on tables of Spark: python -m tests.orphans.

At each live table of tests/fixtures orphan files of every kind are planted, and traps; then they are removed on two
copies, by the action (Spark's procedure remove_orphan_files) and by this service. What Iceberg calls an orphan must be
one here, or stay for a stated reason; what a table needs must stay; every snapshot must read the same files afterwards.
"""

from tests.actions.records import Comparison
from tests.orphans.compare import RECORDED, compared
from tests.orphans.iceberg import answers
from tests.orphans.questions import questions

COMPARISON = Comparison("orphans-oracle", "removals", questions, answers, compared, RECORDED)

if __name__ == "__main__":
    COMPARISON.main(__doc__)
