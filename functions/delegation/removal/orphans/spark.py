"""Removes orphan files with Spark: executors list, compare and delete unchanged objects.

The driver gets chunk names, counts and samples. Listing, manifests, other tasks' plans → reading tasks
(`removal.sources`) → sorted runs by a hash of the folded path, which joins spellings → one task for each part subtracts
→ runs of orphans by ranges of paths → one task for each range sorts and writes chunks. So the plan is in the order of
paths, as one process writes it, and neighbouring files in the store are checked together.
"""

import functools
import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple, Self

from pyspark import SparkContext

from delegation.errors import RunStopped
from delegation.iceberg.avro.manifests import ManifestFile
from delegation.iceberg.paths import Row
from delegation.identifiers import TableIdentifier
from delegation.removal.chunks import Chunk, paths_of
from delegation.removal.context import random_id
from delegation.removal.deletes import Tally, Work
from delegation.removal.errors import PlanLost
from delegation.removal.index import PlanIndex
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.neighbours import ReadOnce
from delegation.removal.orphans.context import OrphanContext, OrphanResult
from delegation.removal.orphans.deletes import ConditionalStore, delete_unchanged
from delegation.removal.orphans.foreign import ForeignAtLocation
from delegation.removal.orphans.index import Candidate, CandidateWriter, candidates_of, read_candidates
from delegation.removal.orphans.listing import ListedProgress, PartLister, PartsListing
from delegation.removal.orphans.needed_rows import NeededSet, SortedNeeded, StoredParts
from delegation.removal.orphans.place import END, Equal, joined_all
from delegation.removal.orphans.run import OrphanRun
from delegation.removal.orphans.subtraction import Orphans, Rules, Subtraction, rows_of, write_held, write_rows
from delegation.removal.sources import (
    CANDIDATE,
    FOREIGN,
    NEEDED,
    OWN,
    UNREAD,
    MarkedRows,
    NeighbourSources,
    ReadSources,
    Sources,
)
from delegation.removal.spark import SparkDeletes, SparkJobs, in_session
from delegation.removal.spark_executors import (
    ERROR,
    DeleteChunks,
    ExecutorResources,
    ReceivedRuns,
    Result,
    Run,
    Spread,
    WriteParts,
    checkpoint_of,
    encode_error,
    name_of,
    pack,
    plans_of,
    prepare_worker,
    store_of,
    try_of_task,
    unpack,
)
from delegation.removal.unread_neighbours import UnreadNeighbours
from delegation.storage.deleter import DeletePolicy, Deleter
from delegation.timestamps import utc_now
from polaris_common.errors import DelegationError


@dataclass(frozen=True, slots=True)
class ListOnExecutors:
    """Maps numbers of `shares` (packed parts with their positions) to one result per part, its new position. A part is
    listed up to `most_pages` at a time."""

    resources: ExecutorResources
    identifier: TableIdentifier
    how: PartsListing
    most_pages: int
    shares: tuple[bytes, ...]
    task_id: str
    attempt: int

    def __call__(self, numbers: Iterable[int]) -> Iterator[Result]:
        prepare_worker()
        try:
            lister = PartLister(
                self.how,
                store_of(self.resources, self.identifier),
                plans_of(self.resources),
                checkpoint_of(self.resources, self.task_id, self.attempt),
                utc_now,
                name=f"{try_of_task()}-",
            )
            for number in numbers:
                begun = [ListedProgress.model_validate_json(text) for text in unpack(self.shares[number])]
                for progress in lister.run(begun, self.most_pages):
                    yield {"listed": progress.model_dump_json()}
        except (DelegationError, RunStopped) as error:
            yield {"error": encode_error(error)}


LEFT, HELD, NOTE = range(1, 4)
"""Marks of rows that are written: candidates (`Subtraction.orphans`), what stays for foreign tables, a PartNote."""


@dataclass(frozen=True, slots=True)
class ReadOrphans(ReadSources):
    """Reads candidates (`subtraction.rows_of`), and texts of needed files. With `only_needed` missing chunks are left
    out. Missing, damaged or encrypted files of the table itself are an error."""

    equal: Equal
    only_needed: bool

    def planned(self, mark: int, plan_id: str, chunk: Chunk) -> Iterator[MarkedRows]:
        plans = plans_of(self.resources)
        if mark == NEEDED:
            for paths in paths_of(plans, plan_id, [chunk]):
                yield self._texts(paths), NEEDED
            return
        with suppress(PlanLost) if self.only_needed else nullcontext():
            yield rows_of(read_candidates(plans, plan_id, chunk), self.equal), mark

    def marked(self, rows: Sequence[Row], mark: int) -> Iterator[MarkedRows]:
        if mark != FOREIGN:
            yield self._texts([path for path, _, _ in rows]), NEEDED
            return
        for number, some in groupby(rows, itemgetter(1)):
            yield self._texts([path for path, _, _ in some], number), FOREIGN

    def _texts(self, paths: Sequence[str], number: int = 0) -> list[Row]:
        return [(text, number, 0) for text in joined_all(paths, self.equal)]


