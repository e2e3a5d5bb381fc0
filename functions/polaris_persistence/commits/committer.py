"""The commit loop: apply the change to the head, write new objects, compare-and-set the reference, repeat if lost.

Without contention a commit takes three round trips: the reference is read unless it was just known, then one batch of
writes, one compare-and-set. Commits of several threads are grouped (NoSQL persistence proposal, No Concurrent
Retry-Loops per Process), and changes given as data also across processes (`commits.waiting`). Grouped changes are
applied in turn and swapped together; each has a separate outcome.
"""

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import Any, Generic, NamedTuple

from polaris_persistence.backends.base import Reference
from polaris_persistence.backends.deadlines import calls_begin_within, check_time
from polaris_persistence.commits.commits import (
    CommitAttempt,
    CommitChange,
    Committed,
    H,
    PreparedHandle,
    R,
    fences_of,
)
from polaris_persistence.commits.files import Files
from polaris_persistence.commits.groups import Group, Pending, Round, Storing
from polaris_persistence.commits.log import in_log, read_log
from polaris_persistence.commits.making import Making
from polaris_persistence.commits.retries import CommitRetries
from polaris_persistence.commits.swap import copies_named, copy_of, swap
from polaris_persistence.commits.turns import Recorder, Turns
from polaris_persistence.commits.waiting import ChangeKind, WaitingChange
from polaris_persistence.errors import (
    BackendUnavailable,
    CommitContended,
    CorruptObject,
    ReferenceNotFound,
)
from polaris_persistence.objects.objects import Loaded, ObjectRef, PersistedModel
from polaris_persistence.objects.store import CatalogStore

__all__ = ["CommitRetries", "Committer"]


class _NotTogetherError(Exception):
    """The changes of a group do not make a head together; each must be committed alone."""


class _FoundReference(NamedTuple):
    """The reference as it was last read, and whether that was during this commit."""

    known: Reference
    current: bool


