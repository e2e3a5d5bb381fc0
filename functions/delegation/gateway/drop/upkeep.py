"""The recurring task that finishes or clears what a crash left between two steps of a drop."""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from pydantic import BaseModel, ConfigDict

from delegation.gateway.drop import tombstones as records
from delegation.gateway.drop.errors import DropError
from delegation.gateway.drop.steps import DropSteps
from delegation.gateway.drop.tombstones import LONGEST_BACKOFF, Tombstone
from delegation.items import each_item, reason_of
from delegation.removal.purge.names import UPKEEP_TASK_TYPE
from delegation.tasks.life.declared import is_wanted
from delegation.tasks.work.behaviors import Behavior, Run
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.submit import Tasks

logger = logging.getLogger(__name__)
EVERY: Final = timedelta(minutes=5)
_AT_ONCE: Final = 100
"""Tombstones that one run settles; the next run takes the others."""
_CONSIDERED: Final = 500
"""Those whose time came first, of which a run takes the ones with the fewest looks in a row that failed."""
_COUNTED: Final = 1_000
"""Stuck tombstones that are counted at most."""


class TombstoneUpkeep(BaseModel):
    """No parameters: one task settles all tombstones."""

    model_config = ConfigDict(frozen=True)


class UpkeepReport(BaseModel):
    """What one run did: settled tombstones by their new states, and how many it could not settle. `stuck` counts all
    that repeatedly failed, also those not in this run, and items that cannot be read."""

    model_config = ConfigDict(frozen=True)

    states: dict[str, int] = {}
    troubled: int = 0
    stuck: int = 0


def tombstone_upkeep(steps: Callable[[], DropSteps]) -> Behavior[TombstoneUpkeep, UpkeepReport]:
    """Return the behavior; `steps` is called when it runs."""

    def work(_parameters: TombstoneUpkeep, run: Run) -> UpkeepReport:
        return settle_all(steps(), run.checkpoint)

    return Behavior(
        UPKEEP_TASK_TYPE,
        TombstoneUpkeep,
        work,
        result=UpkeepReport,
        identify=lambda _parameters: "singleton",
        every=EVERY,
    )


def settle_all(steps: DropSteps, checkpoint: Callable[[], None]) -> UpkeepReport:
    """Settle the tombstones that are due, those without trouble first; one that fails waits longer."""
    states: Counter[str] = Counter()
    troubled: dict[str, Exception] = {}
    considered = steps.store.due(steps.tombstones.clock(), _CONSIDERED).tombstones
    # Python's sort is stable: among equals the earliest comes first.
    for one in each_item(
        sorted(considered, key=lambda record: record.attempts)[:_AT_ONCE],
        lambda listed: _settled(steps, listed),
        name="tombstones.settled",
        clock=steps.tombstones.clock,
        shown=lambda record: record.tombstone_id,
        checkpoint=checkpoint,
        in_a_row=None,
    ):
        if one.error is not None:
            troubled[one.item.tombstone_id] = one.error
        elif one.result is not None:
            states[one.result] += 1
    for _ in each_item(
        troubled.items(),
        lambda one: _note_trouble(steps, *one),
        name="tombstones.noted",
        clock=steps.tombstones.clock,
        shown=lambda one: one[0],
        in_a_row=None,
    ):
        pass
    open_ones = steps.store.due(steps.tombstones.clock() + LONGEST_BACKOFF, _COUNTED)
    stuck = sum(record.is_stuck for record in open_ones.tombstones) + open_ones.unreadable
    steps.tombstones.stuck(stuck)
    return UpkeepReport(states=dict(states), troubled=len(troubled), stuck=stuck)


def _note_trouble(steps: DropSteps, tombstone_id: str, error: Exception) -> None:
    """Delay a tombstone's next check, unless another process changed it."""
    try:
        record = steps.tombstones.get(tombstone_id)
        steps.tombstones.changed(record, lambda now, one: records.troubled(one, now, reason_of(error)))
    except DropError as unnoted:
        logger.warning("its trouble could not be noted: %s", unnoted, extra={"tombstone_id": tombstone_id})


def _settled(steps: DropSteps, listed: Tombstone) -> str:
    """Settle a tombstone as it is now; the list may be out of date."""
    record = steps.tombstones.get(listed.tombstone_id)
    if record.check_at is None or record.check_at > steps.tombstones.clock():
        return str(record.state)
    return str(steps.settle(record).state)


def ensure_submitted(tasks: TaskService, behavior: Behavior[TombstoneUpkeep, UpkeepReport]) -> bool:
    """Submit the task unless it exists, usually with one read; return whether this call did. A failed or cancelled one
    is submitted again an interval later."""
    parameters = TombstoneUpkeep()
    if not is_wanted(tasks.reads.find(behavior.task_id(parameters)), behavior.every, tasks.clock()):
        return False
    return Tasks(tasks).submit(behavior, parameters).is_new


class UpkeepBegun:
    """Submits the recurring task; checked once an interval, and a drop for which it fails is not performed."""

    def __init__(self, tasks: TaskService, behavior: Behavior[TombstoneUpkeep, UpkeepReport]) -> None:
        self._tasks = tasks
        self._behavior = behavior
        self._looked: datetime | None = None

    def __call__(self) -> None:
        """Raises the errors of the task store."""
        now, every = self._tasks.clock(), self._behavior.every
        if self._looked is None or (every is not None and now - self._looked >= every):
            ensure_submitted(self._tasks, self._behavior)
            self._looked = now
