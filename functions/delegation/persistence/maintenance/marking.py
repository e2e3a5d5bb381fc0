"""Which objects are needed: those that heads and commits not old enough to forget reach (proposal, Handling no longer
needed objects)."""

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
    """Adds to a filter what references reach.

    Kept of a reference are its current and recent heads (they are what a reset goes back to), and every commit that was
    the head at `cutoff` (µs) or later: an operation that began since may still read it. With `leaves` objects that link
    nothing are read too, to see whether they are there.
    """

    types: ObjectTypes
    filter: BloomFilter
    cutoff: int
    leaves: bool = False

    def mark(self, store: CatalogStore, reference: Reference) -> None:
        """Add everything that one reference needs.

        Raises MaintenanceRefused when links cannot be followed to the end: an object of a type not declared here, one
        with fields that a newer release added, or one that is missing.
        """
        # Exact, not the filter: a key wrongly taken for visited would leave what it links unmarked.
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
                        raise MaintenanceRefused(f"{store.key(ref)} is named by a commit and missing")
                    self._visit(store, found, visited, pending)

    def _commits(self, store: CatalogStore, reference: Reference) -> Iterator[Loaded[PersistedModel]]:
        if reference.head is None:
            return
        model: type[CommitObject] | None = None
        for id_ in dict.fromkeys(reference.heads):
            head = self._head(store, id_)
            if head is None and id_ == reference.head:
                raise MaintenanceRefused(f"reference {reference.key} points to {id_}, which no known type has")
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
            raise MaintenanceRefused(f"{found.key} was written by a newer release, which may have linked more")
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
            raise MaintenanceRefused(f"type {name!r} is not declared here, so what its objects need is not known")
        return declared
