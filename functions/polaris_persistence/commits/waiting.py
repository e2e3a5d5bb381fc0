"""Changes that wait on a reference to be combined into the next commit, by whichever process makes it.

A contended process stores its change as an object and adds the object's id to the waiting ids of the reference. The
next winner applies all waiting changes, oldest first, and removes their ids in the same compare-and-set. Before that it
stores what each change returned under the id of the new head. So a change is applied exactly once, and its process
reads the outcome from the commits since. An id that no longer waits and has no outcome was dropped: it will never be
applied.

Only a change given as data is combined. A function's id waits too, which keeps its turn.

An id older than any commit lasts is *idle*: its process is gone, or its clock is wrong. No process reads it or waits
for it, and after a while the next commit drops it. Its process, if there still is one, attempts its change itself.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Final, Generic, NamedTuple

from polaris_persistence.backends.base import RECENT_HEADS, Reference, part_count
from polaris_persistence.commits.commits import (
    FENCES_OF_A_DELETION,
    Changed,
    CommitAttempt,
    CommitObject,
    Committed,
    H,
)
from polaris_persistence.commits.log import read_log
from polaris_persistence.errors import BackendUnavailable, CommitUnknown, CorruptObject, ReferenceNotFound
from polaris_persistence.objects.objects import Loaded, ObjectRef, PersistedModel
from polaris_persistence.objects.store import CatalogStore, Prepared
from polaris_persistence.objects.types import ObjectType

_LOG: Final = logging.getLogger(__name__)
MOST_WAITING: Final = 200
"""With this many ids that are not idle a reference accepts no more; the change is then only retried."""
MOST_IDS: Final = 1_000
"""The same for all ids, so that its row stays small: about 11 KB."""
_TRIES: Final = 8


class WaitingChange(PersistedModel):
    """A change of a reference as data: `kind` names the ChangeKind, "" for a function that only its process knows."""

    reference: str
    kind: str = ""
    data: Any = None
    operation: str = ""


class CombinedOutcome(NamedTuple):
    """What one waiting change returned, and whether it changed the head."""

    id: int
    changed: bool
    result: Any


class CombinedOutcomes(PersistedModel):
    """The outcomes of the waiting changes of one commit, stored under the id of its head."""

    outcomes: tuple[CombinedOutcome, ...]


WAITING_TYPE: Final = ObjectType("waiting-change", WaitingChange)
OUTCOMES_TYPE: Final = ObjectType("combined-outcomes", CombinedOutcomes)
WAITING_TYPES: Final[tuple[ObjectType[Any], ...]] = (WAITING_TYPE, OUTCOMES_TYPE)
"""To be declared wherever changes are combined."""


@dataclass(frozen=True)
class ChangeKind(Generic[H]):
    """A change that can be given as data. `apply` reads and writes only through the attempt, without other I/O; data
    and result hold CBOR values. What it raises refuses the change, once its own process has raised it too."""

    name: str
    apply: Callable[[CommitAttempt[H], Any], Changed[H, Any]]


@dataclass(frozen=True, slots=True)
class Ticket:
    """The place of a waiting change: its id, whether it is `combinable`, and the reference when the id was added."""

    id: int
    combinable: bool
    version: int
    head: int | None
    created_at: int


def ahead(waiting: Sequence[int], own: Collection[int], idle: Collection[int]) -> list[int]:
    """Return the ids that wait longer than the oldest of `own`, without those known to make no progress."""
    first = min(own)
    return [id_ for id_ in waiting if id_ < first and id_ not in idle]


class WaitingQueue:
    """The ids that wait on one reference, for one process."""

    def __init__(self, store: CatalogStore, reference: str, model: type[CommitObject]) -> None:
        self._store = store
        self._name = reference
        self._model = model
        self._reported: set[int] = set()
        self.usable = all(store.types.get(declared.name) is not None for declared in WAITING_TYPES)

    def add(self, changes: Sequence[WaitingChange], known: Reference) -> tuple[list[Ticket], Reference]:
        """Let changes wait; return their places and the reference as far as it is known.

        There are no places if the reference moved before each of several calls: nothing waits then. Without a clear
        answer the same call is repeated while the reference is at the same version: a late one cannot be applied at
        another. Raises ReferenceNotFound and BackendUnavailable (nothing waits), CommitUnknown.
        """
        return self.place([self.prepare(change) for change in changes], known)

    def prepare(self, change: WaitingChange) -> Prepared[WaitingChange]:
        """Return the stored form of a change. Raises ValueNotStorable, ObjectTooLarge."""
        prepared = self._store.prepare(change)
        part_count(len(prepared.stored.value))
        return prepared

    def place(self, prepared: Sequence[Prepared[WaitingChange]], known: Reference) -> tuple[list[Ticket], Reference]:
        """Let prepared changes wait, like `add`."""
        ids = [change.loaded.key.id for change in prepared]
        self._store.backend.put_many(change.stored for change in prepared)
        unclear: Exception | None = None
        for _ in range(_TRIES):
            try:
                refused = self._store.backend.add_waiting(ids, expected=known)
            except BackendUnavailable:
                if unclear is None:
                    raise
                continue
            except Exception as error:  # noqa: BLE001 - it may have been applied before anything was raised
                unclear = error
                continue
            if refused is None:
                return _places(prepared, known), replace(known, waiting=tuple(sorted({*known.waiting, *ids})))
            if refused.stored is None or refused.stored.closed:
                raise CommitUnknown(ids[0]) if unclear else ReferenceNotFound(f"reference {self._name!r} was deleted")
            if unclear is not None:
                # The lost call was applied at `known` or never will be: the commits since show which.
                return _places(prepared, known), refused.stored
            known = refused.stored
        if unclear is None:
            return [], known
        raise CommitUnknown(ids[0]) from unclear

    def withdraw(self, ticket: Ticket) -> Committed[Any] | None:
        """Take a change back; return None if it was not and never will be applied, else its outcome. Raises
        CommitUnknown, but not for a function: nobody else applies it, so its id may also become idle."""
        cause: Exception | None = None
        for _ in range(_TRIES):
            try:
                key = self._store.reference_key(self._name)
                refused = self._store.backend.withdraw(key, ticket.id, fenced=ticket.combinable)
                if refused is None:
                    return None
                if refused.stored is not None:
                    return self.outcome(ticket, refused.stored)
                break
            except CommitUnknown:
                raise
            except Exception as error:  # noqa: BLE001 - repeated: it is refused once the id does not wait any more
                cause = error
                if not ticket.combinable:
                    return None
        raise CommitUnknown(ticket.id) from cause

    def outcome(self, ticket: Ticket, reference: Reference) -> Committed[Any] | None:
        """Return the outcome of a change that does not wait any more, None if it was dropped.

        Raises CommitUnknown, also if maintenance may have deleted the outcome: the process was suspended meanwhile.
        """
        if reference.created_at != ticket.created_at or not ticket.combinable:
            return None
        heads = list(self._heads_since(ticket, reference))
        found = self._store.fetch_readable(ObjectRef(OUTCOMES_TYPE.name, head) for head in heads)
        for head, loaded in zip(heads, found, strict=True):
            for outcome in _outcomes(loaded):
                if outcome.id == ticket.id:
                    return Committed(outcome.result, head if outcome.changed else None)
        # The outcomes of a closed reference are deleted with its objects.
        if reference.closed or any(isinstance(loaded, CorruptObject) for loaded in found):
            raise CommitUnknown(ticket.id)
        # Each commit since then raised the version by one, and so did each fence.
        if heads and reference.version - ticket.version - len(heads) >= FENCES_OF_A_DELETION:
            raise CommitUnknown(ticket.id)
        return None

    def changes(self, ids: Iterable[int]) -> Iterator[tuple[int, WaitingChange | None]]:
        """Return what waits under the ids; None for a missing object, for which no process waits any more.

        An undecodable change is left out like one of an unknown kind: its process may commit it itself.
        """
        wanted = list(ids)
        self._reported &= set(wanted)
        refs = [ObjectRef(WAITING_TYPE.name, id_) for id_ in wanted]
        for id_, found in zip(wanted, self._store.fetch_readable(refs) if refs else [], strict=True):
            if found is None:
                yield id_, None
            elif isinstance(found, CorruptObject):
                self._report(id_, found)
            elif isinstance(found.value, WaitingChange) and found.value.reference == self._name:
                yield id_, found.value

    def _report(self, id_: int, error: CorruptObject) -> None:
        if id_ not in self._reported:
            self._reported.add(id_)
            _LOG.warning(
                "the waiting change %d of reference %r is not combined, because it cannot be read: %s",
                id_,
                self._name,
                error,
            )
            self._store.unreadable(self._store.reference_key(self._name))

    def _heads_since(self, ticket: Ticket, reference: Reference) -> Iterator[int]:
        since = list(takewhile(lambda head: head != ticket.head, reference.heads))
        if len(since) < len(reference.heads) or (ticket.head is None and len(since) < RECENT_HEADS):
            yield from since
            return
        last: CommitObject | None = None
        for commit in read_log(self._store, reference.head, self._model):
            if commit.key.id == ticket.head:
                return
            yield commit.key.id
            last = commit.value
        if ticket.head is not None or last is None or last.seq > 1:
            raise CommitUnknown(ticket.id)


def _outcomes(found: Loaded[PersistedModel] | CorruptObject | None) -> tuple[CombinedOutcome, ...]:
    if found is None or isinstance(found, CorruptObject) or not isinstance(found.value, CombinedOutcomes):
        return ()
    return found.value.outcomes


def _places(prepared: Iterable[Prepared[WaitingChange]], known: Reference) -> list[Ticket]:
    return [
        Ticket(change.loaded.key.id, bool(change.loaded.value.kind), known.version, known.head, known.created_at)
        for change in prepared
    ]