class PartNote(NamedTuple):
    """One part's result for the driver: how many are needed, why others stay, and what could not be read. `stay` has
    for each code the number of files and the first paths, `unread` texts for NeighbourSources.take."""

    part: int
    needed: int
    stay: Sequence[tuple[str, int, Sequence[str]]]
    unread: Sequence[str]

    @classmethod
    def loaded(cls, text: str) -> Self:
        """Return a note from the text of its row."""
        return cls(*json.loads(text))


@dataclass(frozen=True, slots=True)
class SubtractParts:
    """Maps the runs of one or more parts to runs of the rest, or of what is needed, by ranges of paths. `ends` are the
    paths at which all ranges but the last end. Other results of a part are a row of NOTE."""

    rules: Rules
    ends: tuple[str, ...]
    only_needed: bool

    def __call__(self, runs: Iterable[Run]) -> Iterator[Run]:
        prepare_worker()
        gathered = ReceivedRuns(runs)
        spread = Spread(len(self.ends) + 1, part_of=lambda text: bisect_right(self.ends, text))
        for part in gathered.parts:
            errors = [(text, 0, 0) for text in islice(gathered.paths(part, ERROR), 1)]
            if errors:
                yield from spread.add(errors, ERROR)
                continue
            subtraction = Subtraction(self.rules)
            texts = ([text for text, _, _ in rows] for rows in gathered.rows(part, NEEDED))
            listed, foreign = gathered.rows(part, CANDIDATE), gathered.rows(part, FOREIGN)
            if self.only_needed:
                for rows in subtraction.others(listed, texts, foreign):
                    yield from spread.add(rows, LEFT)
            else:
                for rows, held in subtraction.orphans(listed, texts, foreign):
                    yield from spread.add(rows, LEFT)
                    yield from spread.add(held, HELD)
            stay = [(code, tally.count, tally.sample) for code, tally in subtraction.stay.items()]
            note = PartNote(part, subtraction.needed, stay, list(gathered.paths(part, UNREAD)))
            yield from spread.add([(json.dumps(note), 0, 0)], NOTE)
        yield from spread.flush()


@dataclass(frozen=True, slots=True)
class WriteRanges:
    """Writes the rest in a range of paths as chunks of a plan. Returns these, and the notes of parts."""

    resources: ExecutorResources
    plan_id: str
    chunk_paths: int

    def __call__(self, runs: ReceivedRuns, part: int) -> Result:
        plans, name = plans_of(self.resources), name_of(part)
        writer = CandidateWriter(plans, self.plan_id, name, chunk_paths=self.chunk_paths)
        chunks = write_rows(writer, runs.rows(part, LEFT))
        held = write_held(plans, self.plan_id, name, runs.rows(part, HELD), self.chunk_paths)
        return {
            "chunks": [chunk.model_dump(mode="json") for chunk in chunks],
            "held": [(number, chunk.model_dump(mode="json")) for number, some in held.items() for chunk in some],
            "notes": list(runs.paths(part, NOTE)),
        }


class DeleteOrphans(DeleteChunks):
    """Maps numbers of shares to one result per chunk of one plan. Deletes unchanged objects."""

    __slots__ = ()

    def deleted(
        self, plans: Any, works: Iterable[Work], checkpoint: Callable[[], None]
    ) -> Iterator[tuple[Work, Tally]]:
        store = _store(self.resources, self.identifier)
        (plan_id,) = self.plans
        store.begin(plan_id)
        return delete_unchanged(plans, works, store, _deleter(self.resources, self.identifier, self.policy), checkpoint)


# One of each per process, as in removal.spark_executors.
@functools.cache
def _store(resources: ExecutorResources, identifier: TableIdentifier) -> ConditionalStore:
    return ConditionalStore(store_of(resources, identifier), plans_of(resources), random_id)


@functools.cache
def _deleter(resources: ExecutorResources, identifier: TableIdentifier, policy: DeletePolicy) -> Deleter:
    return Deleter(_store(resources, identifier), policy)  # type: ignore[arg-type]


