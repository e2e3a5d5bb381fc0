"""What a purge's plan keeps: files of other tables, and a kept metadata file.

Files kept only for live tables are recorded for the later purges of these tables. `kept/{table-uuid of the live
table}/{id of the plan}.json` has the hash of the plan's index, whose KEPT chunks have the paths. The record is written
before the purged table's metadata file, the last that leads to them, is deleted. The later purge compares them again.
"""

import heapq
import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final

from delegation.errors import GuardRefused
from delegation.iceberg.paths import RANK, Row
from delegation.polaris.model import LoadedTable
from delegation.removal import path_guard
from delegation.removal.attempt import PlanSegment
from delegation.removal.chunks import Chunk, Phase, paths_of, records_of, stored_part
from delegation.removal.deletes import Work
from delegation.removal.errors import PlanLost, PlanTampered, foreign_location
from delegation.removal.index import (
    INDEX,
    SAMPLE,
    FileTally,
    Finding,
    PlanIndex,
    Sorter,
    common,
    load_index,
    planned_paths,
    sorted_runs,
)
from delegation.removal.neighbours import ReadOnce, locations_of, neighbours_of, reach_of_neighbour
from delegation.removal.path_guard import NOT_COVERED
from delegation.removal.purge.context import PurgeContext, metadata_files
from delegation.removal.purge.errors import (
    CredentialsDoNotCover,
    FilesAtAnotherTable,
    FilesShared,
    PathsOutsideTable,
    PlanNotAllowed,
)
from delegation.removal.purge.task_type import KEPT_FOLDER
from delegation.removal.unread_neighbours import UnreadNeighbours
from delegation.storage.base import PlanStore
from delegation.storage.locations import Roots

_SHARED: Final = "shared"


def record_kept(plans: PlanStore, indexes: Sequence[PlanIndex], segments: Sequence[PlanSegment]) -> None:
    """Record for each overlapping live table that a plan's KEPT chunks have files kept for live tables; repeatable."""
    for index, segment in zip(indexes, segments, strict=True):
        if not any(True for _ in kept_rows(plans, index)):
            continue
        body = {"format": 1, "plan": segment.id, "sha256": segment.sha256, "table_uuid": index.table_uuid}
        uuids = {
            neighbour.table_uuid
            for each in indexes
            for neighbour in each.neighbours
            if neighbour.overlaps and neighbour.table_uuid
        }
        for uuid in sorted(uuids):
            key = f"{KEPT_FOLDER}/{uuid}/{segment.id.replace('/', '.')}.json"
            plans.put(key, (json.dumps({**body, "identifier": index.identifier}, indent=1) + "\n").encode())


def taken_over(plans: PlanStore, table_uuid: str, earlier: Sequence[PlanIndex]) -> tuple[PlanIndex, ...]:
    """Return the plans that kept files for a table, without expired ones. Raises PlanTampered for an altered one."""
    own = {index.plan_id for index in earlier}
    indexes = []
    for key in plans.keys(f"{KEPT_FOLDER}/{table_uuid.lower()}/"):
        segment = _segment_of(key, stored_part(plans, key))
        if segment.id in own:
            continue
        try:
            indexes.append(load_index(plans, segment))
        except PlanLost:
            continue
    return tuple(indexes)


def kept_rows(plans: PlanStore, index: PlanIndex) -> Iterator[Row]:
    """Yield the files that a plan would have deleted without live tables. Raises PlanTampered."""
    for _plan_id, run in sorted_runs(index, Phase.KEPT):
        yield from _rows(plans, index, run)


def kept_paths(plans: PlanStore, records: Sequence[PlanIndex]) -> Iterator[str]:
    """Yield the paths of `kept_rows` of several plans, in order."""
    runs = [(index, run) for index in records for _plan_id, run in sorted_runs(index, Phase.KEPT)]
    return heapq.merge(*((row[0] for row in _rows(plans, index, run)) for index, run in runs))


