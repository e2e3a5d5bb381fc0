"""Deletes the chunks of a plan in this process: verify, delete, mark; and in lots, with a comparison between them.

The table is loaded and compared with each lot before the lot. Commits may arrive faster than anything can be compared,
so a comparison need not use the newest one. Each uses everything seen so far, and a lot starts while its load is
recent. Commits between that load and the end of the lot are not seen (docs/limits.md).
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, takewhile
from math import inf
from typing import Final, Protocol, TypeVar

from delegation.iceberg.paths import TableFile
from delegation.removal.choice import EngineChoice
from delegation.removal.chunks import Chunk, Phase, Total, read_chunk
from delegation.removal.context import RemovalContext
from delegation.removal.errors import (
    ComparisonTooOld,
    EngineFailed,
    FilesNotDeleted,
    FilesNotDeletedYet,
    FilesThrottled,
    PlanTampered,
)
from delegation.removal.index import SAMPLE, PlanIndex
from delegation.removal.marks import Absent, Deleted, Marks
from delegation.storage.base import Deletable, PlanStore
from delegation.storage.deleter import THROTTLED, Deleter, Failure, Outcome
from delegation.storage.locations import Roots, canonical_all
from polaris_common.errors import counted


class PlanGuard:
    """Checks paths against the limits in the plan's index, so that no fault deletes another table's file."""

    def __init__(self, index: PlanIndex) -> None:
        self._roots = Roots((*index.roots, *index.taken))
        self._covered = None if index.covered is None else Roots(index.covered)
        self._anywhere = index.outside == "delete"
        # The directory markers of the locations have exactly these keys.
        self._own = frozenset(index.roots)

    def check_all(self, paths: list[str], chunk: str) -> None:
        """Raise PlanTampered, AmbiguousPath or UnsupportedLocation if a path may not be deleted."""
        if canonical_all(paths) != paths:
            raise PlanTampered(chunk, "it has a path that is not canonical")
        first, last = min(paths), max(paths)
        anywhere = self._anywhere or self._roots.contain_range(first, last)
        if not anywhere or not (self._covered is None or self._covered.contain_range(first, last)):
            for path in paths:
                self._check(path, chunk)

    def _check(self, path: str, chunk: str) -> None:
        if not (self._anywhere or self._roots.contains(path) or path in self._own):
            raise PlanTampered(chunk, "it has a path outside the table's locations")
        if self._covered is not None and not (self._covered.contains(path) or path in self._covered.uris):
            raise PlanTampered(chunk, "it has a path outside the vended credentials")


@dataclass(frozen=True, slots=True)
class Work:
    """A chunk that is not done, the index of its plan, and how often that plan's marks became void. It must not start
    after `not_after`, in seconds since 1970."""

    index: PlanIndex
    chunk: Chunk
    voided: int = 0
    not_after: float = inf


@dataclass(slots=True)
class Tally:
    """The result of deleting chunks: files and bytes deleted, files failed (permanently or by throttling), a sample.
    `files` includes `absent` ones; `bytes` excludes theirs."""

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


def _records(plans: PlanStore, work: Work) -> Sequence[TableFile]:
    index, chunk = work.index, work.chunk
    records = read_chunk(plans, index.plan_id, chunk)
    PlanGuard(index).check_all([record.path for record in records], f"{index.plan_id}/{chunk.name}")
    return records


def _recorded(marks: Marks, work: Work, outcome: Outcome) -> Tally:
    if outcome.delete_markers:
        marks.mark_versioned()
    absent = note_absent(marks, work.chunk, outcome)
    size = outcome.bytes + outcome.absent_bytes - absent.bytes
    tally = Tally(files=outcome.files, bytes=size, delete_markers=outcome.delete_markers, absent=absent.files)
    return marked(marks, work.chunk, outcome.failures, tally)


def marked(marks: Marks, chunk: Chunk, failures: Sequence[Failure], tally: Tally) -> Tally:
    """Mark a chunk, or store its failures. Returns the tally with the failures."""
    refused = [(failure.path, failure.code) for failure in failures]
    if refused:
        marks.keep_failures(chunk, refused)
    else:
        marks.mark_done(chunk)
    return replace(
        tally,
        failed=len(refused),
        permanent=sum(not failure.transient for failure in failures),
        throttled=sum(code in THROTTLED for _, code in refused),
        sample=tuple(refused[:SAMPLE]),
    )


def delete_chunks(
    plans: PlanStore,
    works: Iterable[Work],
    deleter: Deleter,
    checkpoint: Callable[[], None],
    *,
    read: Callable[[PlanStore, Work], Sequence[Deletable]] = _records,
    record: Callable[[Marks, Work, Outcome], Tally] = _recorded,
) -> Iterator[tuple[Work, Tally]]:
    """Verify and delete chunks, several at a time. Yields the result of each, after its mark if all was deleted."""
    in_time = takewhile(lambda work: time.time() <= work.not_after, works)
    lots = ((work, read(plans, work)) for work in in_time)
    # Close the generator even if recording fails: closing waits for the deletes in flight.
    with closing(deleter.delete_each(lots, checkpoint)) as deleted:
        for work, outcome in deleted:
            yield work, record(Marks(plans, work.index.plan_id, work.voided), work, outcome)


def note_absent(marks: Marks, chunk: Chunk, outcome: Outcome) -> Absent:
    """Return which files of the chunk the purge did not find, and record them with the chunk's first result. Files that
    a later run over the chunk does not find were deleted by the run before. If a run was interrupted before it recorded
    anything, the files that it deleted count as absent."""
    if not outcome.absent:
        return Absent()
    known = marks.absent_of(chunk)
    if known is None and not marks.has_result(chunk):
        known = Absent(outcome.absent, outcome.absent_bytes)
        marks.mark_absent(chunk, known)
    return known or Absent()


def delete_or_raise(
    left: Callable[[], Sequence[Work]],
    before: Deleted,
    delete: Callable[[Callable[[Tally], None]], None],
    report: Callable[[Deleted, int], None],
) -> None:
    """Delete with an engine. Raises FilesNotDeleted, or FilesNotDeletedYet if all failures are transient, and
    EngineFailed if chunks are `left` without a failure. `report` gets the totals so far, including those of `before`,
    and the number of files that failed."""
    run = Tally()

    def add(tally: Tally) -> None:
        run.add(tally)
        report(Deleted(before.files + run.files, before.bytes + run.bytes, before.absent + run.absent), run.failed)

    delete(add)
    if run.permanent:
        raise FilesNotDeleted(run.failed, run.sample)
    if run.failed:
        temporary = FilesThrottled if run.throttled == run.failed else FilesNotDeletedYet
        raise temporary(run.failed, run.sample)
    if rest := left():
        raise EngineFailed(
            f"all deletes succeeded, but those of {counted(len(rest), 'chunk')} of the plan are not recorded. "
            "The next attempt repeats these deletes"
        )


def delete_here(
    plans: PlanStore,
    work: Sequence[Work],
    deleter: Deleter,
    checkpoint: Callable[[], None],
    report: Callable[[Tally], None],
) -> None:
    """Delete chunks in this process. Those of ROOT are deleted one after the other, until one fails."""
    groups = [[item] for item in work] if any(item.chunk.kind is Phase.ROOT for item in work) else [work]
    with deleter:
        for some in groups:
            for item, tally in delete_chunks(plans, some, deleter, checkpoint):
                report(tally)
                if tally.failed and item.chunk.kind is Phase.ROOT:
                    return


Ctx_contra = TypeVar("Ctx_contra", contravariant=True)
Found_contra = TypeVar("Found_contra", contravariant=True)


class DeleteEngine(Protocol[Ctx_contra]):
    """Deletes chunks of published plans."""

    @property
    def name(self) -> EngineChoice: ...

    def delete(self, ctx: Ctx_contra, work: Sequence[Work], report: Callable[[Tally], None]) -> None:
        """Delete chunks with `delete_chunks` in any order. `report` gets the outcome of one or more at a time."""
        ...


class PlanEngine(DeleteEngine[Ctx_contra], Protocol[Ctx_contra, Found_contra]):
    """Also writes the chunks of plans. A plan is made in the same way by every engine."""

    def write(self, ctx: Ctx_contra, surveyed: Found_contra, plan_id: str) -> tuple[Sequence[Chunk], dict[str, Total]]:
        """Write the chunks of a plan for a survey. Returns them in order, and the totals by file type."""
        ...


def delete_in_this_process(ctx: RemovalContext, work: Sequence[Work], report: Callable[[Tally], None]) -> None:
    """Delete chunks with threads of this process."""
    deleter = Deleter(ctx.store, ctx.settings.delete, now=ctx.now, sleep=ctx.sleep, rate=ctx.rate)
    delete_here(ctx.plans, work, deleter, ctx.attempt.checkpoint, report)


class InlineDeletes:
    """DeleteEngine with threads of this process."""

    name: EngineChoice = "inline"
    delete = staticmethod(delete_in_this_process)


OLDEST_LOAD: Final = 30.0
"""The maximum age in seconds of the table's load when a lot starts."""
LOT_SECONDS: Final = 10.0
"""After this many seconds no further chunk of a lot starts."""
MOST_SEEN: Final = 100_000
"""Files of commits that are compared lot by lot. With more, the whole rest of the plan is compared once."""


