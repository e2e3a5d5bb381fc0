"""Commits of one process that share an attempt: who waits, what was stored for them, and how each is answered."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic

from polaris_persistence.backends.deadlines import answer_in_time, check_time
from polaris_persistence.commits.commits import CommitAttempt, Committed, H, Memo, Writes
from polaris_persistence.commits.files import Files
from polaris_persistence.commits.waiting import CombinedOutcome, Ticket, WaitingChange
from polaris_persistence.errors import BackendUnavailable, CommitUnknown
from polaris_persistence.objects.objects import ObjectRef
from polaris_persistence.objects.store import CatalogStore, Prepared

ObjectName = tuple[str, int]
"""Type and id: an object that belongs to a head has the head's id."""


@dataclass(eq=False)
class Pending(Generic[H]):
    """A commit that waits for its outcome until `deadline` (seconds of the committer's clock).

    `as_data` is its waiting change in the store, under `ticket` once it was contended. `combined` is its id if it is
    the waiting change of another process. `alone` is set once it did not make a head together with others. A function
    that was `recorded` waits as data: `parts` are the objects stored beside it, `result` what it returns if others
    apply it, and `keeps_parts` is set once they may have done so. `held` are objects of attempts of former groups that
    its memo may name again.
    """

    change: Callable[[CommitAttempt[H]], tuple[H | None, Any]]
    operation: str
    deadline: float
    as_data: WaitingChange
    ticket: Ticket | None = None
    combined: int | None = None
    recorded: bool = False
    result: Any = None
    parts: dict[ObjectName, ObjectRef] = field(default_factory=dict)
    keeps_parts: bool = False
    held: dict[ObjectName, ObjectRef] = field(default_factory=dict)
    alone: bool = False
    memo: Memo = field(default_factory=dict)
    woken: threading.Event = field(default_factory=threading.Event)
    outcome: Committed[Any] | None = None
    error: BaseException | None = None

    @property
    def settled(self) -> bool:
        return self.outcome is not None or self.error is not None

    @property
    def waits_as(self) -> int | None:
        """The id under which it waits on the reference, None if it does not."""
        return self.ticket.id if self.ticket else self.combined


@dataclass(eq=False)
class Group(Generic[H]):
    """Commits made together, and the objects stored for them in all attempts; `written` are those that certainly are
    stored.

    `swapping` is the head of a swap whose outcome is open, `kept` names the objects of the attempt that was applied.
    `apart` is set once changes of other processes did not make a head together with these. `attempts` counts all,
    `lost_attempts` those that lost the swap.
    """

    members: list[Pending[H]]
    stored: dict[ObjectName, ObjectRef] = field(default_factory=dict)
    written: set[ObjectName] = field(default_factory=set)
    swapping: int | None = None
    kept: set[ObjectName] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    kept_files: set[str] = field(default_factory=set)
    apart: bool = False
    attempts: int = 0
    lost_attempts: int = 0

    def __post_init__(self) -> None:
        for member in self.members:
            self.stored |= member.held

    @property
    def waiting(self) -> list[Pending[H]]:
        return [member for member in self.members if not member.settled]

    @property
    def lost(self) -> list[ObjectRef]:
        """The objects of attempts that are known to have lost, and that no attempt will write again.

        A delete may be applied long after its client stopped waiting for it, so it must not name what a member without
        an outcome writes again in the next group.
        """
        if self.swapping is not None:
            return []
        unused = [
            ref for member in self.members if member.settled and not member.keeps_parts for ref in member.parts.values()
        ]
        kept = self.kept.union(*(member.held for member in self.waiting))
        return unused + [ref for name, ref in self.stored.items() if name not in kept]

    def hold(self) -> None:
        """Make the members without an outcome keep what their memos may name again."""
        for member in self.waiting:
            memoised = {
                (part.loaded.key.type, part.loaded.key.id)
                for memo in member.memo.values()
                for part in memo.parts.values()
            }
            member.held = {name: ref for name, ref in self.stored.items() if name in memoised}

    @property
    def lost_files(self) -> set[str]:
        return self.files - self.kept_files if self.swapping is None else set()

    def wake_settled(self) -> None:
        """Wake the threads whose outcome is known, while others of the group are still attempted."""
        for member in self.members:
            if member.settled:
                member.woken.set()

    def stop(self) -> None:
        """Answer the members whose thread ended without an outcome for them."""
        for member in self.waiting:
            waits_as = member.ticket.id if member.ticket else None
            open_commit = waits_as if self.swapping is None else self.swapping
            if open_commit is not None:
                member.error = CommitUnknown(open_commit)
            else:
                member.error = RuntimeError("the thread that ran this commit was stopped. Nothing was committed")