def roots_of(index: PlanIndex) -> tuple[str, ...]:
    """Return where a plan deletes: the table's locations, and those of tables whose files it has taken over."""
    return tuple(dict.fromkeys((*index.roots, *index.taken)))


def left_over(plans: PlanStore, indexes: Sequence[PlanIndex]) -> str | None:
    """Return the operator's command that deletes what a plan kept as NOT_COVERED, None without such files."""
    plan_ids = (index.plan_id for index in indexes if any(finding.code == NOT_COVERED for finding in index.findings))
    commands = (f"delegation purge {plans.where(f'{plan_id}/{INDEX}')} --not-covered" for plan_id in plan_ids)
    return "; ".join(commands) or None


def _rows(plans: PlanStore, index: PlanIndex, chunks: Sequence[Chunk]) -> Iterator[Row]:
    """Yield what is kept only for a live table: files at the table's locations that the credentials cover."""
    roots = Roots(roots_of(index))
    covered = None if index.covered is None else Roots(index.covered)
    for chunk in chunks:
        for record in records_of(plans, index.plan_id, chunk):
            path = str(record["path"])
            if record["kept"] == _SHARED and roots.contains(path) and (covered is None or covered.contains(path)):
                yield path, RANK[record["type"]], int(record["size"])


def _segment_of(key: str, data: bytes) -> PlanSegment:
    try:
        stored: dict[str, Any] = json.loads(data)
        return PlanSegment(str(stored["plan"]), str(stored["sha256"]))
    except (ValueError, KeyError, TypeError) as error:
        raise PlanTampered(key, "the record cannot be read") from error


_NOTE = ", so the current metadata file would stay, and nothing would lead to its files once the table is dropped"


def refuse_kept_root(plans: PlanStore, index: PlanIndex, earlier: Sequence[PlanIndex]) -> None:
    """Raise PathsOutsideTable, CredentialsDoNotCover or GuardRefused (ROOT_KEPT, FOREIGN_LOCATION) for a plan that
    keeps the current metadata file. If it is kept for a live table that is no reason, unless the plan deletes nothing
    and keeps other files for another reason."""
    if any(chunk.kind is Phase.ROOT for chunk in index.chunks):
        return
    reason = _reason(plans, index)
    if reason is None:
        return
    findings = {finding.code: finding for finding in index.findings}
    if reason == "foreign-location":
        raise foreign_location(f"the table's metadata file {index.metadata_location}", ": drop it without purge")
    if reason == "shared":
        nothing = not any(each.files_planned for each in (*earlier, index))
        others = [code for code in (path_guard.OUTSIDE, path_guard.UNCOVERED) if code in findings]
        if nothing and others:
            raise _refusal(findings[others[0]], index, findings[others[0]].sample)
        return
    code = {"outside": path_guard.OUTSIDE, "uncovered": path_guard.UNCOVERED}.get(reason, "")
    sample = findings[code].sample if code in findings else ()
    raise _refusal(findings.get(code), index, [index.metadata_location, *sample])


def _refusal(finding: Finding | None, index: PlanIndex, sample: Sequence[str]) -> GuardRefused:
    distinct = tuple(dict.fromkeys(sample))[:SAMPLE]
    match finding:
        case Finding(code=path_guard.OUTSIDE):
            return PathsOutsideTable(finding.count, distinct, note=_NOTE)
        case Finding(code=path_guard.UNCOVERED):
            return CredentialsDoNotCover(finding.count, distinct, note=_NOTE)
        case _:
            return GuardRefused(f"the plan keeps {index.metadata_location}{_NOTE}", code="ROOT_KEPT")


def _reason(plans: PlanStore, index: PlanIndex) -> str | None:
    """Return why the plan keeps the current metadata file, None if only an earlier segment lists it."""
    root = index.metadata_location
    for chunk in index.chunks:
        if chunk.kind is not Phase.KEPT or not chunk.first <= root <= chunk.last:
            continue
        for record in records_of(plans, index.plan_id, chunk):
            if record["path"] == root:
                return str(record["kept"])
    return None


_DELETED: Final = (Phase.DATA, Phase.META, Phase.ROOT)


