"""Tags of quarantined files, and restoring files that a removal deleted.

A restore in a bucket with versions removes the removal's own delete markers, with rights that vended credentials lack
(`storage.listing.versions.RIGHTS`). An interrupted call resumes: it skips records whose files are all back.

A tag makes a lifecycle rule of the bucket delete the file. Tagging has the rules of a conditional delete: a changed
file stays untagged. Files are not recorded one by one, so removing tags checks every file of the plans.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from heapq import merge
from itertools import groupby, islice
from operator import attrgetter
from typing import Final, TypeVar

from delegation.items import each_item, reason_of
from delegation.removal.errors import PlanLost, PlanTampered
from delegation.removal.index import SAMPLE, load_index_as, segment_of
from delegation.removal.orphans.details import ListedAmount
from delegation.removal.orphans.index import (
    Candidate,
    Hidden,
    OrphanIndex,
    mark_restored,
    read_candidates,
    read_markers,
    recorded,
    restored,
)
from delegation.storage.base import BatchResult, KeyFailure, ObjectStoreDenied, PlanStore
from delegation.storage.listing.model import GONE, KeyVersions, ListedObject, TagFound, TagStore, VersionedStore
from delegation.storage.locations import Root, split
from polaris_common.errors import DelegationError

T = TypeVar("T")

_THREADS: Final = 16


class FileState(StrEnum):
    """The state of a file in a restore."""

    RESTORED = "restored"
    """The run's marker was the newest version, above the listed object. The marker is removed."""
    PRESENT = "present"
    """The deleted object is there."""
    REWRITTEN = "rewritten"
    """The key was written again: the newest version is another object, and stays."""
    DELETED_AGAIN = "deleted_again"
    """The newest version is a delete marker that the run did not write."""
    GONE = "gone"
    """The version below the marker is gone, for example by a lifecycle rule, or the key has no version."""
    FAILED = "failed"
    """A call for this file was refused or got no answer, so the file is unchanged. A repeat retries it."""


BACK: Final = frozenset({FileState.RESTORED, FileState.PRESENT})
"""States of files that a reader finds unchanged."""


def state_of(hidden: Hidden, versions: KeyVersions) -> FileState:
    """Return a file's state in a restore: RESTORED if the run's marker is to be removed. Pure."""
    listed = hidden.file.listed()
    if versions.newest is None:
        return FileState.GONE
    if versions.newest.object is not None:
        return FileState.PRESENT if versions.newest.object == listed else FileState.REWRITTEN
    if versions.newest.version_id != hidden.marker:
        return FileState.DELETED_AGAIN
    below = versions.newest_object
    return FileState.RESTORED if below is not None and below.object == listed else FileState.GONE


@dataclass(slots=True)
class Restoration:
    """The number of files in each state, and some of those that are not back. `resumes` if progress was recorded.
    `failed` has some of the files, records and plans with an error, each with its reason."""

    amounts: dict[FileState, ListedAmount] = field(default_factory=lambda: dict.fromkeys(FileState, ListedAmount()))
    left: list[tuple[str, FileState]] = field(default_factory=list)
    resumes: bool = True
    failed: list[tuple[str, str]] = field(default_factory=list)
    _error: Exception | None = None

    @property
    def files(self) -> int:
        """The number of recorded delete markers that were checked."""
        return sum(amount.files for amount in self.amounts.values())

    @property
    def is_complete(self) -> bool:
        """Whether every file is back."""
        return not self.failed and all(state in BACK or not amount.files for state, amount in self.amounts.items())

    def add_each(
        self,
        items: Sequence[T],
        act: Callable[[T], FileState],
        pool: Executor,
        file: Callable[[T], Candidate],
        *,
        name: str,
    ) -> list[FileState]:
        """Count files by the result of `act`; return the states. Raises the last error if all files so far failed."""
        tried = each_item(
            items,
            act,
            name=name,
            shown=lambda item: file(item).path,
            pool=pool,
            at_once=_THREADS,
            most_wasted=timedelta.max,
        )
        states = []
        for attempted in tried:
            state = FileState.FAILED if attempted.result is None else attempted.result
            if attempted.error is not None:
                self.fail(file(attempted.item).path, attempted.error)
            self.add_file(file(attempted.item), state)
            states.append(state)
        self.check()
        return states

    def fail(self, what: str, error: Exception) -> None:
        """Record an error of a file, a record or a plan."""
        self._error = error
        if len(self.failed) < SAMPLE:
            self.failed.append((what, reason_of(error)))

    def check(self) -> None:
        """Raise the last error if nothing else was found: then the credentials or the store fail, not one file."""
        if self._error is not None and self.files == self.amounts[FileState.FAILED].files:
            raise self._error

    def add_file(self, file: Candidate, state: FileState) -> None:
        self.amounts[state] += ListedAmount(1, file.size)
        if state not in BACK and len(self.left) < SAMPLE:
            self.left.append((file.path, state))


