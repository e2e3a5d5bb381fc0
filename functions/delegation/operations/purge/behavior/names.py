"""The task types of purges."""

from typing import Final

TASK_TYPE: Final = "TABLE_PURGE"
"""The stored `task_type`; requests may also name it SYNCHRONOUS_TABLE_PURGE or DATA_FILE_PURGE."""
PLAN_TASK_TYPE: Final = "TABLE_PURGE_PLAN"
"""A dry run: it makes a plan, deletes nothing, and has an id of its own."""
PREFIX: Final = "delegation.purge."
"""The beginning of the operator's properties of purges."""
TASK_TYPES: Final = frozenset({TASK_TYPE, PLAN_TASK_TYPE})
DROP_TASK_TYPE: Final = "TABLE_DROP_WITH_PURGE"
"""The purge of a tombstone, and then the drop of its entry (`gateway.drop`)."""
UPKEEP_TASK_TYPE: Final = "TOMBSTONE_UPKEEP"
"""The recurring task that finishes or clears what a crash left between two steps of a drop."""
DROPPED_TABLE: Final = "dropped-table"
"""The property of a drop's payload with the dotted name that the table had: its table identity is the tombstone's."""
