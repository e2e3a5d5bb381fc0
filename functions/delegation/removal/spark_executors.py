"""What Spark executors run for all operations: reading, spreading and writing rows, and deleting chunks.

Manifests → reading tasks (`SpreadSources`) → sorted, packed runs by a hash of the path → one task for each part
(`WriteParts`), which has all rows of its paths: it merges, subtracts and writes chunks. The driver gets chunk names,
counts and samples (`WrittenParts`), no paths. For Spark a run is one pair: the part, and a mark (the kind of rows, an
operation's own below ERROR) with the run's packed lists. Python sorts and packs, so that the JVM moves few, small rows.

Functions are pickled with the job without clients and credentials, which `resources` creates on the executor. Errors
are results, because Spark would convert them to text.
"""

import base64
import functools
import json
import pickle
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import Any, Final, NamedTuple, Protocol, Self

import zstandard

from delegation.errors import RunStopped
from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.paths import Row
from delegation.iceberg.reach import Fetcher, Tolerance, tolerated_entries
from delegation.identifiers import TableIdentifier
from delegation.removal.attempt import collect_seldom
from delegation.removal.choice import UNCOUNTED_ENTRIES
from delegation.removal.chunks import Chunk, Phase, Total, add_totals
from delegation.removal.deletes import Tally, Work, delete_chunks
from delegation.removal.errors import EngineFailed
from delegation.removal.index import (
    RUN_RECORDS,
    SAMPLE,
    Finding,
    PlanIndex,
    PlanWriter,
    dump_rows,
    load_rows,
    merged,
    sort_rows,
)
from delegation.storage.base import ObjectStore, PlanStore
from delegation.storage.deleter import DeletePolicy, Deleter
from polaris_common.errors import DelegationError
from polaris_common.spark_workers import forget_archives


class ExecutorResources(Protocol):
    """Creates the stores of an executor process. Picklable and hashable. Methods are called once per process."""

    def __hash__(self) -> int: ...

    def store(self, identifier: TableIdentifier) -> ObjectStore:
        """Return the store of a table's files."""
        ...

    def plans(self) -> PlanStore:
        """Return the store of plans."""
        ...

    def checkpoint(self, task_id: str, attempt: int) -> Callable[[], None]:
        """Return a cheap function to call before each batch. Both raise RunStopped or another error to stop it."""
        ...


def no_checkpoint() -> None:
    """Do nothing: the checkpoint of work without a lease."""


def prepare_worker() -> None:
    """Reduce what this process, an executor's of one job, spends on garbage and on archives."""
    collect_seldom()
    forget_archives()


Run = tuple[int, tuple[int, list[bytes]]]
"""The number of a part, and a mark with packed lists of rows, sorted over all lists."""

# Rows per list. A list is in memory as a whole while runs are merged.
_LIST_ROWS = 500
_WORD = 0xFFFFFFFF
_ODD = 0x9E3779B1  # 2³² by the golden ratio (Knuth's multiplicative hashing)


def pack(value: Any) -> bytes:
    """Compress a JSON value. `unpack` returns tuples as lists."""
    return compress(json.dumps(value, separators=(",", ":")).encode())


def unpack(data: bytes) -> Any:
    return json.loads(decompress(data))


