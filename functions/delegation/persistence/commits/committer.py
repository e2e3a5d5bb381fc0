"""The commit loop: apply the change to the head, write new objects, compare-and-set the reference, repeat if lost.

Without contention and with a cached head a commit takes two round trips: one batch of writes, one compare-and-set.
Commits of several threads are grouped (NoSQL persistence proposal, No Concurrent Retry-Loops per Process): changes are
applied in turn and swapped together, and each has a separate outcome.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic

from delegation.backoff import exponential
from delegation.persistence.backends.base import Reference
from delegation.persistence.commits.commits import TAIL, CommitAttempt, CommitChange, Committed, H, R, fences_of
from delegation.persistence.commits.groups import Group, Pending, Round
from delegation.persistence.commits.log import in_log, read_log
from delegation.persistence.commits.swap import swap
from delegation.persistence.errors import (
    BackendUnavailable,
    CommitContended,
    CorruptObject,
    ReferenceNotFound,
)
from delegation.persistence.objects.objects import Loaded, ObjectRef, encode
from delegation.persistence.objects.store import CatalogStore


@dataclass(frozen=True, slots=True)
class CommitRetries:
    """How often and how long a commit is attempted; the wait after attempt n is random, up to first_wait · 2^n seconds.

    `seconds` count from the call of `commit`, the wait for other commits of the process included; after them no further
    attempt begins. The default leaves time for one slow attempt before a gateway ends a request after 29 s (Amazon API
    Gateway, Quotas). They must be far below the grace period of maintenance, which deletes what no head names.
    """

    tries: int = 60
    seconds: float = 20.0
    first_wait: float = 0.005
    max_wait: float = 0.25

    def wait(self, attempt: int, draw: float) -> float:
        """Return the seconds to wait after an attempt, counted from 0; `draw` is from [0, 1)."""
        return exponential(attempt + 1, self.first_wait, self.max_wait) * draw


class _NotTogetherError(Exception):
    """The changes of a group do not make a head together; each is to be committed alone."""


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
        self._queue: list[Pending[H]] = []
        self._busy = False
        self._known: Reference | None = None

    def commit(self, change: CommitChange[H, R], *, operation: str = "") -> Committed[R]:
        """Apply a change to the current head, atomically; once it returns, the change is in the log exactly once.

        Raises what the change raised; CommitContended and BackendUnavailable (nothing was applied); CommitUnknown;
        ReferenceNotFound; CorruptObject if the head object is missing. `operation` is recorded in the head.
        """
        pending: Pending[H] = Pending(change, operation, self._clock() + self._retry.seconds)
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

    def _run(self, members: list[Pending[H]]) -> None:
        group = Group(members)
        try:
            self._attempt_until_settled(group)
        except _NotTogetherError:
            self._discard(group)
            for one in group.waiting:
                self._run([one])
        except Exception as error:  # noqa: BLE001 - raised again by every commit of the group
            group.fail(error)
            self._discard(group)
        else:
            self._discard(group)
        finally:
            group.fail(group.stopped())

    def _attempt_until_settled(self, group: Group[H]) -> None:
        known, current = (self._known, False) if self._known else (self._read_reference(), True)
        for attempt in range(self._retry.tries):
            self._end_late(group)
            if not group.waiting:
                return
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
                    group.kept = made.writes
                    made.settle(None)
                    return
                known, current = now, True
                continue
            try:
                head = self._sealed(made, made.head, base)
            except BackendUnavailable:
                raise
            except Exception as error:
                if not current:
                    # An old head may name stripes that were swept; the current head names none of these.
                    known, current = self._read_reference(), True
                    continue
                if len(group.waiting) > 1:
                    raise _NotTogetherError from error
                raise
            self._store_new(group, made)
            rival = self._swap(group, made, known, head)
            if rival is None:
                return
            known, current = rival, True
            self._sleep(self._retry.wait(attempt, self._draw()))
        raise self._contended()

    def _end_late(self, group: Group[H]) -> None:
        """Answer the members whose deadline has passed; the others continue without them."""
        now = self._clock()
        for one in group.waiting:
            if now >= one.deadline:
                one.error = self._contended()

    def _contended(self) -> CommitContended:
        return CommitContended(f"other processes moved reference {self._name!r} during every attempt; try again")

    def _apply(self, group: Group[H], base: Loaded[H] | None, fences: int) -> Round[H]:
        made: Round[H] = Round()
        head = base.value if base else None
        together = len(group.waiting) > 1
        for one in group.waiting:
            attempt = CommitAttempt(
                self._store, head, before=made.writes, memo=one.memo, fences=fences, clock=self._clock
            )
            try:
                changed, result = one.change(attempt)
                if together and changed is not None:
                    # What cannot be encoded fails the member that made it, not its neighbors.
                    encode(changed.model_copy(update={"operations": (one.operation,)}))
            except Exception as error:  # noqa: BLE001 - raised again by the commit whose change it is
                made.refusals.append((one, error))
                continue
            made.results.append((one, changed is not None, result))
            if changed is not None:
                head = made.head = changed
                made.writes |= attempt.writes
        return made

    def _sealed(self, made: Round[H], unsealed: H, base: Loaded[H] | None) -> Loaded[H]:
        """Return the new head, which is among the writes of the attempt; nothing is stored yet."""
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
        return made.writes[id_].loaded

    def _store_new(self, group: Group[H], made: Round[H]) -> None:
        new = [one for key, one in made.writes.items() if key not in group.stored]
        # Before the write: objects of a half-done write must be deleted too.
        group.stored |= {one.loaded.key.id: one.loaded.ref for one in new}
        self._store.backend.put_many(one.stored for one in new)

    def _swap(self, group: Group[H], made: Round[H], known: Reference, head: Loaded[H]) -> Reference | None:
        """Move the reference and answer the group, or return the reference that another process moved."""
        id_, seq = head.key.id, head.value.seq
        group.swapping = id_
        try:
            rival = swap(
                self._store.backend,
                known,
                known.moved_to(id_),
                wait=lambda attempt: self._sleep(self._retry.wait(attempt, self._draw())),
                in_log=lambda now: now.head is not None and in_log(self._store, now.head, id_, seq, self._model),
            )
        except (BackendUnavailable, ReferenceNotFound):
            group.swapping = None
            raise
        group.swapping = None
        if rival is not None:
            self._known = rival
            return rival
        group.kept = made.writes
        made.settle(id_)
        self._known = known.moved_to(id_)
        self._store.remember_reference(self._known)
        self._store.remember(one.loaded for one in made.writes.values())
        return None

    def _discard(self, group: Group[H]) -> None:
        """Delete the objects of attempts that are known to have lost."""
        lost = group.lost
        if not lost:
            return
        try:
            self._store.delete(lost)
        except BackendUnavailable:
            return  # Nothing names them, so maintenance deletes them.

    def _read_reference(self) -> Reference:
        found = self._store.current_reference(self._name)
        # Another thread may have read or moved it meanwhile.
        if self._known is None or not found.is_older_than(self._known):
            self._known = found
        return found

    def _head_of(self, reference: Reference) -> Loaded[H] | None:
        if reference.head is None:
            return None
        return self._store.fetch(ObjectRef(self._type, reference.head), self._model)

    def _headless(self, reference: Reference) -> CorruptObject:
        return CorruptObject(f"reference {self._name!r} points to head {reference.head}, which is missing")
