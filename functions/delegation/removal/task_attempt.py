"""An attempt at an operation whose plan, progress and moment are kept in the task store."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from delegation.references.errors import PassLost, ReferencesNotKnown
from delegation.references.model import CatalogPass
from delegation.removal.attempt import PlanSegment, StepsDone
from delegation.removal.choice import EngineChoice, Forecast, RemovalSettings, forecast
from delegation.removal.details import PlanDetails, ReferencesMoment, changed, published, recorded, replaced
from delegation.removal.errors import ComparisonTooOld, FilesThrottled, PlanTampered
from delegation.removal.index import load_index, merge_findings
from delegation.storage.base import ObjectNotFound, PlanStore
from delegation.tasks.errors import LeaseLost
from delegation.tasks.life.model import Status, Task, jsonable
from delegation.tasks.life.outcomes import ABOVE_A_FUNCTION, MEASURED, ErrorClass
from delegation.tasks.life.transitions import held_by
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.service import TaskService
from polaris_common.errors import DelegationError


class TaskAttempt(AttemptContext):
    """removal.attempt.Attempt for one leased task."""

    def __init__(
        self, tasks: TaskService, task: Task, *, hand_over_at: datetime | None, monotonic: Callable[[], float]
    ) -> None:
        super().__init__(tasks, task, hand_over_at=hand_over_at, monotonic=monotonic)
        self._seen = len(PlanDetails.of(task).plan_segments)
        self._began_deleting: tuple[datetime, int] | None = None

    def plan(self) -> tuple[PlanSegment, ...]:
        return self._segments(self.write(lambda: self.tasks.reads.get(self.task_id)))

    def publish(self, segment: PlanSegment, *, files_planned: int) -> tuple[PlanSegment, ...]:

        def decide(task: Task, _now: datetime) -> Task:
            return published(task, self.attempt, segment, seen=self._seen, files_planned=files_planned)

        return self._segments(self.write(lambda: self.tasks.writes.change(self.task_id, decide)))

    def replace_plan(self, segment: PlanSegment, *, files_planned: int) -> tuple[PlanSegment, ...]:

        def decide(task: Task, _now: datetime) -> Task:
            return replaced(task, self.attempt, segment, seen=self._seen, files_planned=files_planned)

        return self._segments(self.write(lambda: self.tasks.writes.change(self.task_id, decide)))

    def steps_done(self) -> StepsDone | None:
        return PlanDetails.of(self.task).steps_done

    def record_steps(self, done: StepsDone) -> None:
        self.write(
            lambda: self.tasks.writes.change(self.task_id, lambda task, _now: recorded(task, self.attempt, done))
        )

    def begin_deleting(self) -> None:
        task = self.write(lambda: self.tasks.leases.start(self.task_id, self.attempt, effects=True))
        self._began_deleting = (self.tasks.clock(), PlanDetails.of(task).files_deleted)

    def progress(self, *, files_deleted: int, files_failed: int, bytes_deleted: int) -> None:
        pace, eta = pace_of(
            self._began_deleting, PlanDetails.of(self.task).files_planned, files_deleted, self.tasks.clock()
        )
        details = changed(
            files_deleted=files_deleted, files_failed=files_failed, bytes_deleted=bytes_deleted, files_per_second=pace
        )
        self.note_progress(details, eta=eta)

    def measured(self, size: str, fits: bool = True) -> None:
        """Record the size of the work, for the error of a task whose attempts are killed. Raises LeaseLost. Work that
        does not fit a function is recorded at once, and once."""
        if fits or ABOVE_A_FUNCTION in self.task.details:
            self.note(**{MEASURED: size})
        else:
            measured = {MEASURED: size, ABOVE_A_FUNCTION: True}
            self.write(
                lambda: self.tasks.leases.note(
                    self.task_id, self.attempt, details=measured, progress_ts=self.tasks.clock()
                )
            )

    def note(self, **details: Any) -> None:
        """Write details from time to time, as a sign of progress. Raises LeaseLost."""
        self.note_progress(details, eta=None)

    def asked_by(self) -> dict[str, Any]:
        """Return who requested the purge and who cancelled it, as of the last read of the task."""
        task = self.task
        return {"requested_by": jsonable(task.requested_by), "cancelled_by": jsonable(task.cancelled_by)}

    def _segments(self, task: Task) -> tuple[PlanSegment, ...]:
        published = PlanDetails.of(task).plan_segments
        self._seen = len(published)
        return published


def watched(tasks: TaskService, task_id: str, attempt: int, *, monotonic: Callable[[], float]) -> Callable[[], None]:
    """Return an attempt's checkpoint for an executor. It reads the task and never writes it. This function and the
    checkpoint raise as Attempt.checkpoint."""
    task = tasks.reads.get(task_id)
    if task.attempt_count != attempt:
        raise LeaseLost(task_id, attempt=attempt, current=task.attempt_count, status=task.status)
    return partial(TaskAttempt(tasks, task, hand_over_at=None, monotonic=monotonic).checkpoint, moved=False)


def pace_of(
    began: tuple[datetime, int] | None, planned: int | None, deleted: int, now: datetime
) -> tuple[int | None, datetime | None]:
    """Return the files deleted per second since this attempt `began` (time, files before), and the expected end, each
    None if unknown. The time between attempts is excluded, because it does not depend on the store."""
    if began is None or now <= began[0] or deleted <= began[1]:
        return None, None
    pace = (deleted - began[1]) / (now - began[0]).total_seconds()
    if not planned:
        return round(pace), None
    return round(pace), now + timedelta(seconds=max(planned - deleted, 0) / pace)


@dataclass
class TaskMoment:
    """Ensures that a purge never deletes what is referenced at its moment; see removal.indexed_neighbours.PurgeMoment.

    The moment is when the purge is acquired to run, after its grace, its queue and its holds. The number of the last
    pass in each catalog at that moment is recorded with the task, so that its later attempts need no later pass.
    Otherwise a waiting purge would need another pass at each attempt. A purge that is submitted again, by a caller or
    for a retry, or that was held, has a new moment. The record is read when it is needed.
    """

    tasks: TaskService
    task: Task
    _is_read: bool = False

    def after(self, state: CatalogPass) -> int:
        known = self._recorded().passes.get(state.catalog)
        # A number greater than the catalog's comes from an index that was emptied since.
        return self.renew(state) if known is None or known > state.number else known

    def renew(self, state: CatalogPass) -> int:
        before = self._recorded()
        self._write(before.model_copy(update={"passes": {**before.passes, state.catalog: state.number}}))
        return state.number

    def relax(self, catalog: str) -> None:
        before = self._recorded()
        if catalog not in before.relaxed:
            self._write(before.model_copy(update={"relaxed": (*before.relaxed, catalog)}))

    def forget(self) -> None:
        """Give the next attempt a new moment, because the purge is held from now on. Raises LeaseLost."""
        before = self._recorded()
        if before.passes:
            self._write(before.model_copy(update={"passes": {}}))

    def recorded(self, catalog: str) -> tuple[int | None, bool]:
        moment = self._recorded()
        return moment.passes.get(catalog), catalog in moment.relaxed

    def _recorded(self) -> ReferencesMoment:
        moment = _of(self.task)
        if moment is None and not self._is_read:
            self.task, self._is_read = self.tasks.reads.get(self.task.task_id), True
            moment = _of(self.task)
        return moment or ReferencesMoment(submitted=self.task.received_timestamp, passes={})

    def _write(self, moment: ReferencesMoment) -> None:
        def decide(task: Task, _now: object) -> Task:
            held_by(task, self.task.attempt_count)
            return task.with_details({"references_moment": moment.model_dump_json()})

        self.task = self.tasks.holding(self.task).writes.change(self.task.task_id, decide)
        self._is_read = True


def _of(task: Task) -> ReferencesMoment | None:
    """Return the record of a task's current submission."""
    moment = PlanDetails.of(task).references_moment
    return None if moment is None or moment.submitted != task.received_timestamp else moment


