"""Live tables that may reference a purged table's files, found in the reference index under any name."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import inf
from typing import Any, Final, Protocol

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchCatalog, PolarisError, PolarisForbidden, PolarisUnavailable
from delegation.references.blocking import UNKNOWN_AREA, Blocking, Exemption, LocatedTable, Subject
from delegation.references.errors import ReferencesNotKnown, recorded_problem
from delegation.references.model import CatalogPass, PassNeeded, TableEntry, overlap
from delegation.references.reading import problem_of
from delegation.references.refresh import Refresher
from delegation.references.store import ReferenceStore
from delegation.removal.errors import NeighbourUnreadable
from delegation.removal.neighbourhood import Catalog, Neighbour, loaded_neighbour
from delegation.storage.base import ObjectStore
from delegation.storage.locations import Roots
from delegation.timestamps import isoformat
from polaris_common.errors import ErrorScope

_MOST_LOOKS: Final = 5
"""Tables without one of their manifests that an attempt reads again."""
_MOST_SEARCHES: Final = 3
"""Passes that one search may need because tables with shared areas were renamed meanwhile."""


class PurgeMoment(Protocol):
    """Which pass a purge needs, recorded for its later attempts."""

    def after(self, state: CatalogPass) -> int:
        """Return the number above which a pass over a catalog must be: the recorded one, else the last pass of `state`.
        Raises LeaseLost."""
        ...

    def renew(self, state: CatalogPass) -> int:
        """Record that a pass later than the last one started by `state` is needed. Raises LeaseLost."""
        ...

    def relax(self, catalog: str) -> None:
        """Record that an earlier pass was enough by the operator's setting. Raises LeaseLost."""
        ...

    def recorded(self, catalog: str) -> tuple[int | None, bool]:
        """Return the recorded number of a catalog, if any, and whether an earlier pass was enough."""
        ...