class Committer(Generic[H]):
    """Commits to one reference of a catalog, whose heads hold `model`; one per process and reference, thread-safe.

    At most `group_size` commits share a compare-and-set; 1 turns grouping off. `kinds` are the changes that can be
    given as data, `record` returns a function's change as data (`commits.recorded`). `seal` is applied to the head once
    per attempt, after all changes (it encodes an index). Changes and `seal` may name files, which `files` writes. What
    `beside` returns for a head before it is sealed is stored under the head's id and kept as long (`commits.feed`).
    With `copied` the row of the reference repeats small objects that the head names, which are read with it. `clock`
    counts seconds, by default the store's, and `draw` returns from [0, 1).
    """

    def __init__(
        self,
        store: CatalogStore,
        reference: str,
        model: type[H],
        *,
        retry: CommitRetries = CommitRetries(),  # noqa: B008 - frozen
        group_size: int = 64,
        kinds: Iterable[ChangeKind[H]] = (),
        record: Recorder[H] | None = None,
        files: Files | None = None,
        copied: bool = False,
        beside: Callable[[H], PersistedModel | None] = lambda _head: None,
        seal: Callable[[H, CommitAttempt[H]], H] = lambda head, _attempt: head,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._name = reference
        self._model = model
        self._type = store.types.of(model).name
        self._retry = retry
        self._group_size = group_size
        self._kinds = {kind.name: kind for kind in kinds}
        self._copied = copied
        self._sleep = sleep
        self._clock = clock or store.clock
        self._draw = draw
        self._making: Making[H] = Making(store, seal, clock=self._clock, has_files=files is not None, beside=beside)
        self._storing: Storing[H] = Storing(store, files)
        self._turns: Turns[H] = Turns(
            store, reference, model, self._kinds, retry, clock=self._clock, draw=draw, record=record
        )
        # A call of a client with longer time-outs is given up at the deadline.
        self._longest_call = min(store.backend.longest_call, retry.seconds / 4)
        self._lock = threading.Lock()
        self._queue: list[Pending[H]] = []
        self._busy = False
        self._known: Reference | None = None
        self._known_at = 0.0

    def commit(self, change: CommitChange[H, R], *, operation: str = "") -> Committed[R]:
        """Apply a change to the current head, atomically; once it returns, the change is in the log exactly once.

        Nothing slow may run in `change`, because others wait for it. `operation` is recorded in the head. Raises what
        the change raised; CommitContended and BackendUnavailable (nothing was applied); CommitUnknown;
        ReferenceNotFound; CorruptObject if the head object is missing.
        """
        return self._commit(change, WaitingChange(reference=self._name, operation=operation))

    def commit_data(self, kind: str, data: Any, *, operation: str = "") -> Committed[Any]:
        """Apply a change of one of `kinds`, given as data: a contended one is combined into another process' commit.

        Raises KeyError for an unknown kind, and what `commit` raises.
        """
        apply = self._kinds[kind].apply
        as_data = WaitingChange(reference=self._name, kind=kind, data=data, operation=operation)
        return self._commit(lambda attempt: apply(attempt, data), as_data)

    def prepare(self, values: Iterable[PersistedModel]) -> list[PreparedHandle]:
        """Write new immutable objects for a later commit to this reference, which names them by `CommitAttempt.use`.

        They are kept for at least a grace period of maintenance. Raises ReferenceNotFound, BackendUnavailable,
        ValueNotStorable, ObjectTooLarge.
        """
        # First the fences, then the objects: a process may be suspended in between.
        reference = self._read_reference()
        head = self._head_of(reference)
        if head is None and reference.head is not None:
            raise self._headless(reference)
        fences = fences_of(reference, head.value if head else None)
        refs = self._store.write(values)
        return [PreparedHandle(ref, reference.key, reference.created_at, fences) for ref in refs]

    def head(self) -> Loaded[H] | None:
        """Return the current head object, None before the first commit. Raises ReferenceNotFound."""
        reference = self._read_reference()
        found = self._head_of(reference)
        if found is None and reference.head is not None:
            raise self._headless(reference)
        return found

    def log(self) -> Iterator[Loaded[H]]:
        """Return the commits, newest first, as far back as they are kept."""
        return read_log(self._store, self._read_reference().head, self._model)

    def _commit(self, change: CommitChange[H, R], as_data: WaitingChange) -> Committed[R]:
        deadline = self._clock() + self._retry.seconds
        pending: Pending[H] = Pending(change, as_data.operation, deadline, as_data)
        if self._group_size == 1:
            while not pending.settled:
                self._run([pending])
        elif self._becomes_leader(pending):
            while not pending.settled:
                self._run_next_group()
        if pending.error is not None:
            raise pending.error
        if pending.outcome is None:
            raise RuntimeError("the commit ended without an outcome")
        return pending.outcome

    def _becomes_leader(self, pending: Pending[H]) -> bool:
        with self._lock:
            self._queue.append(pending)
            if not self._busy:
                self._busy = True
                return True
        pending.woken.wait()
        return not pending.settled

    def _run_next_group(self) -> None:
        with self._lock:
            group = _together(self._queue[: self._group_size])
            del self._queue[: len(group)]
        left: list[Pending[H]] = []
        try:
            left = self._run(group)
        finally:
            with self._lock:
                self._queue[:0] = left
                # The first thread without an outcome runs the next group.
                self._busy = bool(self._queue)
                successor = self._queue[:1]
            for member in [*(member for member in group if member.settled), *successor]:
                member.woken.set()

    def _run(self, members: list[Pending[H]]) -> list[Pending[H]]:
        """Commit a group until the first member, whose thread this is, has an outcome; return those without one."""
        group, completed = Group(members), False
        try:
            with calls_begin_within(lambda: self._time_left(group), self._longest_call):
                try:
                    self._attempt_until_settled(group)
                except _NotTogetherError:
                    for member in group.waiting:
                        member.alone = True
                except Exception as error:  # noqa: BLE001 - raised again by every commit of the group
                    self._turns.fail(group, error)
                group.wake_settled()
                self._storing.discard(group)
            completed = True
        finally:
            if not completed:
                group.stop()
        return group.waiting

    def _time_left(self, group: Group[H]) -> float:
        return min(member.deadline for member in group.waiting or group.members) - self._clock()

    def _pause(self, group: Group[H], seconds: float) -> None:
        self._sleep(max(0.0, min(seconds, self._time_left(group) - self._longest_call)))

    def _attempt_until_settled(self, group: Group[H]) -> None:
        """Attempt, or wait for changes that have waited longer, until the first member has an outcome."""
        self._end_late(group)
        self._store.expect_ids()
        state: _FoundReference | None = None
        while not group.members[0].settled:
            try:
                state = self._step(group, state or self._start(group))
            except BackendUnavailable:
                # There may only have been too little time for those that started long before the others.
                if not self._end_late(group):
                    raise
                state = None
            group.wake_settled()

    def _start(self, group: Group[H]) -> _FoundReference:
        # A reference read before a change started to wait does not show whether it still waits.
        waits = any(member.ticket for member in group.waiting)
        if not waits and self._known is not None and self._clock() - self._known_at <= self._retry.known_for:
            return _FoundReference(self._known, False)
        return _FoundReference(self._read_reference(), True)

    def _step(self, group: Group[H], state: _FoundReference) -> _FoundReference | None:
        """Attempt once, or wait once; return None if every member has an outcome."""
        known, current = state
        self._turns.resolve(group, known)
        self._end_late(group)
        if group.waiting:
            known, pause = self._turns.next(group, known)
        if not group.waiting:
            return None
        waits = pause is not None
        if pause is None:
            lost = group.lost_attempts
            after = self._attempt(group, known, current)
            if after is None:
                return None
            known, current = after, True
            pause = self._turns.pause_after_loss(group) if group.lost_attempts > lost else 0.0
            if group.attempts >= self._retry.tries:
                raise self._contended()
        if pause:
            self._pause(group, pause)
        if waits or self._clock() - self._known_at > self._retry.known_for:
            return _FoundReference(self._read_reference(), True)
        return _FoundReference(known, current)

    def _attempt(self, group: Group[H], known: Reference, current: bool) -> Reference | None:
        """Make one attempt; return None if the group is settled, else the present reference."""
        group.attempts += 1
        base = self._head_of(known)
        if base is None and known.head is not None:
            if current:
                raise self._headless(known)
            # Maintenance may have swept an old head; the current one exists.
            return self._read_reference()
        made = self._making.combine(self._turns.in_turn, group, known, base)
        if made.head is None:
            # Without a swap, only a read shows whether the results were reached on the current head.
            now = known if current else self._read_reference()
            if now != known:
                return now
            self._turns.withdraw_all(group)
            group.kept |= made.objects.keys()
            made.settle(None)
            return None
        try:
            head = self._making.seal(made, made.head, base)
        except BackendUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - any of a change that cannot be encoded with its neighbors
            if not current:
                # An old head may name stripes that were swept; the current head names none of these.
                return self._read_reference()
            return self._apart(group, known, error)
        self._storing.store(group, made)
        check_time()
        return self._swap(group, made, known, head)

    def _apart(self, group: Group[H], known: Reference, error: Exception) -> Reference:
        """Try again without the changes of other processes, then each member alone; raise the error if it is alone."""
        if not group.apart:
            group.apart = True
            return known
        if len(group.waiting) > 1:
            raise _NotTogetherError from error
        raise error

    def _end_late(self, group: Group[H]) -> bool:
        """Answer the members for which no further call may start, and return whether there were any.

        A member whose change waits as data is answered a call earlier, which takes its change back.
        """
        now, late = self._clock(), False
        for member in group.waiting:
            calls = 2 if member.ticket and member.ticket.combinable else 1
            if now >= member.deadline - calls * self._longest_call:
                self._turns.end(member, self._contended())
                late = True
        return late

    def _contended(self) -> CommitContended:
        return CommitContended(f"other processes changed reference {self._name!r} during every attempt. Try again")

    def _swap(self, group: Group[H], made: Round[H], known: Reference, head: Loaded[H]) -> Reference | None:
        """Move the reference and answer the group, or return the reference that another process moved."""
        id_, seq = head.key.id, head.value.seq
        copies = copies_named(known, made.writes, self._links(head)) if self._copied else []
        moved = known.moved_to(id_, done=made.done, copy=copy_of(made.writes[id_].stored), copies=copies)
        group.swapping = id_
        try:
            rival = swap(
                self._store.backend,
                known,
                moved,
                wait=lambda attempt: self._pause(group, self._retry.wait(attempt, self._draw())),
                in_log=lambda now: now.head is not None and in_log(self._store, now.head, id_, seq, self._model),
            )
        except (BackendUnavailable, ReferenceNotFound):
            group.swapping = None
            raise
        group.swapping = None
        if rival is not None:
            group.lost_attempts += 1
            self._learn(rival)
            return rival
        group.kept |= made.objects.keys()
        group.kept_files |= made.files.keys()
        made.settle(id_)
        self._learn(moved)
        self._store.remember_reference(moved)
        self._store.remember(prepared.loaded for prepared in made.writes.values())
        return None

    def _links(self, head: Loaded[H]) -> Iterable[ObjectRef]:
        return self._store.types.of(self._model).links(head.value, self._store.fetch_many)

    def _read_reference(self) -> Reference:
        begun = self._clock()
        try:
            found = self._store.current_reference(self._name)
        finally:
            self._turns.trip_took(self._clock() - begun)
        self._learn(found, begun)
        return found

    def _learn(self, found: Reference, at: float | None = None) -> None:
        # Another thread may have read or moved it meanwhile.
        if self._known is None or not found.is_older_than(self._known):
            self._known, self._known_at = found, self._clock() if at is None else at

    def _head_of(self, reference: Reference) -> Loaded[H] | None:
        return self._store.fetch_head(self._type, reference, self._model)

    def _headless(self, reference: Reference) -> CorruptObject | ReferenceNotFound:
        if reference.closed:
            return ReferenceNotFound(f"reference {self._name!r} is being removed")
        return CorruptObject(f"reference {self._name!r} points to head {reference.head}, which is missing")


def _together(queue: list[Pending[H]]) -> list[Pending[H]]:
    """Return the first commits of a queue that may share an attempt."""
    if queue[0].alone:
        return queue[:1]
    return list(takewhile(lambda member: not member.alone, queue))
