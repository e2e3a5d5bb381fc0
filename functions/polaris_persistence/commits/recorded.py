"""A function's change as data, so that another process can combine it: what it read of the entities, and what it named.

A function that reads and changes only entities (`EntityChanges`) is called once on the present head. The objects that
it wrote are stored beside the waiting change, with the count of fences from before. The combining process checks that
all that was read is unchanged, and names the objects; otherwise it leaves the change to its own process.
"""

import hashlib
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final, NamedTuple

from polaris_persistence.backends.base import Reference
from polaris_persistence.commits.commits import (
    Changed,
    CommitAttempt,
    PreparedHandle,
    Writes,
    fences_of,
)
from polaris_persistence.commits.entities import EntityChanges, EntityHead
from polaris_persistence.commits.waiting import ChangeKind, WaitingChange
from polaris_persistence.errors import StaleObject
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.objects.objects import ObjectRef
from polaris_persistence.objects.store import CatalogStore

_MOST_SCANNED: Final = 1_000
"""A function that read more names than this waits as a function: to read them again would delay others."""


class Recorded(NamedTuple):
    """A function's change as data, the result that it has if that is applied, and the objects to store beside it."""

    data: dict[str, Any]
    result: Any
    writes: Writes


def record(
    store: CatalogStore,
    change: Callable[[CommitAttempt[EntityHead]], tuple[EntityHead | None, Any]],
    reference: Reference,
    head: EntityHead | None,
) -> Recorded | None:
    """Return the change as data; None if it refuses, changes nothing, or reads or changes more than entities."""
    fences = fences_of(reference, head)
    attempt = CommitAttempt(store, head, before={}, memo={}, fences=fences, reference=reference)
    try:
        changed, result = change(attempt)
        attempt.check_links()
    except Exception:  # noqa: BLE001 - raised by its own attempt too, which decides on it
        return None
    entities = attempt.reader
    if attempt.opaque or not isinstance(entities, EntityChanges) or changed is None:
        return None
    if not entities.made(changed) or any(_is_long(entities, prefix) for prefix in entities.scans):
        return None
    new = [
        PreparedHandle(prepared.loaded.ref, reference.key, reference.created_at, fences)
        for prepared in attempt.writes.values()
    ]
    data = {
        "reads": [[bytes(key), ref.id if ref else None] for key, ref in entities.reads.items()],
        "scans": [[bytes(prefix), _digest(entities, prefix)] for prefix in entities.scans],
        "names": [[bytes(key), list(ref) if ref else None] for key, ref in entities.changes.items()],
        "objects": [[*handle.ref, handle.created_at, handle.fences] for handle in (*new, *attempt.used)],
    }
    return Recorded(data, result, attempt.writes)


def apply_recorded(attempt: CommitAttempt[EntityHead], data: Any) -> Changed[EntityHead, None]:
    """Name what a recorded change named. Raises StaleObject if what it read has changed; PreparedExpired."""
    entities = EntityChanges(attempt)
    for key, id_ in data["reads"]:
        ref = entities.get(IndexKey(key))
        if (ref.id if ref else None) != id_:
            raise StaleObject(f"{IndexKey(key)} has changed since it was read")
    for prefix, digest in data["scans"]:
        if _is_long(entities, IndexKey(prefix)) or _digest(entities, IndexKey(prefix)) != digest:
            raise StaleObject(f"names below {IndexKey(prefix)} have changed since they were read")
    for type_, id_, parts, created_at, fences in data["objects"]:
        attempt.use_stored(ObjectRef(type_, id_, parts), created_at, fences)
    for key, ref in data["names"]:
        entities.name(IndexKey(key), ObjectRef(*ref) if ref else None)
    return Changed(entities.head, None)


def objects_of(change: WaitingChange) -> list[ObjectRef]:
    """Return the objects that a recorded change names; none for a change of another kind."""
    if change.kind != RECORDED.name:
        return []
    return [ObjectRef(type_, id_, parts) for type_, id_, parts, *_ in change.data["objects"]]


RECORDED: Final = ChangeKind[EntityHead]("entity-changes", apply_recorded)


def _below(entities: EntityChanges, prefix: IndexKey) -> Iterable[tuple[IndexKey, ObjectRef]]:
    return entities.before(prefix)


def _is_long(entities: EntityChanges, prefix: IndexKey) -> bool:
    return next(islice(_below(entities, prefix), _MOST_SCANNED, None), None) is not None


def _digest(entities: EntityChanges, prefix: IndexKey) -> bytes:
    found = hashlib.sha256()
    for key, ref in _below(entities, prefix):
        # A key may contain a line break, so its length is there too.
        found.update(b"%d %d " % (len(key), ref.id) + key)
    return found.digest()
