"""What plans of Spark have in common: tasks that read manifests and spread rows over parts, tasks that write parts.

Manifests → reading tasks (`SpreadSources`) → sorted, packed runs by a hash of the path → one task for each part
(`WriteParts`), which has all rows of its paths: it merges, subtracts and writes chunks. No path is sent to the driver,
but chunk names, counts and samples are (`WrittenParts`). An operation states what is read and what is written; its rows
have marks of its own below ERROR. `spark_tasks` describes what all functions of executors have in common.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.files import Row
from delegation.iceberg.reach import Fetcher, Tolerance, tolerated_entries
from delegation.storage.base import ObjectStore
from delegation.worksets.chunks import Chunk, Phase, Total, add_totals
from delegation.worksets.engines.resources import ExecutorResources, no_checkpoint
from delegation.worksets.engines.shuffle import Gathered, Run, Spread, pack, unpack
from delegation.worksets.engines.size import UNCOUNTED_ENTRIES
from delegation.worksets.engines.spark_tasks import Result, encode_error, plans_of
from delegation.worksets.engines.worker import prepare_worker
from delegation.worksets.index import SAMPLE, Finding
from delegation.worksets.writing import PlanWriter
from polaris_common.errors import DelegationError

ERROR: Final = 9
"""The mark of an encoded error, which ends the job. Those of an operation's rows are smaller."""


class ManifestToRead(NamedTuple):
    """A manifest to read, the most bytes of it, and the values of the ManifestFile that its list has."""

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
    """Yield the files of all entries of the manifests, or of the `live` ones, in lists; see `iceberg.reach.entries`."""
    wanted = {one.path: one for one in listed}
    fetcher = Fetcher(store, threads=threads, checkpoint=no_checkpoint)
    for path, content in fetcher.fetch((one.path, one.most) for one in wanted.values()):
        yield from tolerated_entries(path, wanted[path].manifest, content, tolerance, live=live)


def expected_rows(manifests: Iterable[ManifestFile]) -> int:
    """Return how many entries manifests have, by the lists that name them."""
    return sum(manifest.entries or UNCOUNTED_ENTRIES for manifest in manifests)


@dataclass(frozen=True, slots=True)
class SpreadSources:
    """Maps numbers of packed `sources` to sorted runs of so many `parts`.

    `read` yields the rows of one source, unpacked, in lists with their mark. It is pickled with the job. Rows whose
    texts are the same up to `end` come to one part.
    """

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
        """Return what reads these sources, which are values of JSON."""
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
    """Maps the runs of one or more parts to one result for each; `write` returns it, and is pickled with the job."""

    write: Callable[[Gathered, int], Result]

    def __call__(self, runs: Iterable[Run]) -> Iterator[Result]:
        prepare_worker()
        gathered = Gathered(runs)
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
    """Return what the names of a part's chunks begin with after their phase."""
    return f"p{part:05d}-"


def part_writer(resources: ExecutorResources, plan_id: str, part: int, *, chunk_paths: int) -> PlanWriter:
    """Return what writes the chunks of a part, under names of its own."""
    return PlanWriter(plans_of(resources), plan_id, chunk_paths=chunk_paths, part=name_of(part))


def written(writer: PlanWriter, kept: Iterable[tuple[str, Finding]]) -> Result:
    """Store the last chunks of a part; return its result, with what is `kept` by the reason."""
    chunks, totals = writer.close()
    return {
        "chunks": [chunk.model_dump(mode="json") for chunk in chunks],
        "totals": {name: total.model_dump() for name, total in totals.items()},
        "kept": [(reason, finding.model_dump()) for reason, finding in kept],
    }


@dataclass(slots=True)
class WrittenParts:
    """What the tasks of all parts wrote: chunks in the order of a plan, totals by file type, and what is kept and why.

    Samples are the first paths of all, as in a plan that one process makes.
    """

    chunks: list[Chunk] = field(default_factory=list)
    totals: dict[str, Total] = field(default_factory=dict)
    kept: dict[str, Finding] = field(default_factory=dict)

    @classmethod
    def of(cls, results: Iterable[Result]) -> Self:
        """Return the sum of results of `written`."""
        found = cls()
        for result in results:
            found.chunks.extend(Chunk.model_validate(chunk) for chunk in result["chunks"])
            add_totals(found.totals, {name: Total.model_validate(total) for name, total in result["totals"].items()})
            for reason, stored in result["kept"]:
                more = Finding.model_validate(stored)
                before = found.kept.get(reason, Finding(code=more.code, count=0))
                sample = tuple(sorted((*before.sample, *more.sample))[:SAMPLE])
                found.kept[reason] = Finding(code=more.code, count=before.count + more.count, sample=sample)
        order = list(Phase)
        found.chunks.sort(key=lambda chunk: (order.index(chunk.kind), chunk.name))
        return found