def error_class(error: Exception) -> ErrorClass:
    """Classify an error: permanent if an operator must act first, otherwise transient, throttled or handed over. An
    error that is no DelegationError is raised again: the process that drives the attempt reports and records it."""
    match error:
        case ReferencesNotKnown() | PassLost() | ComparisonTooOld():
            return ErrorClass.HANDED_OVER
        case FilesThrottled():
            return ErrorClass.THROTTLED
        case DelegationError():
            return ErrorClass.TRANSIENT if error.retryable else ErrorClass.PERMANENT
        case _:
            raise error


def forecast_of(task: Task, plans: PlanStore, settings: RemovalSettings, *, is_dry_run: bool) -> Forecast | None:
    """Return the forecast of a task's plan or of a dry run; None without a plan, and once it was deleted. That of a dry
    run that ended is in its record, without sample paths, and outlives the plan. Any other is made from the plan's
    index, for the engine of the current attempt or the engine for the plan's size. Raises PlanTampered and the store's
    errors."""
    if is_dry_run and task.status is Status.SUCCESS and task.result_extended is not None:
        return Forecast.model_validate_json(task.result_extended)
    segments = PlanDetails.of(task).plan_segments
    if not segments:
        return None
    try:
        indexes = [load_index(plans, segment) for segment in segments]
    except PlanTampered as error:
        if isinstance(error.__cause__, ObjectNotFound):
            return None
        raise
    files = sum(index.files_planned for index in indexes)
    return forecast(indexes, merge_findings(indexes), settings, engine=_engine(task, files, settings))


def _engine(task: Task, files: int, settings: RemovalSettings) -> EngineChoice:
    if task.engine == "inline":
        return "inline"
    if task.engine == "spark":
        return "spark"
    return "inline" if files <= settings.inline_max_files else "spark"
