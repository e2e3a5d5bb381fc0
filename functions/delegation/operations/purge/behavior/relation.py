"""How a purge that is asked for relates to the task that stands under its id (DESIGN §2, purge id)."""

from delegation.operations.purge.behavior.details import PurgeDetails
from delegation.operations.purge.behavior.parameters import PLAN, TablePurge, identifier_text
from delegation.operations.purge.errors import PlanOutdated
from delegation.tasks.life.model import Status, Task


def replays(task: Task, wanted: TablePurge) -> bool:
    """Whether a SUCCESS is this purge's: its run deleted the last file of just this identifier and metadata."""
    if task.status is not Status.SUCCESS:
        return False
    details = PurgeDetails.of(task)
    purged = (details.purged_identifier, details.purged_metadata_location)
    return purged == (identifier_text(wanted.identifier), wanted.table.metadata_location)


def obstacle(task: Task, wanted: TablePurge) -> str | None:
    """What a task is busy with that `wanted` cannot join; None when it can attach or start again.

    A purge that failed half way can only be finished as it was planned: its manifests may be gone already.
    """
    if task.status is Status.SUCCESS:
        return None
    current = TablePurge.of(task)
    same_properties = dict(current.properties) == dict(wanted.properties)
    if task.status is Status.FAILURE:
        joins = same_properties or _without_its_plan(task, current, wanted)
        return "other properties, and is half done" if goes_on(task, wanted) and not joins else None
    if current.identifier != wanted.identifier:
        return "another identifier"
    return None if same_properties else "other properties"


def _without_its_plan(task: Task, current: TablePurge, wanted: TablePurge) -> bool:
    """Whether `wanted` lets a purge that was held to one plan, and met a commit meanwhile, take in what is new."""
    rest = {name: value for name, value in current.properties.items() if name != PLAN}
    return task.error_code == PlanOutdated.code and dict(wanted.properties) == rest


def goes_on(task: Task, wanted: TablePurge) -> bool:
    """Whether a terminal purge goes on where it stopped: a FAILURE that began to delete; others get a new plan."""
    return (
        task.status is Status.FAILURE
        and task.effects_began_ts is not None
        and TablePurge.of(task).identifier == wanted.identifier
    )
