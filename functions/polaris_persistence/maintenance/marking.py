"""Marking the objects that references need (NoSQL persistence proposal, Handling no longer needed objects)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from polaris_persistence.backends.base import Backend, ObjectKey, Reference
from polaris_persistence.commits.commits import CommitObject
from polaris_persistence.commits.feed import NAMES_TYPE
from polaris_persistence.commits.waiting import OUTCOMES_TYPE
from polaris_persistence.errors import (
    BackendUnavailable,
    CommitOutcomeUnknown,
    MaintenanceRefused,
    PersistenceError,
    TaskTakenOver,
)
from polaris_persistence.objects.objects import Loaded, ObjectRef, PersistedModel, unknown_field
from polaris_persistence.objects.store import CatalogStore, of_model
from polaris_persistence.objects.types import ObjectType, ObjectTypes, follows_links

_BATCH: Final = 200
_FENCES: Final = 20
_LONGEST_LOG: Final = 100_000
"""The most commits of a reference that are kept for the change feed."""


class MarkSet(Protocol):
    """An exact set of marked keys: a key wrongly taken for marked would leave its links unmarked."""

    def add(self, key: ObjectKey) -> bool:
        """Mark a key; return whether it was unmarked."""


class MarkedKeys:
    """A MarkSet in memory, for few objects."""

    def __init__(self) -> None:
        self.keys: set[ObjectKey] = set()

    def add(self, key: ObjectKey) -> bool:
        new = key not in self.keys
        self.keys.add(key)
        return new


@dataclass(frozen=True)
class Marker:
    """Marks the objects that references reach, from the current head and the recent heads, to which one can be reset.

    Former heads need no mark: what is unmarked is kept for one more grace period (`maintenance.sweep`). With `leaves`,
    objects without links are also read, to check that they exist. Heads written since `log_since` (µs) are kept for the
    change feed, without what they name.
    """

    types: ObjectTypes
    marks: MarkSet
    leaves: bool = False
    log_since: int | None = None

    def mark(self, store: CatalogStore, reference: Reference) -> None:
        """Mark all objects that a reference needs. Raises MaintenanceRefused for a link that cannot be followed."""
        pending = self.begin(store, reference)
        while pending:
            self.advance(store, pending)

    def begin(self, store: CatalogStore, reference: Reference) -> list[ObjectRef]:
        """Mark a reference's heads and the outcomes of combined changes; return marked objects with links to follow."""
        pending: list[ObjectRef] = []
        oldest: Loaded[CommitObject] | None = None
        for head in self._heads(store, reference):
            oldest = head
            if self.marks.add(head.key):
                self._follow(store, head, pending)
        if oldest is not None and self.log_since is not None:
            self._keep_log(store, oldest, self.log_since)
        return pending

    def _keep_log(self, store: CatalogStore, head: Loaded[CommitObject], since: int) -> None:
        """Mark the commits before a head that are not older than `since`, with what is stored beside them."""
        beside, kept = self._beside(), 0
        while head.value.tail and kept < _LONGEST_LOG:
            ids = head.value.tail
            found = store.fetch_many(ObjectRef(kind, id_) for id_ in ids for kind in (head.key.type, *beside))
            heads = [
                of_model(loaded, CommitObject)
                for loaded in found
                if loaded is not None and loaded.key.type == head.key.type
            ]
            young = {loaded.key.id for loaded in heads if loaded.value.created_at >= since}
            for loaded in found:
                if loaded is not None and loaded.key.id in young:
                    self.marks.add(loaded.key)
            kept += len(young)
            if len(young) < len(ids):
                return
            head = heads[-1]

    def _beside(self) -> list[str]:
        """Return the types of what is stored under the id of a head."""
        return [name for name in (OUTCOMES_TYPE.name, NAMES_TYPE.name) if self.types.get(name)]

    def advance(self, store: CatalogStore, pending: list[ObjectRef]) -> None:
        """Follow the links of some pending objects, the newest first, so that few are pending at a time."""
        batch = pending[-_BATCH:]
        del pending[-_BATCH:]
        for ref, found in zip(batch, store.fetch_many(batch), strict=True):
            if found is None:
                raise MaintenanceRefused(f"a commit links to {store.key(ref)}, which is missing")
            self._follow(store, found, pending)

    def _heads(self, store: CatalogStore, reference: Reference) -> Iterator[Loaded[CommitObject]]:
        kinds = [declared.name for declared in self.types if issubclass(declared.model, CommitObject)]
        ids = list(dict.fromkeys(reference.heads))
        # A suspended process learns from the outcomes whether its waiting change was combined.
        beside = self._beside()
        present = store.fetch_many(ObjectRef(kind, id_) for id_ in ids for kind in [*kinds, *beside])
        found = [loaded for loaded in present if loaded is not None]
        heads = {loaded.key.id: of_model(loaded, CommitObject) for loaded in found if loaded.key.type in kinds}
        if reference.closed:
            raise MaintenanceRefused(
                f"reference {reference.key} is being removed. Purge its realm again to finish the removal"
            )
        if reference.head is not None and reference.head not in heads:
            raise MaintenanceRefused(
                f"reference {reference.key} points to {reference.head}, which is missing or has an undeclared type"
            )
        for outcomes in found:
            if outcomes.key.type in beside and outcomes.key.id in heads:
                self.marks.add(outcomes.key)
        return (heads[id_] for id_ in ids if id_ in heads)

    def links(self, store: CatalogStore, found: Loaded[PersistedModel]) -> Iterator[tuple[ObjectRef, bool]]:
        """Return what an object keeps alive, each with whether its links are followed. Raises MaintenanceRefused."""
        named: Iterable[ObjectRef] = self._declared(found.key.type).links(found.value, store.fetch_many)
        unknown = unknown_field(found.value)
        if unknown is not None:
            raise MaintenanceRefused(f"{found.key} has field {unknown!r} of a newer release. Finish the upgrade first")
        for ref in named:
            yield ref, self.leaves or follows_links(self._declared(ref.type))

    def _follow(self, store: CatalogStore, found: Loaded[PersistedModel], pending: list[ObjectRef]) -> None:
        for ref, follow in self.links(store, found):
            if self.marks.add(store.key(ref)) and follow:
                pending.append(ref)

    def _declared(self, name: str) -> ObjectType[Any]:
        declared = self.types.get(name)
        if declared is None:
            raise MaintenanceRefused(f"type {name!r} is not declared, so its links are unknown. Install its package")
        return declared


def refusal(error: Exception) -> str:
    """Return why a catalog whose marking failed is not swept; raise an error that does not belong to the catalog.

    Errors that a plugin's type raises for its links belong to the catalog.
    """
    if isinstance(error, BackendUnavailable | TaskTakenOver) or getattr(error, "retryable", False):
        raise error
    return str(error) if isinstance(error, PersistenceError) else f"{type(error).__name__}: {error}"


def fence(backend: Backend, reference: Reference) -> Reference | None:
    """Fence a reference, so that every swap prepared before fails; return it, None if it was deleted.

    Raises MaintenanceRefused if it moves all the time, or its row cannot be read.
    """
    if reference.problem is not None:
        raise MaintenanceRefused(f"reference {reference.key}: {reference.problem}")
    current: Reference | None = reference
    for _ in range(_FENCES):
        if current is None:
            return None
        fenced = current.fenced()
        try:
            refused = backend.replace_reference(fenced, expected=current)
        except CommitOutcomeUnknown:
            current = backend.read_reference(reference.key)
            continue
        if refused is None:
            return fenced
        current = refused.stored
    raise MaintenanceRefused(f"reference {reference.key} changes too often to be marked. Run maintenance again later")