@dataclass(frozen=True, slots=True)
class IndexedNeighbours:
    """`PurgeContext.neighbours` by the index: only tables with an overlapping area are loaded and read.

    `catalogs` are all that are checked, the purged table's first. A pass that started after the purge's `moment` is
    made here unless another process makes it; a pass that started at most `max_age` ago is enough. `used` are the
    exemptions that mattered, `looked` the tables that were read again.
    """

    index: ReferenceStore
    refresher: Refresher
    catalog: Catalog
    catalogs: Sequence[str]
    identifier: TableIdentifier
    table_uuid: str
    store_of: Callable[[TableIdentifier], ObjectStore]
    checkpoint: Callable[[], None]
    moment: PurgeMoment
    max_age: timedelta = timedelta(0)
    used: dict[Subject, Exemption] = field(default_factory=dict)
    looked: set[TableIdentifier] = field(default_factory=set)

    def ensure_known(self, *, until: float = inf) -> list[CatalogPass]:
        """Return the state of each catalog's index after the needed pass. Raises as Refresher.ensure. A catalog in the
        settings that does not exist or may not be read is recorded as one that cannot be listed."""
        refresher = replace(self.refresher, until=until)
        # All moments first, so that they are the same for all catalogs.
        states = [self.index.pass_of(catalog) for catalog in self.catalogs]
        needed = [PassNeeded(self.moment.after(state), self.max_age) for state in states]
        passes = [self._ensured(refresher, self.catalogs[0], needed[0], states[0])]
        for catalog, need in zip(self.catalogs[1:], needed[1:], strict=True):
            known = {blocking.subject: blocking for blocking in self.index.unlisted(catalog)}
            subject = Subject(catalog)
            try:
                passes.append(self._ensured(refresher, catalog, need, None))
            except (NoSuchCatalog, PolarisForbidden) as error:
                since = known[subject].since if subject in known else self.refresher.clock()
                self.index.put_unlisted(Blocking(subject, problem_of(error), since))
        return passes

    def renew(self) -> None:
        for catalog in self.catalogs:
            self.moment.renew(self.index.pass_of(catalog))

    def _ensured(
        self, refresher: Refresher, catalog: str, needed: PassNeeded, state: CatalogPass | None
    ) -> CatalogPass:
        pass_state = refresher.ensure(catalog, needed, state=state)
        if not needed.is_later(pass_state, refresher.clock()):
            self.moment.relax(catalog)
        return pass_state

    def __call__(self, roots: Roots | None) -> Iterator[Neighbour | NeighbourUnreadable]:
        """Yield the tables with an area that overlaps `roots`, all for None, and why tables could not be read. A table
        that has left its name was dropped or renamed, perhaps to another table's name, so a new pass decides whether it
        still exists. Raises as `ensure_known`."""
        self.ensure_known()
        for catalog in self.catalogs:
            exempt = Exempt(self.index.exemptions(catalog), self.refresher.clock(), self.used)
            for blocking in self.index.unlisted(catalog):
                if not blocking.is_doubted:
                    yield _unreadable(blocking, exempt=exempt.has(blocking))
            for table in self.index.located(catalog):
                if table.problem is not None:
                    yield _unreadable(Blocking(table.subject, table.problem, None), exempt=False)
                    continue
                is_overlapping = roots is None or any(overlap(table.area, uri) for uri in roots.uris)
                if is_overlapping or table.area == UNKNOWN_AREA:
                    yield _at_other_format(table)
            seen = SeenTables()
            for _ in range(_MOST_SEARCHES):
                missing: set[str] = set()
                yield from self._overlapping(catalog, roots, seen, missing, exempt)
                if not missing:
                    break
                self.moment.renew(self.index.pass_of(catalog))
                self.ensure_known()
            else:
                state = self.index.pass_of(catalog)
                raise ReferencesNotKnown(catalog, state.checked, state.tables)

    def _overlapping(
        self,
        catalog: str,
        roots: Roots | None,
        seen: "SeenTables",
        missing: set[str],
        exempt: "Exempt",
    ) -> Iterator[Neighbour | NeighbourUnreadable]:
        """Yield the tables of one catalog that are not yet in `seen`, and add them.

        Clones with the same metadata file in the last pass reference the same files, so one of them is loaded, and the
        others are only asked whether they still have it. `missing` gets the uuids of tables that have left their name.
        An unreadable table holds every purge, unless its areas are complete and do not overlap.
        """
        candidates = self._candidates(catalog, roots)
        unread = {blocking.identifier: blocking for blocking in self._unreadable(catalog, missing)}
        candidates |= self._candidates(catalog, roots) if self.looked else set()
        for identifier in sorted(unread.keys() - seen.uuids.keys() - {self.identifier}, key=str):
            blocking = Blocking.of(unread[identifier])
            if identifier in candidates or not blocking.narrow:
                yield _unreadable(blocking, exempt=exempt.has(blocking))
        ahead, compared = sorted(candidates, key=str), set[str]()
        for identifier in ahead:
            entry = self.index.get(identifier)
            if entry is None or seen.has(entry):
                continue
            self.checkpoint()
            if identifier == self.identifier:
                missing |= frozenset() if seen.has_state_of(entry) else _missing(entry, self.table_uuid)
            elif not (seen.has_state_of(entry) and self._is_unchanged(entry)):
                problem = unread.get(identifier)
                gone: list[TableIdentifier] = []
                for loaded in self._loaded(identifier, gone.append, unreadable=problem is not None):
                    seen.add(entry, loaded)
                    yield (
                        loaded if problem is None else self._known_of(loaded, identifier, Blocking.of(problem), exempt)
                    )
                missing |= _missing(entry, None if gone else seen.uuids.get(identifier, entry.table_uuid))
            for clone in sorted(self._clones(entry, seen, compared) - candidates, key=str):
                candidates.add(clone)
                ahead.append(clone)
                if clone in unread and clone not in seen.uuids:
                    blocking = Blocking.of(unread[clone])
                    yield _unreadable(blocking, exempt=exempt.has(blocking))
        for identifier in unread.keys() - seen.uuids.keys():
            seen.uuids[identifier] = unread[identifier].table_uuid

    def _clones(self, entry: TableEntry, seen: "SeenTables", compared: set[str]) -> frozenset[TableIdentifier]:
        """Return the clones of an entry's table, in any area, if one may have what its name had. Tables with one uuid
        can exchange names after they were loaded, without any name showing another table. `compared` has the uuids that
        were searched for."""
        other = entry.identifier != self.identifier and not seen.has_state_of(entry)
        if not (entry.cloned or other) or entry.table_uuid in {"", *compared}:
            return frozenset()
        compared.add(entry.table_uuid)
        return self.index.clones(entry.identifier.catalog, entry.table_uuid)

    def _loaded(
        self, identifier: TableIdentifier, gone: Callable[[TableIdentifier], None], *, unreadable: bool
    ) -> Iterator[Neighbour | NeighbourUnreadable]:
        """Yield a table as it is now. A table that the index knows as `unreadable` may give no answer too."""
        try:
            yield from loaded_neighbour(self.catalog, identifier, self.store_of, certain=True, gone=gone)
        except PolarisUnavailable as error:
            if not unreadable or error.scope > ErrorScope.ITEM:
                raise
            yield NeighbourUnreadable(str(identifier), error, areas=self._areas(identifier))
        except NoSuchCatalog as error:
            if identifier.catalog == self.identifier.catalog:
                raise
            # A dropped catalog in the settings that an operator exempted. The known areas of its tables still count.
            yield NeighbourUnreadable(str(identifier), error, areas=self._areas(identifier), exempt=True)

    def _is_unchanged(self, entry: TableEntry) -> bool:
        """Return whether the catalog states that a table has the metadata file of its entry. Otherwise it is loaded."""
        try:
            now = self.catalog.load_if_changed(entry.identifier, entry.etag)
        except PolarisError:
            return False
        return now is None or (now.table_uuid, now.metadata_location) == (entry.table_uuid, entry.metadata_location)

    def _known_of(
        self,
        neighbour: Neighbour | NeighbourUnreadable,
        identifier: TableIdentifier,
        blocking: Blocking,
        exempt: "Exempt",
    ) -> Neighbour | NeighbourUnreadable:
        """Return an unreadable table with its last known areas, and whether it is exempt in its current state."""
        areas = self._areas(identifier)
        exemption = exempt.of(blocking)
        if isinstance(neighbour, NeighbourUnreadable):
            # An exemption of single files or of one state does not cover a table that no longer loads.
            accepted = exemption is not None and exemption.unread is None and exemption.metadata_location is None
            return _unreadable(
                replace(blocking, problem=neighbour.problem), exempt=neighbour.exempt or accepted, areas=areas
            )
        same = neighbour.table.table_uuid == blocking.table_uuid
        if exemption is None or not same:
            return replace(neighbour, areas=areas)
        # An exemption without accepted files covers only the state that was seen.
        as_seen = exemption.unread is not None or neighbour.table.metadata_location == blocking.metadata_location
        return replace(neighbour, areas=areas, exempt=as_seen, unread=exemption.unread)

    def _areas(self, identifier: TableIdentifier) -> tuple[str, ...]:
        entry = self.index.get(identifier)
        return () if entry is None else entry.areas

    def _unreadable(self, catalog: str, missing: set[str]) -> Iterator[TableEntry]:
        """Yield the entries of tables that are unreadable now and still have their names; `missing` gets the others. A
        manifest may have been missing because it expired during the read, so a few tables in an attempt are read
        again."""
        for entry in self.index.unreadable(catalog):
            again = entry.lacks_a_manifest and entry.identifier not in self.looked and len(self.looked) < _MOST_LOOKS
            now: TableEntry | None = entry
            if again and entry.identifier != self.identifier:
                self.looked.add(entry.identifier)
                now = self.refresher.look_at(entry.identifier)
            if now is None:
                missing.add(entry.table_uuid)
            elif now.displaced:
                missing |= now.displaced
            elif now.problem is not None and not now.is_doubted:
                # A doubted table is known as of the last complete pass. The next pass decides.
                yield now

    def summary(self) -> list[dict[str, Any]]:
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
            **self._exempted(state.catalog),
        }

    def _exempted(self, catalog: str) -> dict[str, Any]:
        """Return for the receipt a catalog's exemptions without which the purge would have been held."""
        used = [exemption for exemption in self.used.values() if exemption.subject.catalog == catalog]
        exempted = [
            {
                "what": str(exemption.subject),
                "table_uuid": exemption.table_uuid,
                "metadata_location": exemption.metadata_location,
                "why": exemption.why,
                "by": exemption.by,
                "at": isoformat(exemption.at),
                "until": isoformat(exemption.until),
            }
            for exemption in sorted(used, key=lambda exemption: str(exemption.subject))
        ]
        return {"exempted": exempted} if exempted else {}

    def _candidates(self, catalog: str, roots: Roots | None) -> set[TableIdentifier]:
        if roots is None:
            return {entry.identifier for entry in self.index.entries(catalog)}
        return set(self.index.overlapping(catalog, roots.uris))


