"""The functions that executors run for a removal of orphan files: list, compare, delete objects as they were listed.

`removal.executors` describes what all such functions have in common.
"""

import functools
import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Self

from delegation.errors import RunStopped
from delegation.iceberg.paths import Row
from delegation.identifiers import TableIdentifier
from delegation.removal.chunks import Chunk, paths_of
from delegation.removal.context import random_id
from delegation.removal.deletes import Tally, Work
from delegation.removal.errors import PlanLost
from delegation.removal.executors import (
    ERROR,
    DeleteChunks,
    ExecutorResources,
    Gathered,
    ManifestToRead,
    Result,
    Run,
    Spread,
    checkpoint_of,
    encode_error,
    entries_of,
    name_of,
    plans_of,
    prepare_worker,
    store_of,
    try_of_task,
    unpack,
)
from delegation.removal.orphans.deletes import ConditionalStore, delete_unchanged
from delegation.removal.orphans.index import CandidateWriter, read_candidates
from delegation.removal.orphans.listing import ListedProgress, PartLister, PartsListing
from delegation.removal.orphans.place import Equal, joined_all
from delegation.removal.orphans.subtraction import Rules, Subtraction, rows_of, write_held, write_rows
from delegation.removal.spark import OWN, UNREAD, ReadNear, noting
from delegation.storage.deleter import DeletePolicy, Deleter
from delegation.timestamps import utc_now
from polaris_common.errors import DelegationError


@dataclass(frozen=True, slots=True)
class ListOnExecutors:
    """Maps numbers of `shares` (packed parts, each as it is so far) to one result per part, which states how far it is.

    A part is listed up to `most_pages` at a time.
    """

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
                begun = [ListedProgress.model_validate_json(one) for one in unpack(self.shares[number])]
                for found in lister.run(begun, self.most_pages):
                    yield {"listed": found.model_dump_json()}
        except (DelegationError, RunStopped) as error:
            yield {"error": encode_error(error)}


LISTED, NEEDED = 1, 2
"""Marks of rows that are compared: candidates (`subtraction.rows_of`), and texts of needed files."""
LEFT, NOTE = 3, 4
"""Marks of rows that are written: candidates (`Subtraction.orphans`), and a PartNote."""
FOREIGN, HELD, FOREIGN_UNREAD = 5, 6, 7
"""Marks of what foreign tables need, with their numbers, of candidates that stay for them, and as UNREAD."""


class BothSource(NamedTuple):
    """What one task reads; chunks are (plan id, chunk as JSON).

    `listed` chunks are of candidates. Needed are what `manifests` (number of the table, then as in ManifestToRead) and
    `planned` chunks of other tasks name, and `paths` that the driver has read. `foreign` are such manifests of foreign
    tables' versions, `foreign_paths` the numbers of foreign tables with what the driver has read of them.
    """

    listed: Sequence[tuple[str, str]] = ()
    manifests: Sequence[tuple[int, str, int, Sequence[Any]]] = ()
    planned: Sequence[tuple[str, str]] = ()
    paths: Sequence[str] = ()
    foreign: Sequence[tuple[int, str, int, Sequence[Any]]] = ()
    foreign_paths: Sequence[tuple[int, Sequence[str]]] = ()


@dataclass(frozen=True, slots=True)
class ReadBoth:
    """Yields the rows of a source: candidates and needed files. With `only_needed` chunks that are gone are left out.

    What is missing, damaged or encrypted of the table itself is an error; `near` reads other tables' manifests, and
    `foreign` those of foreign tables' versions, which have these `numbers` of tables.
    """

    resources: ExecutorResources
    identifier: TableIdentifier
    near: ReadNear
    threads: int
    equal: Equal
    only_needed: bool
    foreign: ReadNear
    numbers: tuple[int, ...]

    def __call__(self, stored: Sequence[Any]) -> Iterator[tuple[Sequence[Row], int]]:
        source, plans = BothSource(*stored), plans_of(self.resources)
        for plan_id, chunk in source.listed:
            with suppress(PlanLost) if self.only_needed else nullcontext():
                some = read_candidates(plans, plan_id, Chunk.model_validate_json(chunk))
                yield rows_of(some, self.equal), LISTED
        for plan_id, chunk in source.planned:
            for paths in paths_of(plans, plan_id, [Chunk.model_validate_json(chunk)]):
                yield self._needed(paths), NEEDED
        yield self._needed(source.paths), NEEDED
        listed = [(one[0], ManifestToRead(*one[1:])) for one in source.manifests]
        own = [one for number, one in listed if number == OWN]
        if own:
            store = store_of(self.resources, self.identifier)
            noted: list[Row] = []
            for entries in entries_of(store, own, noting(noted), threads=self.threads):
                yield self._needed([path for path, _, _ in entries]), NEEDED
            yield noted, UNREAD
        for rows, mark in self.near([one for one in listed if one[0] != OWN], NEEDED):
            yield (rows if mark == UNREAD else self._needed([path for path, _, _ in rows])), mark
        for number, read in source.foreign_paths:
            yield self._needed(read, number), FOREIGN
        for of_head in source.foreign:
            number = self.numbers[of_head[0] - 1]
            for rows, mark in self.foreign([(of_head[0], ManifestToRead(*of_head[1:]))], FOREIGN):
                if mark == UNREAD:
                    yield rows, FOREIGN_UNREAD
                else:
                    yield self._needed([path for path, _, _ in rows], number), FOREIGN

    def _needed(self, paths: Sequence[str], number: int = 0) -> list[Row]:
        return [(text, number, 0) for text in joined_all(paths, self.equal)]


