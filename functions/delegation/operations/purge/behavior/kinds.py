"""The task types of purges, for whoever knows tasks by their type alone."""

from typing import Final

KIND: Final = "TABLE_PURGE"
"""What is stored as `task_type`; SYNCHRONOUS_TABLE_PURGE and DATA_FILE_PURGE are aliases of requests."""
PLAN_KIND: Final = "TABLE_PURGE_PLAN"
"""A dry run: it plans, deletes nothing, and has a random id (DESIGN §2)."""
KINDS: Final = frozenset({KIND, PLAN_KIND})
