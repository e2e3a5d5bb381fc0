"""A look at other tables before the rest of a task is left to a job: one that cannot be read is found without the job.

The job reads them whole, and would end with the same error after minutes that cost money, at each retry anew.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, Protocol

from delegation.errors import RunHandedOver, RunPaused
from delegation.iceberg import reach
from delegation.iceberg.metadata import ParsedMetadata
from delegation.iceberg.paths import is_marked
from delegation.keeping.errors import NeighbourUnreadable
from delegation.keeping.model import Neighbour, Search
from delegation.keeping.neighbours import is_itself, is_near, metadata_of, tolerance_of
from delegation.keeping.unread import UnreadNeighbours, reading
from delegation.storage.locations import Roots

LONGEST: Final = timedelta(minutes=1)
"""How long a look takes; what is not seen until then the job sees, and so it does what an attempt has no time for."""
MOST_MANIFESTS: Final = 100_000
"""How many manifests of one table are held meanwhile."""


class Looking(Search, Protocol):
    """A Search with the time."""

    @property
    def clock(self) -> Callable[[], datetime]: ...


def look_at_others(ctx: Looking, roots: Roots, unreadable: Callable[[NeighbourUnreadable], object]) -> None:
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


def _look(ctx: Looking, roots: Roots, unreadable: Callable[[NeighbourUnreadable], object]) -> None:
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


def _read_lists(ctx: Looking, neighbour: Neighbour, metadata: ParsedMetadata, until: datetime) -> None:
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