@dataclass(frozen=True)
class RestoreRun:
    """A restore of the files of some plans of one removal at `location`. `store` has an operator's credentials.
    `checkpoint` is called before each record, and may raise RunStopped. `seen` gets the counts so far."""

    store: VersionedStore
    plans: PlanStore
    plan_ids: Sequence[str]
    location: str
    dry_run: bool = False
    checkpoint: Callable[[], None] = lambda: None
    seen: Callable[[Restoration], None] = lambda _found: None

    def run(self) -> Restoration:
        """Remove the markers; with `dry_run` only check. Raises PlanTampered and the errors of the stores if nothing
        else was found; otherwise they are in the result."""
        restoration = Restoration()
        pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="restore")
        try:
            for plan_id in self.plan_ids:
                done = restored(self.plans, plan_id)
                for name in recorded(self.plans, plan_id):
                    self.checkpoint()
                    try:
                        files = self._read(plan_id, name)
                    except DelegationError as error:
                        restoration.fail(f"{plan_id}/markers/{name}", error)
                        continue
                    act = self._present if name in done else self._file
                    states = restoration.add_each(files, act, pool, lambda hidden: hidden.file, name="orphans.restored")
                    if name not in done and not self.dry_run and len(states) == len(files) and BACK.issuperset(states):
                        self._mark(restoration, plan_id, name)
                    self.seen(restoration)
        finally:
            pool.shutdown(cancel_futures=True)
        restoration.check()
        return restoration

    def _read(self, plan_id: str, name: str) -> list[Hidden]:
        root = Root.of(self.location)
        files = list(read_markers(self.plans, plan_id, name))
        if any(not hidden.file.path.startswith(root.uri) for hidden in files):
            raise PlanTampered(plan_id, f"its record {name} of delete markers has files outside {root.uri}")
        return files

    def _present(self, _hidden: Hidden) -> FileState:
        return FileState.PRESENT

    def _file(self, hidden: Hidden) -> FileState:
        bucket, key = split(hidden.file.path)
        state = state_of(hidden, self.store.versions(bucket, key))
        if state is FileState.RESTORED and not self.dry_run:
            # A concurrently written object stays: only the marker is removed, wherever it is by then.
            self.store.remove_version(bucket, key, hidden.marker)
        return state

    def _mark(self, restoration: Restoration, plan_id: str, name: str) -> None:
        if not restoration.resumes:
            return
        try:
            mark_restored(self.plans, plan_id, name)
        except ObjectStoreDenied:
            restoration.resumes = False  # credentials that may only read plans still restore


def has_records(plans: PlanStore, plan_ids: Sequence[str]) -> bool:
    """Return whether the run recorded any delete marker."""
    return next(_names(plans, plan_ids), None) is not None


def _names(plans: PlanStore, plan_ids: Sequence[str]) -> Iterator[str]:
    for plan_id in plan_ids:
        yield from recorded(plans, plan_id)


