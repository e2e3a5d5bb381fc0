"""Resetting a reference to a recent head after a disaster (NoSQL persistence proposal, Reference).

An asynchronous replica may have a reference without the objects that it names: then the reference is reset to its
newest complete head.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from polaris_persistence.backends.base import Reference
from polaris_persistence.errors import (
    CommitOutcomeUnknown,
    PersistenceError,
    ReferenceNotFound,
    StaleObject,
)
from polaris_persistence.maintenance.marking import MarkedKeys, Marker, refusal
from polaris_persistence.objects.store import CatalogStore

_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class RecentHead:
    """A head that a reference can be reset to; `problem` names what is missing, None if it is complete."""

    id: int
    current: bool
    problem: str | None


def recent_heads(store: CatalogStore, reference: Reference) -> Iterator[RecentHead]:
    """Return the recent heads, newest first, after reading everything that each one links."""
    for position, id_ in enumerate(reference.heads):
        yield RecentHead(id_, position == 0, _problem(store, reference, id_))


def reset(store: CatalogStore, name: str, head: int, *, even_if_incomplete: bool = False) -> Reference:
    """Move a reference to one of its recent heads, from which commits continue.

    The other heads remain listed, so a further reset can undo it. Raises ReferenceNotFound, PersistenceError
    (HEAD_NOT_LISTED, HEAD_INCOMPLETE), StaleObject if the reference moved meanwhile, CommitOutcomeUnknown.
    """
    reference = store.current_reference(name)
    if head not in reference.heads:
        raise PersistenceError(f"{head} is not one of the recent heads of {name!r}", code="HEAD_NOT_LISTED")
    problem = _problem(store, reference, head)
    if problem and not even_if_incomplete:
        raise PersistenceError(f"head {head} of {name!r} is incomplete: {problem}", code="HEAD_INCOMPLETE")
    moved = reference.moved_to(head)
    for _ in range(_TRIES):
        try:
            refused = store.backend.replace_reference(moved, expected=reference)
        except CommitOutcomeUnknown:
            continue  # repeat the call: it finds what the first one wrote, or writes it
        if refused and refused.stored is None:
            raise ReferenceNotFound(f"reference {name!r} was deleted")
        if refused and refused.stored != moved:
            raise StaleObject(f"another process changed reference {name!r}. List its heads, then decide again")
        store.remember_reference(moved)
        return moved
    raise CommitOutcomeUnknown(f"reference {name!r} may have been reset. Read it before you try again")


def _problem(store: CatalogStore, reference: Reference, head: int) -> str | None:
    # Mark a reference that has only this head.
    alone = Reference(reference.key, (head,), reference.created_at)
    try:
        Marker(store.types, MarkedKeys(), leaves=True).mark(store, alone)
    except Exception as error:  # noqa: BLE001 - whatever a type raises, it is this head's alone
        return refusal(error)
    return None
