"""The recurring task that reads the health of one catalog's tables. Separate from the reference index's task, because
purges wait for that one; submitted when a pass of the index is complete, and as often."""

from collections.abc import Callable
from datetime import timedelta

from pydantic import BaseModel, ConfigDict

from delegation.references.names import CATALOG_HEALTH
from delegation.references.recurring import RecurringCatalog
from delegation.tasks.work.behaviors import Behavior, Run
from delegation.upkeep.health.refresh import HealthRefresher
from polaris_common.errors import DelegationError


class HealthReport(BaseModel):
    """What one run did: tables in the index, read, left for the next run and removed, or why it ended early."""

    model_config = ConfigDict(frozen=True)

    tables: int | None = None
    read: int | None = None
    left: int | None = None
    removed: int | None = None
    problem: str | None = None


def catalog_health(
    refresher: Callable[[Run], HealthRefresher], *, every: timedelta
) -> Behavior[RecurringCatalog, HealthReport]:
    """Return the behavior; `refresher` is called when it runs."""

    def work(parameters: RecurringCatalog, run: Run) -> HealthReport:
        try:
            counts = refresher(run).refresh(parameters.catalog)
        except DelegationError as error:
            if not error.retryable:
                raise
            # The next run continues; a failure would end the recurrence.
            return HealthReport(problem=f"{error.code}: {error}")
        return HealthReport(tables=counts.tables, read=counts.read, left=counts.left, removed=counts.removed)

    return Behavior(
        CATALOG_HEALTH,
        RecurringCatalog,
        work,
        result=HealthReport,
        identify=lambda parameters: parameters.catalog,
        every=every,
    )
