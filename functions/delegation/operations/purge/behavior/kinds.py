"""The task types of purges."""

from typing import Final

KIND: Final = "TABLE_PURGE"
"""The stored `task_type`; requests may also name it SYNCHRONOUS_TABLE_PURGE or DATA_FILE_PURGE."""
PLAN_KIND: Final = "TABLE_PURGE_PLAN"
"""A dry run: it makes a plan, deletes nothing, and has an id of its own."""
KINDS: Final = frozenset({KIND, PLAN_KIND})