_AT_A_TIME: Final = 8
"""Files tagged at a time within one batch. Each takes four requests."""
_RESTORED_AT_A_TIME: Final = 16
_BATCH: Final = 256
"""Files between two checkpoints of a restore."""
_STATES: Final[Mapping[TagFound, FileState]] = {
    TagFound.TAGGED: FileState.RESTORED,
    TagFound.UNTAGGED: FileState.PRESENT,
    TagFound.CHANGED: FileState.REWRITTEN,
    TagFound.ABSENT: FileState.GONE,
}


def tag_batch(store: TagStore, bucket: str, listed: Sequence[ListedObject]) -> BatchResult:
    """Tag unchanged objects; return those that have the tag now in place of deleted ones. Missing objects count as
    absent. The codes of failures are CHANGED, TAGS_FULL and those of a delete."""
    with ThreadPoolExecutor(min(_AT_A_TIME, len(listed)), thread_name_prefix="tag") as pool:
        codes = list(pool.map(lambda listed_object: store.tag(bucket, listed_object), listed))
    done = list(zip((listed_object.key for listed_object in listed), codes, strict=True))
    absent = tuple(key for key, code in done if code == GONE)
    tagged = tuple(key for key, code in done if code is None)
    failed = tuple(KeyFailure(key, code) for key, code in done if code not in (None, GONE))
    return BatchResult((*tagged, *absent), failed, absent=absent)


@dataclass(frozen=True)
class UntagRun:
    """Removes the tag from the files of a removal's plans at `location`. `store` has an operator's credentials. With
    `by_location` the plans are of any removals: their files elsewhere and expired plans are left out. `checkpoint` is
    called before each batch, and may raise RunStopped. A call after an interruption checks every file again."""

    store: TagStore
    plans: PlanStore
    plan_ids: Sequence[str]
    location: str
    dry_run: bool = False
    by_location: bool = False
    checkpoint: Callable[[], None] = lambda: None

    def run(self) -> Restoration:
        """Remove the tags; with `dry_run` only check. Raises PlanLost, PlanTampered and the errors of the stores if
        nothing else was found; otherwise they are in the result."""
        restoration = Restoration()
        files = self._files(restoration)
        with ThreadPoolExecutor(_RESTORED_AT_A_TIME, thread_name_prefix="untag") as pool:
            while batch := list(islice(files, _BATCH)):
                self.checkpoint()
                restoration.add_each(batch, self._file, pool, lambda candidate: candidate, name="orphans.untagged")
        restoration.check()
        return restoration

    def _files(self, restoration: Restoration) -> Iterator[Candidate]:
        """Yield each file of the plans once. A reduced plan has files of the plan that replaced it."""
        root = Root.of(self.location)
        streams = [self._planned(plan_id, restoration) for plan_id in self.plan_ids]
        for path, same in groupby(merge(*streams, key=attrgetter("path")), key=attrgetter("path")):
            if not path.startswith(root.uri):
                if self.by_location:
                    continue
                raise PlanTampered(self.plan_ids[-1], f"it has files outside {root.uri}")
            yield next(same)

    def _planned(self, plan_id: str, restoration: Restoration) -> Iterator[Candidate]:
        """Yield the files of a plan, without unreadable chunks."""
        try:
            index = load_index_as(OrphanIndex, self.plans, segment_of(self.plans, plan_id))
        except DelegationError as error:
            if not (self.by_location and isinstance(error, PlanLost)):
                restoration.fail(plan_id, error)
            return
        for chunk in index.chunks:
            try:
                yield from read_candidates(self.plans, plan_id, chunk)
            except DelegationError as error:
                restoration.fail(plan_id, error)

    def _file(self, candidate: Candidate) -> FileState:
        bucket, _ = split(candidate.path)
        return _STATES[self.store.untag(bucket, candidate.listed(), dry_run=self.dry_run)]
