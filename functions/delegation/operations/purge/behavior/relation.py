"""Whether a requested purge replays, joins or conflicts with the task that has its id."""

from delegation.operations.purge.behavior.details import PurgeDetails, state_of
from delegation.operations.purge.behavior.parameters import PLAN, TablePurge, identifier_text
from delegation.operations.purge.errors import PlanOutdated
from delegation.tasks.life.model import Status, Task


def replays(task: Task, wanted: TablePurge) -> bool:
    """Return whether a task already succeeded in purging this identifier at this metadata file or a later one."""
    if task.status is not Status.SUCCESS:
        return False
    details = PurgeDetails.of(task)
    if details.purged_identifier != identifier_text(wanted.identifier):
        return False
    location = wanted.table.metadata_location
    return details.purged_metadata_location == location or state_of(location) in details.purged_states


def obstacle(task: Task, wanted: TablePurge) -> str | None:
    """Return why `wanted` conflicts with the task, None if it can attach to the task or start it anew.

    A purge that failed after its first delete must be finished with its plan: its manifests may be deleted already.
    """
    if task.status is Status.SUCCESS:
        return None
    current = TablePurge.of(task)
    same_properties = dict(current.properties) == dict(wanted.properties)
    if task.status is Status.FAILURE:
        joins = same_properties or _without_its_plan(task, current, wanted)
        return "other properties, and has begun to delete" if resumes(task, wanted) and not joins else None
    if current.identifier != wanted.identifier:
        return "another identifier"
    return None if same_properties else "other properties"


def _without_its_plan(task: Task, current: TablePurge, wanted: TablePurge) -> bool:
    """Return whether `wanted` is the same purge without its `plan`, which failed because a commit made it stale."""
    rest = {name: value for name, value in current.properties.items() if name != PLAN}
    return task.error_code == PlanOutdated.code and dict(wanted.properties) == rest


def resumes(task: Task, wanted: TablePurge) -> bool:
    """Return whether a terminal purge is resumed with its plan: a FAILURE that began to delete. Others plan anew."""
    return (
        task.status is Status.FAILURE
        and task.effects_began_ts is not None
        and TablePurge.of(task).identifier == wanted.identifier
    )
