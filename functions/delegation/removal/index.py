"""The plan of a purge: chunks of sorted paths that `zcat` can read, and a small index of them.

Rows are sorted in runs on the disk, in lists: a million rows take a few thousand steps of Python.

Layout in the plan bucket, below the plan's id, `{task_id}/{attempt}/{nonce}/`:
    index.json                        format, table, chunks with hashes, counts, findings
    DATA-00000.jsonl.gz, META-…       one JSON object per line: {"path", "type", "size"}; sorted by path, no duplicates
    ROOT-00000.jsonl.gz               the current metadata.json, deleted last
    KEPT-00000.jsonl.gz               reachable but not to be deleted, with the reason
    done/…, failed/…, receipt.json    progress and outcome (`marks`)
A task that executes the plan of a dry run records that in `{task_id}/taken/{plan's id}`. The task's head has the hash
(SHA-256) of the index, and the index that of each chunk, so only the published plan is executed. A plan that was not
published, because another was first, is never used.
"""

import hashlib
import marshal
import tempfile
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, groupby, islice, starmap
from operator import eq, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ValidationError

from delegation.iceberg.paths import FIRST_DATA, Row, TableFile
from delegation.removal.attempt import PlanSegment
from delegation.removal.chunks import (
    Chunk,
    ChunkWriter,
    DeleteStep,
    Phase,
    Stored,
    Total,
    add_totals,
    paths_of,
    step_of,
    stored_part,
)
from delegation.removal.errors import PlanTampered, sorting_failed
from delegation.storage.base import PlanStore

T = TypeVar("T", Row, str)

RUN_RECORDS = 50_000
# Rows in each list of a spilled run. A list is read at once; merging holds one list per run in memory.
_LIST_RECORDS: Final = 500
_SIZE_BYTES: Final = 4
# Runs merged at a time. More need several passes.
_FAN_IN = 64
_PATH: Final = itemgetter(0)


def sort_rows(rows: list[Row]) -> None:
    """Sort rows in place. Texts sort several times as fast as tuples; after that only rows of one path are out of
    order, and one comparison per row finds them."""
    rows.sort(key=_PATH)
    rows.sort()


def dump_rows(rows: Sequence[Row]) -> bytes:
    """Return rows as bytes, column by column, for `load_rows` in a process of the same run."""
    return marshal.dumps(tuple(zip(*rows, strict=True)))


def load_rows(data: bytes) -> list[Row]:
    """Return the rows of `dump_rows`."""
    # This process or another one of the same job wrote it a moment ago; it was never stored for others to change.
    columns: Any = marshal.loads(data)  # noqa: S302
    return list(zip(*columns, strict=True))


class Sorter:
    """Sorts rows and returns one per path, with `run_records` rows in memory. Use it as a context manager: leaving it
    deletes the temporary directory of the spilled runs."""

    def __init__(self, *, run_records: int = RUN_RECORDS) -> None:
        self._run_records = run_records
        self._run: list[Row] = []
        self._spilled: list[Path] = []
        self._made = 0
        self._on_disk = 0
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> "Sorter":
        return self

    def __exit__(self, *_: object) -> None:
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    @property
    def empty(self) -> bool:
        return not self._run and not self._spilled

    @property
    def added(self) -> int:
        return self._on_disk + len(self._run)

    def extend(self, rows: Iterable[Row]) -> None:
        left = iter(rows)
        while True:
            space = self._run_records - len(self._run)
            self._run.extend(islice(left, space))
            if len(self._run) < self._run_records:
                return
            self._spill()

    def batches(self) -> Iterator[list[Row]]:
        """Yield all rows in order, each path once, in lists. Call it once, after the last `extend`."""
        while len(self._spilled) >= _FAN_IN:
            fresh = self._write(merged([_read(path) for path in self._spilled[:_FAN_IN]]))
            for path in self._spilled[:_FAN_IN]:
                path.unlink()
            self._spilled = [*self._spilled[_FAN_IN:], fresh]
        sort_rows(self._run)
        return merged([*(_read(path) for path in self._spilled), _lists(self._run)])

    def sorted(self) -> Iterator[TableFile]:
        """Yield the rows one by one, instead of `batches`."""
        return starmap(TableFile, chain.from_iterable(self.batches()))

    def _spill(self) -> None:
        sort_rows(self._run)
        self._spilled.append(self._write(_lists(self._run)))
        self._on_disk += self._run_records
        self._run = []

    def _write(self, lists: Iterable[Sequence[Row]]) -> Path:
        with _disk(None if self._directory is None else self._directory.name):
            if self._directory is None:
                self._directory = tempfile.TemporaryDirectory(prefix="purge-plan-")
            self._made += 1
            path = Path(self._directory.name) / f"{self._made:06d}"
            with path.open("wb") as out:
                for rows in lists:
                    for some in _lists(rows):
                        data = dump_rows(some)
                        out.write(len(data).to_bytes(_SIZE_BYTES) + data)
        return path