@dataclass(slots=True)
class Round(Generic[H]):
    """The results of one attempt of a group, valid only if the head it started from is the current one.

    `dropped` are waiting changes for which no process waits any more, `beside` is an object that belongs to the head,
    `files` are those that the changes have named.
    """

    head: H | None = None
    writes: Writes = field(default_factory=dict)
    results: list[tuple[Pending[H], bool, Any]] = field(default_factory=list)
    refusals: list[tuple[Pending[H], Exception]] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    beside: list[Prepared[Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def objects(self) -> dict[ObjectName, Prepared[Any]]:
        return {(new.loaded.key.type, new.loaded.key.id): new for new in (*self.writes.values(), *self.beside)}

    @property
    def operations(self) -> tuple[str, ...]:
        return tuple(member.operation for member, changed, _ in self.results if changed and member.operation)

    @property
    def combined(self) -> tuple[CombinedOutcome, ...]:
        return tuple(
            CombinedOutcome(member.combined, changed, result)
            for member, changed, result in self.results
            if member.combined is not None
        )

    @property
    def done(self) -> list[int]:
        """The waiting ids that the commit settles."""
        own = [member for member, _ in self.refusals if member.combined is None]
        settled = [member.waits_as for member in (*(member for member, _, _ in self.results), *own)]
        return [*(waiting_id for waiting_id in settled if waiting_id is not None), *self.dropped]

    def settle(self, commit_id: int | None) -> None:
        """Answer every member that has no outcome yet."""
        for member, changed, result in self.results:
            if not member.settled:
                member.outcome = Committed(result, commit_id if changed else None)
        for member, error in self.refusals:
            if not member.settled:
                member.error = error


class Storing(Generic[H]):
    """Stores the objects and `files` of attempts, and deletes them once the attempts are known to have lost."""

    def __init__(self, store: CatalogStore, files: Files | None) -> None:
        self._store = store
        self._files = files

    def store(self, group: Group[H], made: Round[H]) -> None:
        """Store the objects and files of an attempt that are not stored yet. Raises BackendUnavailable."""
        new = {name: prepared for name, prepared in made.objects.items() if name not in group.written}
        # Before the write: objects of a half-done write must be deleted too.
        group.stored |= {name: prepared.loaded.ref for name, prepared in new.items()}
        self._store.backend.put_many(prepared.stored for prepared in new.values())
        group.written |= new.keys()
        if made.files and self._files is not None:
            check_time()
            group.files |= made.files.keys()
            self._write(self._files, made.files)

    def discard(self, group: Group[H]) -> None:
        """Delete what belongs to attempts that are known to have lost."""
        group.hold()
        try:
            if lost := group.lost:
                self._store.delete(lost)
            if self._files is not None and (files := group.lost_files):
                check_time()
                answer_in_time(partial(self._files.delete_many, files))
        except (BackendUnavailable, TimeoutError):
            return  # maintenance deletes the objects, because nothing names them

    @staticmethod
    def _write(store: Files, files: Mapping[str, bytes]) -> None:
        try:
            answer_in_time(lambda: store.write_many(files))
        except TimeoutError as error:
            raise BackendUnavailable("the files of a commit were not written in time. Try again later") from error
