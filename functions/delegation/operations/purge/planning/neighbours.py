"""Comparing an earlier plan with the neighbour tables again, just before it is executed."""

from collections.abc import Sequence
from itertools import chain
from typing import Final

from delegation.keeping.errors import NeighbourUnreadable
from delegation.keeping.model import Neighbour
from delegation.keeping.neighbours import ReadOnce, is_itself, is_near, locations_of, metadata_of, reach_of_neighbour
from delegation.keeping.unread import UnreadNeighbours
from delegation.operations.purge.context import PurgeContext
from delegation.operations.purge.errors import FilesAtAnotherTable, FilesShared, PlanNotAllowed
from delegation.operations.purge.planning.succession import metadata_files
from delegation.polaris.model import LoadedTable
from delegation.storage.locations import Roots
from delegation.worksets.chunks import Phase, paths_of
from delegation.worksets.engines.inline import Work
from delegation.worksets.errors import PlanLost
from delegation.worksets.index import SAMPLE, PlanIndex, planned_paths
from delegation.worksets.sorting import Sorter, common

_DELETED: Final = (Phase.DATA, Phase.META, Phase.ROOT)


def check_still_not_shared(
    ctx: PurgeContext, indexes: Sequence[PlanIndex], own: Roots, table: LoadedTable | None = None
) -> None:
    """Check the neighbours again before an earlier plan is executed; raise FilesShared or FilesAtAnotherTable.

    With the `table` as it is now those that no catalog lists are looked for too, as when a plan is made.

    A table with the same metadata as when it was checked is not read again. The plan is not altered: a table that
    shares files since then (a registered clone), or that has its location around planned files that are not at `own`,
    the purged table's, ends the purge, and the operator decides.
    """
    roots = Roots(root for index in indexes for root in (*index.roots, *index.taken))
    outside = any(index.outside == "delete" for index in indexes)
    checked = {(one.identifier, one.metadata_location) for index in indexes for one in index.neighbours}
    near: list[Neighbour] = []
    listed: list[Neighbour] = []
    with Sorter(run_records=ctx.settings.run_records) as shared_files:
        unread, once = UnreadNeighbours(ctx), ReadOnce()
        for neighbour in ctx.neighbours(None if outside else roots):
            if isinstance(neighbour, NeighbourUnreadable):
                unread.note(neighbour)
                continue
            if is_itself(ctx, neighbour):
                continue
            name = (str(neighbour.table.identifier), neighbour.table.metadata_location)
            try:
                if not (outside or is_near(roots, neighbour)):
                    continue
                metadata_of(neighbour)
            except NeighbourUnreadable as error:
                unread.note(error)
                continue
            listed.append(neighbour)
            if name in checked:
                continue
            near.append(neighbour)
            shared_files.extend(reach_of_neighbour(ctx, neighbour, unread, once))
        if table is not None:
            from delegation.keeping.unlisted import UnlistedTables  # noqa: PLC0415 - not to choose an engine

            unlisted = UnlistedTables(ctx, table, listed, metadata_files(ctx.plans, indexes))
            unread.unlisted = unlisted.unreadable_of
            for head in unlisted.heads():
                shared_files.extend(reach_of_neighbour(ctx, head, unread, once))
        _check_not_referenced(ctx, indexes, shared_files)
    _check_not_at(ctx, indexes, Roots([*locations_of(near).uris, *unread.located]), own)
    _check_not_at(ctx, indexes, unread.last_known(roots), Roots(()))


def check_not_foreign(ctx: PurgeContext, left: Sequence[Work]) -> None:
    """Raise PlanLost for an earlier plan that has files at a foreign location, so that it is made again without them.

    Raises PlanNotAllowed for one that the request names.
    """
    foreign = ctx.settings.delete.foreign
    for one in left if foreign.uris else ():
        paths = chain.from_iterable(paths_of(ctx.plans, one.index.plan_id, [one.chunk]))
        if any(map(foreign.contain, paths)):
            reason = "has files at a location that delegation.foreign-locations names by now"
            if ctx.options.execute_plan is not None:
                raise PlanNotAllowed(f"plan {ctx.options.execute_plan} {reason}; make a new plan")
            raise PlanLost(one.index.plan_id, f"it {reason}")


def _check_not_referenced(ctx: PurgeContext, indexes: Sequence[PlanIndex], files: Sorter) -> None:
    """Raise FilesShared if any of these files of live tables is planned to be deleted."""
    if files.empty:
        return
    count = 0
    sample: list[str] = []
    for _, both in common(files.batches(), planned_paths(ctx.plans, indexes, _DELETED)):
        count += len(both)
        sample.extend(sorted(both)[: SAMPLE - len(sample)])
    if count:
        raise FilesShared(count, sample)


def _check_not_at(ctx: PurgeContext, indexes: Sequence[PlanIndex], others: Roots, own: Roots) -> None:
    """Raise FilesAtAnotherTable if a planned file is at one of these locations and not at `own`.

    Only chunks whose range of paths meets such a location are read.
    """
    count = 0
    sample: list[str] = []
    for index in indexes:
        chunks = (chunk for chunk in index.chunks if chunk.kind in _DELETED)
        disputed = [
            chunk
            for chunk in chunks
            if others.meet_range(chunk.first, chunk.last) and not own.contain_range(chunk.first, chunk.last)
        ]
        for path in chain.from_iterable(paths_of(ctx.plans, index.plan_id, disputed)):
            if others.contains(path) and not own.contains(path):
                count += 1
                sample.extend([path] if len(sample) < SAMPLE else [])
    if count:
        raise FilesAtAnotherTable(count, sample)
