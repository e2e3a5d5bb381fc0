"""Asking for a pass over the catalog before files are deleted, and handing over to the engine that deletes them."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, Protocol

from delegation.keeping.model import ReferenceCheck
from delegation.references.errors import ReferencesNotKnown
from delegation.worksets.attempt import Attempt
from delegation.worksets.chunks import Stored
from delegation.worksets.engines.choice import HandedToSpark

_KNOWN_FOR: Final = timedelta(minutes=15)
"""How long after a pass another engine may begin to delete with its answer: a job may be queued for hours."""
_LOOK_EVERY: Final = 5.0
"""Seconds between two looks whether another process has made the pass that a job waits for."""


class AskedAnew(Stored):
    """Whether a new pass over the references is asked for, which the operation waits for.

    `known_at` is when the pass was known, and the rest was left to another engine, which has not deleted anything yet.
    """

    format: int = 1
    asked: bool
    known_at: datetime | None = None


class Asking(Protocol):
    """One attempt at an operation; it hands over what is more than `spark_above` files, None: nothing.

    `awaits_references` is whether it waits for a pass that another process makes, rather than end with
    ReferencesNotKnown; `sleep` counts in seconds.
    """

    @property
    def attempt(self) -> Attempt: ...

    @property
    def references(self) -> ReferenceCheck | None: ...

    @property
    def spark_above(self) -> int | None: ...

    @property
    def awaits_references(self) -> bool: ...

    @property
    def clock(self) -> Callable[[], datetime]: ...

    @property
    def sleep(self) -> Callable[[float], None]: ...


class AskedReferences:
    """What an attempt asks of the reference index, as the note that `read` returns and `write` stores has it.

    Each attempt that deletes asks anew, for a pass that begins later. One that waits for the pass does not
    ask again, one that deleted with its answer does. Nor does the attempt ask that the deletes are handed over to,
    unless it begins late. `look` is called before anything is handed over, once the references are known: it raises
    what another engine would come to only after it was started.
    """

    def __init__(
        self,
        ctx: Asking,
        read: Callable[[], AskedAnew | None],
        write: Callable[[AskedAnew], object],
        *,
        look: Callable[[], object] = lambda: None,
    ) -> None:
        self._ctx = ctx
        self._read = read
        self._write = write
        self._look = look

    def ask(self, left: int, *, is_large: bool = False) -> None:
        """Require a pass; raise HandedToSpark if too many files are left to delete, or any of a large plan.

        Before it is handed over the references are known, so that no job has to wait: raises ReferencesNotKnown.
        """
        above = self._ctx.spark_above
        self.require()
        if above is not None and (left > above or is_large):
            self.hand_over(left)

    def require(self) -> None:
        """Require a pass, unless one is asked for that still counts; a job waits until it is known.

        A job that ended instead would be queued again, for as long as before: where jobs always begin late, none would
        delete. Raises the errors of a pass and of a checkpoint.
        """
        references, before = self._ctx.references, self._read()
        if references is None:
            return
        if not (before and before.asked and _is_recent(before, self._ctx.clock())):
            references.renew()
            self._write(AskedAnew(asked=True))
        if self._ctx.awaits_references:
            self._await(references)

    def _await(self, references: ReferenceCheck) -> None:
        """Return once the pass is made: by another process while it gets ahead, otherwise by this one."""
        before: tuple[str, int] | None = None
        while True:
            try:
                references.ensure_known()
            except ReferencesNotKnown as error:
                now = error.catalog, error.checked
                self._ctx.attempt.checkpoint(moved=now != before)
                before = now
                self._ctx.sleep(_LOOK_EVERY)
            else:
                return

    def hand_over(self, left: int, *, does: str = "deletes the rest", known_at: datetime | None = None) -> None:
        """Raise HandedToSpark for so many files once the references are known, before that ReferencesNotKnown.

        What the look finds is raised before it as well, after it is noted when the references were known: a much later
        attempt asks anew.

        `known_at` is when they were, if this attempt used them already, but deleted nothing.
        """
        if self._ctx.references is not None:
            self._ctx.references.ensure_known()
        # Of a pass that an engine was handed before and never used, the first time counts.
        before = self._read()
        if before is not None and before.asked:
            known_at = before.known_at
        self._write(AskedAnew(asked=True, known_at=known_at or self._ctx.clock()))
        self._look()
        raise HandedToSpark(self._ctx.attempt.task_id, left, does=does)

    def answered(self) -> None:
        """Note that the attempt deletes with the answer."""
        self._write(AskedAnew(asked=False))


def _is_recent(asked: AskedAnew, now: datetime) -> bool:
    """Return whether a pass that is asked for still counts; one that is not made yet does, however long that takes."""
    return asked.known_at is None or now - asked.known_at <= _KNOWN_FOR
