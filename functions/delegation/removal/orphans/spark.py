"""Removing orphan files with Spark: executors list, compare and delete.

Comparing listed files with needed ones on Spark's executors: the driver gets chunk names, counts and samples.
Listing, manifests, other tasks' plans → reading tasks → sorted runs by a hash of the folded path, by which spellings
are joined → one task for each part subtracts → runs of orphans by ranges of paths → one task for each range sorts and
writes chunks. So the plan is in the order of its paths, as one process writes it: files that are together in the store
are looked at together.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from pyspark import SparkContext

from delegation.iceberg.avro.manifests import ManifestFile
from delegation.removal.choice import UNCOUNTED_ENTRIES
from delegation.removal.chunks import Chunk
from delegation.removal.executors import (
    ExecutorResources,
    ManifestToRead,
    SpreadSources,
    WriteParts,
    expected_rows,
    pack,
)
from delegation.removal.index import PlanIndex
from delegation.removal.model import Neighbour
from delegation.removal.neighbours import ReadOnce
from delegation.removal.orphans.context import OrphanContext, OrphanResult
from delegation.removal.orphans.executors import (
    BothSource,
    DeleteOrphans,
    ListOnExecutors,
    PartNote,
    ReadBoth,
    SubtractParts,
    WriteRanges,
)
from delegation.removal.orphans.index import Candidate, candidates_of
from delegation.removal.orphans.listing import ListedProgress, PartLister, PartsListing
from delegation.removal.orphans.needed import ForeignAtLocation, NeededSet, SortedNeeded, StoredParts
from delegation.removal.orphans.place import END
from delegation.removal.orphans.run import OrphanRun
from delegation.removal.orphans.subtraction import Orphans, Rules, Subtraction
from delegation.removal.spark import OWN, NearTables, SparkDeletes, SparkJobs, in_session
from delegation.removal.unread import UnreadNeighbours

_PATHS: Final = 50_000
"""Paths that the driver has read, for one task."""


class SpreadNeeded:
    """NeededSet with executors: the driver reads metadata and manifest lists, and notes what else is to be read.

    Up to `rows_here` files are read and compared by the driver, because a job takes longer to start.
    """

    def __init__(self, ctx: OrphanContext, jobs: SparkJobs) -> None:
        self._ctx = ctx
        self._jobs = jobs
        self._once = ReadOnce()
        self._unread = UnreadNeighbours(ctx)
        self._near = NearTables(ctx, self._unread, self._once)
        self._paths: list[str] = []
        self._own: dict[str, ManifestFile] = {}
        self._neighbours: list[Neighbour] = []
        self._plans: list[PlanIndex] = []
        self._here: SortedNeeded | None = None
        self._foreign: ForeignAtLocation | None = None
        self._versions = NearTables(ctx, UnreadNeighbours(ctx))
        self._numbers: list[int] = []
        self._foreign_listed: list[tuple[int, ManifestToRead]] = []
        self._foreign_paths: list[tuple[int, Sequence[str]]] = []

    def add_files(self, paths: Iterable[str]) -> None:
        self._paths.extend(paths)

    def add_entries(self, manifests: Mapping[str, ManifestFile]) -> None:
        self._own.update(manifests)

    def add_neighbour(self, neighbour: Neighbour) -> None:
        self._near.add(neighbour)
        self._neighbours.append(neighbour)

    def add_plan(self, index: PlanIndex) -> None:
        self._plans.append(index)

    def add_foreign(self, foreign: ForeignAtLocation) -> None:
        """See NeededSet.add_foreign; of one table its versions share most manifests, which are read once."""
        self._foreign, self._foreign_paths = foreign, list(foreign.files())
        once = ReadOnce(self._once.lists, self._once.former, self._once.manifests | foreign.known)
        self._versions = NearTables(self._ctx, foreign.unread, once)
        listed: set[tuple[int, str]] = set()
        for number, head in foreign.heads():
            rows, manifests = len(self._versions.rows), len(self._versions.listed)
            self._numbers.append(number)
            with foreign.reading(number):
                self._versions.add(head, slim=True)
            self._foreign_paths.append((number, [path for path, _, _ in self._versions.rows[rows:]]))
            fresh = [one for one in self._versions.listed[manifests:] if (number, one[1].path) not in listed]
            listed.update((number, one.path) for _, one in fresh)
            self._foreign_listed += fresh

    def subtracted(self, parts: StoredParts, plan_id: str, rules: Rules) -> Orphans:
        if self._is_small(parts):
            return self._sorted_here().subtracted(parts, plan_id, rules)
        found = Subtraction(rules)
        chunks, held, notes = self._compared(parts, plan_id, rules, only_needed=False)
        for note in notes:
            found.add(note.needed, note.stay, self._ctx.options.equal)
        found.check()
        return found.result(chunks, held, self._unread.findings())

    def needed_among(self, parts: StoredParts, rules: Rules) -> Iterator[list[Candidate]]:
        """See NeededSet.needed_among; what executors find is stored, and read chunk by chunk."""
        if self._is_small(parts):
            return self._sorted_here().needed_among(parts, rules)
        plan_id = self._ctx.new_plan_id()
        chunks, _, _ = self._compared(parts, plan_id, rules, only_needed=True)
        return candidates_of(self._ctx.plans, [(plan_id, chunks)])

    def close(self) -> None:
        if self._here is not None:
            self._here.close()

    def _is_small(self, parts: StoredParts) -> bool:
        return self._expected(parts) <= self._ctx.settings.rows_here

    def _expected(self, parts: StoredParts) -> int:
        """Return how many files are compared, by the manifest lists and the chunks."""
        read_here = len(self._paths) + len(self._near.rows)
        planned = sum(chunk.count for index in self._plans for chunk in index.chunks)
        foreign = sum(len(paths) for _, paths in self._foreign_paths)
        foreign += sum(one.manifest.entries or UNCOUNTED_ENTRIES for _, one in self._foreign_listed)
        return read_here + expected_rows(self._own.values()) + self._near.expected + planned + foreign + _count(parts)

    def _sorted_here(self) -> SortedNeeded:
        """Return the same files, read and sorted in this process."""
        if self._here is None:
            # What a manifest names was not read yet, only which manifests there are.
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
        self, parts: StoredParts, plan_id: str, rules: Rules, *, only_needed: bool
    ) -> tuple[list[Chunk], dict[int, list[Chunk]], list[PartNote]]:
        """Compare on executors; return the chunks of what is left, or `only_needed`, in order, and what parts note.

        Between them are the chunks of what stays for foreign tables. If one of these cannot be read, all at its place
        stays, which takes another comparison.
        """
        while True:
            areas = () if self._foreign is None else self._foreign.areas
            found = self._compared_once(parts, plan_id, replace(rules, places=areas), only_needed=only_needed)
            if self._foreign is None or self._foreign.areas == areas:
                return found

    def _compared_once(
        self, parts: StoredParts, plan_id: str, rules: Rules, *, only_needed: bool
    ) -> tuple[list[Chunk], dict[int, list[Chunk]], list[PartNote]]:
        ctx, jobs = self._ctx, self._jobs
        rows = self._expected(parts)
        reading = ReadBoth(
            resources=jobs.resources,
            identifier=ctx.identifier,
            near=self._near.reading(jobs.resources),
            threads=ctx.settings.read_threads,
            equal=ctx.options.equal,
            only_needed=only_needed,
            foreign=self._versions.reading(jobs.resources),
            numbers=tuple(self._numbers),
        )
        ends = range_ends(parts, jobs.parts_for(_count(parts)))
        sources = self._sources(parts, rows)
        runs = jobs.spread(SpreadSources.of(reading, jobs.parts_for(rows), sources, end=END))
        writing = WriteParts(WriteRanges(jobs.resources, plan_id, ctx.settings.chunk_paths))
        left = runs.mapPartitions(SubtractParts(rules, ends, only_needed=only_needed))
        results = jobs.run(ctx.attempt, left.partitionBy(len(ends) + 1, int).mapPartitions(writing))
        notes = [PartNote.loaded(text) for result in results for text in result["notes"]]
        for note in notes:
            self._near.take(note.unread)
            self._versions.take(note.foreign)
        chunks = [Chunk.model_validate(one) for result in results for one in result["chunks"]]
        held: dict[int, list[Chunk]] = {}
        for number, one in (one for result in results for one in result["held"]):
            held.setdefault(number, []).append(Chunk.model_validate(one))
        return sorted(chunks, key=lambda chunk: chunk.name), held, notes

    def _sources(self, parts: StoredParts, rows: int) -> list[BothSource]:
        limit, jobs = self._ctx.settings.max_file_bytes, self._jobs
        own = ((OWN, *ManifestToRead(path, limit, one)) for path, one in self._own.items())
        reading = [*own, *((number, *one) for number, one in self._near.listed)]
        listed = [(plan_id, chunk.model_dump_json()) for plan_id, chunks in parts for chunk in chunks]
        planned = [(one.plan_id, chunk.model_dump_json()) for one in self._plans for chunk in one.chunks]
        foreign = [(version, *one) for version, one in self._foreign_listed]
        paths = [*self._paths, *(path for path, _, _ in self._near.rows)]
        return list(
            chain(
                (BothSource(listed=share) for share in jobs.shares_of_rows(listed, rows)),
                (BothSource(manifests=share) for share in jobs.shares_of_rows(reading, rows)),
                (BothSource(planned=share) for share in jobs.shares_of_rows(planned, rows)),
                (BothSource(paths=paths[at : at + _PATHS]) for at in range(0, len(paths), _PATHS)),
                (BothSource(foreign=share) for share in jobs.shares_of_rows(foreign, rows)),
                (
                    BothSource(foreign_paths=[(number, some[at : at + _PATHS])])
                    for number, some in self._foreign_paths
                    for at in range(0, len(some), _PATHS)
                ),
            )
        )


def _count(parts: StoredParts) -> int:
    return sum(chunk.count for _, chunks in parts for chunk in chunks)


def range_ends(parts: StoredParts, count: int) -> tuple[str, ...]:
    """Return the paths at which up to `count` ranges of about as many candidates end; the last one has no end. Pure."""
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
        """See OrphanEngine.list_parts: the driver lists the first pages, so that only large parts take a job.

        Executors list so many pages of each at a time, which is a sign of life for the lease, and where a part that is
        much larger than others is left to fewer tasks.
        """
        here, left = PartLister(how, ctx.store, ctx.plans, ctx.attempt.checkpoint, ctx.clock), list[ListedProgress]()
        for one in here.run(begun, ctx.settings.pages_here):
            if one.done:
                yield one
            else:
                left.append(one)
        while left:
            listed(sum(one.files for one in left))
            found = self._list_some(ctx, how, left)
            yield from (one for one in found if one.done)
            left = [one for one in found if not one.done]

    def _list_some(
        self, ctx: OrphanContext, how: PartsListing, begun: Sequence[ListedProgress]
    ) -> list[ListedProgress]:
        """List some pages of each part on the executors, several parts in each task; return how far they are."""
        shares = self._jobs.shares([one.model_dump_json() for one in begun], self._jobs.parallelism)
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
    """Remove with executors; like `run.remove_orphan_files`, and raises EngineFailed as well.

    `ctx` is the driver's; with `resources` each executor process opens its stores, which list, and checks the lease.
    Between two jobs the driver alone works, so that what is needed by then is subtracted before the next one.
    """
    return OrphanRun(ctx, SparkOrphans(SparkJobs(spark, resources))).run()


remove_in_session = in_session(remove_with_spark)
