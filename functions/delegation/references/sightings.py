"""Where a pass saw each table, so that one which was renamed meanwhile is not missed: pure, no I/O.

A pass loads one name after the other. A table that is renamed from a name before its visit to one after its visit is
loaded under neither. It leaves a trace: its former name has no table, or another one than the index knows, and its own
uuid was not seen. Then the names that had been loaded by that time are loaded once more. A table that is dropped leaves
the same trace, so a pass loads each name twice at most, whatever happens meanwhile. Registered clones share a uuid, so
names are counted: one that two entries have has to be seen under two names.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping

from delegation.identifiers import TableIdentifier
from delegation.references.model import TableEntry

Position = tuple[str, ...]
"""Of a table in a pass; see `position_of`."""


def position_of(identifier: TableIdentifier) -> Position:
    """Sorts by namespace first: the empty level is below every name."""
    return (*identifier.namespace, "", identifier.name)


class Sightings:
    """What one process saw in one pass over tables of which the index had the entries `known`.

    In a pass that another process began it is not known what that one saw: every entry may have been seen.
    """

    def __init__(self, known: Mapping[TableIdentifier, TableEntry], *, continued: bool = False) -> None:
        self._uuids = {identifier: entry.table_uuid for identifier, entry in known.items() if not entry.absent}
        self._expected = Counter(self._uuids.values())
        self._continued = continued
        self._at: dict[TableIdentifier, str] = {}
        self._names: defaultdict[str, set[TableIdentifier]] = defaultdict(set)
        self._traces: list[tuple[str, Position]] = []
        self._disputed: set[TableIdentifier] = set()
        self._absent: set[TableIdentifier] = set()

    def saw(self, identifier: TableIdentifier, uuid: str, loaded_to: Position) -> None:
        """Record a table under a name, when the names up to `loaded_to` may have been loaded."""
        known = self._uuids.get(identifier)
        others = self._names[uuid] - {identifier}
        self._forget(identifier)
        self._at[identifier] = uuid
        self._names[uuid].add(identifier)
        self._absent.discard(identifier)
        if known and known != uuid:
            self._traces.append((known, loaded_to))
        elif known is None and others:
            # A clone, or a table that changed places with one that the index does not know.
            self._disputed |= {identifier, *others}

    def hidden(self, identifier: TableIdentifier, loaded_to: Position) -> None:
        """Record a name whose table cannot be loaded: it may be another table than before."""
        self._traces.append((self._uuids.get(identifier, ""), loaded_to))

    def lost(self, identifier: TableIdentifier, loaded_to: Position, *, same: bool) -> None:
        """Record a name whose table has no metadata file, and whether it is the `same` table as before."""
        self._absent.add(identifier)
        known = self._uuids.get(identifier)
        if known and not same and identifier not in self._at:
            self._traces.append((known, loaded_to))

    def vanished(self, identifier: TableIdentifier, loaded_to: Position) -> None:
        """Record a listed name that had no table when it was loaded, or none any more."""
        self._absent.add(identifier)
        if identifier not in self._at:
            self._traces.append((self._uuids.get(identifier, ""), loaded_to))

    def is_absent(self, identifier: TableIdentifier) -> bool:
        """Return whether a name had no table when it was looked at last."""
        return identifier in self._absent

    def may_have_moved(self, identifier: TableIdentifier) -> bool:
        """Return whether a table was seen under this name in this pass, so that one without it has another name."""
        return identifier in self._at or (self._continued and identifier in self._uuids)

    def displaced_at(self, identifier: TableIdentifier) -> frozenset[str]:
        """Return the uuid that was seen under a name and, but for that, under fewer names than the index knows."""
        uuid = self._at.get(identifier)
        if uuid is None and self._continued:
            uuid = self._uuids.get(identifier)
        if not uuid or len(self._names[uuid] - {identifier}) >= max(self._expected[uuid], 1):
            return frozenset()
        return frozenset({uuid})

    @property
    def disputed(self) -> frozenset[TableIdentifier]:
        """The names to be loaded once more because one uuid was seen under several of them."""
        return frozenset(self._disputed)

    def again_to(self) -> Position | None:
        """Return up to where names are to be loaded once more, None if no table is missing."""
        return max((to for uuid, to in self._traces if not uuid or self._is_missing(uuid)), default=None)

    def _is_missing(self, uuid: str) -> bool:
        return len(self._names[uuid]) < max(self._expected[uuid], 1)

    def _forget(self, identifier: TableIdentifier) -> None:
        former = self._at.get(identifier)
        if former is not None:
            self._names[former].discard(identifier)
