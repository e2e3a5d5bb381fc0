"""Marking the objects that heads and recent commits need (NoSQL persistence proposal, Handling no longer needed
objects)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from delegation.persistence.backends.base import Reference
from delegation.persistence.commits.commits import CommitObject
from delegation.persistence.commits.log import read_log
from delegation.persistence.errors import MaintenanceRefused
from delegation.persistence.maintenance.bloom import BloomFilter
from delegation.persistence.objects.objects import Loaded, ObjectRef, PersistedModel
from delegation.persistence.objects.store import CatalogStore, of_model
from delegation.persistence.objects.types import ObjectType, ObjectTypes, follows_links

_BATCH: Final = 200


@dataclass(frozen=True)
class Marker:
    """Adds the objects that references reach to a filter.

    A reference keeps its current and recent heads, to which it can be reset, and every commit that was the head at
    `cutoff` (µs) or later, because running operations may still read it. With `leaves`, objects without links are also
    read, to check that they exist.
    """

    types: ObjectTypes
    filter: BloomFilter
    cutoff: int
    leaves: bool = False

    def mark(self, store: CatalogStore, reference: Reference) -> None:
        """Add all objects that a reference needs. Raises MaintenanceRefused for a link that cannot be followed."""
        # An exact set, because a false positive of the filter would leave links unmarked.
        visited: set[tuple[str, int]] = set()
        pending: list[ObjectRef] = []
        for commit in self._commits(store, reference):
            if (commit.key.type, commit.key.id) in visited:
                continue
            self._visit(store, commit, visited, pending)
            while pending:
                batch, pending[:] = pending[:_BATCH], pending[_BATCH:]
                for ref, found in zip(batch, store.fetch_many(batch), strict=True):
                    if found is None:
                        raise MaintenanceRefused(f"{store.key(ref)} is named by a commit but missing")
                    self._visit(store, found, visited, pending)

    def _commits(self, store: CatalogStore, reference: Reference) -> Iterator[Loaded[PersistedModel]]:
        if reference.head is None:
            return
        model: type[CommitObject] | None = None
        for id_ in dict.fromkeys(reference.heads):
            head = self._head(store, id_)
            if head is None and id_ == reference.head:
                raise MaintenanceRefused(f"reference {reference.key} points to {id_}, missing or of an undeclared type")
            if head is not None:
                model = model or type(head.value)
                yield head
        newest = True
        for commit in read_log(store, reference.head, model or CommitObject):
            if not newest:
                yield commit
            if commit.value.created_at < self.cutoff:
                return
            newest = False

    def _head(self, store: CatalogStore, id_: int) -> Loaded[CommitObject] | None:
        kinds = [one.name for one in self.types if issubclass(one.model, CommitObject)]
        for found in store.fetch_many(ObjectRef(kind, id_) for kind in kinds):
            if found is not None:
                return of_model(found, CommitObject)
        return None

    def _visit(
        self,
        store: CatalogStore,
        found: Loaded[PersistedModel],
        visited: set[tuple[str, int]],
        pending: list[ObjectRef],
    ) -> None:
        visited.add((found.key.type, found.key.id))
        self.filter.add(found.key)
        links: Iterable[ObjectRef] = self._declared(found.key.type).links(found.value, store.fetch_many)
        if found.value.model_extra:
            raise MaintenanceRefused(f"{found.key} has fields of a newer release; finish the upgrade first")
        for ref in links:
            if (ref.type, ref.id) in visited:
                continue
            if self.leaves or follows_links(self._declared(ref.type)):
                visited.add((ref.type, ref.id))
                pending.append(ref)
            else:
                self.filter.add(store.key(ref))

    def _declared(self, name: str) -> ObjectType[Any]:
        declared = self.types.get(name)
        if declared is None:
            raise MaintenanceRefused(f"type {name!r} is not declared, so its links are unknown; install its package")
        return declared