class SpreadNeeded:
    """NeededSet with executors: the driver reads metadata and manifest lists, and records what else to read. The driver
    reads and compares up to `rows_here` files itself, because a job takes longer to start."""

    def __init__(self, ctx: OrphanContext, jobs: SparkJobs) -> None:
        self._ctx = ctx
        self._jobs = jobs
        self._once = ReadOnce()
        self._unread = UnreadNeighbours(ctx)
        self._neighbour_sources = NeighbourSources(ctx, self._unread, self._once)
        self._paths: list[str] = []
        self._own: dict[str, ManifestFile] = {}
        self._neighbours: list[Neighbour] = []
        self._plans: list[PlanIndex] = []
        self._here: SortedNeeded | None = None
        self._foreign: ForeignAtLocation | None = None

    def add_files(self, paths: Iterable[str]) -> None:
        self._paths.extend(paths)

    def add_entries(self, manifests: Mapping[str, ManifestFile]) -> None:
        self._own.update(manifests)

    def add_neighbour(self, neighbour: Neighbour) -> None:
        self._neighbour_sources.add(neighbour)
        self._neighbours.append(neighbour)

    def add_plan(self, index: PlanIndex) -> None:
        self._plans.append(index)

    def add_foreign(self, foreign: ForeignAtLocation) -> None:
        self._foreign = foreign
        for number, paths in foreign.files():
            self._neighbour_sources.rows.extend((FOREIGN, path, number, 0) for path in paths)
        once = ReadOnce(self._once.lists, self._once.former, self._once.manifests | foreign.known)
        for number, head in foreign.heads():
            with foreign.reading(number):
                self._neighbour_sources.add_foreign(head, number, foreign.unread, once)

    def subtracted(self, parts: StoredParts, plan_id: str, rules: Rules) -> Orphans:
        sources = self._sources(parts)
        if self._is_small(sources):
            return self._sorted_here().subtracted(parts, plan_id, rules)
        subtraction = Subtraction(rules)
        chunks, held, notes = self._compared(sources, parts, plan_id, rules, only_needed=False)
        for note in notes:
            subtraction.add(note.needed, note.stay, self._ctx.options.equal)
        subtraction.check()
        return subtraction.result(chunks, held, self._unread.findings())

    def needed_among(self, parts: StoredParts, rules: Rules) -> Iterator[list[Candidate]]:
        """See NeededSet.needed_among. What executors find is stored, and read chunk by chunk."""
        sources = self._sources(parts)
        if self._is_small(sources):
            return self._sorted_here().needed_among(parts, rules)
        plan_id = self._ctx.new_plan_id()
        chunks, _, _ = self._compared(sources, parts, plan_id, rules, only_needed=True)
        return candidates_of(self._ctx.plans, [(plan_id, chunks)])

    def close(self) -> None:
        if self._here is not None:
            self._here.close()

    def _sources(self, parts: StoredParts) -> Sources:
        sources = Sources(self._ctx, self._jobs, self._neighbour_sources)
        sources.add_rows(NEEDED, [(path, 0, 0) for path in self._paths])
        sources.add_manifests(OWN, self._own)
        for plan_id, chunks in parts:
            sources.add_chunks(CANDIDATE, plan_id, chunks)
        for index in self._plans:
            sources.add_chunks(NEEDED, index.plan_id, index.chunks)
        return sources

    def _is_small(self, sources: Sources) -> bool:
        return sources.expected <= self._ctx.settings.rows_here

    def _sorted_here(self) -> SortedNeeded:
        """Return the same files, read and sorted in this process."""
        if self._here is None:
            # Only the names of manifests are known; their contents were not read yet.
            self._here = SortedNeeded(self._ctx, ReadOnce(lists=self._once.lists, former=self._once.former))
            self._here.add_files(self._paths)
            self._here.add_entries(self._own)
            for neighbour in self._neighbours:
                self._here.add_neighbour(neighbour)
            for index in self._plans:
                self._here.add_plan(index)
            if self._foreign is not None:
                self._here.add_foreign(self._foreign)
        return self._here

    def _compared(
        self, sources: Sources, parts: StoredParts, plan_id: str, rules: Rules, *, only_needed: bool
    ) -> tuple[list[Chunk], dict[int, list[Chunk]], list[PartNote]]:
        """Compare on executors. Returns the chunks of the rest, or of `only_needed`, in order, then the chunks of what
        stays for foreign tables, and the parts' notes. If a foreign table is unreadable, everything at its place stays,
        which takes another comparison."""
        while True:
            areas = () if self._foreign is None else self._foreign.areas
            compared = self._compared_once(
                sources, parts, plan_id, replace(rules, places=areas), only_needed=only_needed
            )
            if self._foreign is None or self._foreign.areas == areas:
                return compared

    def _compared_once(
        self, sources: Sources, parts: StoredParts, plan_id: str, rules: Rules, *, only_needed: bool
    ) -> tuple[list[Chunk], dict[int, list[Chunk]], list[PartNote]]:
        ctx, jobs = self._ctx, self._jobs
        ends = range_ends(parts, jobs.parts_for(sum(chunk.count for _, chunks in parts for chunk in chunks)))
        runs = sources.spread(partial(ReadOrphans, equal=ctx.options.equal, only_needed=only_needed), end=END)
        writing = WriteParts(WriteRanges(jobs.resources, plan_id, ctx.settings.chunk_paths))
        left = runs.mapPartitions(SubtractParts(rules, ends, only_needed=only_needed))
        results = jobs.run(ctx.attempt, left.partitionBy(len(ends) + 1, int).mapPartitions(writing))
        notes = [PartNote.loaded(text) for result in results for text in result["notes"]]
        for note in notes:
            self._neighbour_sources.take(note.unread)
        chunks = [Chunk.model_validate(chunk) for result in results for chunk in result["chunks"]]
        held: dict[int, list[Chunk]] = {}
        for number, fields in (row for result in results for row in result["held"]):
            held.setdefault(number, []).append(Chunk.model_validate(fields))
        return sorted(chunks, key=lambda chunk: chunk.name), held, notes


