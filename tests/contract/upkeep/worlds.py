"""The operations of upkeep as the suite of their hand-overs sees them: the table `t`, and more than one file to delete.

Jobs run in this process.
"""

from dataclasses import replace
from typing import Any, Final

from delegation.removal.expiry import task_type as expiries
from delegation.removal.expiry.behavior import ExpiryBehavior
from delegation.removal.expiry.task_type import ExpiryDetails
from delegation.removal.orphans import task_type as removals
from delegation.removal.orphans.behavior import OrphansBehavior
from delegation.removal.orphans.details import OrphanDetails
from delegation.tasks.life.model import Task
from tests.kit.lakes.lake import busy_table, rows
from tests.kit.worlds.expiring import SparkExpiries
from tests.kit.worlds.sweeping import SparkRemovals


class Expiry(SparkExpiries):
    """Expiries of snapshots.

    `folder` of the record bucket is what a job may write to beside its task's own. `attempts_inline` are those that it
    takes without Spark. `doomed` are files that have to go; which others do, the plan says.
    """

    plan_task_type: Final = expiries.PLAN_TASK_TYPE
    folder: Final = "lost-refs"
    done: Final = "EXPIRED"
    attempts_inline: Final = 2
    details: Final = ExpiryDetails

    def __init__(self, inline_max_files: int = 1, *, has_spark: bool = True) -> None:
        super().__init__(inline_max_files, has_spark=has_spark)
        busy_table(self.lake, "t")
        self.lake.table("t").overwrite(rows(9))
        self.doomed = set[str]()

    @property
    def upkeep(self) -> ExpiryBehavior:
        return self.expiry

    def become_with(self, **changes: Any) -> None:
        """Deploy the behavior with other parts."""
        self.deploy(expiry=replace(self.upkeep, **changes))

    def perform(self, **properties: str) -> Task:
        """Have a request run until it ends or waits."""
        return self.expire("t", **properties)

    def kept(self) -> set[str]:
        """Return the files that the table needs."""
        return self.lake.needed("t")


class Removal(SparkRemovals):
    """Removals of orphan files."""

    plan_task_type: Final = removals.PLAN_TASK_TYPE
    folder: Final = "orphans"
    done: Final = "SWEPT"
    attempts_inline: Final = 3
    details: Final = OrphanDetails

    def __init__(self, inline_max_files: int = 1, *, has_spark: bool = True) -> None:
        super().__init__(inline_max_files, has_spark=has_spark)
        self.doomed = self.plant("data/a.parquet", "metadata/b.avro", "c")

    @property
    def upkeep(self) -> OrphansBehavior:
        return self.orphans

    def become_with(self, **changes: Any) -> None:
        """Deploy the behavior with other parts."""
        self.deploy(orphans=replace(self.upkeep, **changes))

    def perform(self, **properties: str) -> Task:
        """Have a request run until it ends or waits."""
        return self.ask("t", **{name.replace("-", "_"): value for name, value in properties.items()})

    def kept(self) -> set[str]:
        """Return the files that the table needs."""
        return self.lake.needed("t", named=True)


Upkeep = Expiry | Removal