def merged(sources: Sequence[Iterator[list[Row]]]) -> Iterator[list[Row]]:
    """Merge sorted sources, each path once."""
    return distinct(merged_lists(sources, sort_rows))


def merged_lists(sources: Sequence[Iterator[list[T]]], sort: Callable[[list[T]], None]) -> Iterator[list[T]]:
    """Merge sorted sources of non-empty lists, without comparing item by item. Each step takes from every source the
    items up to the smallest last item of the current lists, and sorts them, which Python's sort does as a merge."""
    held = [(items, 0, source) for source in sources if (items := next(source, None))]
    while held:
        bound = min(items[-1] for items, _, _ in held)
        ready: list[T] = []
        left = []
        for items, start, source in held:
            end = bisect_right(items, bound, start)
            ready += items[start:end]
            if end < len(items):
                left.append((items, end, source))
            elif (more := next(source, None)) is not None:
                left.append((more, 0, source))
        held = left
        sort(ready)
        yield ready


def distinct(batches: Iterable[list[Row]]) -> Iterator[list[Row]]:
    """Yield the first row of every path from sorted rows."""
    last: str | None = None
    for rows in batches:
        paths = [path for path, _, _ in rows]
        first_of_each = rows
        if paths[0] == last or any(map(eq, paths, islice(paths, 1, None))):
            before = chain((last,), paths)
            first_of_each = [row for row, former in zip(rows, before, strict=False) if row[0] != former]
        last = paths[-1]
        if first_of_each:
            yield first_of_each


def common(batches: Iterable[list[Row]], paths: Iterable[str]) -> Iterator[tuple[list[Row], set[str]]]:
    """Yield each list of sorted rows with the set of its paths that are among the sorted `paths`, in one pass."""
    theirs = iter(paths)
    at = next(theirs, None)
    for rows in batches:
        last = rows[-1][0]
        both: set[str] = set()
        if at is not None and at <= last:
            ours = {path for path, _, _ in rows}
            while at is not None and at <= last:
                if at in ours:
                    both.add(at)
                at = next(theirs, None)
        yield rows, both


def common_of_two(
    batches: Iterable[list[Row]], first: Iterable[str], second: Iterable[str]
) -> Iterator[tuple[list[Row], set[str], set[str]]]:
    """Yield each list of sorted rows with the sets of its paths that are among two sorted sources, in one pass."""
    held: deque[set[str]] = deque()

    def rows_alone() -> Iterator[list[Row]]:
        for rows, both in common(batches, first):
            held.append(both)
            yield rows

    for rows, both in common(rows_alone(), second):
        yield rows, held.popleft(), both


def without(batches: Iterable[list[Row]], paths: Iterable[str]) -> Iterator[list[Row]]:
    """Yield the sorted rows whose path is not among the sorted `paths`."""
    for rows, both in common(batches, paths):
        left = [row for row in rows if row[0] not in both] if both else rows
        if left:
            yield left


def _lists(rows: Sequence[Row]) -> Iterator[list[Row]]:
    return (list(rows[at : at + _LIST_RECORDS]) for at in range(0, len(rows), _LIST_RECORDS))


def _read(path: Path) -> Iterator[list[Row]]:
    with _disk(str(path.parent)), path.open("rb") as run:
        while size := run.read(_SIZE_BYTES):
            yield load_rows(run.read(int.from_bytes(size)))


@contextmanager
def _disk(place: str | None) -> Iterator[None]:
    """Convert an error of the disk with the runs to WorksetError (SORTING_FAILED)."""
    try:
        yield
    except OSError as error:
        raise sorting_failed(place or "the temporary directory", error.strerror or type(error).__name__) from error


