"""The task types of drops."""

from typing import Final

DROP: Final = "TABLE_DROP_WITH_PURGE"
"""The purge of one tombstone, and then the drop of its entry."""
UPKEEP: Final = "TOMBSTONE_UPKEEP"
"""The recurring task that finishes or clears what a crash left between two steps of a drop."""
RESTORED: Final = "RESTORED"
"""The error code of a purge that was taken from the queue because its table is restored."""
TOMBSTONE: Final = "tombstone"
"""The property of a task's payload that names the tombstone's record."""
RESTORE_TO: Final = "restore_to"
"""The detail of such a task that has the namespace's levels and the name to restore to."""
