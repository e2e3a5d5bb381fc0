"""Asking for a pass over the catalog before files are deleted, and handing over to the engine that deletes them.

Before a hand-over the other tables are looked at: one that cannot be read would end the paid job, at each retry.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from delegation.errors import RunHandedOver, RunPaused
from delegation.iceberg import reach
from delegation.iceberg.metadata import ParsedMetadata
from delegation.iceberg.paths import is_marked
from delegation.references.errors import ReferencesNotKnown
from delegation.removal.attempt import Attempt
from delegation.removal.choice import HandedToSpark
from delegation.removal.chunks import Stored
from delegation.removal.context import RemovalContext
from delegation.removal.errors import NeighbourUnreadable
from delegation.removal.model import Neighbour, ReferenceCheck
from delegation.removal.neighbours import is_itself, is_near, metadata_of, tolerance_of
from delegation.removal.unread import UnreadNeighbours, reading
from delegation.storage.locations import Roots

_LOOK_EVERY: Final = 5.0
"""Seconds between two looks whether another process has made the pass that a job waits for."""


class AskedAnew(Stored):
    """Whether a new pass over the references is asked for, which the operation waits for.

    A former release left the rest to another engine with `known_at`, and that asks anew.
    """

    format: int = 1
    asked: bool
    known_at: datetime | None = None

    @property
    def waits(self) -> bool:
        """Whether an attempt waits for the pass that was asked for."""
        return self.asked and self.known_at is None


class AskedReferences:
    """What an attempt asks of the reference index, as the note that `read` returns and `write` stores has it.

    Each attempt that deletes asks anew, for a pass that begins later. One that waits for the pass does not
    ask again, one that deleted with its answer does, and so does each job: it may have been queued for hours. `look` is
    called before anything is handed over, once the references are known: it raises what another engine would come to
    only after it was started.
    """

    def __init__(
        self,
        ctx: RemovalContext,
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

        Before it is handed over the references are known, so that no job has to wait for long: raises
        ReferencesNotKnown.
        """
        above = self._ctx.spark_above
        self.require()
        if above is not None and (left > above or is_large):
            self.hand_over(left)

    def require(self) -> None:
        """Require a pass, unless one is asked for already; a job requires one that begins now, and waits for it.

        A job that ended instead would be queued again, and what is registered meanwhile be in no pass. Raises the
        errors of a pass and of a checkpoint.
        """
        references, before = self._ctx.references, self._read()
        if references is None:
            return
        if self._ctx.awaits_references or not (before and before.waits):
            references.renew()
            self._write(AskedAnew(asked=True))
        if self._ctx.awaits_references:
            await_references(references, self._ctx.attempt, self._ctx.sleep)

    def hand_over(self, left: int, *, does: str = "deletes the rest") -> None:
        """Raise HandedToSpark for so many files once the references are known, before that ReferencesNotKnown.

        What the look finds is raised before it as well. The next attempt asks anew, whatever engine it has.
        """
        if self._ctx.references is not None:
            self._ctx.references.ensure_known()
        self.answered()
        self._look()
        raise HandedToSpark(self._ctx.attempt.task_id, left, does=does)

    def answered(self) -> None:
        """Note that the attempt deletes with the answer, or leaves it to another one that does."""
        self._write(AskedAnew(asked=False))


def await_references(references: ReferenceCheck, attempt: Attempt, sleep: Callable[[float], None]) -> None:
    """Return once the pass that is required is made: by another process while it gets ahead, otherwise by this one.

    Raises the errors of a pass and of a checkpoint.
    """
    before: tuple[str, int] | None = None
    while True:
        try:
            references.ensure_known()
        except ReferencesNotKnown as error:
            now = error.catalog, error.checked
            attempt.checkpoint(moved=now != before)
            before = now
            sleep(_LOOK_EVERY)
        else:
            return


LONGEST: Final = timedelta(minutes=1)
"""How long a look takes; what is not seen until then the job sees, and so it does what an attempt has no time for."""
MOST_MANIFESTS: Final = 100_000
"""How many manifests of one table are held meanwhile."""


def look_at_others(ctx: RemovalContext, roots: Roots, unreadable: Callable[[NeighbourUnreadable], object]) -> None:
    """Read metadata and manifest lists of live tables that overlap `roots`, as far as a minute suffices.

    `unreadable` decides on a table of which nothing can be read. Raises NeighbourUnreadable and NeighbourChanged for
    one whose files cannot be read, ReferencesNotKnown, and the errors of a checkpoint, but returns where the attempt
    has no time left: the next one would have no more.
    """
    try:
        _look(ctx, roots, unreadable)
    except RunPaused:
        raise
    except RunHandedOver:
        return


def _look(ctx: RemovalContext, roots: Roots, unreadable: Callable[[NeighbourUnreadable], object]) -> None:
    until = ctx.clock() + LONGEST
    for one in ctx.neighbours(roots):
        if isinstance(one, NeighbourUnreadable):
            unreadable(one)
        elif not (is_itself(ctx, one) or one.former or one.exempt):
            try:
                metadata = metadata_of(one) if is_near(roots, one) else None
            except NeighbourUnreadable as error:
                unreadable(error)
                metadata = None
            if metadata is not None:
                _read_lists(ctx, one, metadata, until)
        if ctx.clock() >= until:
            return


def _read_lists(ctx: RemovalContext, neighbour: Neighbour, metadata: ParsedMetadata, until: datetime) -> None:
    fetcher = reach.Fetcher(neighbour.store, threads=ctx.settings.read_threads, checkpoint=ctx.attempt.checkpoint)
    unread = UnreadNeighbours(ctx)
    with reading(neighbour):
        reach.read_manifest_lists(
            metadata,
            fetcher,
            limit=ctx.settings.max_file_bytes,
            readable=lambda path: not is_marked(path),
            tolerance=tolerance_of(unread.of(neighbour), reported=unread.accepts()),
            enough=lambda found: len(found.manifests) > MOST_MANIFESTS or ctx.clock() >= until,
        )
