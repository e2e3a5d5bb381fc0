"""The recurring task that starts what one catalog's policies require."""

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from delegation.polaris.answers import PoliciesNotSupported
from delegation.references.names import CATALOG_UPKEEP
from delegation.references.recurring import RecurringCatalog
from delegation.tasks.work.behaviors import Behavior, Run
from delegation.upkeep.execution.kinds import UpkeepCounts
from delegation.upkeep.policy_file import PolicyFileInvalid
from polaris_common.errors import DelegationError

_MOST_NAMED = 20
POLICY_FILE = "the policy file"
"""What the metric of invalid policies names where the file as a whole cannot be read."""


class PolicyPass(Protocol):
    """A pass over a catalog, such as UpkeepPass."""

    def run(self, catalog: str) -> UpkeepCounts:
        """Make one pass. Raises the errors of the stores and the retryable ones of the catalog."""
        ...


class UpkeepPassReport(BaseModel):
    """What one pass did, or why it ended early or could not read all policies; names at most 20 invalid ones."""

    model_config = ConfigDict(frozen=True)

    tables: int | None = None
    ruled: int | None = None
    computed: int | None = None
    started: int | None = None
    waiting: dict[str, int] = {}
    invalid: tuple[str, ...] = ()
    unread: int = 0
    problem: str | None = None


def catalog_upkeep(
    made: Callable[[Run], PolicyPass],
    *,
    every: timedelta,
    counted: Callable[[UpkeepCounts], object] = lambda _counts: None,
) -> Behavior[RecurringCatalog, UpkeepPassReport]:
    """Return the behavior; `made` returns the pass of a run, `counted` is called with its counts."""

    def work(parameters: RecurringCatalog, run: Run) -> UpkeepPassReport:
        try:
            counts = made(run).run(parameters.catalog)
        except DelegationError as error:
            if not error.retryable and not isinstance(error, (PoliciesNotSupported, PolicyFileInvalid)):
                raise
            if isinstance(error, PolicyFileInvalid):
                counted(UpkeepCounts(invalid=frozenset({POLICY_FILE}), why_unread=str(error)))
            # The next run continues; a failure would end the recurrence.
            return UpkeepPassReport(problem=f"{error.code}: {error}")
        counted(counts)
        return UpkeepPassReport(
            tables=counts.tables,
            ruled=counts.ruled,
            computed=counts.computed,
            started=counts.started,
            waiting=dict(counts.waiting),
            invalid=tuple(sorted(counts.invalid)[:_MOST_NAMED]),
            unread=counts.unread,
            problem=counts.why_unread,
        )

    return Behavior(
        CATALOG_UPKEEP,
        RecurringCatalog,
        work,
        result=UpkeepPassReport,
        identify=lambda parameters: parameters.catalog,
        every=every,
    )
