"""The commit loop: apply the change to the head, write new objects, compare-and-set the reference, repeat if lost.

Without contention and with a cached head a commit takes two round trips: one batch of writes, one compare-and-set.
Commits of several threads are grouped (NoSQL persistence proposal, No Concurrent Retry-Loops per Process): changes are
applied in turn and swapped together, and each has a separate outcome.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic

from delegation.backoff import exponential
from delegation.persistence.backends.base import Reference
from delegation.persistence.commits.commits import (
    TAIL,
    CommitAttempt,
    CommitChange,
    Committed,
    H,
    Memo,
    R,
    Writes,
    fences_of,
)
from delegation.persistence.commits.log import in_log, read_log
from delegation.persistence.commits.swap import swap
from delegation.persistence.errors import (
    BackendUnavailable,
    CommitContended,
    CommitUnknown,
    CorruptObject,
    PersistenceError,
)
from delegation.persistence.objects.objects import Loaded, ObjectRef
from delegation.persistence.objects.store import CatalogStore


@dataclass(frozen=True, slots=True)
class CommitRetries:
    """How often and how long a commit is attempted; the wait after attempt n is random, up to first_wait · 2^n seconds.

    `seconds` must be far below the grace period of maintenance, which deletes old objects that no head names.
    """

    tries: int = 60
    seconds: float = 30.0
    first_wait: float = 0.005
    max_wait: float = 0.25

    def wait(self, attempt: int, draw: float) -> float:
        """Return the seconds to wait after an attempt, counted from 0; `draw` is from [0, 1)."""
        return exponential(attempt + 1, self.first_wait, self.max_wait) * draw


@dataclass(eq=False)
class _Pending(Generic[H]):
    change: Callable[[CommitAttempt[H]], tuple[H | None, Any]]
    operation: str
    memo: Memo = field(default_factory=dict)
    woken: threading.Event = field(default_factory=threading.Event)
    outcome: Committed[Any] | None = None
    error: BaseException | None = None

    @property
    def settled(self) -> bool:
        return self.outcome is not None or self.error is not None


@dataclass(eq=False)
class _Group(Generic[H]):
    """Commits made together, and the objects stored for them in all attempts."""

    members: list[_Pending[H]]
    stored: dict[int, ObjectRef] = field(default_factory=dict)

    def fail(self, error: BaseException) -> None:
        for one in self.members:
            if not one.settled:
                one.error = error


@dataclass(slots=True)
class _Round(Generic[H]):
    """The results of one attempt of a group, valid only if the head it started from is the current one."""

    head: H | None = None
    writes: Writes = field(default_factory=dict)
    results: list[tuple[_Pending[H], bool, Any]] = field(default_factory=list)
    refusals: list[tuple[_Pending[H], Exception]] = field(default_factory=list)

    @property
    def operations(self) -> tuple[str, ...]:
        return tuple(one.operation for one, changed, _ in self.results if changed and one.operation)

    def settle(self, commit_id: int | None) -> None:
        for one, changed, result in self.results:
            one.outcome = Committed(result, commit_id if changed else None)
        for one, error in self.refusals:
            one.error = error


class Committer(Generic[H]):
    """Commits to one reference of a catalog, whose heads hold `model`; one per process and reference, thread-safe.

    At most `group_size` commits share a compare-and-set; 1 turns grouping off. `seal` is applied to the head once per
    attempt, after all changes (it encodes an index). `clock` counts seconds, `draw` returns from [0, 1).
    """

    def __init__(
        self,
        store: CatalogStore,
        reference: str,
        model: type[H],
        *,
        retry: CommitRetries = CommitRetries(),
        group_size: int = 64,
        seal: Callable[[H, CommitAttempt[H]], H] = lambda head, _attempt: head,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._name = reference
        self._model = model
        self._type = store.types.of(model).name
        self._retry = retry
        self._group_size = group_size
        self._seal = seal
        self._sleep = sleep
        self._clock = clock
        self._draw = draw
        self._lock = threading.Lock()
        self._queue: list[_Pending[H]] = []
        self._busy = False
        self._known: Reference | None = None

    def commit(self, change: CommitChange[H, R], *, operation: str = "") -> Committed[R]:
        """Apply a change to the current head, atomically; once it returns, the change is in the log exactly once.

        Raises what the change raised; CommitContended and BackendUnavailable (nothing was applied); CommitUnknown;
        ReferenceNotFound; CorruptObject if the head object is missing. `operation` is recorded in the head.
        """
        pending: _Pending[H] = _Pending(change, operation)
        if self._group_size == 1:
            self._run([pending])
        elif self._becomes_leader(pending):
            self._run_next_group()
        if pending.error is not None:
            raise pending.error
        if pending.outcome is None:
            raise RuntimeError("the commit ended without an outcome")
        return pending.outcome

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

    def _becomes_leader(self, pending: _Pending[H]) -> bool:
        with self._lock:
            self._queue.append(pending)
            if not self._busy:
                self._busy = True
                return True
        pending.woken.wait()
        return not pending.settled

    def _run_next_group(self) -> None:
        with self._lock:
            group = self._queue[: self._group_size]
            del self._queue[: self._group_size]
        try:
            self._run(group)
        finally:
            with self._lock:
                # The first thread that queued meanwhile runs the next group.
                self._busy = bool(self._queue)
                successor = self._queue[:1]
            for one in group + successor:
                one.woken.set()

    def _run(self, members: list[_Pending[H]]) -> None:
        group = _Group(members)
        try:
            kept = self._attempt_until_settled(group)
        except CommitUnknown as error:
            group.fail(error)
        except PersistenceError as error:
            group.fail(error)
            self._discard(group, kept={})
        else:
            self._discard(group, kept)
        finally:
            group.fail(RuntimeError("the thread that ran this commit was stopped"))

    def _attempt_until_settled(self, group: _Group[H]) -> Writes:
        deadline = self._clock() + self._retry.seconds
        known, current = (self._known, False) if self._known else (self._read_reference(), True)
        for attempt in range(self._retry.tries):
            base = self._head_of(known)
            if base is None and known.head is not None:
                if current:
                    raise self._headless(known)
                # Maintenance may have swept an old head; the current one exists.
                known, current = self._read_reference(), True
                continue
            made = self._apply(group, base, fences_of(known, base.value if base else None))
            if made.head is None:
                # Without a swap, only a read shows whether the results were reached on the current head.
                now = known if current else self._read_reference()
                if now == known:
                    made.settle(None)
                    return made.writes
                known, current = now, True
                continue
            head = self._persist(group, made, made.head, base)
            rival = self._swap(known, head)
            if rival is None:
                self._known = known.moved_to(head.key.id)
                self._store.remember_reference(self._known)
                self._store.remember(one.loaded for one in made.writes.values())
                made.settle(head.key.id)
                return made.writes
            self._known, known, current = rival, rival, True
            if self._clock() >= deadline:
                break
            self._sleep(self._retry.wait(attempt, self._draw()))
        raise CommitContended(f"other processes moved reference {self._name!r} during every attempt; try again")

    def _apply(self, group: _Group[H], base: Loaded[H] | None, fences: int) -> _Round[H]:
        made: _Round[H] = _Round()
        head = base.value if base else None
        for one in group.members:
            attempt = CommitAttempt(
                self._store, head, before=made.writes, memo=one.memo, fences=fences, clock=self._clock
            )
            try:
                changed, result = one.change(attempt)
            except Exception as error:  # noqa: BLE001 - raised again by the commit whose change it is
                made.refusals.append((one, error))
                continue
            made.results.append((one, changed is not None, result))
            if changed is not None:
                head = made.head = changed
                made.writes |= attempt.writes
        return made

    def _persist(self, group: _Group[H], made: _Round[H], unsealed: H, base: Loaded[H] | None) -> Loaded[H]:
        sealing = CommitAttempt(self._store, unsealed, before=made.writes, memo={})
        now = self._store.now_us()
        head = self._seal(unsealed, sealing).model_copy(
            update={
                "seq": base.value.seq + 1 if base else 1,
                "tail": (base.key.id, *base.value.tail)[:TAIL] if base else (),
                # A commit is never older than its predecessor, because maintenance stops at an old one.
                "created_at": max(now, base.value.created_at) if base else now,
                "operations": made.operations,
            }
        )
        id_ = sealing.write(head).id
        made.writes |= sealing.writes
        new = [one for key, one in made.writes.items() if key not in group.stored]
        # Before the write: objects of a half-done write must be deleted too.
        group.stored |= {one.loaded.key.id: one.loaded.ref for one in new}
        self._store.backend.put_many(one.stored for one in new)
        return made.writes[id_].loaded

    def _swap(self, known: Reference, head: Loaded[H]) -> Reference | None:
        id_, seq = head.key.id, head.value.seq
        return swap(
            self._store.backend,
            known,
            known.moved_to(id_),
            wait=lambda attempt: self._sleep(self._retry.wait(attempt, self._draw())),
            in_log=lambda now: now.head is not None and in_log(self._store, now.head, id_, seq, self._model),
        )

    def _discard(self, group: _Group[H], kept: Writes) -> None:
        """Delete the objects of attempts that are known to have lost."""
        lost = [ref for id_, ref in group.stored.items() if id_ not in kept]
        if not lost:
            return
        try:
            self._store.delete(lost)
        except BackendUnavailable:
            return  # Nothing names them, so maintenance deletes them.

    def _read_reference(self) -> Reference:
        self._known = self._store.current_reference(self._name)
        return self._known

    def _head_of(self, reference: Reference) -> Loaded[H] | None:
        if reference.head is None:
            return None
        return self._store.fetch(ObjectRef(self._type, reference.head), self._model)

    def _headless(self, reference: Reference) -> CorruptObject:
        return CorruptObject(f"reference {self._name!r} points to head {reference.head}, which is missing")
