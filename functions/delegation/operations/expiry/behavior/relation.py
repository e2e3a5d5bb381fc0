"""Whether a requested expiry joins or conflicts with the task that has its id."""

from delegation.operations.expiry.behavior.names import ENDS_PLAN
from delegation.operations.expiry.behavior.parameters import TableExpiry
from delegation.tasks.life.model import Status, Task


def obstacle(task: Task, wanted: TableExpiry) -> str | None:
    """Return why `wanted` conflicts with the task and what to do next, None if it can attach to it or start it anew.

    An expiry that failed after its commit must be finished with its plan: nothing else knows the files that only the
    removed snapshots named. One that ended and cannot be read is replaced.
    """
    if task.status is Status.SUCCESS:
        return None
    if task.status is Status.FAILURE:
        current = TableExpiry.readable(task)
        if current is None or current.of_the_work() == wanted.of_the_work() or not resumes(task, wanted):
            return None
        return (
            f"failed after its commit ({task.error_code}) with {current.other_properties(wanted)}: the files of the "
            "snapshots that it removed are still to be deleted; retry the task, or send its own properties, which its "
            "payload has"
        )
    return TableExpiry.conflict(task, wanted, does="expires snapshots of")


def resumes(task: Task, wanted: TableExpiry) -> bool:
    """Return whether a terminal expiry is resumed with its plan: a FAILURE that began to commit. Others plan anew."""
    if task.status is not Status.FAILURE or task.effects_began_ts is None or task.error_code in ENDS_PLAN:
        return False
    current = TableExpiry.readable(task)
    return current is None or current.identifier == wanted.identifier
