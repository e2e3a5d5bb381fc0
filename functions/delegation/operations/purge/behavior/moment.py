"""The moment of a purge: what is referenced then is never deleted by it.

It is when the purge is first acquired to run, after its grace, its queue and its holds. The number of the pass that
began last in each catalog is recorded with the task, so that further attempts need no later pass than the first one;
otherwise a purge that waits for a pass would need another one whenever it looks. A purge that is submitted again, by a
caller or for a retry, has a new moment.
"""

from dataclasses import dataclass

from delegation.operations.purge.behavior.details import PurgeDetails, ReferencesMoment
from delegation.operations.purge.behavior.task_attempt import attempt_lost
from delegation.references.model import CatalogPass
from delegation.tasks.life.model import Task
from delegation.tasks.life.transitions import held_by
from delegation.tasks.work.service import TaskService


@dataclass
class TaskMoment:
    """See operations.purge.planning.references.PurgeMoment: that of a leased task, whose record is read when needed."""

    tasks: TaskService
    task: Task
    _is_read: bool = False

    def after(self, state: CatalogPass) -> int:
        """See PurgeMoment.after."""
        known = self._recorded().passes.get(state.catalog)
        # A greater number than the catalog has is of an index that was emptied since.
        return self.renew(state) if known is None or known > state.number else known

    def renew(self, state: CatalogPass) -> int:
        """See PurgeMoment.renew."""
        before = self._recorded()
        self._write(before.model_copy(update={"passes": {**before.passes, state.catalog: state.number}}))
        return state.number

    def relax(self, catalog: str) -> None:
        """See PurgeMoment.relax."""
        before = self._recorded()
        if catalog not in before.relaxed:
            self._write(before.model_copy(update={"relaxed": (*before.relaxed, catalog)}))

    def recorded(self, catalog: str) -> tuple[int | None, bool]:
        """See PurgeMoment.recorded."""
        found = self._recorded()
        return found.passes.get(catalog), catalog in found.relaxed

    def _recorded(self) -> ReferencesMoment:
        found = _of(self.task)
        if found is None and not self._is_read:
            self.task, self._is_read = self.tasks.get(self.task.task_id), True
            found = _of(self.task)
        return found or ReferencesMoment(submitted=self.task.received_timestamp, passes={})

    def _write(self, moment: ReferencesMoment) -> None:
        def decide(task: Task, _now: object) -> Task:
            held_by(task, self.task.attempt_count)
            return task.with_details({"references_moment": moment.model_dump_json()})

        with attempt_lost():
            self.task = self.tasks.holding(self.task).change(self.task.task_id, decide)
        self._is_read = True


def _of(task: Task) -> ReferencesMoment | None:
    """Return what is recorded for a task's present submission."""
    moment = PurgeDetails.of(task).references_moment
    return None if moment is None or moment.submitted != task.received_timestamp else moment
