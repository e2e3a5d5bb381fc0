"""Whose turn it is to commit: the longest-waiting change is attempted next, and its process combines the others."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, Protocol

from polaris_persistence.backends.base import Reference
from polaris_persistence.commits.commits import CommitAttempt, Committed, H, Writes
from polaris_persistence.commits.groups import Group, Pending, Round
from polaris_persistence.commits.retries import CommitRetries
from polaris_persistence.commits.waiting import (
    MOST_IDS,
    MOST_WAITING,
    ChangeKind,
    WaitingChange,
    WaitingQueue,
    ahead,
)
from polaris_persistence.errors import CommitUnknown, ObjectTooLarge, ValueNotStorable
from polaris_persistence.ids.snowflake import made_at_ms
from polaris_persistence.objects.store import CatalogStore, Prepared

IDLE_MS: Final = round(CommitRetries().seconds * 1_000)
"""A waiting change is idle once it is older than commits last."""
ABANDONED_MS: Final = 120_000
"""A waiting change this old is dropped: its process is gone. If it is not, it notices and waits again, so a wrong clock
only costs time."""
_POLLS_WITHOUT_PROGRESS: Final = 2
"""After this many usual poll intervals without a commit, older waiting changes are no longer waited for."""
_CALLS_PER_POLL: Final = 5
"""The shortest poll interval, in durations of a call: a commit takes about this many round trips."""


RECORDED_KIND: Final = "entity-changes"
"""The kind of a function that was recorded (`commits.recorded`)."""


class RecordedChange(Protocol):
    """A function's change as data, the result that it has if that is applied, and the objects to store beside it."""

    @property
    def data(self) -> dict[str, Any]: ...
    @property
    def result(self) -> Any: ...
    @property
    def writes(self) -> Writes: ...


Recorder = Callable[
    [CatalogStore, Callable[[CommitAttempt[H]], tuple[H | None, Any]], Reference, H | None], RecordedChange | None
]
"""Returns a function's change as data, None if that is not possible."""


