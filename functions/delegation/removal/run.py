"""The one way in which anything is deleted, so that it can be resumed at any point.

    open, adopt or make a plan → what comes before the deletes → subtract → each step in lots → receipt
Before each lot the table is compared with it. An operation is a subclass: how it makes a plan, what it does before the
deletes, its steps, its comparisons, its result and its receipt.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, Generic, TypeVar

from delegation.errors import RunCancelled, RunStopped
from delegation.removal.attempt import PlanSegment, collected_seldom
from delegation.removal.choice import EngineChoice, Forecast, document, forecast
from delegation.removal.chunks import DeleteStep
from delegation.removal.context import Ctx, RemovalContext, RemovalResult
from delegation.removal.deletes import Tally, Work, delete_in_lots, delete_or_raise
from delegation.removal.errors import FilesNotDeleted, PlanLost
from delegation.removal.index import Finding, PlanIndex, ReducedIndex, ReplacedPlan, load_index_as
from delegation.removal.marks import Deleted, Marks, deleted_by_marks, record_adopted_plan, store_receipt
from delegation.storage.deleter import AdaptiveRate
from polaris_common.errors import DelegationError

Index = TypeVar("Index", bound=PlanIndex)
Result = TypeVar("Result", bound=RemovalResult)
Reported = Callable[[Tally], None]
"""Gets the outcome of one or more chunks at a time."""


class ExecutedPlan(Generic[Index]):
    """The plan of one attempt. Call `use` before anything else. `check` refuses another table's plan. Of a plan that is
    only reduced the last published segment counts, of one that is extended all do."""

    def __init__(self, ctx: RemovalContext, kind: type[Index], check: Callable[[Index], None]) -> None:
        self._ctx = ctx
        self._kind = kind
        self._check = check
        self._used: list[Index] = []
        self.segments: Sequence[PlanSegment] = ()
        self.began = False

    def load(self, segment: PlanSegment) -> Index:
        """Return a stored plan. Raises PlanLost, or PlanTampered if it is altered or of another operation."""
        return load_index_as(self._kind, self._ctx.plans, segment)

    def use(self, segments: Sequence[PlanSegment]) -> Index:
        """Read the published plan, which another attempt may have written."""
        segments = segments[-1:] if issubclass(self._kind, ReducedIndex) else segments
        indexes = [self.load(segment) for segment in segments]
        for index in indexes:
            self._check(index)
        self._used, self.segments = indexes, segments
        return self.index

    def forget(self) -> None:
        """Stop using the plan: a part of it is lost."""
        self._used = []

    @property
    def is_read(self) -> bool:
        return bool(self._used)

    @property
    def index(self) -> Index:
        return self._used[-1]

    @property
    def segment(self) -> PlanSegment:
        return self.segments[-1]

    @property
    def _reduces(self) -> Sequence[ReplacedPlan]:
        return self.index.reduces if isinstance(self.index, ReducedIndex) else ()

    def indexes(self) -> list[Index]:
        """Return the plan and those that it reduced or extended, oldest first."""
        return [*(self.load(PlanSegment(reduced.id, reduced.sha256)) for reduced in self._reduces), *self._used]

    def deleted(self) -> Deleted:
        """Return what was deleted of the plan and those that it reduced or extended."""
        return deleted_by_marks(self._ctx.plans, self.indexes(), self._reduces)

    def left(self, *steps: DeleteStep, done: bool = False) -> list[Work]:
        """Return the chunks of these steps, or of all, without a mark; with `done` those with a mark."""
        work: list[Work] = []
        for index in self._used:
            marks = Marks(self._ctx.plans, index.plan_id)
            marked = marks.done()
            chunks = (chunk for chunk in index.chunks if not steps or chunk.step in steps)
            work += [Work(index, chunk, marks.voided) for chunk in chunks if (chunk.name in marked) == done]
        return work

    def begin(self) -> None:
        """Record that the table or its files change from here on, so that a failure is resumed with this plan."""
        if not self.began:
            self._ctx.attempt.begin_deleting()
            self.began = True


class RemovalRun(ABC, Generic[Ctx, Index, Result]):
    """One attempt at an operation that deletes; used once. A plan that is lost during execution is made again by one
    that `replans_always`, and otherwise by an attempt that opens it."""

    replans_always: ClassVar[bool] = False

    def __init__(self, ctx: Ctx, plan: ExecutedPlan[Index]) -> None:
        self._ctx = ctx
        self._plan = plan
        self._started = ctx.now()
        self._reported = Deleted()

    @collected_seldom()
    def run(self) -> Result:
        """Make a plan if there is none and execute it. A call after an error resumes."""
        is_open = False
        try:
            self._open(self._ctx.attempt.plan())
            is_open = True
            return self._execute()
        except PlanLost as lost:
            if is_open and not self.replans_always:
                raise
            self._open_again(lost)
        return self._execute()

    def _open(self, segments: Sequence[PlanSegment]) -> None:
        """Use the published plan, the one named in the request, or a new one."""
        named = self._ctx.options.execute_plan
        if segments:
            self._use(segments)
        elif named is not None:
            self._adopt(self._ctx.named_plan(named))
        else:
            self._make()

    def _adopt(self, segment: PlanSegment) -> None:
        """Publish an earlier plan as this task's. Raises the errors of guards that refuse it."""
        ctx, index = self._ctx, self._plan.load(segment)
        self._check_named(index)
        record_adopted_plan(ctx.plans, ctx.attempt.task_id, index.plan_id)
        self._use(ctx.attempt.publish(segment, files_planned=index.files_planned))

    def _use(self, segments: Sequence[PlanSegment]) -> None:
        self._plan.use(segments)

    def _check_named(self, index: Index) -> None:
        self._ctx.check_plan(index)

    @abstractmethod
    def _make(self) -> None:
        """Make and publish a plan, unless there is nothing to delete."""

    @abstractmethod
    def _open_again(self, lost: PlanLost) -> None:
        """Replace a plan of which a part is lost, or raise the error."""

    def _execute(self) -> Result:
        ended = self._before_deletes()
        if ended is not None:
            return ended
        try:
            status = self._delete_all()
        except FilesNotDeleted as error:
            self._end("INCOMPLETE", error)
            raise
        except (RunStopped, DelegationError) as error:
            self._ended_by(error)
            raise
        return self._end(status)

    @abstractmethod
    def _before_deletes(self) -> Result | None:
        """Do what precedes the deletes. Returns the result of an attempt that has nothing to delete."""

    @abstractmethod
    def _delete_all(self) -> str:
        """Subtract what is needed and delete the rest with `_delete`. Returns the status."""

    def _ended_by(self, error: BaseException) -> None:
        """Store what an error that ends the deletes leaves."""
        if isinstance(error, RunCancelled):
            self._end("INCOMPLETE")

    def _end(self, status: Any, failed: FilesNotDeleted | None = None) -> Result:
        """Store the receipt and return the result with a status."""
        result = self._result(status)
        self._store_receipt(result, failed)
        return result

    @abstractmethod
    def _result(self, status: Any) -> Result: ...

    def _figures(self, indexes: Sequence[Index], deleted: Deleted, *, is_versioned: bool = False) -> dict[str, Any]:
        """Return the fields of all results. Nothing is freed in a bucket that keeps versions."""
        ctx = self._ctx
        versioned = is_versioned or any(Marks(ctx.plans, index.plan_id).versioned() for index in indexes)
        return {
            "identifier": ctx.identifier,
            "table_uuid": ctx.table_uuid.lower(),
            "plan_ids": tuple(index.plan_id for index in indexes),
            "files_deleted": deleted.files,
            "files_absent": deleted.absent,
            "bytes_deleted": deleted.bytes,
            "bytes_freed": None if versioned else deleted.bytes,
            "seconds": ctx.now() - self._started,
        }

    def _store_receipt(self, result: Result, failed: FilesNotDeleted | None) -> None:
        """Store the receipt beside the plan, and beside the approved one."""
        indexes = self._plan.indexes()
        own = self._own_of_receipt(result, indexes)
        store_receipt(self._ctx, result, indexes, failed, own, approved=self._approved_plan)

    @property
    def _approved_plan(self) -> str | None:
        return self._ctx.options.execute_plan

    @abstractmethod
    def _own_of_receipt(self, result: Result, indexes: Sequence[Index]) -> Mapping[str, Any]:
        """Return the members of the receipt that only this operation has."""

    def _store_forecast(self, findings: Sequence[Finding], engine: EngineChoice) -> Forecast:
        """Store the forecast of the deletes beside the plan of a dry run, and return it."""
        indexes, ctx = self._plan.indexes(), self._ctx
        estimate = forecast(indexes, findings, ctx.settings, engine=engine)
        ctx.plans.put(f"{indexes[-1].plan_id}/estimate.json", document(estimate))
        return estimate

    def _delete(self, *steps: DeleteStep) -> None:
        """Delete the rest of these steps, or of all. Raises FilesNotDeleted if a file remains, so that no later step
        starts; FilesNotDeletedYet if only transient failures are left; ComparisonTooOld and EngineFailed."""
        left = partial(self._left, *steps)
        if work := left():
            delete_or_raise(left, self._deleted_before(), self._deletes(left, work), self._report)

    def _left(self, *steps: DeleteStep) -> Sequence[Work]:
        return self._plan.left(*steps)

    def _deleted_before(self) -> Deleted:
        return self._plan.deleted()

    @abstractmethod
    def _deletes(self, left: Callable[[], Sequence[Work]], work: Sequence[Work]) -> Callable[[Reported], None]:
        """Return a function that deletes the `work` that is left and reports each outcome."""

    def _report(self, now: Deleted, failed: int) -> None:
        self._reported = now
        progress = self._ctx.attempt.progress
        progress(files_deleted=now.files, files_failed=failed, bytes_deleted=now.bytes)


class RemovalInLots(RemovalRun[Ctx, Index, Result]):
    """A run that compares the table with each lot of files. Its plan is only ever reduced."""

    def _deletes(
        self,
        left: Callable[[], Sequence[Work]],
        work: Sequence[Work],  # noqa: ARG002 - each lot is what is left by then
    ) -> Callable[[Reported], None]:
        paths, now, most_slow = self._ctx.settings.lot_paths, self._ctx.now, self._ctx.settings.most_looks
        may_delete, delete = self._may_delete, self._delete_lot
        return partial(delete_in_lots, left, paths, may_delete, delete, now=now, most_slow=most_slow)

    @cached_property
    def _rate(self) -> AdaptiveRate:
        return AdaptiveRate(self._ctx.settings.delete.rate, now=self._ctx.now())

    @abstractmethod
    def _may_delete(self, lot: Sequence[Work]) -> bool:
        """Load the table and compare what is new with a lot. Returns False if the plan is another one now, or ends.
        Everything named by a state seen in this attempt stays, even if the table no longer names it."""

    @abstractmethod
    def _delete_lot(self, work: Sequence[Work], add: Reported) -> None:
        """Delete a lot with an engine at the attempt's `_rate`."""
