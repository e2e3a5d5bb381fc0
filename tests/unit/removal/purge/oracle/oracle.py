"""Purges of the tables that real Spark wrote (tests/fixtures), compared with the files that Iceberg reaches.

All fixtures are in one store, so that a purge that deletes too much deletes another table's files.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from delegation.identifiers import TableIdentifier
from delegation.removal.chunks import Phase
from delegation.removal.index import PlanIndex, planned_paths, read_index
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.direct import DirectPurge, DirectResources, DirectRun
from delegation.removal.purge.requests import PurgeOptions, PurgeSettings
from delegation.storage.memory import Faults, MemoryObjectStore, MemoryPlanStore
from tests.fixtures import corpus
from tests.fixtures.corpus import FixtureTable, plain
from tests.kit.lakes.lake import FAST, Lake, LakeSource, PurgedTables

DELETED = (Phase.DATA, Phase.META, Phase.ROOT)
WRITE_PATHS = ("write.data.path", "write.metadata.path")
Objects = dict[tuple[str, str], bytes]


@cache
def everything() -> Objects:
    """Return the objects of all scenarios; data files and statistics are empty."""
    found: Objects = {}
    for name in corpus.names():
        scenario = corpus.load(name)
        for uri in scenario.objects:
            bucket, _, key = uri.removeprefix("s3://").partition("/")
            found[bucket, key] = scenario.content.get(uri, b"")
    return found


@dataclass(frozen=True)
class MemoryResources(DirectResources):
    """An operator's resources whose S3 and plans are in memory."""

    place: str = "memory"
    files: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    kept: MemoryPlanStore = field(default_factory=MemoryPlanStore)

    def store(self, identifier: TableIdentifier) -> MemoryObjectStore:
        return self.files

    def plans(self) -> MemoryPlanStore:
        return self.kept


class Purge:
    """One fixture table among all others, and the ways to purge it."""

    def __init__(self, scenario: str, table: str) -> None:
        self.scenario = corpus.load(scenario)
        self.tables = {one.name: one for one in self.scenario.tables}
        self.table = self.tables[table]
        self.bench = PurgedTables(lake=Lake())
        self.bench.lake.objects.update(everything())
        self.bench.lake.pointers.update({one.name: one.metadata_location for one in self.scenario.tables if one.live})
        self.before = self.left()

    def left(self) -> set[str]:
        return set(self.bench.lake.uris())

    def deleted(self) -> set[str]:
        return self.before - self.left()

    def by_catalog(
        self, *, prefixes: tuple[str, ...] | None = ("s3://lake/",), table: str = "", **options: Any
    ) -> PurgeContext:
        """Purge with vended credentials and every other live table as a neighbour; by default all files are covered."""
        name = table or self.table.name
        ctx = self.bench.context(name, options=PurgeOptions(**options), prefixes=prefixes, settings=self._settings())
        return replace(ctx, neighbours=lambda _roots: list(self._neighbours(name)))

    def directly(self, **options: Any) -> DirectRun:
        """Purge with the operator's credentials and no catalog; tables that share files are named as protected."""
        files = MemoryObjectStore()
        files.objects = self.bench.lake.objects
        protect = tuple(one.metadata_location for one in self._sharing())
        purge = DirectPurge(self.table.metadata_location, options=PurgeOptions(**options), protect=protect)
        return DirectRun(purge, MemoryResources(files=files, kept=self.bench.plans))

    def kept(self) -> set[str]:
        """Return the reached files that must be kept: those outside every location of the table, and shared ones."""
        reached = self.table.reached()
        lost = {path for path in reached if path.startswith(tuple(self.table.lost))} if self.table.lost else set()
        return lost.union(*(one.reached() & reached for one in self._sharing()))

    def expected(self) -> set[str]:
        """Return what only this table reaches, whether it exists or not."""
        return (self.table.reached() | self.replaced()) - self.kept()

    def replaced(self) -> set[str]:
        """Return the statistics that former metadata files alone name, which Iceberg's actions leave behind."""
        objects, found = everything(), set[str]()
        for one in metadata_of(self.scenario, self.table).get("metadata-log", ()):
            bucket, _, key = plain(one["metadata-file"]).removeprefix("s3://").partition("/")
            data = objects.get((bucket, key), b"")
            document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data) if data else {}
            found |= {plain(each["statistics-path"]) for each in document.get("statistics") or ()}
        return found - self.table.reached()

    def uncovered(self) -> set[str]:
        """Return the expected files that are neither at the current location nor at a current write path."""
        document = metadata_of(self.scenario, self.table)
        present = [document["location"], *(path for one in WRITE_PATHS if (path := document["properties"].get(one)))]
        roots = tuple(f"{plain(one).rstrip('/')}/" for one in present)
        return {path for path in self.expected() if not path.startswith(roots)}

    def indexes(self) -> list[PlanIndex]:
        keys = [key for key in self.bench.plans.objects if key.endswith("/index.json")]
        return [read_index(self.bench.plans, key.removesuffix("/index.json")) for key in keys]

    def planned(self, *kinds: Phase) -> set[str]:
        return set(planned_paths(self.bench.plans, self.indexes(), kinds))

    def counts(self) -> dict[str, int]:
        """Return how many files of each type the plan should have."""
        kept = self.kept()
        found = {kind: len({plain(path) for path in paths} - kept) for kind, paths in self.table.kinds.items()}
        found["statistics"] = found.get("statistics", 0) + len(self.replaced() - kept)
        return {kind: count for kind, count in found.items() if count}

    def _sharing(self) -> list[FixtureTable]:
        return [self.tables[name] for name in self.table.shares if self.tables[name].live]

    def _neighbours(self, name: str) -> Iterator[Neighbour]:
        store = MemoryObjectStore()
        store.objects = self.bench.lake.objects
        for other, location in self.bench.lake.pointers.items():
            bucket, _, key = plain(location).removeprefix("s3://").partition("/")
            if other != name and (bucket, key) in self.bench.lake.objects:
                yield Neighbour(LakeSource(self.bench.lake, other, Faults()).load(), store)

    @staticmethod
    def _settings() -> PurgeSettings:
        return PurgeSettings(chunk_paths=7, run_records=11, read_threads=1, delete=FAST)


def check_exact(purge: Purge) -> None:
    """Check the deleted files, the plan, and its counts by type."""
    assert purge.deleted() == purge.expected() & purge.before
    assert purge.planned(*DELETED) == purge.expected()
    assert purge.planned(Phase.KEPT) == purge.kept()
    [index] = purge.indexes()
    assert {name: total.files for name, total in index.counts.items()} == purge.counts()


def metadata_of(scenario: corpus.Scenario, table: FixtureTable) -> dict[str, Any]:
    """Return the table's metadata, read without the project's code."""
    data = scenario.content[plain(table.metadata_location)]
    return dict(json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data))


def tables(*, live: bool = False) -> list[tuple[str, str]]:
    """Return scenario and name of all tables, or of those that a catalog lists."""
    every = ((name, one) for name in corpus.names() for one in corpus.load(name).tables)
    return [(name, one.name) for name, one in every if one.live or not live]