def check_still_not_shared(
    ctx: PurgeContext, indexes: Sequence[PlanIndex], own: Roots, table: LoadedTable | None = None
) -> None:
    """Check the neighbours again before an earlier plan is executed. Raises FilesShared or FilesAtAnotherTable. With
    the current `table` those that no catalog lists are searched too, as when a plan is made.

    A table with the same metadata as at its check is not read again. The plan is not altered. The purge ends if a table
    shares files since then (a registered clone), or has its location around planned files that are not at `own`, the
    purged table's; then the operator decides.
    """
    roots = Roots(root for index in indexes for root in (*index.roots, *index.taken))
    outside = any(index.outside == "delete" for index in indexes)
    checked = {
        (neighbour.identifier, neighbour.metadata_location) for index in indexes for neighbour in index.neighbours
    }
    unread, once = UnreadNeighbours(ctx), ReadOnce()
    listed, _ = neighbours_of(ctx, roots, (), unread, outside=outside)
    unchecked = [
        neighbour
        for neighbour in listed
        if (str(neighbour.table.identifier), neighbour.table.metadata_location) not in checked
    ]
    with Sorter(run_records=ctx.settings.run_records) as shared_files:
        for neighbour in unchecked:
            shared_files.extend(reach_of_neighbour(ctx, neighbour, unread, once))
        if table is not None:
            from delegation.removal.foreign.neighbours import ForeignNeighbours  # noqa: PLC0415 - not to choose an engine

            unlisted = ForeignNeighbours(ctx, table, listed, metadata_files(ctx.plans, indexes))
            unread.unlisted = unlisted.unreadable_of
            for head in unlisted.heads():
                shared_files.extend(reach_of_neighbour(ctx, head, unread, once))
        _check_not_referenced(ctx, indexes, shared_files)
    _check_not_at(ctx, indexes, Roots([*locations_of(unchecked).uris, *unread.located]), own)
    _check_not_at(ctx, indexes, unread.last_known(roots), Roots(()))


def check_not_foreign(ctx: PurgeContext, left: Sequence[Work]) -> None:
    """Raise PlanLost for an earlier plan with files at a foreign location, PlanNotAllowed if the request names it."""
    foreign = ctx.settings.delete.foreign
    for work in left if foreign.uris else ():
        paths = chain.from_iterable(paths_of(ctx.plans, work.index.plan_id, [work.chunk]))
        if any(map(foreign.contain, paths)):
            reason = "has files in a location that delegation.foreign-locations now names"
            if ctx.options.execute_plan is not None:
                raise PlanNotAllowed(f"plan {ctx.options.execute_plan} {reason}. Make a new plan")
            raise PlanLost(work.index.plan_id, f"it {reason}")


def _check_not_referenced(ctx: PurgeContext, indexes: Sequence[PlanIndex], files: Sorter) -> None:
    """Raise FilesShared if any of these files of live tables is planned to be deleted."""
    if files.empty:
        return
    tally = FileTally()
    for _, both in common(files.batches(), planned_paths(ctx.plans, indexes, _DELETED)):
        for path in sorted(both):
            tally.add(path)
    if tally.count:
        raise FilesShared(tally.count, tally.sample)


def _check_not_at(ctx: PurgeContext, indexes: Sequence[PlanIndex], places: Roots, own: Roots) -> None:
    """Raise FilesAtAnotherTable if a planned file is at one of these locations and not at `own`."""
    tally = FileTally()
    for index in indexes:
        chunks = (chunk for chunk in index.chunks if chunk.kind in _DELETED)
        disputed = [
            chunk
            for chunk in chunks
            if places.meet_range(chunk.first, chunk.last) and not own.contain_range(chunk.first, chunk.last)
        ]
        for path in chain.from_iterable(paths_of(ctx.plans, index.plan_id, disputed)):
            if places.contains(path) and not own.contains(path):
                tally.add(path)
    if tally.count:
        raise FilesAtAnotherTable(tally.count, tally.sample)
