"""Whether a requested purge replays, joins or conflicts with the task that has its id."""

from typing import Final

from delegation.operations.purge.behavior.details import PurgeDetails, state_of
from delegation.operations.purge.behavior.limits import PLAN
from delegation.operations.purge.behavior.parameters import TablePurge, identifier_text
from delegation.operations.purge.behavior.traits import PRIORITY
from delegation.operations.purge.errors import PlanOutdated
from delegation.tasks.errors import MalformedPayload
from delegation.tasks.life.model import Status, Task
from delegation.tasks.submission.options import CALLBACK
from delegation.worksets.errors import PlanLost
from polaris_common.errors import printable

_NAMES: Final = 5
_LONGEST_NAME: Final = 64


def replays(task: Task, wanted: TablePurge) -> bool:
    """Return whether a task already succeeded in purging this identifier at this metadata file or a later one, or in
    planning that.
    """
    if task.status is not Status.SUCCESS:
        return False
    if wanted.is_dry_run:
        return True  # its id names the identifier, the metadata file and the options
    details = PurgeDetails.of(task)
    if details.purged_identifier != identifier_text(wanted.identifier):
        return False
    location = wanted.table.metadata_location
    return details.purged_metadata_location == location or state_of(location) in details.purged_states


def obstacle(task: Task, wanted: TablePurge) -> str | None:
    """Return why `wanted` conflicts with the task and what to do next, None if it can attach to it or start it anew.

    A purge that failed after its first delete must be finished with its plan: its manifests may be deleted already. One
    that ended and cannot be read is replaced. A dry run has no conflicts, because its id names all that matters.
    """
    if task.status is Status.SUCCESS or wanted.is_dry_run:
        return None
    current = _stored(task)
    if current is None:
        return None if task.is_terminal else f"is {task.status} and its payload cannot be read; wait until it ends"
    if task.status is Status.FAILURE:
        joins = _same_properties(current, wanted) or _without_its_plan(task, current, wanted)
        if joins or not resumes(task, wanted):
            return None
        return (
            f"failed after its first delete ({task.error_code}) with {_other_properties(current, wanted)}: the table "
            "is half deleted and can only be purged as it was begun; send its own properties, which its payload has"
        )
    if current.identifier == wanted.identifier and _same_properties(current, wanted):
        return None
    if current.identifier != wanted.identifier:
        return (
            f"is {task.status} and purges {printable(str(current.identifier))}, a table with the same table-uuid: "
            "clones share one task; wait until it ends, then send this request again"
        )
    other = _other_properties(current, wanted)
    return f"is {task.status} with {other}; wait until it ends, or send the same request"


def resumes(task: Task, wanted: TablePurge) -> bool:
    """Return whether a terminal purge is resumed with its plan: a FAILURE that began to delete. Others plan anew.

    If its payload cannot be read, its plan has the identifier too, and is refused for another one.
    """
    if task.status is not Status.FAILURE or task.effects_began_ts is None:
        return False
    current = _stored(task)
    return current is None or current.identifier == wanted.identifier


def _stored(task: Task) -> TablePurge | None:
    """Return the task's parameters, None if this release cannot read them."""
    try:
        return TablePurge.of(task)
    except MalformedPayload:
        return None


def _same_properties(current: TablePurge, wanted: TablePurge) -> bool:
    return _of_the_work(current) == _of_the_work(wanted)


def _of_the_work(purge: TablePurge) -> dict[str, str]:
    """Return the properties that decide what is done, not when and who is notified."""
    return {name: value for name, value in purge.properties.items() if name not in {PRIORITY, CALLBACK}}


def _other_properties(current: TablePurge, wanted: TablePurge) -> str:
    before, now = current.properties, wanted.properties
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    listed = ", ".join(printable(name, _LONGEST_NAME) for name in names[:_NAMES])
    return f"other properties ({listed}{', …' if len(names) > _NAMES else ''})"


def _without_its_plan(task: Task, current: TablePurge, wanted: TablePurge) -> bool:
    """Return whether `wanted` is the same purge without its `plan`, which failed as a commit made it stale or as it is
    lost."""
    rest = {name: value for name, value in _of_the_work(current).items() if name != PLAN}
    return task.error_code in {PlanOutdated.code, PlanLost.code} and _of_the_work(wanted) == rest
