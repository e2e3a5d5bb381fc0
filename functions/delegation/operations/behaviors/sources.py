"""Where the behaviors of upkeep find what they need besides their table: other tables' files, and earlier plans."""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from delegation.attempts.details import PlanDetails
from delegation.attempts.task_attempt import TaskAttempt
from delegation.errors import GuardRefused
from delegation.identifiers import TableIdentifier
from delegation.keeping.errors import NeighbourChanged, NeighbourUnreadable, plan_not_found
from delegation.keeping.model import Neighbour, ReferenceCheck
from delegation.operations.behaviors.task_types import purge_id
from delegation.storage.locations import Roots
from delegation.tasks.errors import TaskNotFound
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError
from delegation.tasks.work.parts.reads import TaskReads
from delegation.worksets.attempt import PlanSegment

if TYPE_CHECKING:
    from delegation.operations.behaviors.parameters import TableWork

Hold = Callable[[Task, NeighbourUnreadable | NeighbourChanged], tuple[AttemptError, timedelta] | None]
NeighboursOf = Callable[[Roots | None], Iterable[Neighbour | NeighbourUnreadable]]
Check_co = TypeVar("Check_co", bound=ReferenceCheck, covariant=True)


class ReferenceSearch(Protocol, Generic[Check_co]):
    """Finds the live tables that may reference a table's files, for one attempt at an operation on it."""

    def __call__(
        self, identifier: TableIdentifier, table_uuid: str, attempt: TaskAttempt, task: Task
    ) -> tuple[NeighboursOf, Check_co | None]:
        """Return what yields them, as of a pass that begins after its first call, and the index that it uses if any."""
        ...


def plan_segments(task: Task) -> Sequence[PlanSegment]:
    """Return the published segments of a task's plan; raise MalformedRecord."""
    return PlanDetails.of(task).plan_segments


def published_segment(
    reads: TaskReads,
    task_types: Collection[str] | None,
    plan_id: str,
    *,
    segments_of: Callable[[Task], Sequence[PlanSegment]] = plan_segments,
) -> PlanSegment:
    """Return the segment that a task of these types, any for None, published under this id.

    Raises GuardRefused (PLAN_NOT_FOUND).
    """
    try:
        task = reads.get(plan_id.partition("/")[0])
    except TaskNotFound:
        raise plan_not_found(plan_id) from None
    found = None
    if task_types is None or task.task_type in task_types:
        found = next((one for one in segments_of(task) if one.id == plan_id), None)
    if found is None:
        raise plan_not_found(plan_id)
    return found


def purge_under_way(reads: TaskReads, realm: str, identifier: TableIdentifier, table_uuid: str) -> str | None:
    """Return the id of a table's purge that has not ended, None without one."""
    found = reads.find(purge_id(realm, identifier.catalog, table_uuid))
    return None if found is None or found.is_terminal else found.task_id


def refuse_purged(reads: TaskReads, work: "TableWork", task: Task) -> None:
    """Raise GuardRefused (TABLE_IS_PURGED) for work that has changed nothing yet on a table that is purged."""
    purge = purge_under_way(reads, work.realm, work.identifier, work.table.table_uuid)
    if purge is not None and task.effects_began_ts is None and not work.is_dry_run:
        raise GuardRefused(
            f"the table is purged by the task {purge}, which deletes its files too; if that task is cancelled or "
            "fails and the table stays, send this request again",
            code="TABLE_IS_PURGED",
        )
