"""References after a disaster: what they point to, and the way back to a recent head (proposal, Reference).

A table that is replicated asynchronously may have received a reference before the objects it names: then the reference
is reset to the newest of its recent heads whose objects are all there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from delegation.persistence.backends.base import Reference
from delegation.persistence.errors import (
    CommitOutcomeUnknown,
    HeadIncomplete,
    HeadNotListed,
    MaintenanceRefused,
    ReferenceNotFound,
    StaleObject,
)
from delegation.persistence.maintenance.bloom import BloomFilter
from delegation.persistence.maintenance.marking import Marker
from delegation.persistence.objects.store import CatalogStore

_TRIES: Final = 5
_LATEST: Final = round(timedelta(days=3_650_000).total_seconds() * 1e6)


@dataclass(frozen=True, slots=True)
class RecentHead:
    """A head that a reference can be reset to; `problem` says what is missing of it, None if nothing is."""

    id: int
    current: bool
    problem: str | None


def recent_heads(store: CatalogStore, reference: Reference) -> Iterator[RecentHead]:
    """The recent heads, newest first, each with everything it links looked at."""
    for position, id_ in enumerate(reference.heads):
        yield RecentHead(id_, position == 0, _problem(store, reference, id_))


def reset(store: CatalogStore, name: str, head: int, *, even_if_incomplete: bool = False) -> Reference:
    """Move a reference back to one of its recent heads; commits go on from there.

    The heads since stay listed, so a reset can be undone by another. Raises ReferenceNotFound,
    HeadNotListed, HeadIncomplete, StaleObject if the reference moved meanwhile, CommitOutcomeUnknown.
    """
    reference = store.current_reference(name)
    if head not in reference.heads:
        raise HeadNotListed(f"{head} is not among the recent heads of {name!r}")
    problem = _problem(store, reference, head)
    if problem and not even_if_incomplete:
        raise HeadIncomplete(f"head {head} of {name!r} is not complete: {problem}")
    moved = reference.moved_to(head)
    for _ in range(_TRIES):
        try:
            refused = store.backend.replace_reference(moved, expected=reference)
        except CommitOutcomeUnknown:
            continue  # The same once more: it finds what the first one did, or does it.
        if refused and refused.stored is None:
            raise ReferenceNotFound(f"reference {name!r} was deleted")
        if refused and refused.stored != moved:
            raise StaleObject(f"reference {name!r} moved meanwhile")
        store.remember_reference(moved)
        return moved
    raise CommitOutcomeUnknown(f"reference {name!r} may have been reset")


def _problem(store: CatalogStore, reference: Reference, head: int) -> str | None:
    # What one head needs, without the commits before it: a reference that had no other head, and nothing is old enough.
    alone = Reference(reference.key, (head,), reference.created_at)
    try:
        Marker(store.types, BloomFilter.for_keys(1, 0.5, bytes(16)), _LATEST, leaves=True).mark(store, alone)
    except MaintenanceRefused as refused:
        return str(refused)
    return None