_RANK: Final = itemgetter(1)


class PlanWriter:
    """Writes rows to chunks by phase. `part` separates the chunks of several writers of one plan."""

    def __init__(self, plans: PlanStore, plan_id: str, *, chunk_paths: int, part: str = "") -> None:
        def writer(kind: Phase, *, lists: bool = False) -> ChunkWriter:
            return ChunkWriter(plans, plan_id, kind, chunk_paths=chunk_paths, part=part, lists=lists)

        self._of_step = {
            DeleteStep.DATA: writer(Phase.DATA),
            DeleteStep.META: writer(Phase.META),
            DeleteStep.LISTS: writer(Phase.META, lists=True),
            DeleteStep.ROOT: writer(Phase.ROOT),
        }
        self._kept = writer(Phase.KEPT)

    def write(self, rows: list[Row], verdict: str) -> None:
        """Add rows with this verdict. Rows must be sorted over all calls."""
        if verdict:
            self._kept.extend(rows, verdict)
            return
        if min(map(_RANK, rows)) >= FIRST_DATA:
            self._of_step[DeleteStep.DATA].extend(rows)
            return
        for step, group in groupby(rows, lambda row: step_of(row[1])):
            self._of_step[step].extend(list(group))

    def close(self) -> tuple[list[Chunk], dict[str, Total]]:
        """Store the last chunks. Returns all chunks, and the totals by file type of the files to delete."""
        chunks: list[Chunk] = []
        totals: dict[str, Total] = {}
        for writer in self._of_step.values():
            writer.flush()
            chunks.extend(writer.chunks)
            add_totals(totals, {name: Total(files=n, bytes=size) for name, (n, size) in writer.totals.items()})
        self._kept.flush()
        return [*chunks, *self._kept.chunks], totals


FORMAT = 1
INDEX = "index.json"
SAMPLE = 20


class Finding(Stored):
    """A guard's finding: its code, the exact count, and at most SAMPLE paths."""

    code: str
    count: int
    sample: tuple[str, ...] = ()


class CheckedNeighbour(Stored):
    """A live table that was checked for shared files, and whether its locations overlap."""

    identifier: str
    metadata_location: str
    overlaps: bool
    table_uuid: str | None = None


class ReplacedPlan(Stored):
    """A published plan that another one replaced because some of its files are needed: its id and its index's hash.
    `done` names the chunks that were done by then, whose files the other plan omits; plans of former releases have none
    of these files."""

    id: str
    sha256: str
    done: tuple[str, ...] | None = None


@dataclass(slots=True)
class FileTally:
    """The number of files of a finding, and the first of them. They come in order."""

    count: int = 0
    sample: list[str] = field(default_factory=list)

    def add(self, path: str) -> None:
        self.count += 1
        if len(self.sample) < SAMPLE:
            self.sample.append(path)

    def finding(self, code: str) -> Finding:
        return Finding(code=code, count=self.count, sample=tuple(self.sample))


class PlanIndex(Stored):
    """The index of a plan. `roots` and `covered` are limits of the guards, checked again before each delete. `taken`
    are the locations of formerly purged tables, which kept files for this one that are in the plan."""

    format: int = FORMAT
    plan_id: str
    task_id: str
    attempt: int
    table_uuid: str
    identifier: str
    metadata_location: str
    last_updated_ms: int
    format_version: int
    snapshots: int
    extends: tuple[str, ...] = ()
    engine: str
    created_at: str
    roots: tuple[str, ...]
    covered: tuple[str, ...] | None
    outside: str
    directory_markers: bool | None = None
    chunks: tuple[Chunk, ...]
    counts: dict[str, Total]
    findings: tuple[Finding, ...]
    neighbours: tuple[CheckedNeighbour, ...] = ()
    taken: tuple[str, ...] = ()

    @property
    def files_planned(self) -> int:
        return sum(chunk.count for chunk in self.chunks if chunk.kind is not Phase.KEPT)

    @property
    def bytes_planned(self) -> int:
        return sum(chunk.bytes for chunk in self.chunks if chunk.kind is not Phase.KEPT)

    @property
    def files_kept(self) -> int:
        return sum(chunk.count for chunk in self.chunks if chunk.kind is Phase.KEPT)


