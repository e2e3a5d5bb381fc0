"""Process the chunks of a plan in one process: verify, delete, mark."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import takewhile
from math import inf

from delegation.iceberg.files import TableFile
from delegation.storage.base import PlanStore
from delegation.storage.deleter import Deleter
from delegation.storage.lots import THROTTLED, Outcome
from delegation.worksets.chunks import Chunk, Phase, read_chunk
from delegation.worksets.errors import FilesNotDeleted, FilesNotDeletedYet, FilesThrottled
from delegation.worksets.index import SAMPLE, PlanIndex
from delegation.worksets.limits import PlanGuard
from delegation.worksets.marks import Absent, Deleted, Marks


@dataclass(frozen=True, slots=True)
class Work:
    """A chunk that is not done, the index of its plan, and how often the marks of that plan became void.

    It does not begin `not_after` this time, in seconds since 1970.
    """

    index: PlanIndex
    chunk: Chunk
    voided: int = 0
    not_after: float = inf


@dataclass(slots=True)
class Tally:
    """The result of deleting chunks: files and bytes deleted, files failed (permanently, by throttling), a sample.

    `files` includes those that were `absent` already, `bytes` does not include theirs.
    """

    files: int = 0
    bytes: int = 0
    failed: int = 0
    permanent: int = 0
    throttled: int = 0
    sample: tuple[tuple[str, str], ...] = ()
    delete_markers: bool = False
    absent: int = 0

    def add(self, other: "Tally") -> None:
        self.files += other.files
        self.bytes += other.bytes
        self.failed += other.failed
        self.permanent += other.permanent
        self.throttled += other.throttled
        self.sample = (*self.sample, *other.sample)[:SAMPLE]
        self.delete_markers = self.delete_markers or other.delete_markers
        self.absent += other.absent


def delete_chunks(
    plans: PlanStore, works: Iterable[Work], deleter: Deleter, checkpoint: Callable[[], None]
) -> Iterator[tuple[Work, Tally]]:
    """Verify and delete chunks, several at a time; yield the result of each after it is marked, if all was deleted."""
    lots = ((work, _records(plans, work)) for work in in_time(works))
    # Close the generator even if recording fails: it waits for the deletes in flight.
    with closing(deleter.delete_each(lots, checkpoint)) as deleted:
        for work, outcome in deleted:
            yield work, _recorded(Marks(plans, work.index.plan_id, work.voided), work.chunk, outcome)


def in_time(works: Iterable[Work]) -> Iterator[Work]:
    """Yield chunks until one may not begin any longer."""
    return takewhile(lambda work: time.time() <= work.not_after, works)


def _records(plans: PlanStore, work: Work) -> Sequence[TableFile]:
    index, chunk = work.index, work.chunk
    records = read_chunk(plans, index.plan_id, chunk)
    PlanGuard(index).check_all([record.path for record in records], f"{index.plan_id}/{chunk.name}")
    return records


def _recorded(marks: Marks, chunk: Chunk, outcome: Outcome) -> Tally:
    if outcome.delete_markers:
        marks.mark_versioned()
    refused = [(failure.path, failure.code) for failure in outcome.failures]
    absent = _absent(marks, chunk, outcome)
    if refused:
        marks.keep_failures(chunk, refused)
    else:
        marks.mark_done(chunk)
    return Tally(
        files=outcome.files,
        bytes=outcome.bytes + outcome.absent_bytes - absent.bytes,
        failed=len(refused),
        permanent=sum(not failure.transient for failure in outcome.failures),
        throttled=sum(code in THROTTLED for _, code in refused),
        sample=tuple(refused[:SAMPLE]),
        delete_markers=outcome.delete_markers,
        absent=absent.files,
    )


def _absent(marks: Marks, chunk: Chunk, outcome: Outcome) -> Absent:
    """Return which files of the chunk the purge did not find, and record that with the chunk's first result.

    What a later run over the same chunk does not find was deleted by the one before it. A run that was interrupted
    before it recorded anything is not known: what it deleted counts as absent.
    """
    if not outcome.absent:
        return Absent()
    known = marks.absent_of(chunk)
    if known is None and not marks.has_result(chunk):
        known = Absent(outcome.absent, outcome.absent_bytes)
        marks.mark_absent(chunk, known)
    return known or Absent()


def delete_or_raise(
    work: Sequence[Work],
    before: Deleted,
    delete: Callable[[Sequence[Work], Callable[[Tally], None]], None],
    report: Callable[[Deleted, int], None],
) -> None:
    """Delete chunks with an engine; raise FilesNotDeleted, or FilesNotDeletedYet if only transient failures are left.

    `report` gets the totals so far, added to those of `before`, and the number of files that failed.
    """
    run = Tally()

    def add(tally: Tally) -> None:
        run.add(tally)
        report(Deleted(before.files + run.files, before.bytes + run.bytes, before.absent + run.absent), run.failed)

    delete(work, add)
    if run.permanent:
        raise FilesNotDeleted(run.failed, run.sample)
    if run.failed:
        temporary = FilesThrottled if run.throttled == run.failed else FilesNotDeletedYet
        raise temporary(run.failed, run.sample)


def delete_here(
    plans: PlanStore,
    work: Sequence[Work],
    deleter: Deleter,
    checkpoint: Callable[[], None],
    report: Callable[[Tally], None],
) -> None:
    """Delete chunks in this process; those of ROOT one after the other, until one fails."""
    groups = [[one] for one in work] if any(one.chunk.kind is Phase.ROOT for one in work) else [work]
    with deleter:
        for some in groups:
            for one, tally in delete_chunks(plans, some, deleter, checkpoint):
                report(tally)
                if tally.failed and one.chunk.kind is Phase.ROOT:
                    return
