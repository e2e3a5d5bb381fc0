"""The plan of a purge: which objects go, in chunks that can be read with `zcat`, under one small index.

Layout in the service's bucket, all below `{task_id}/{attempt}/{nonce}/`, which is the plan's id:
    index.json                        format, table, chunks with hashes, counts, findings
    DATA-00000.jsonl.gz, META-…       one JSON object per line: {"path", "type", "size"}; sorted by path, no duplicates
    ROOT-00000.jsonl.gz               the current metadata.json, deleted last
    KEPT-00000.jsonl.gz               reachable but not to be deleted, with the reason
    done/…, failed/…, receipt.json     what became of it (`progress`)
A task that executes a plan made by another, a dry run's, says so in `{task_id}/taken/{plan's id}`.
The index is named by its SHA-256 in the task's head, each chunk by its SHA-256 in the index: what is executed is what
was published. A plan that lost the race to be published is garbage that nobody names.
"""

import gzip
import hashlib
import heapq
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, ValidationError

from delegation.purge.attempt import PlanSegment
from delegation.purge.errors import PlanTampered
from delegation.purge.objectstore import ObjectNotFound, PlanStore
from delegation.purge.sorting import Record, Row

FORMAT = 1
INDEX = "index.json"
SAMPLE = 20
_BEFORE, _AFTER = '{"path": "', '", "type": "'


class Phase(StrEnum):
    """When a chunk is deleted: all DATA before any META, all META before ROOT, KEPT never."""

    DATA = "DATA"
    META = "META"
    ROOT = "ROOT"
    KEPT = "KEPT"


class FileType(StrEnum):
    """What a file is to the table. The order is the rank: a path with several types goes with the one deleted last."""

    ROOT = "metadata"
    FORMER_METADATA = "former-metadata"
    MANIFEST_LIST = "manifest-list"
    MANIFEST = "manifest"
    STATISTICS = "statistics"
    PARTITION_STATISTICS = "partition-statistics"
    DIRECTORY_MARKER = "directory-marker"
    POSITION_DELETES = "position-deletes"
    EQUALITY_DELETES = "equality-deletes"
    DATA = "data"


TYPES = tuple(FileType)
RANK = {file_type: rank for rank, file_type in enumerate(TYPES)}
_RANK_OF = {file_type.value: rank for file_type, rank in RANK.items()}
FIRST_DATA = RANK[FileType.POSITION_DELETES]
# A string as json.dumps(ensure_ascii=False) writes it.
_quoted: Callable[[str], str] = json.encoder.encode_basestring


def phase_of(rank: int) -> Phase:
    if rank == 0:
        return Phase.ROOT
    return Phase.META if rank < FIRST_DATA else Phase.DATA


class _Stored(BaseModel):
    # Fields that a later release adds are passed over; what is there is held by its hash, not by its shape.
    model_config = ConfigDict(frozen=True, extra="ignore")


class Chunk(_Stored):
    """One object of paths: how many, their sizes together in bytes, and the SHA-256 of the object as stored."""

    name: str
    kind: Phase
    count: int
    bytes: int
    sha256: str
    first: str
    last: str


class Total(_Stored):
    """Files and bytes of one type."""

    files: int = 0
    bytes: int = 0


def add_totals(totals: dict[str, Total], more: Mapping[str, Total]) -> None:
    for name, total in more.items():
        old = totals.get(name, Total())
        totals[name] = Total(files=old.files + total.files, bytes=old.bytes + total.bytes)


class Finding(_Stored):
    """Something a guard saw: its code, the exact count, at most SAMPLE paths."""

    code: str
    count: int
    sample: tuple[str, ...] = ()


class Asked(_Stored):
    """A live table that was looked at for shared files, and whether its locations overlap."""

    identifier: str
    metadata_location: str
    overlaps: bool


class PlanIndex(_Stored):
    """The small part of a plan; `roots` and `covered` are the guards' limits, applied again when executed."""

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
    chunks: tuple[Chunk, ...]
    counts: dict[str, Total]
    findings: tuple[Finding, ...]
    neighbours: tuple[Asked, ...] = ()

    @property
    def files_planned(self) -> int:
        return sum(chunk.count for chunk in self.chunks if chunk.kind is not Phase.KEPT)

    @property
    def bytes_planned(self) -> int:
        return sum(chunk.bytes for chunk in self.chunks if chunk.kind is not Phase.KEPT)

    @property
    def files_kept(self) -> int:
        return sum(chunk.count for chunk in self.chunks if chunk.kind is Phase.KEPT)


