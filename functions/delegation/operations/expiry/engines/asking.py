"""Asking for a pass over the catalog before files are deleted, and handing over to the engine that deletes them."""

from datetime import datetime, timedelta
from typing import Final

from delegation.operations.expiry.context import ExpiryContext
from delegation.operations.expiry.notes import AskedAnew, Notes
from delegation.worksets.engines.choice import HandedToSpark

_KNOWN_FOR: Final = timedelta(minutes=15)
"""How long after a pass another engine may begin to delete with its answer: a job may be queued for hours."""


class AskedReferences:
    """What an attempt asks of the reference index, as the notes beside the plan have it.

    Each attempt that deletes asks anew, for a pass that begins after the commit. One that waits for the pass does not
    ask again, one that deleted with its answer does. Nor does the attempt ask that the deletes are handed over to,
    unless it begins late.
    """

    def __init__(self, ctx: ExpiryContext, notes: Notes) -> None:
        self._ctx = ctx
        self._notes = notes

    def ask(self, left: int) -> None:
        """Require a pass; raise HandedToSpark if too many files are left to delete.

        Before it is handed over the references are known, so that no job has to wait: raises ReferencesNotKnown.
        """
        references, above, now = self._ctx.references, self._ctx.spark_above, self._ctx.clock()
        before = self._notes.get(AskedAnew)
        if references is not None and not (before and before.asked and _is_recent(before, now)):
            references.renew()
            self._notes.put(AskedAnew(asked=True))
        if above is not None and left > above:
            if references is not None:
                references.ensure_known()
            self._notes.put(AskedAnew(asked=True, known_at=self._ctx.clock()))
            raise HandedToSpark(self._ctx.attempt.task_id, left)

    def answered(self) -> None:
        """Note that the attempt deletes with the answer."""
        self._notes.put(AskedAnew(asked=False))


def _is_recent(asked: AskedAnew, now: datetime) -> bool:
    """Return whether a pass that is asked for still counts; one that is not made yet does, however long that takes."""
    return asked.known_at is None or now - asked.known_at <= _KNOWN_FOR
