"""What an attempt notes of the references that it asked for, beside the task's listings and plans."""

import hashlib
from typing import Final

from delegation.operations.orphans.context import OrphanContext
from delegation.removal.asking import AskedAnew
from delegation.storage.base import ObjectNotFound

_DIGEST: Final = 20
_ASKED: Final = b"asked\n"
_USED: Final = b"used\n"


class AskedNote:
    """The note for one listing or plan, by the id that it had before it was reduced.

    A former release stored JSON when it handed over, which counts as not asked.
    """

    def __init__(self, ctx: OrphanContext, origin: str) -> None:
        self._plans = ctx.plans
        self._key = f"{ctx.attempt.task_id}/renewed/{hashlib.sha256(origin.encode()).hexdigest()[:_DIGEST]}"

    def read(self) -> AskedAnew | None:
        """Return the note, None if there is none."""
        try:
            data = self._plans.get(self._key)
        except ObjectNotFound:
            return None
        return AskedAnew(asked=data == _ASKED)

    def write(self, note: AskedAnew) -> None:
        """Store the note in place of the former one."""
        self._plans.put(self._key, _ASKED if note.asked else _USED)