class ChunkWriter:
    """Cuts a sorted stream into chunks of one kind and stores them; memory is bounded by one chunk.

    `part` keeps the names of several writers of one plan apart and in order.
    """

    def __init__(self, store: PlanStore, plan_id: str, kind: Phase, *, chunk_paths: int, part: str = "") -> None:
        self._store = store
        self._plan_id = plan_id
        self._kind = kind
        self._chunk_paths = chunk_paths
        self._part = part
        self._lines: list[str] = []
        self._first = self._last = ""
        self._bytes = 0
        self.chunks: list[Chunk] = []
        self.totals: dict[str, list[int]] = {}

    def extend(self, rows: Sequence[Row], why: str = "") -> None:
        """Add rows that follow the ones added before, in order."""
        while rows:
            room = self._chunk_paths - len(self._lines)
            self._add(rows[:room], why)
            rows = rows[room:]
            if len(self._lines) >= self._chunk_paths:
                self.flush()

    def _add(self, rows: Sequence[Row], why: str) -> None:
        # What json.dumps makes of {"path", "type", "size"[, "kept"]}, without a dictionary for each.
        end = f', "kept": {json.dumps(why)}}}' if why else "}"
        names = [f', "type": "{file_type}", "size": ' for file_type in TYPES]
        if not self._lines:
            self._first = rows[0][0]
        self._lines += [f'{{"path": {_quoted(path)}{names[rank]}{size}{end}' for path, rank, size in rows]
        self._last = rows[-1][0]
        self._bytes += sum(size for _, _, size in rows)
        for rank in {rank for _, rank, _ in rows}:
            sizes = [size for _, one, size in rows if one == rank]
            total = self.totals.setdefault(TYPES[rank].value, [0, 0])
            total[0] += len(sizes)
            total[1] += sum(sizes)

    def flush(self) -> None:
        """Store what is collected; call it once more at the end."""
        if not self._lines:
            return
        # No time stamp inside: the same paths make the same bytes and the same hash.
        data = gzip.compress(("\n".join(self._lines) + "\n").encode(), compresslevel=5, mtime=0)
        name = f"{self._kind}-{self._part}{len(self.chunks):05d}.jsonl.gz"
        self._store.put(f"{self._plan_id}/{name}", data)
        self.chunks.append(
            Chunk(
                name=name,
                kind=self._kind,
                count=len(self._lines),
                bytes=self._bytes,
                sha256=hashlib.sha256(data).hexdigest(),
                first=self._first,
                last=self._last,
            )
        )
        self._lines = []
        self._bytes = 0


def store_index(store: PlanStore, index: PlanIndex) -> PlanSegment:
    """Write the index; the segment that names it is ready to be published."""
    data = (index.model_dump_json(indent=1) + "\n").encode()
    store.put(f"{index.plan_id}/{INDEX}", data)
    return PlanSegment(index.plan_id, hashlib.sha256(data).hexdigest())


def segment_of(store: PlanStore, plan_id: str) -> PlanSegment:
    """Name a plan made before, as it is stored now; raises PlanTampered when there is none."""
    try:
        data = store.get(f"{plan_id}/{INDEX}")
    except ObjectNotFound as error:
        raise PlanTampered(plan_id, "there is no such plan") from error
    return PlanSegment(plan_id, hashlib.sha256(data).hexdigest())


def load_index(store: PlanStore, segment: PlanSegment) -> PlanIndex:
    """The index that was published; raises PlanTampered when it is missing, altered, or of a format we do not know."""
    index = read_index(store, segment.id, sha256=segment.sha256)
    if index.plan_id != segment.id:
        raise PlanTampered(segment.id, "index of another plan")
    return index


def read_index(store: PlanStore, plan_id: str, *, sha256: str | None = None) -> PlanIndex:
    """An index by its plan's id, verified only if a hash is given; raises PlanTampered."""
    try:
        data = store.get(f"{plan_id}/{INDEX}")
    except ObjectNotFound as error:
        raise PlanTampered(plan_id, "index is missing") from error
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        raise PlanTampered(plan_id, "index differs from what was published")
    try:
        index = PlanIndex.model_validate_json(data)
    except ValidationError as error:
        raise PlanTampered(plan_id, "index cannot be read") from error
    if index.format != FORMAT:
        raise PlanTampered(plan_id, f"format {index.format} is not known")
    return index


def read_verified(store: PlanStore, plan_id: str, chunk: Chunk) -> bytes:
    """A chunk as it is stored; raises PlanTampered unless it is byte for byte what the index names."""
    try:
        data = store.get(f"{plan_id}/{chunk.name}")
    except ObjectNotFound as error:
        raise PlanTampered(f"{plan_id}/{chunk.name}", "chunk is missing") from error
    if hashlib.sha256(data).hexdigest() != chunk.sha256:
        raise PlanTampered(f"{plan_id}/{chunk.name}", "chunk differs from what was published")
    return data


def read_chunk(store: PlanStore, plan_id: str, chunk: Chunk) -> list[Record]:
    """The paths of a chunk; raises PlanTampered."""
    data = read_verified(store, plan_id, chunk)
    # JSON escapes newlines, so each one here ends a line; the lines are read as one list, at once.
    lines = gzip.decompress(data).decode().rstrip("\n").replace("\n", ",")
    return [Record(one["path"], _RANK_OF[one["type"]], one["size"]) for one in json.loads(f"[{lines}]")]


def planned_paths(store: PlanStore, indexes: Sequence[PlanIndex], kinds: Iterable[Phase]) -> Iterator[str]:
    """The paths of one or several plans in order; raises PlanTampered.

    Of each sorted run one chunk is open, compressed: memory is bounded by their number.
    """
    wanted = tuple(kinds)
    runs = [run for index in indexes for kind in wanted for run in sorted_runs(index, kind)]
    return heapq.merge(*(_paths(store, plan_id, chunks) for plan_id, chunks in runs))


def sorted_runs(index: PlanIndex, kind: Phase) -> list[tuple[str, list[Chunk]]]:
    """Chunks that follow each other in order; the Spark engine's partitions are sorted each for itself."""
    runs: list[list[Chunk]] = []
    for chunk in index.chunks:
        if chunk.kind is not kind:
            continue
        if runs and runs[-1][-1].last < chunk.first:
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
    return [(index.plan_id, run) for run in runs]


def _paths(store: PlanStore, plan_id: str, chunks: Iterable[Chunk]) -> Iterator[str]:
    for chunk in chunks:
        stored = io.BytesIO(read_verified(store, plan_id, chunk))
        with gzip.open(stored, "rt", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                # Nearly every line needs no JSON reader: without an escape the path is what stands between the quotes.
                path, found, _ = line.removeprefix(_BEFORE).partition(_AFTER)
                if found and "\\" not in path and line.startswith(_BEFORE):
                    yield path
                else:
                    yield json.loads(line)["path"]
