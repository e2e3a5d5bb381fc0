"""The task types of the service, in one list: to add one, write its folder and name it here."""

from typing import Final

from delegation.operations.purge.behavior.task_types import DROP, PURGE, PURGE_PLAN, TOMBSTONE_UPKEEP
from delegation.references.kinds import REFERENCE_INDEX
from delegation.tasks.life.policy import STORE_MAINTENANCE, base_properties
from delegation.tasks.life.task_type import TaskType, TaskTypes

TYPES: Final = TaskTypes(
    [
        PURGE,
        PURGE_PLAN,
        DROP,
        TOMBSTONE_UPKEEP,
        TaskType(name=REFERENCE_INDEX, is_housekeeping=True),
        TaskType(name=STORE_MAINTENANCE, is_housekeeping=True),
    ]
)


def default_properties() -> dict[str, str]:
    """Return the proposal's example configuration (Delegation Service proposal, Task Retry)."""
    return {**base_properties(), **TYPES.retry_properties}