class PartNote(NamedTuple):
    """What one part came to, for the driver: how many are needed, why others stay, and what could not be read.

    `stay` has for each code the number of files and the first paths, `unread` and `foreign` texts for NearTables.take.
    """

    part: int
    needed: int
    stay: Sequence[tuple[str, int, Sequence[str]]]
    unread: Sequence[str]
    foreign: Sequence[str]

    @classmethod
    def loaded(cls, text: str) -> Self:
        """Return a note from the text of its row."""
        return cls(*json.loads(text))


@dataclass(frozen=True, slots=True)
class SubtractParts:
    """Maps the runs of one or more parts to runs of what is left, or of what is needed, by ranges of paths.

    `ends` are the paths at which the ranges end but the last one. What else is known of a part is a row of NOTE.
    """

    rules: Rules
    ends: tuple[str, ...]
    only_needed: bool

    def __call__(self, runs: Iterable[Run]) -> Iterator[Run]:
        prepare_worker()
        gathered = Gathered(runs)
        spread = Spread(len(self.ends) + 1, part_of=lambda text: bisect_right(self.ends, text))
        for part in gathered.parts:
            errors = [(text, 0, 0) for text in islice(gathered.paths(part, ERROR), 1)]
            if errors:
                yield from spread.add(errors, ERROR)
                continue
            found = Subtraction(self.rules)
            texts = ([text for text, _, _ in rows] for rows in gathered.rows(part, NEEDED))
            listed, foreign = gathered.rows(part, LISTED), gathered.rows(part, FOREIGN)
            if self.only_needed:
                for rows in found.others(listed, texts, foreign):
                    yield from spread.add(rows, LEFT)
            else:
                for rows, held in found.orphans(listed, texts, foreign):
                    yield from spread.add(rows, LEFT)
                    yield from spread.add(held, HELD)
            stay = [(code, one.count, one.sample) for code, one in found.stay.items()]
            unread, foreign_unread = (list(gathered.paths(part, mark)) for mark in (UNREAD, FOREIGN_UNREAD))
            note = PartNote(part, found.needed, stay, unread, foreign_unread)
            yield from spread.add([(json.dumps(note), 0, 0)], NOTE)
        yield from spread.flush()


@dataclass(frozen=True, slots=True)
class WriteRanges:
    """Writes what is left in a range of paths as chunks of a plan; returns these, and the notes of parts."""

    resources: ExecutorResources
    plan_id: str
    chunk_paths: int

    def __call__(self, runs: Gathered, part: int) -> Result:
        plans, name = plans_of(self.resources), name_of(part)
        writer = CandidateWriter(plans, self.plan_id, name, chunk_paths=self.chunk_paths)
        chunks = write_rows(writer, runs.rows(part, LEFT))
        held = write_held(plans, self.plan_id, name, runs.rows(part, HELD), self.chunk_paths)
        return {
            "chunks": [one.model_dump(mode="json") for one in chunks],
            "held": [(number, one.model_dump(mode="json")) for number, some in held.items() for one in some],
            "notes": list(runs.paths(part, NOTE)),
        }


class DeleteOrphans(DeleteChunks):
    """Maps numbers of shares to one result per chunk of one plan, by what is deleted as it was listed."""

    __slots__ = ()

    def deleted(
        self, plans: Any, works: Iterable[Work], checkpoint: Callable[[], None]
    ) -> Iterator[tuple[Work, Tally]]:
        store = _store(self.resources, self.identifier)
        (plan_id,) = self.plans
        store.begin(plan_id)
        return delete_unchanged(plans, works, store, _deleter(self.resources, self.identifier, self.policy), checkpoint)


# One of each per process, as in removal.executors.
@functools.cache
def _store(resources: ExecutorResources, identifier: TableIdentifier) -> ConditionalStore:
    return ConditionalStore(store_of(resources, identifier), plans_of(resources), random_id)


@functools.cache
def _deleter(resources: ExecutorResources, identifier: TableIdentifier, policy: DeletePolicy) -> Deleter:
    return Deleter(_store(resources, identifier), policy)  # type: ignore[arg-type]