def delete_in_lots(
    left: Callable[[], Sequence[Work]],
    paths: int,
    compare: Callable[[Sequence[Work]], bool],
    delete: Callable[[Sequence[Work], Callable[[Tally], None]], None],
    report: Callable[[Tally], None],
    *,
    now: Callable[[], float],
    most_slow: int,
) -> None:
    """Delete what is `left` of a plan: first `paths` files, then twice as many as long as a lot takes half its time.
    `compare` loads the table and returns whether a lot may be deleted; if not, the rest is another plan, or empty.
    Returns early if the store currently refuses most of a lot. Raises ComparisonTooOld if `most_slow` lots in a row did
    not start."""
    failed: set[tuple[str, str]] = set()
    work: Sequence[Work] = ()
    most, slow, before = paths, 0, None
    while work := work or [item for item in left() if _name(item) not in failed]:
        lot, rest, first = *_parted(work, most), _name(work[0])
        slow = slow + 1 if first == before else 0
        if slow >= most_slow:
            raise ComparisonTooOld(
                f"after loading the table, it took more than {OLDEST_LOAD:.0f} s to compare new commits with the files "
                f"to delete, {slow} times in a row. The next attempt deletes the remaining files"
            )
        work, before, loaded = (), first, now()
        if not compare(lot):
            continue
        began = now()
        young = OLDEST_LOAD - (began - loaded)
        if young <= 0:
            continue
        run, until = Tally(), time.time() + min(young, LOT_SECONDS)
        delete([replace(item, not_after=until) for item in lot], partial(_add, run, report))
        if run.failed:
            failed.update(map(_name, lot))
        if (run.failed - run.permanent) * 2 > sum(item.chunk.count for item in lot):
            return  # the store has refused nearly everything for minutes; `report` has the failures
        if time.time() < until:
            work = rest  # every chunk of the lot has started
        seconds = now() - began
        if seconds < LOT_SECONDS / 2:
            most *= 2
        elif seconds > LOT_SECONDS:
            most = max(paths, most // 2)


def _add(run: Tally, report: Callable[[Tally], None], tally: Tally) -> None:
    run.add(tally)
    report(tally)


def _parted(work: Sequence[Work], paths: int) -> tuple[Sequence[Work], Sequence[Work]]:
    """Return the first chunks with this many files in total, at least one chunk, and the others."""
    sums = accumulate(item.chunk.count for item in work)
    number = max(1, sum(1 for _ in takewhile(lambda files: files <= paths, sums)))
    return work[:number], work[number:]


def _name(work: Work) -> tuple[str, str]:
    return work.index.plan_id, work.chunk.name