def compress(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(data)


def decompress(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data)


class Spread:
    """Collects up to about `most` rows and yields them as runs of `count` parts. A row's part is that of the hash of
    its path up to `end`, if rows have more than the text by which they are joined; or `part_of` returns it."""

    def __init__(
        self, count: int, *, most: int = RUN_RECORDS, end: str = "", part_of: Callable[[str], int] | None = None
    ) -> None:
        self._count = count
        self._most = most
        self._end = end
        self._part_of = part_of
        self._parts: defaultdict[int, list[list[Row]]] = defaultdict(lambda: [[] for _ in range(count)])
        self._held = 0

    def add(self, rows: Sequence[Row], mark: int) -> Iterator[Run]:
        parts, count, crc32, end, part_of = self._parts[mark], self._count, zlib.crc32, self._end, self._part_of
        if part_of is not None:
            for row in rows:
                parts[part_of(row[0])].append(row)
        elif end:
            for row in rows:
                parts[(crc32(row[0].partition(end)[0].encode()) * _ODD & _WORD) * count >> 32].append(row)
        else:
            for row in rows:
                # CRC-32 alone is uneven: it hardly differs for paths that differ in one digit.
                parts[(crc32(row[0].encode()) * _ODD & _WORD) * count >> 32].append(row)
        self._held += len(rows)
        if self._held >= self._most:
            yield from self.flush()

    def flush(self) -> Iterator[Run]:
        """Yield the collected rows as runs. Call it once more at the end."""
        for mark, parts in self._parts.items():
            for part, rows in enumerate(parts):
                if rows:
                    sort_rows(rows)
                    lists = [compress(dump_rows(rows[at : at + _LIST_ROWS])) for at in range(0, len(rows), _LIST_ROWS)]
                    yield part, (mark, lists)
        self._parts.clear()
        self._held = 0


class ReceivedRuns:
    """The runs that a task received, by part and mark. One list of each run is unpacked at a time."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._runs: defaultdict[int, defaultdict[int, list[list[bytes]]]] = defaultdict(lambda: defaultdict(list))
        for part, (mark, lists) in runs:
            self._runs[part][mark].append(lists)

    @property
    def parts(self) -> list[int]:
        return sorted(self._runs)

    def rows(self, part: int, mark: int) -> Iterator[list[Row]]:
        """Yield the rows sorted, each path once."""
        return merged([_lists(run) for run in self._runs[part][mark]])

    def paths(self, part: int, mark: int) -> Iterator[str]:
        """Yield the paths sorted, each once."""
        return (path for path, _, _ in chain.from_iterable(self.rows(part, mark)))


def _lists(run: Sequence[bytes]) -> Iterator[list[Row]]:
    for data in run:
        yield load_rows(decompress(data))


Result = dict[str, Any]
"""What a task sends to the driver: plain values, or an encoded `error`."""
ENDED: Final = "ended"
"""The key of a task's number in its last result."""


def ended_with_number(number: int, results: Iterable[Result]) -> Iterator[Result]:
    """Yield the results of a task and a final one that states that they are complete."""
    yield from results
    yield {ENDED: number}


@dataclass(frozen=True, slots=True)
class DeleteChunks:
    """Maps numbers of `shares` (packed plan ids and chunks) to one result per chunk."""

    resources: ExecutorResources
    identifier: TableIdentifier
    policy: DeletePolicy
    plans: dict[str, str]
    shares: tuple[bytes, ...]
    task_id: str
    attempt: int
    voided: dict[str, int] = field(default_factory=dict)
    not_after: float = inf

    def __call__(self, numbers: Iterable[int]) -> Iterator[Result]:
        prepare_worker()
        plans = plans_of(self.resources)
        try:
            checkpoint = checkpoint_of(self.resources, self.task_id, self.attempt)
            for work, tally in self.deleted(plans, self._works(numbers), checkpoint):
                fields = {name: getattr(tally, name) for name in Tally.__dataclass_fields__}
                yield {"plan_id": work.index.plan_id, "chunk": work.chunk.name, "tally": fields}
        except (DelegationError, RunStopped) as error:
            yield {"error": encode_error(error)}

    def deleted(
        self, plans: Any, works: Iterable[Work], checkpoint: Callable[[], None]
    ) -> Iterator[tuple[Work, Tally]]:
        """Delete chunks. Yields the result of each, after its mark if all was deleted."""
        return delete_chunks(plans, works, _deleter(self.resources, self.identifier, self.policy), checkpoint)

    def _works(self, numbers: Iterable[int]) -> Iterator[Work]:
        for number in numbers:
            for plan_id, stored in unpack(self.shares[number]):
                index = PlanIndex.model_validate_json(self.plans[plan_id])
                yield Work(index, Chunk.model_validate_json(stored), self.voided.get(plan_id, 0), self.not_after)


# One of each per process: clients are expensive, and the deleter must keep its rate.
@functools.cache
def store_of(resources: ExecutorResources, identifier: TableIdentifier) -> Any:
    return resources.store(identifier)


@functools.cache
def plans_of(resources: ExecutorResources) -> Any:
    return resources.plans()


@functools.cache
def checkpoint_of(resources: ExecutorResources, task_id: str, attempt: int) -> Callable[[], None]:
    return resources.checkpoint(task_id, attempt)


@functools.cache
def _deleter(resources: ExecutorResources, identifier: TableIdentifier, policy: DeletePolicy) -> Deleter:
    return Deleter(store_of(resources, identifier), policy)


def try_of_task() -> str:
    """Return a text that distinguishes the tries of a task, for work that a repeat does not do identically."""
    from pyspark import TaskContext  # noqa: PLC0415 - only executors have one

    here = TaskContext.get()
    return "0" if here is None else str(here.attemptNumber())


def encode_error(error: DelegationError | RunStopped) -> str:
    """Return an error as text for `decode_error`."""
    return base64.b64encode(pickle.dumps(error)).decode()


def decode_error(text: str) -> DelegationError | RunStopped:
    """Return the error that an executor raised."""
    # Only this job's executors write it; Spark pickles functions and results between the same processes.
    error = pickle.loads(base64.b64decode(text))  # noqa: S301
    return (
        error
        if isinstance(error, DelegationError | RunStopped)
        else EngineFailed("an executor sent an unreadable error")
    )


ERROR: Final = 9
"""The mark of an encoded error, which ends the job. The marks of an operation's rows are lower."""


class ManifestToRead(NamedTuple):
    """A manifest to read, its size limit in bytes, and its list's values of the ManifestFile."""

    path: str
    most: int
    listed: Sequence[Any]

    @property
    def manifest(self) -> ManifestFile:
        """The manifest as its list describes it."""
        return ManifestFile(*self.listed)


def entries_of(
    store: ObjectStore, listed: Iterable[ManifestToRead], tolerance: Tolerance, *, threads: int, live: bool = False
) -> Iterator[list[Row]]:
    """Yield the files of all or of the `live` entries of the manifests, in lists; see `iceberg.reach.entries`."""
    wanted = {source.path: source for source in listed}
    fetcher = Fetcher(store, threads=threads, checkpoint=no_checkpoint)
    for path, content in fetcher.fetch((source.path, source.most) for source in wanted.values()):
        yield from tolerated_entries(path, wanted[path].manifest, content, tolerance, live=live)


def expected_rows(manifests: Iterable[ManifestFile]) -> int:
    """Return the number of entries of manifests by their lists."""
    return sum(manifest.entries or UNCOUNTED_ENTRIES for manifest in manifests)


@dataclass(frozen=True, slots=True)
class SpreadSources:
    """Maps numbers of packed `sources` to sorted runs of `parts` parts. `read` yields the rows of one unpacked source,
    in lists with their mark, and is pickled with the job. Rows with the same text up to `end` come to one part."""

    read: Callable[[Any], Iterator[tuple[Sequence[Row], int]]]
    parts: int
    sources: tuple[bytes, ...]
    end: str = ""

    @classmethod
    def of(
        cls,
        read: Callable[[Any], Iterator[tuple[Sequence[Row], int]]],
        parts: int,
        sources: Iterable[object],
        *,
        end: str = "",
    ) -> Self:
        """Return a function that reads these sources, which are JSON values."""
        return cls(read, parts, tuple(pack(source) for source in sources), end)

    def __call__(self, numbers: Iterable[int]) -> Iterator[Run]:
        prepare_worker()
        spread = Spread(self.parts, end=self.end)
        for number in numbers:
            try:
                for rows, mark in self.read(unpack(self.sources[number])):
                    yield from spread.add(rows, mark)
            except DelegationError as error:
                yield from spread.add([(encode_error(error), 0, 0)], ERROR)
        yield from spread.flush()


@dataclass(frozen=True, slots=True)
class WriteParts:
    """Maps the runs of one or more parts to one result each. `write` returns it, and is pickled with the job."""

    write: Callable[[ReceivedRuns, int], Result]

    def __call__(self, runs: Iterable[Run]) -> Iterator[Result]:
        prepare_worker()
        gathered = ReceivedRuns(runs)
        for part in gathered.parts:
            failed = next(gathered.paths(part, ERROR), None)
            if failed is not None:
                yield {"error": failed}
                return
            try:
                yield self.write(gathered, part)
            except DelegationError as error:
                yield {"error": encode_error(error)}
                return


def name_of(part: int) -> str:
    """Return the prefix of a part's chunk names after their phase."""
    return f"p{part:05d}-"


def part_writer(resources: ExecutorResources, plan_id: str, part: int, *, chunk_paths: int) -> PlanWriter:
    """Return a writer of a part's chunks, under names of its own."""
    return PlanWriter(plans_of(resources), plan_id, chunk_paths=chunk_paths, part=name_of(part))


def written(writer: PlanWriter, kept: Iterable[tuple[str, Finding]]) -> Result:
    """Store the last chunks of a part. Returns its result, with what is `kept` by reason."""
    chunks, totals = writer.close()
    return {
        "chunks": [chunk.model_dump(mode="json") for chunk in chunks],
        "totals": {name: total.model_dump() for name, total in totals.items()},
        "kept": [(reason, finding.model_dump()) for reason, finding in kept],
    }


@dataclass(slots=True)
class WrittenParts:
    """What the tasks of all parts wrote: chunks in the order of a plan, totals by file type, and what is kept and why.
    Samples are the first paths of all, as in a plan made by one process."""

    chunks: list[Chunk] = field(default_factory=list)
    totals: dict[str, Total] = field(default_factory=dict)
    kept: dict[str, Finding] = field(default_factory=dict)

    @classmethod
    def of(cls, results: Iterable[Result]) -> Self:
        parts = cls()
        for result in results:
            parts.chunks.extend(Chunk.model_validate(chunk) for chunk in result["chunks"])
            add_totals(parts.totals, {name: Total.model_validate(total) for name, total in result["totals"].items()})
            for reason, stored in result["kept"]:
                more = Finding.model_validate(stored)
                before = parts.kept.get(reason, Finding(code=more.code, count=0))
                sample = tuple(sorted((*before.sample, *more.sample))[:SAMPLE])
                parts.kept[reason] = Finding(code=more.code, count=before.count + more.count, sample=sample)
        order = list(Phase)
        parts.chunks.sort(key=lambda chunk: (order.index(chunk.kind), chunk.name))
        return parts