class Turns(Generic[H]):
    """The waiting changes of one process on one reference; thread-safe as far as groups are separate."""

    def __init__(
        self,
        store: CatalogStore,
        reference: str,
        model: type[H],
        kinds: Mapping[str, ChangeKind[H]],
        retry: CommitRetries,
        *,
        clock: Callable[[], float],
        draw: Callable[[], float],
        record: Recorder[H] | None = None,
    ) -> None:
        self._store = store
        self._model = model
        self._type = store.types.of(model).name
        self._record = record
        self._waiting = WaitingQueue(store, reference, model)
        self._kinds = kinds
        self._retry = retry
        self._clock = clock
        self._draw = draw
        self._trip = 0.0
        self._idle: set[int] = set()
        self._seen: tuple[tuple[int, ...], float] = ((), clock())

    def trip_took(self, seconds: float) -> None:
        self._trip = seconds if not self._trip else 0.8 * self._trip + 0.2 * seconds

    def next(self, group: Group[H], known: Reference) -> tuple[Reference, float | None]:
        """Return the reference, and the seconds to wait for others; None if it is the turn of this group.

        If others wait, or this group has lost twice, it joins the queue too.
        """
        if not self._waiting.usable:
            return known, None
        self._idle &= set(known.waiting)
        self._idle |= {id_ for id_ in known.waiting if self._age_ms(id_) > IDLE_MS}
        others = set(known.waiting) - {member.waits_as for member in group.waiting} - self._idle
        room = len(known.waiting) - len(self._idle) < MOST_WAITING and len(known.waiting) < MOST_IDS
        if (others or group.lost_attempts > 1) and room:
            known = self._add(group, known)
        own = [member.ticket.id for member in group.waiting if member.ticket]
        before = ahead(known.waiting, own, self._idle) if own else []
        if not before:
            return known, None
        heads, since = self._seen
        # Not by the version: a change that is taken back raises it, which is no progress.
        if heads != known.heads:
            self._seen = heads, since = known.heads, self._clock()
        if self._clock() - since > _POLLS_WITHOUT_PROGRESS * self._poll_interval:
            # Nobody has committed: the changes before this one make no progress.
            self._idle |= set(before)
            return known, None
        return known, self._poll(len(before))

    def pause_after_loss(self, group: Group[H]) -> float:
        """Return the seconds to wait after a lost attempt: none at the first loss, nor for one whose turn it is."""
        if self._waiting.usable and (group.lost_attempts <= 1 or any(member.ticket for member in group.waiting)):
            return 0.0
        return self._retry.wait(group.lost_attempts - 1, self._draw())

    def in_turn(self, group: Group[H], known: Reference, made: Round[H]) -> list[Pending[H]]:
        """Return the changes of an attempt: all that wait, oldest first, then the members that do not wait."""
        waiting = [] if group.apart else self._of_others(group, known, made)
        waiting += [member for member in group.waiting if member.ticket]
        waiting.sort(key=lambda member: member.waits_as or 0)
        return waiting + [member for member in group.waiting if not member.ticket]

    def resolve(self, group: Group[H], known: Reference) -> None:
        """Give the members whose changes others have combined their outcomes, which may be unknown."""
        for member in group.waiting:
            if member.ticket and member.ticket.id not in known.waiting:
                try:
                    _combined(member, self._waiting.outcome(member.ticket, known))
                except CommitUnknown as unknown:
                    member.error, member.keeps_parts = unknown, True
                member.ticket = None

    def end(self, member: Pending[H], error: BaseException) -> None:
        """Answer a member with an error, unless its change was combined meanwhile."""
        try:
            found: Committed[Any] | None = self._waiting.withdraw(member.ticket) if member.ticket else None
        except CommitUnknown as unknown:
            member.error, member.keeps_parts = unknown, True
            return
        member.ticket = None
        if found is not None:
            _combined(member, found)
        else:
            member.error = error

    def fail(self, group: Group[H], error: Exception) -> None:
        """Answer all members without an outcome with an error, after their changes were taken back."""
        for member in group.waiting:
            if group.swapping is None:
                self.end(member, error)
            else:
                member.error = error

    def withdraw_all(self, group: Group[H]) -> None:
        """Take back the changes of members that are decided without a commit; one combined meanwhile has an outcome."""
        for member in group.waiting:
            if member.ticket:
                try:
                    _combined(member, self._waiting.withdraw(member.ticket))
                except CommitUnknown as unknown:
                    member.error, member.keeps_parts = unknown, True
                member.ticket = None

    def _add(self, group: Group[H], known: Reference) -> Reference:
        new = [member for member in group.waiting if member.ticket is None]
        as_data = [(member, change) for member in new for change in self._as_data(member, known)]
        if not as_data and not any(member.ticket for member in group.waiting):
            # One function keeps the place of all.
            as_data = [(member, member.as_data) for member in new[:1]]
        prepared: list[tuple[Pending[H], Prepared[WaitingChange]]] = []
        for member, change in as_data:
            try:
                prepared.append((member, self._waiting.prepare(change)))
            except (ValueNotStorable, ObjectTooLarge) as error:
                # Its own error, not its neighbors'; it is not applied, because nothing of it waits.
                member.error = error
        if not prepared:
            return known
        try:
            tickets, known = self._waiting.place([each for _, each in prepared], known)
        except CommitUnknown:
            # They may wait, so another process may name what was stored beside them.
            for member, _ in prepared:
                member.keeps_parts = True
            raise
        # Without places they are attempted like those of a process that has not lost; their objects are swept.
        for (member, _), ticket in zip(prepared, tickets, strict=bool(tickets)):
            member.ticket = ticket
        self.resolve(group, known)
        return known

    def _as_data(self, member: Pending[H], known: Reference) -> Iterator[WaitingChange]:
        """Return the change of a member as data, nothing for a function that cannot be recorded."""
        if member.as_data.kind:
            yield member.as_data
            return
        if self._record is None or RECORDED_KIND not in self._kinds:
            return
        head = self._store.fetch_head(self._type, known, self._model)
        if head is None and known.head is not None:
            return  # known for too long: maintenance may have swept it
        found = self._record(self._store, member.change, known, head.value if head else None)
        if found is None:
            return
        member.recorded, member.result = True, found.result
        member.parts |= {(each.loaded.key.type, each.loaded.key.id): each.loaded.ref for each in found.writes.values()}
        self._store.backend.put_many(each.stored for each in found.writes.values())
        yield member.as_data.model_copy(update={"kind": RECORDED_KIND, "data": found.data})

    @property
    def _poll_interval(self) -> float:
        """The usual seconds between two reads of the reference."""
        return max(self._retry.poll, _CALLS_PER_POLL * self._trip)

    def _poll(self, before: int) -> float:
        """Return the seconds until the next read: the next in turn reads all the time, those far behind less often.

        A head takes one commit after another: until the next in turn has noticed the last commit, nothing is committed.
        """
        return self._poll_interval * min(0.3 * (before - 1), 2.0) * (0.75 + 0.5 * self._draw())

    def _of_others(self, group: Group[H], known: Reference, made: Round[H]) -> list[Pending[H]]:
        own = {member.waits_as for member in group.waiting}
        others = [id_ for id_ in known.waiting if id_ not in own]
        made.dropped += [id_ for id_ in others if self._age_ms(id_) > ABANDONED_MS]
        live = [id_ for id_ in others if self._age_ms(id_) <= IDLE_MS]
        if not live or not self._waiting.usable:
            return []
        found: list[Pending[H]] = []
        for id_, change in self._waiting.changes(live):
            kind = self._kinds.get(change.kind) if change else None
            if change is None:
                made.dropped.append(id_)
            elif kind is not None:
                apply = _applying(kind, change.data)
                found.append(Pending(apply, change.operation, 0.0, change, combined=id_))
        return found

    def _age_ms(self, id_: int) -> int:
        """Return how long a change waits, by the clock of its process and this one's."""
        return self._store.now_us() // 1_000 - made_at_ms(id_)


def _combined(member: Pending[H], found: Committed[Any] | None) -> None:
    """Give a member the outcome of its change, which another process has applied; None if it was dropped."""
    if found is not None:
        member.keeps_parts = True
        member.outcome = Committed(member.result, found.commit_id) if member.recorded else found


def _applying(kind: ChangeKind[H], data: Any) -> Callable[[Any], tuple[H | None, Any]]:
    return lambda attempt: kind.apply(attempt, data)