def range_ends(parts: StoredParts, count: int) -> tuple[str, ...]:
    """Return the ends of up to `count` ranges of paths with similar numbers of candidates, but the last's. Pure."""
    chunks = sorted((chunk for _, some in parts for chunk in some), key=lambda chunk: chunk.first)
    total, seen, ends = sum(chunk.count for chunk in chunks), 0, list[str]()
    for chunk in chunks:
        if seen and seen * count >= total * (len(ends) + 1) and (not ends or chunk.first > ends[-1]):
            ends.append(chunk.first)
        seen += chunk.count
    return tuple(ends)


class SparkOrphans(SparkDeletes):
    """OrphanEngine with the executors of one context."""

    task = DeleteOrphans

    def list_parts(
        self, ctx: OrphanContext, how: PartsListing, begun: Sequence[ListedProgress], listed: Callable[[int], None]
    ) -> Iterator[ListedProgress]:
        """See OrphanEngine.list_parts. The driver lists the first pages, so only large parts take a job. Executors list
        a limited number of pages at a time. That is a sign of life for the lease, and spreads the work when one part is
        much larger than others."""
        here, left = PartLister(how, ctx.store, ctx.plans, ctx.attempt.checkpoint, ctx.clock), list[ListedProgress]()
        for progress in here.run(begun, ctx.settings.pages_here):
            if progress.done:
                yield progress
            else:
                left.append(progress)
        while left:
            listed(sum(progress.files for progress in left))
            listed_parts = self._list_some(ctx, how, left)
            yield from (progress for progress in listed_parts if progress.done)
            left = [progress for progress in listed_parts if not progress.done]

    def _list_some(
        self, ctx: OrphanContext, how: PartsListing, begun: Sequence[ListedProgress]
    ) -> list[ListedProgress]:
        """List some pages of each part on the executors, several parts in each task. Returns their positions."""
        shares = self._jobs.shares([progress.model_dump_json() for progress in begun], self._jobs.parallelism)
        task = ListOnExecutors(
            resources=self._jobs.resources,
            identifier=ctx.identifier,
            how=how,
            most_pages=ctx.settings.pages_at_once,
            shares=tuple(pack(share) for share in shares),
            task_id=ctx.attempt.task_id,
            attempt=ctx.attempt.attempt,
        )
        results = self._jobs.run(ctx.attempt, self._jobs.numbered(len(shares)).mapPartitions(task))
        return [ListedProgress.model_validate_json(result["listed"]) for result in results]

    def needed(self, ctx: OrphanContext) -> NeededSet:
        return SpreadNeeded(ctx, self._jobs)


def remove_with_spark(spark: SparkContext, ctx: OrphanContext, resources: ExecutorResources) -> OrphanResult:
    """Remove with executors; as `run.remove_orphan_files`, and raises EngineFailed too. `ctx` is the driver's; with
    `resources` each executor process opens its stores, which list, and checks the lease. Between two jobs only the
    driver works, so what is needed by then is subtracted before the next job."""
    return OrphanRun(ctx, SparkOrphans(SparkJobs(spark, resources))).run()


remove_in_session = in_session(remove_with_spark)