class SeenTables:
    """The tables of one catalog that were yielded: their uuids by name, and the states of tables that they have."""

    def __init__(self) -> None:
        self.uuids: dict[TableIdentifier, str] = {}
        self._states: set[tuple[str, str]] = set()

    def add(self, entry: TableEntry, neighbour: Neighbour | NeighbourUnreadable) -> None:
        """Record the result for an entry's name."""
        self.uuids[entry.identifier] = (
            neighbour.table.table_uuid if isinstance(neighbour, Neighbour) else entry.table_uuid
        )
        if isinstance(neighbour, Neighbour):
            self._states.add((neighbour.table.table_uuid, neighbour.table.metadata_location))

    def has(self, entry: TableEntry) -> bool:
        """Return whether an entry's table was yielded."""
        return self.uuids.get(entry.identifier) == entry.table_uuid

    def has_state_of(self, entry: TableEntry) -> bool:
        """Return whether a table was yielded with the metadata file that an entry's table had in the last pass."""
        whole = entry.problem is None and not entry.displaced and not entry.absent
        return whole and (entry.table_uuid, entry.metadata_location) in self._states


def _missing(entry: TableEntry, uuid: str | None) -> frozenset[str]:
    """Return the uuids of an entry's tables other than the one loaded under its name; `uuid` is None for none. A name
    without a table at the end of the last pass has none, unless its table was seen earlier in that pass."""
    own = frozenset() if entry.absent or not entry.table_uuid else frozenset({entry.table_uuid})
    return (own | entry.displaced) - ({uuid} if uuid else set())


