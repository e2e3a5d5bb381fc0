"""A catalog over several lakes, for tests of what is registered in several namespaces."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import PolarisForbidden
from delegation.polaris.model import LoadedTable
from delegation.storage.memory import Faults
from tests.kit.lakes.lake import Lake, LakeSource


@dataclass
class LakeListing:
    """A catalog of lakes, one to a namespace, which answers conditional loads and counts what it is asked for.

    `each_load` is called before each load. Loads of names in `broken` raise; those in `not_vended` raise `why_not` with
    vended credentials. The next conditional loads of a name get its `answers`, which may be older than the table is.
    Namespaces in `unlisted` may not be listed, and catalogs in `lost` raise.
    """

    lakes: dict[tuple[str, ...], Lake]
    asked: Counter[str] = field(default_factory=Counter)
    broken: dict[str, Exception] = field(default_factory=dict)
    not_vended: set[str] = field(default_factory=set)
    why_not: Exception = field(default_factory=lambda: PolarisForbidden("no credentials for it", status=403))
    unlisted: set[tuple[str, ...]] = field(default_factory=set)
    lost: dict[str, Exception] = field(default_factory=dict)
    answers: dict[str, list[LoadedTable]] = field(default_factory=dict)
    each_load: Callable[[], object] = lambda: None

    def load_if_changed(self, identifier: TableIdentifier, etag: str | None) -> LoadedTable | None:
        self.asked["conditional"] += 1
        if identifier.name in self.not_vended:
            raise self.why_not
        if self.answers.get(identifier.name):
            return self.answers[identifier.name].pop(0)
        table = self._load(identifier)
        return None if etag == table.etag else table

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable:
        self.asked["full"] += 1
        return self._load(identifier)

    def list_tables(self, catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]:
        self.asked["listings"] += 1
        if catalog in self.lost:
            raise self.lost[catalog]
        if namespace in self.unlisted:
            raise PolarisForbidden("the principal needs TABLE_LIST on the namespace", status=403)
        names = list(self.lakes[namespace].pointers)
        random.Random(self.asked.total()).shuffle(names)
        return iter([TableIdentifier(catalog, namespace, name) for name in names])

    def list_namespaces(self, catalog: str, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        if catalog in self.lost:
            raise self.lost[catalog]
        return (one for one in self.lakes if one[:-1] == parent)

    def _load(self, identifier: TableIdentifier) -> LoadedTable:
        if identifier.catalog in self.lost:
            raise self.lost[identifier.catalog]
        self.each_load()
        if identifier.name in self.broken:
            raise self.broken[identifier.name]
        lake = self.lakes[identifier.namespace]
        found = LakeSource(lake, identifier.name, Faults()).load()
        return LoadedTable(
            identifier, found.metadata_location, found.metadata, {}, found.credentials, etag=found.metadata_location
        )
