"""Mark and sweep of objects that are no longer needed (NoSQL persistence proposal, Handling no longer needed objects).

A run scans all objects, then fences and marks every reference. What was scanned and is not marked is unneeded: it
existed before the fence, no head names it, and every compare-and-set prepared before the fence fails. The next run, a
grace period later by the database's time, deletes what it finds unneeded again. No process' clock decides anything.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import ValidationError

from polaris_persistence.backends.base import SYSTEM, Backend, ObjectKey
from polaris_persistence.ids.snowflake import join_id
from polaris_persistence.maintenance.coordination import TASK_TYPE, CoordinatedTask, TaskRun
from polaris_persistence.maintenance.keys import KEYS_TYPE, MARKS_TYPE
from polaris_persistence.maintenance.run import (
    RealmSweepReport,
    RunState,
    Stop,
    SweepPolicy,
    SweepRun,
    SweepState,
    begun,
)
from polaris_persistence.objects.objects import PersistedModel, unknown_field
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectType
from polaris_persistence.objects.updateable import Updateables

_STATE: Final = "two-runs"
"""The key of the SweepState in a task's state. The last release does not find its own fields there and starts again."""


_EXPECTED: Final = "expected"
"""The number of objects for which the last release's next run sizes its filter."""


class MarkedObjects(PersistedModel):
    """The stored Bloom filter of the last release's runs, which a later run deletes as unneeded."""

    bits: bytes
    size: int
    hashes: int
    salt: bytes
    count: int


FILTER_TYPE: Final = ObjectType("maintenance-filter", MarkedObjects)
MAINTENANCE_TYPES: Final = (FILTER_TYPE, KEYS_TYPE, MARKS_TYPE, TASK_TYPE)
"""To be declared wherever maintenance runs."""


@dataclass(frozen=True, slots=True)
class HeldTask:
    """A run of the maintenance task that this process holds, and the state that the last run left."""

    run: TaskRun
    kept: SweepState

    def finish(self, state: SweepState, needed: int) -> None:
        """End the run. Raises TaskTakenOver."""
        self.run.finish({_EXPECTED: needed, _STATE: state.model_dump()})

    def checkpoint(self, run: RunState | None) -> None:
        """Keep the task, and store the progress of a run that can be continued. Raises TaskTakenOver."""
        expected = self.run.state.get(_EXPECTED, 0)
        state = self.kept.model_copy(update={"run": run}).model_dump()
        self.run.checkpoint({_EXPECTED: expected, _STATE: state})


class RealmMaintenance:
    """Runs mark and sweep over all realms of a store, in one process at a time.

    `store_of` makes a CatalogStore for (realm, catalog) that bypasses the shared cache; `clock` counts seconds and
    decides only when progress is saved.
    """

    def __init__(
        self,
        backend: Backend,
        store_of: Callable[[str, str], CatalogStore],
        *,
        policy: SweepPolicy = SweepPolicy(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._store_of = store_of
        self._system = store_of(SYSTEM, SYSTEM)
        self._policy = policy
        self._clock = clock
        # An id with a reserved timestamp, as for node leases.
        key = ObjectKey(SYSTEM, SYSTEM, "coordinated-task", join_id(1, 0, 0))
        updateables = Updateables(backend, self._system.types, backend.time)
        self.task = CoordinatedTask(updateables, key, policy.lost_after, backend.time)

    def run(self, stop: Stop = lambda: False) -> RealmSweepReport:
        """Scan, mark and delete, or continue where the last run stopped; `stop` is called between steps.

        A run less than a grace period after the last one does nothing. A realm that cannot be marked safely is not
        swept, and is reported in `refused`. Raises TaskHeld, TaskTakenOver, CommitOutcomeUnknown, BackendUnavailable.
        """
        held = self.task.start()
        kept = state_of(held.state)
        now = self._backend.time()
        if kept.run is None and kept.since and now < kept.not_before(self._policy):
            held.finish(held.state)
            return RealmSweepReport(complete=True, not_before=kept.not_before(self._policy))
        run = SweepRun(self._backend, self._store_of, self._system, self._policy, kept, stop=stop, clock=self._clock)
        if kept.run is None or not run.resume(kept.run):
            run.begin(begun(now, self._policy.segments))
        task = HeldTask(held, kept)
        run.on_checkpoint(task.checkpoint)
        if not (run.scan() and run.mark() and run.sweep()):
            run.save()
            held.hand_over()
            return run.report
        task.finish(run.outcome(), run.report.marked)
        # Only after that, because a run that took over from this one may be using them.
        run.delete_chunks()
        return replace(run.report, complete=True)


def state_of(state: Mapping[str, Any]) -> SweepState:
    """Return the stored state; an empty one instead of another release's, so that nothing is deleted in this run."""
    try:
        found = SweepState.model_validate(state.get(_STATE, {}))
    except ValidationError:
        return SweepState()
    return SweepState() if unknown_field(found) is not None else found
