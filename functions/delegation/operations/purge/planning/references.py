"""Live tables that may reference a purged table's files, found in the reference index wherever they are registered."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from delegation.identifiers import TableIdentifier
from delegation.operations.purge.context import Neighbour
from delegation.operations.purge.errors import NeighbourUnreadable
from delegation.operations.purge.planning.catalog import Catalog, loaded_neighbour
from delegation.references.errors import RecordedProblem
from delegation.references.model import CatalogPass
from delegation.references.refresh import Refresher
from delegation.references.store import ReferenceStore
from delegation.storage.base import ObjectStore
from delegation.storage.locations import Roots
from delegation.timestamps import isoformat


@dataclass(frozen=True, slots=True)
class ReferencingTables:
    """`PurgeContext.neighbours` by the index: only tables with an area that overlaps are loaded, and those are read.

    `catalogs` are all that are checked, the purged table's first. The index is refreshed here if no other process does.
    """

    index: ReferenceStore
    refresher: Refresher
    catalog: Catalog
    catalogs: Sequence[str]
    identifier: TableIdentifier
    store_of: Callable[[TableIdentifier], ObjectStore]
    checkpoint: Callable[[], None]

    def ensure_known(self) -> list[CatalogPass]:
        """Return the state of each catalog's index, complete and new enough; raise what Refresher.ensure_fresh does."""
        return [self.refresher.ensure_fresh(catalog) for catalog in self.catalogs]

    def __call__(self, roots: Roots | None) -> Iterator[Neighbour | NeighbourUnreadable]:
        """Yield the tables with an area that overlaps `roots`, all for None, and why tables could not be read.

        One that the catalog does not have any more was dropped or renamed: then tables without an entry are looked for,
        and those with such an area are yielded too. Raises what `ensure_known` does.
        """
        self.ensure_known()
        for catalog in self.catalogs:
            yielded: set[TableIdentifier] = {self.identifier}
            gone: list[TableIdentifier] = []
            yield from self._overlapping(catalog, roots, yielded, gone.append)
            if gone:
                self.refresher.find_renamed(catalog, gone)
                yield from self._overlapping(catalog, roots, yielded, gone.append)

    def _overlapping(
        self,
        catalog: str,
        roots: Roots | None,
        yielded: set[TableIdentifier],
        gone: Callable[[TableIdentifier], None],
    ) -> Iterator[Neighbour | NeighbourUnreadable]:
        """Yield the tables of one catalog that are not yet `yielded`, and add them to these."""
        for entry in self.index.unreadable(catalog):
            if entry.identifier not in yielded:
                yield NeighbourUnreadable(str(entry.identifier), RecordedProblem(str(entry.problem)))
        for identifier in sorted(self._candidates(catalog, roots) - yielded, key=str):
            self.checkpoint()
            yielded.add(identifier)
            yield from loaded_neighbour(self.catalog, identifier, self.store_of, certain=True, gone=gone)

    def summary(self) -> list[dict[str, Any]]:
        """See ReferenceCheck.summary."""
        states = [self.index.pass_of(catalog) for catalog in self.catalogs]
        times = [None if state.complete_as_of is None else isoformat(state.complete_as_of) for state in states]
        return [
            {"catalog": state.catalog, "tables": state.tables, "as_of": moment}
            for state, moment in zip(states, times, strict=True)
        ]

    def _candidates(self, catalog: str, roots: Roots | None) -> set[TableIdentifier]:
        if roots is None:
            return {entry.identifier for entry in self.index.entries(catalog)}
        return set(self.index.overlapping(catalog, roots.uris))
