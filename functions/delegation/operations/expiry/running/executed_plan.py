"""The published plan that an attempt executes, what is left of it, and the notes beside it."""

from collections.abc import Sequence

from delegation.keeping.errors import plan_of_another_table
from delegation.operations.expiry.context import ExpiryContext
from delegation.operations.expiry.index import ExpiryIndex, load_plan
from delegation.operations.expiry.notes import Notes
from delegation.worksets.attempt import PlanSegment
from delegation.worksets.chunks import DeleteStep
from delegation.worksets.engines.inline import Work
from delegation.worksets.marks import Deleted, Marks, deleted_by_marks


class ExecutedPlan:
    """The plan of one attempt. `use` has to be called before anything else but `check`."""

    def __init__(self, ctx: ExpiryContext) -> None:
        self._ctx = ctx
        self._index: ExpiryIndex | None = None
        self._segment: PlanSegment | None = None
        self._began = False

    def use(self, segments: Sequence[PlanSegment]) -> ExpiryIndex:
        """Read the published plan, which another attempt may have written."""
        index = load_plan(self._ctx.plans, segments[-1])
        self.check(index)
        self._index, self._segment = index, segments[-1]
        return index

    def check(self, index: ExpiryIndex) -> None:
        """Raise GuardRefused (PLAN_OF_ANOTHER_TABLE) unless the plan is for the table of this attempt."""
        if index.table_uuid != self._ctx.table_uuid.lower():
            raise plan_of_another_table(
                f"plan {index.plan_id} is for table {index.table_uuid}, not {self._ctx.table_uuid}"
            )
        if index.identifier != str(self._ctx.identifier):
            raise plan_of_another_table(f"plan {index.plan_id} is for {index.identifier}, not {self._ctx.identifier}")

    @property
    def is_read(self) -> bool:
        """Whether the index of the plan was read."""
        return self._index is not None

    @property
    def index(self) -> ExpiryIndex:
        """The index of the plan."""
        assert self._index is not None  # noqa: S101 - ExpiryRun._open sets it or nothing is expired
        return self._index

    @property
    def segment(self) -> PlanSegment:
        """The published segment of the plan."""
        assert self._segment is not None  # noqa: S101 - as above
        return self._segment

    @property
    def notes(self) -> Notes:
        """The notes beside the plan as it was before it was reduced."""
        return Notes(self._ctx.plans, self.index.origin)

    def indexes(self) -> list[ExpiryIndex]:
        """Return the plan and those that it reduced, the first one first."""
        before = [load_plan(self._ctx.plans, PlanSegment(one.id, one.sha256)) for one in self.index.reduces]
        return [*before, self.index]

    def deleted(self) -> Deleted:
        """Return what was deleted of the plan and those that it reduced."""
        return deleted_by_marks(self._ctx.plans, self.indexes(), self.index.reduces)

    def left(self, *steps: DeleteStep) -> list[Work]:
        """Return the chunks of these steps without a mark."""
        marks = Marks(self._ctx.plans, self.index.plan_id)
        done = marks.done()
        chunks = (chunk for chunk in self.index.chunks if chunk.step in steps and chunk.name not in done)
        return [Work(self.index, chunk, marks.voided) for chunk in chunks]

    def begin(self) -> None:
        """Record that the table or its files change from here on, so that a failure is resumed with this plan."""
        if not self._began:
            self._ctx.attempt.begin_deleting()
            self._began = True
