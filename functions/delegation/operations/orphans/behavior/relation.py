"""Whether a requested removal joins or conflicts with the task that has its id."""

from delegation.operations.orphans.behavior.details import OrphanDetails
from delegation.operations.orphans.behavior.limits import PLAN
from delegation.operations.orphans.behavior.parameters import TableOrphans
from delegation.tasks.life.model import Status, Task


def obstacle(task: Task, wanted: TableOrphans) -> str | None:
    """Return why `wanted` conflicts with the task and what to do next, None if it can attach to it or start it anew.

    One that ended never conflicts: what it left is found again.
    """
    if task.is_terminal:
        return None
    return TableOrphans.conflict(task, wanted, does="removes orphan files of")


def replays(task: Task, wanted: TableOrphans) -> bool:
    """Return whether a SUCCESS executed the very plan that is asked for, and does not wait with it."""
    plan = wanted.properties.get(PLAN)
    return plan is not None and _is_same(task, wanted) and OrphanDetails.of(task).waiting_plan is None


def resumes(task: Task, wanted: TableOrphans) -> bool:
    """Return whether a removal that ended is resumed with its plan: a FAILURE that began to delete, of this request."""
    return task.status is Status.FAILURE and task.effects_began_ts is not None and _is_same(task, wanted)


def _is_same(task: Task, wanted: TableOrphans) -> bool:
    current = TableOrphans.readable(task)
    return (
        current is not None
        and current.identifier == wanted.identifier
        and current.of_the_work() == wanted.of_the_work()
    )
