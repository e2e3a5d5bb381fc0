"""Bringing back what a removal deleted in a bucket with versions: its own delete markers are removed, and no others.

Rights that vended credentials lack are needed (`storage.listing.versions.RIGHTS`). A call after an interruption
resumes: records of which every file is back are not looked at again, and a marker that is gone already is not missed.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from delegation.operations.orphans.approval import ListedAmount
from delegation.operations.orphans.index import Candidate
from delegation.operations.orphans.markers import Hidden, mark_restored, read_markers, recorded, restored
from delegation.storage.base import ObjectStoreDenied, PlanStore
from delegation.storage.listing.versions import KeyVersions, VersionedStore
from delegation.storage.locations import Root, split
from delegation.worksets.errors import PlanTampered
from delegation.worksets.index import SAMPLE

_THREADS: Final = 16


class FileState(StrEnum):
    """What becomes of a file in a restore."""

    RESTORED = "restored"
    """The run's marker was its newest version, above the very object that was listed; the marker is removed."""
    PRESENT = "present"
    """The object that was deleted is there."""
    REWRITTEN = "rewritten"
    """Somebody has written the key again: the newest version is another object, and stays."""
    DELETED_AGAIN = "deleted_again"
    """The newest version is a delete marker that the run did not write."""
    GONE = "gone"
    """The version below the marker is gone, as by a lifecycle rule, or the store has none of the key."""


BACK: Final = frozenset({FileState.RESTORED, FileState.PRESENT})
"""States of files that a reader finds as they were."""


def state_of(hidden: Hidden, found: KeyVersions) -> FileState:
    """Return what a restore does with a file: RESTORED if the run's marker is to be removed. Pure."""
    listed = hidden.file.listed()
    if found.newest is None:
        return FileState.GONE
    if found.newest.object is not None:
        return FileState.PRESENT if found.newest.object == listed else FileState.REWRITTEN
    if found.newest.version_id != hidden.marker:
        return FileState.DELETED_AGAIN
    below = found.newest_object
    return FileState.RESTORED if below is not None and below.object == listed else FileState.GONE


@dataclass(slots=True)
class Restoration:
    """How many files are in which state, and some of those that are not back; `resumes` if progress was recorded."""

    amounts: dict[FileState, ListedAmount] = field(default_factory=lambda: dict.fromkeys(FileState, ListedAmount()))
    left: list[tuple[str, FileState]] = field(default_factory=list)
    resumes: bool = True

    @property
    def files(self) -> int:
        """How many delete markers the run recorded, as far as they were looked at."""
        return sum(one.files for one in self.amounts.values())

    @property
    def is_complete(self) -> bool:
        """Whether every file is back."""
        return all(state in BACK or not one.files for state, one in self.amounts.items())

    def add(self, hidden: Hidden, state: FileState) -> None:
        """Count a file that was deleted."""
        self.add_file(hidden.file, state)

    def add_file(self, file: Candidate, state: FileState) -> None:
        """Count a file."""
        self.amounts[state] += ListedAmount(1, file.size)
        if state not in BACK and len(self.left) < SAMPLE:
            self.left.append((file.path, state))


@dataclass(frozen=True)
class RestoreRun:
    """A restore of the files of some plans of one removal at `location`; `store` has an operator's credentials.

    `checkpoint` is called before each record, and may raise RunStopped; `seen` gets what was counted so far.
    """

    store: VersionedStore
    plans: PlanStore
    plan_ids: Sequence[str]
    location: str
    dry_run: bool = False
    checkpoint: Callable[[], None] = lambda: None
    seen: Callable[[Restoration], None] = lambda _found: None

    def run(self) -> Restoration:
        """Remove the markers, with `dry_run` only look; raise PlanTampered and the errors of the stores."""
        found = Restoration()
        pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="restore")
        try:
            for plan_id in self.plan_ids:
                done = restored(self.plans, plan_id)
                for name in recorded(self.plans, plan_id):
                    self.checkpoint()
                    files = self._read(plan_id, name)
                    states = [FileState.PRESENT] * len(files) if name in done else list(pool.map(self._file, files))
                    for one, state in zip(files, states, strict=True):
                        found.add(one, state)
                    if name not in done and not self.dry_run and BACK.issuperset(states):
                        self._mark(found, plan_id, name)
                    self.seen(found)
        finally:
            pool.shutdown(cancel_futures=True)
        return found

    def _read(self, plan_id: str, name: str) -> list[Hidden]:
        root = Root.of(self.location)
        files = list(read_markers(self.plans, plan_id, name))
        if any(not one.file.path.startswith(root.uri) for one in files):
            raise PlanTampered(plan_id, f"the record {name} of its delete markers has files outside {root.uri}")
        return files

    def _file(self, hidden: Hidden) -> FileState:
        bucket, key = split(hidden.file.path)
        state = state_of(hidden, self.store.versions(bucket, key))
        if state is FileState.RESTORED and not self.dry_run:
            # An object that is written in this moment stays: only the marker is removed, wherever it is by then.
            self.store.remove_version(bucket, key, hidden.marker)
        return state

    def _mark(self, found: Restoration, plan_id: str, name: str) -> None:
        if not found.resumes:
            return
        try:
            mark_restored(self.plans, plan_id, name)
        except ObjectStoreDenied:
            found.resumes = False  # credentials that only read plans restore all the same


def has_records(plans: PlanStore, plan_ids: Sequence[str]) -> bool:
    """Return whether the run recorded any delete marker."""
    return next(_names(plans, plan_ids), None) is not None


def _names(plans: PlanStore, plan_ids: Sequence[str]) -> Iterator[str]:
    for plan_id in plan_ids:
        yield from recorded(plans, plan_id)
