"""Live tables that may reference a purged table's files, found in the reference index wherever they are registered."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import inf
from typing import Any, Final, Protocol

from delegation.identifiers import TableIdentifier
from delegation.operations.purge.context import Neighbour
from delegation.operations.purge.errors import NeighbourUnreadable
from delegation.operations.purge.planning.catalog import Catalog, loaded_neighbour
from delegation.references.errors import RecordedProblem, ReferencesNotKnown
from delegation.references.model import CatalogPass, PassNeeded, TableEntry
from delegation.references.refresh import Refresher
from delegation.references.store import ReferenceStore
from delegation.storage.base import ObjectStore
from delegation.storage.locations import Roots
from delegation.timestamps import isoformat

_MOST_SEARCHES: Final = 3
"""Passes that one look at the neighbours may need because tables with shared areas were renamed meanwhile."""


class Moment(Protocol):
    """Which pass a purge needs, recorded where its further attempts find it."""

    def after(self, state: CatalogPass) -> int:
        """Return above which number a pass over a catalog has to be: what is recorded, else the last of `state`.

        Raises AttemptLost.
        """
        ...

    def renew(self, state: CatalogPass) -> int:
        """Record that a later pass than the last one which began by `state` is needed. Raises AttemptLost."""
        ...

    def relax(self, catalog: str) -> None:
        """Record that an earlier pass was enough by the operator's setting. Raises AttemptLost."""
        ...

    def recorded(self, catalog: str) -> tuple[int | None, bool]:
        """Return the number that is recorded for a catalog, if any, and whether an earlier pass was enough."""
        ...


@dataclass(frozen=True, slots=True)
class ReferencingTables:
    """`PurgeContext.neighbours` by the index: only tables with an area that overlaps are loaded, and those are read.

    `catalogs` are all that are checked, the purged table's first. A pass that began after the purge's `moment` is made
    here if no other process does; one that began `max_age` ago at most is enough.
    """

    index: ReferenceStore
    refresher: Refresher
    catalog: Catalog
    catalogs: Sequence[str]
    identifier: TableIdentifier
    table_uuid: str
    store_of: Callable[[TableIdentifier], ObjectStore]
    checkpoint: Callable[[], None]
    moment: Moment
    max_age: timedelta = timedelta(0)

    def ensure_known(self, *, until: float = inf) -> list[CatalogPass]:
        """Return the state of each catalog's index after the pass that is needed; raise what Refresher.ensure does."""
        refresher = replace(self.refresher, until=until)
        # Every moment first: it is the same for all catalogs.
        states = [self.index.pass_of(catalog) for catalog in self.catalogs]
        needed = [PassNeeded(self.moment.after(state), self.max_age) for state in states]
        found: list[CatalogPass] = []
        for before, need in zip(states, needed, strict=True):
            state = refresher.ensure(before.catalog, need, state=None if found else before)
            if not need.is_later(state, refresher.clock()):
                self.moment.relax(state.catalog)
            found.append(state)
        return found

    def __call__(self, roots: Roots | None) -> Iterator[Neighbour | NeighbourUnreadable]:
        """Yield the tables with an area that overlaps `roots`, all for None, and why tables could not be read.

        One that is not under its name any more was dropped or renamed. It is looked for among the tables without an
        entry; if it is none of these, it may have the name of another table, and a new pass says whether it is left.
        Raises what `ensure_known` does.
        """
        self.ensure_known()
        for catalog in self.catalogs:
            yielded: dict[TableIdentifier, str] = {}
            for _ in range(_MOST_SEARCHES):
                missing: set[str] = set()
                yield from self._overlapping(catalog, roots, yielded, missing)
                if missing:
                    new = self.refresher.find_new(catalog)
                    yield from self._overlapping(catalog, roots, yielded, set())
                    missing -= {entry.table_uuid for entry in new}
                if not missing:
                    break
                self.moment.renew(self.index.pass_of(catalog))
                self.ensure_known()
            else:
                state = self.index.pass_of(catalog)
                raise ReferencesNotKnown(catalog, state.checked, state.tables)

    def _overlapping(
        self, catalog: str, roots: Roots | None, yielded: dict[TableIdentifier, str], missing: set[str]
    ) -> Iterator[Neighbour | NeighbourUnreadable]:
        """Yield the tables of one catalog that are not yet `yielded`, and add the uuids of `missing` ones."""
        for unread in self.index.unreadable(catalog):
            if unread.identifier not in yielded and unread.identifier != self.identifier:
                yield NeighbourUnreadable(str(unread.identifier), RecordedProblem(str(unread.problem)))
        for identifier in sorted(self._candidates(catalog, roots), key=str):
            entry = self.index.get(identifier)
            if entry is None or yielded.get(identifier) == entry.table_uuid:
                continue
            if identifier == self.identifier:
                missing |= _missing(entry, self.table_uuid)
                continue
            self.checkpoint()
            gone: list[TableIdentifier] = []
            for found in loaded_neighbour(self.catalog, identifier, self.store_of, certain=True, gone=gone.append):
                yielded[identifier] = found.table.table_uuid if isinstance(found, Neighbour) else entry.table_uuid
                yield found
            missing |= _missing(entry, None if gone else yielded.get(identifier, entry.table_uuid))

    def summary(self) -> list[dict[str, Any]]:
        """See ReferenceCheck.summary."""
        return [self._summary(self.index.pass_of(catalog)) for catalog in self.catalogs]

    def _summary(self, state: CatalogPass) -> dict[str, Any]:
        moment = None if state.complete_as_of is None else isoformat(state.complete_as_of)
        after, relaxed = self.moment.recorded(state.catalog)
        setting = {"relaxed_by": f"reference-max-age={self.max_age}"} if relaxed else {}
        return {
            "catalog": state.catalog,
            "tables": state.tables,
            "as_of": moment,
            "pass": state.complete,
            "moment": after,
            **setting,
        }

    def _candidates(self, catalog: str, roots: Roots | None) -> set[TableIdentifier]:
        if roots is None:
            return {entry.identifier for entry in self.index.entries(catalog)}
        return set(self.index.overlapping(catalog, roots.uris))


def _missing(entry: TableEntry, uuid: str | None) -> frozenset[str]:
    """Return the uuids of an entry's tables that are not the one loaded under its name; `uuid` is None for none.

    A name that had no table at the end of the last pass has none, unless its table was seen earlier in that pass.
    """
    own = frozenset() if entry.absent or not entry.table_uuid else frozenset({entry.table_uuid})
    return (own | entry.displaced) - ({uuid} if uuid else set())
