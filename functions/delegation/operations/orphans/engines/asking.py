"""What an attempt notes of the references that it asked for, beside the task's listings and plans."""

import hashlib
from typing import Final

from pydantic import ValidationError

from delegation.keeping.asking import AskedAnew
from delegation.operations.orphans.context import OrphanContext
from delegation.storage.base import ObjectNotFound
from delegation.worksets.errors import PlanTampered

_DIGEST: Final = 20
_ASKED: Final = b"asked\n"
_USED: Final = b"used\n"


class AskedNote:
    """The note for one listing or plan, by the id that it had before it was reduced.

    A former release reads the first word alone, and asks anew for every note but `asked`.
    """

    def __init__(self, ctx: OrphanContext, origin: str) -> None:
        self._plans = ctx.plans
        self._key = f"{ctx.attempt.task_id}/renewed/{hashlib.sha256(origin.encode()).hexdigest()[:_DIGEST]}"

    def read(self) -> AskedAnew | None:
        """Return the note, None if there is none; raise PlanTampered if it cannot be read."""
        try:
            data = self._plans.get(self._key)
        except ObjectNotFound:
            return None
        if data in (_ASKED, _USED):
            return AskedAnew(asked=data == _ASKED)
        try:
            return AskedAnew.model_validate_json(data, strict=True)
        except ValidationError as error:
            raise PlanTampered(self._key, "it cannot be read") from error

    def write(self, note: AskedAnew) -> None:
        """Store the note in place of the former one."""
        plain = _ASKED if note.asked else _USED
        self._plans.put(self._key, plain if note.known_at is None else f"{note.model_dump_json()}\n".encode())