class ReducedIndex(PlanIndex):
    """The index of a plan that is never extended. `reduces` are the plans that it replaced, oldest first."""

    if TYPE_CHECKING:  # repeated in each class, because the order of members is stored
        reduces: tuple[ReplacedPlan, ...] = ()

    @property
    def origin(self) -> str:
        """The id of the original plan."""
        return self.reduces[0].id if self.reduces else self.plan_id


Kind = TypeVar("Kind", bound=PlanIndex)


def store_index(store: PlanStore, index: PlanIndex) -> PlanSegment:
    """Store the index; return the segment to publish."""
    data = (index.model_dump_json(indent=1) + "\n").encode()
    store.put(f"{index.plan_id}/{INDEX}", data)
    return PlanSegment(index.plan_id, hashlib.sha256(data).hexdigest())


def segment_of(store: PlanStore, plan_id: str) -> PlanSegment:
    """Return the segment of an existing plan. Raises PlanTampered if its index is missing."""
    return PlanSegment(plan_id, hashlib.sha256(stored_part(store, f"{plan_id}/{INDEX}")).hexdigest())


def load_index(store: PlanStore, segment: PlanSegment) -> PlanIndex:
    """Return the published index. Raises PlanLost, or PlanTampered if it is altered or of an unknown format."""
    return load_index_as(PlanIndex, store, segment)


def load_index_as(kind: type[Kind], store: PlanStore, segment: PlanSegment) -> Kind:
    """Return the published index of an operation with its own fields. Raises as `load_index`."""
    index = _read_as(kind, store, segment.id, segment.sha256)
    if index.plan_id != segment.id:
        raise PlanTampered(segment.id, "the index names another plan")
    return index


def read_index(store: PlanStore, plan_id: str, *, sha256: str | None = None) -> PlanIndex:
    """Return the index of a plan, verified only if a hash is given. Raises PlanTampered."""
    return _read_as(PlanIndex, store, plan_id, sha256)


def _read_as(kind: type[Kind], store: PlanStore, plan_id: str, sha256: str | None) -> Kind:
    data = stored_part(store, f"{plan_id}/{INDEX}", sha256)
    try:
        index = kind.model_validate_json(data)
    except ValidationError as error:
        raise PlanTampered(plan_id, "the index is malformed") from error
    if index.format != FORMAT:
        raise PlanTampered(plan_id, f"the index has the unknown format {index.format}")
    return index


def planned_paths(store: PlanStore, indexes: Sequence[PlanIndex], kinds: Iterable[Phase]) -> Iterator[str]:
    """Yield the paths of plans in order, as `planned_lists`."""
    return chain.from_iterable(planned_lists(store, indexes, kinds))


def planned_lists(store: PlanStore, indexes: Sequence[PlanIndex], kinds: Iterable[Phase]) -> Iterator[list[str]]:
    """Yield the paths of plans in order, in lists. Raises PlanTampered. Memory holds one compressed chunk and a few
    hundred paths of each sorted run."""
    wanted = tuple(kinds)
    runs = [run for index in indexes for kind in wanted for run in sorted_runs(index, kind)]
    return merged_lists([paths_of(store, plan_id, chunks) for plan_id, chunks in runs], list.sort)


def sorted_runs(index: PlanIndex, kind: Phase) -> list[tuple[str, list[Chunk]]]:
    """Group chunks into sorted runs. The Spark engine sorts each partition separately."""
    runs: list[list[Chunk]] = []
    for chunk in index.chunks:
        if chunk.kind is not kind:
            continue
        if runs and runs[-1][-1].last < chunk.first:
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
    return [(index.plan_id, run) for run in runs]


def merge_findings(indexes: Sequence[PlanIndex]) -> tuple[Finding, ...]:
    """Return the findings of all segments, one per code."""
    merged: dict[str, Finding] = {}
    for finding in (each for index in indexes for each in index.findings):
        old = merged.get(finding.code, Finding(code=finding.code, count=0))
        sample = (*old.sample, *finding.sample)[:SAMPLE]
        merged[finding.code] = Finding(code=finding.code, count=old.count + finding.count, sample=sample)
    return tuple(merged.values())