class Exempt:
    """The exemptions of one catalog. `used` gets those that let a purge run."""

    def __init__(self, exemptions: Iterable[Exemption], now: datetime, used: dict[Subject, Exemption]) -> None:
        self._exemptions = {exemption.subject: exemption for exemption in exemptions}
        self._now = now
        self._used = used

    def has(self, blocking: Blocking) -> bool:
        """Return whether an operator exempted the unreadable subject in its current state."""
        return self.of(blocking) is not None

    def of(self, blocking: Blocking) -> Exemption | None:
        """Return the valid exemption of an unreadable subject, None without one."""
        exemption = self._exemptions.get(blocking.subject)
        if exemption is None or not exemption.covers(blocking, self._now):
            return None
        self._used[blocking.subject] = exemption
        return exemption


def _at_other_format(table: LocatedTable) -> NeighbourUnreadable:
    """Return a table of another format. It holds only a purge whose metadata file is at its location. With an unknown
    location it has no areas."""
    problem = recorded_problem(
        "UNSUPPORTED: it is a table of another format, so all files at its location may be its own"
    )
    areas = () if table.area == UNKNOWN_AREA else (table.area,)
    return NeighbourUnreadable(str(table.subject), problem, areas=areas, exempt=True, is_other_format=True)


def _unreadable(blocking: Blocking, *, exempt: bool, areas: Sequence[str] = ()) -> NeighbourUnreadable:
    subject = blocking.subject
    return NeighbourUnreadable(
        str(subject), recorded_problem(blocking.problem), areas=areas, exempt=exempt, subject=subject
    )
