"""`persistence-maintenance`: the recurring task that marks and sweeps the objects of the NoSQL persistence."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from pydantic import BaseModel, ConfigDict

from delegation.errors import RunCancelled, RunHandedOver
from delegation.tasks.errors import (
    LeaseLost,
)
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior
from polaris_persistence.maintenance.sweep import RealmMaintenance

logger = logging.getLogger(__name__)

TASK_TYPE: Final = "PERSISTENCE_MAINTENANCE"
EVERY: Final = timedelta(hours=6)


class Sweep(BaseModel):
    """No parameters: the policy is configured in the process that runs the task."""

    model_config = ConfigDict(frozen=True)


class SweepReport(BaseModel):
    """What one run did; see RealmSweepReport. The last release also reads these reports, so `false_positive_rate` is
    kept: 0, because marks are exact."""

    model_config = ConfigDict(frozen=True)

    references: int
    marked: int
    scanned: int
    deleted: int
    young: int
    false_positive_rate: float = 0.0
    unknown: int = 0
    refused: tuple[tuple[str, str], ...] = ()
    not_before: int | None = None


def persistence_maintenance(
    maintenance: Callable[[], RealmMaintenance], *, every: timedelta = EVERY
) -> Behavior[Sweep, SweepReport]:
    """Return the behavior; `maintenance` is called when it runs, so a process that only submits needs no store. A run
    that ends early leaves its progress in the store, and the next attempt continues. A catalog left as it is does not
    fail the task; the report has it, and a warning is logged."""

    def work(_parameters: Sweep, run: AttemptContext) -> SweepReport:
        ended: list[LeaseLost | RunCancelled | RunHandedOver] = []

        def stop() -> bool:
            try:
                run.checkpoint()
            except (LeaseLost, RunCancelled, RunHandedOver) as end:
                ended.append(end)
            return bool(ended)

        report = maintenance().run(stop)
        if ended:
            raise ended[0]
        for place, reason in report.refused:
            logger.warning("maintenance left %r as it is: %s", place, reason)
        return SweepReport.model_validate(report, from_attributes=True)

    return Behavior(TASK_TYPE, Sweep, work, result=SweepReport, identify=lambda _sweep: "", every=every)
