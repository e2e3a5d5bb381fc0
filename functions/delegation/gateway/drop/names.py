"""Names in the tasks of drops."""

from typing import Final

TOMBSTONE: Final = "tombstone"
"""The property of a task's payload that names the tombstone's record."""
RESTORED: Final = "RESTORED"
"""The error code of a purge that was taken from the queue because its table is restored."""
RESTORE_TO: Final = "restore_to"
"""The detail of such a task that has the namespace's levels and the name to restore to."""
