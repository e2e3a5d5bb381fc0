"""Directory markers of planned files: `dir/` (consoles, pyarrow) and `dir_$folder$` (Hadoop on S3). No metadata names
them, so their keys are tried for each directory from a planned file up to the table's location. Only objects of zero
bytes count."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final

from delegation.iceberg.paths import RANK, FileType, Row
from delegation.removal.chunks import ChunkWriter, Phase, Total, add_totals
from delegation.removal.index import (
    Finding,
    PlanIndex,
    Sorter,
    planned_paths,
    without,
)
from delegation.removal.purge.context import PurgeContext
from delegation.storage.base import FileTooLarge, ObjectNotFound
from delegation.storage.locations import LOCAL, parse, split

NOT_SEARCHED: Final = "MARKERS_NOT_LOOKED_FOR"
_HADOOP_MARKER: Final = "_$folder$"
_AT_ONCE: Final = 512


def with_markers(ctx: PurgeContext, index: PlanIndex, earlier: Sequence[PlanIndex]) -> PlanIndex:
    """Return the plan with the existing directory markers as further META chunks. If a neighbour table's location
    overlaps, the directories may be shared: none is searched, which is a finding."""
    overlapping = [neighbour.identifier for neighbour in index.neighbours if neighbour.overlaps]
    if overlapping:
        finding = Finding(code=NOT_SEARCHED, count=len(overlapping), sample=tuple(overlapping[:20]))
        return index.model_copy(update={"findings": (*index.findings, finding)})
    writer = ChunkWriter(ctx.plans, index.plan_id, Phase.META, chunk_paths=ctx.settings.chunk_paths, part="markers-")
    with Sorter(run_records=ctx.settings.run_records) as possible:
        possible.extend((path, RANK[FileType.DIRECTORY_MARKER], 0) for path in _possible(ctx, index))
        planned = planned_paths(ctx.plans, [*earlier, index], Phase)
        for rows in without(possible.batches(), planned):
            writer.extend(list(_existing(ctx, rows)))
    writer.flush()
    totals = dict(index.counts)
    add_totals(totals, {name: Total(files=n, bytes=size) for name, (n, size) in writer.totals.items()})
    order = list(Phase)
    chunks = sorted((*index.chunks, *writer.chunks), key=lambda chunk: order.index(chunk.kind))
    return index.model_copy(update={"chunks": tuple(chunks), "counts": totals})


def _possible(ctx: PurgeContext, index: PlanIndex) -> Iterator[str]:
    """Yield the possible keys of directory markers of planned files, some more than once."""
    roots = tuple(root for root in index.roots if split(root)[0] != LOCAL)
    covered = index.covered
    for directory in _directories(planned_paths(ctx.plans, [index], (Phase.DATA, Phase.META, Phase.ROOT)), roots):
        for path in (directory, directory[:-1] + _HADOOP_MARKER):
            # A location's `location_$folder$` is outside it, and a bucket has no directory marker.
            inside = path.startswith(roots) and split(path)[1] != ""
            if inside and (covered is None or path.startswith(covered)):
                yield path


def _directories(paths: Iterable[str], roots: tuple[str, ...]) -> Iterator[str]:
    """Yield every directory of sorted paths at or below one of the roots, with its final slash."""
    if not roots:
        return
    above: set[str] = set()
    last = ""
    for path in paths:
        directory = path[: path.rindex("/") + 1]
        if directory == last:
            continue
        last, before, above = directory, above, set()
        while directory.startswith(roots):
            above.add(directory)
            if directory not in before:
                yield directory
            directory = directory[: directory.rindex("/", 0, -1) + 1]


def _existing(ctx: PurgeContext, rows: Sequence[Row]) -> Iterator[Row]:
    with ThreadPoolExecutor(ctx.settings.read_threads, thread_name_prefix="markers") as pool:
        left = iter(rows)
        while some := list(islice(left, _AT_ONCE)):
            ctx.attempt.checkpoint()
            are_markers = pool.map(lambda row: _is_marker(ctx, row[0]), some)
            yield from (row for row, is_one in zip(some, are_markers, strict=True) if is_one)


def _is_marker(ctx: PurgeContext, path: str) -> bool:
    try:
        ctx.store.read(parse(path), limit=0)
    except (ObjectNotFound, FileTooLarge):
        return False
    return True
