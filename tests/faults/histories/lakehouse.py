"""The service over a catalog of two namespaces whose tables borrow files, with credentials for each table's location.

What a table references is read here by pyiceberg, not by the code under test.
"""

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from pyiceberg.table import Table

from delegation.idempotency.keys import ResubmittedTooSoon
from delegation.identifiers import TableIdentifier
from delegation.orchestration.sweep import sweep
from delegation.polaris.answers import NoSuchTable
from delegation.removal.attempt import PlanSegment
from delegation.removal.chunks import Phase
from delegation.removal.index import PlanIndex, load_index
from delegation.storage.base import BatchResult, KeyFailure, ObjectStoreDenied
from delegation.storage.locations import FOREIGN_TABLE, ObjectLocation, uri_of
from delegation.storage.memory import MemoryObjectStore
from delegation.tasks.life.model import Task
from tests.kit.lakes.lake import Lake
from tests.kit.worlds.indexed import IndexedWorld
from tests.kit.worlds.service import REALM

NAMESPACES = ("ns", "other")
_WAITED = timedelta(hours=3)
"""After its executions a purge that waits for another table is looked at for so long."""


class FencedStore(MemoryObjectStore):
    """A table's files with credentials for its location alone, which are vended by its name when they are needed."""

    def __init__(self, objects: dict[tuple[str, str], bytes], location: Callable[[], str]) -> None:
        super().__init__()
        self.objects = objects
        self._location = location

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        self._require(location.uri)
        return super().read(location, limit=limit)

    def exists(self, location: ObjectLocation) -> bool:
        self._require(location.uri)
        return super().exists(location)

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        covered = [key for key in keys if self._covers(uri_of(bucket, key))]
        done = super().delete(bucket, covered)
        refused = tuple(KeyFailure(key, "AccessDenied") for key in keys if key not in set(covered))
        return replace(done, failed=(*done.failed, *refused))

    def _covers(self, uri: str) -> bool:
        return uri.startswith(f"{self._location().rstrip('/')}/")

    def _require(self, uri: str) -> None:
        if not self._covers(uri):
            raise ObjectStoreDenied(f"the credentials do not cover {uri}")


class Lakehouse(IndexedWorld):
    """Tables by (namespace, name); `during` is called before each load of a pass or purge, and after each plan."""

    def __init__(self) -> None:
        super().__init__()
        self.lakes: dict[str, Lake] = dict(zip(NAMESPACES, (self.lake, self.other), strict=True))
        self.unlisted = Lake()
        """What other catalogs have at the same places, and this one had: tables that no pass sees."""
        self.unlisted.objects = self.unlisted.io.objects = self.lake.objects
        self.during: Callable[[], object] = lambda: None
        self._known: dict[str, frozenset[str]] = {}
        self.become(replace(self.behavior, store_of=self._store_of))
        put = self.plans.put

        def look() -> None:
            self.during()

        def put_and_look(key: str, data: bytes) -> None:
            put(key, data)
            if key.endswith("index.json"):
                look()

        self.listing.each_load = look
        self.plans.put = put_and_look  # type: ignore[method-assign]

    def _store_of(self, identifier: TableIdentifier) -> MemoryObjectStore:
        lake, name = self.lakes[identifier.namespace[0]], identifier.name

        def location() -> str:
            if name not in lake.pointers:
                raise NoSuchTable(f"no table {identifier}", status=404)
            return str(lake.metadata(name)["location"])

        return FencedStore(self.lake.objects, location)

    def listed(self) -> list[tuple[str, str]]:
        """Return the names of all tables."""
        return [(space, name) for space, lake in self.lakes.items() for name in sorted(lake.pointers)]

    def readable(self, space: str, name: str) -> bool:  # type: ignore[override]
        """Return whether a table has its metadata file."""
        return self.lakes[space].io.new_input(self.lakes[space].pointers[name]).exists()

    def table(self, space: str, name: str) -> Table:
        return self.lakes[space].table(name)

    def reached(self, space: str, name: str) -> frozenset[str]:  # type: ignore[override]
        """Return every file of a table that exists, as pyiceberg finds them; those of a lost manifest are unknown."""
        return self._reached(self.lakes[space], name)

    def reached_unlisted(self, name: str) -> frozenset[str]:
        """Return every file that exists of a table that this catalog does not list."""
        return self._reached(self.unlisted, name)

    def read_unlisted(self, name: str) -> frozenset[str]:
        """Return what can still be read of such a table, whose manifests may be gone since it was dropped."""
        found = frozenset(_reached(self.unlisted.table(name)))
        return frozenset(path for path in found if self.unlisted.io.new_input(path).exists())

    def is_whole(self, name: str) -> bool:
        """Return whether a table that this catalog does not list has all files that it had."""
        return self.reached_unlisted(name) == self._known[self.unlisted.pointers[name]]

    def unlisted_uuid(self, name: str) -> str:
        return str(self.unlisted.metadata(name)["table-uuid"])

    def chain(self, space: str, name: str) -> frozenset[str]:
        """Return the metadata files of a table by its own log."""
        return _chain(self.lakes[space], name)

    def unlisted_chain(self, name: str) -> frozenset[str]:
        """Return the metadata files by the log of a table that is not listed, as far as they are there."""
        return frozenset(one for one in _chain(self.unlisted, name) if self.unlisted.io.new_input(one).exists())

    def name_by_version(self, name: str) -> None:
        """Let the newest metadata file of such a table have the name that an engine without a catalog gives it."""
        written = self.unlisted.pointers[name]
        number = len(self.unlisted.table(name).metadata.metadata_log)
        folder = written.rpartition("/")[0]
        self.unlisted.pointers[name] = f"{folder}/v{number}.metadata.json"
        for uri, data in (
            (self.unlisted.pointers[name], self.unlisted.io.new_input(written).open().read()),
            (f"{folder}/version-hint.text", str(number).encode()),
        ):
            with self.unlisted.io.new_output(uri).create() as out:
                out.write(data)
        self.unlisted.io.delete(written)

    def _reached(self, lake: Lake, name: str) -> frozenset[str]:
        pointer = lake.pointers[name]
        if pointer not in self._known:
            self._known[pointer] = frozenset(_reached(lake.table(name)))
        return frozenset(path for path in self._known[pointer] if lake.io.new_input(path).exists())

    def knows(self, space: str, name: str) -> bool:
        """Return whether the reference index has this table under its name."""
        entry = self.index.get(TableIdentifier("cat", (space,), name))
        return (
            entry is not None
            and self.readable(space, name)
            and entry.table_uuid == str(self.table(space, name).metadata.table_uuid)
        )

    def purged(self, space: str, name: str) -> Task:
        """Purge a table and return its task when it has ended, or waits although hours have gone."""
        identity = {"catalog_name": "cat", "namespace_levels": [space], "table_name": name}
        body = {
            "common_payload": {"operation_type": "TABLE_PURGE", "realm_identifier": REALM},
            "operation_parameters": {"table_identity": identity},
        }
        try:
            task_id = self.submit(body).task_id
        except ResubmittedTooSoon:
            self.clock.advance(_WAITED)
            task_id = self.submit(body).task_id
        self.drive()
        task = self.tasks.reads.get(task_id)
        until = self.clock() + _WAITED
        while not task.is_terminal and self.clock() < until:
            self.clock.advance(timedelta(minutes=20))
            for swept in sweep(self.tasks, self.steps._task_types, deadline=self.deadline(), clock=self.clock):
                assert swept.error is None, swept.error
            self.drive()
            task = self.tasks.reads.get(task_id)
        if not task.is_terminal:
            self.tasks.operators.cancel(task_id)
        return self.tasks.reads.get(task_id)

    def lose(self, name: tuple[str, str], manifest: str) -> frozenset[str]:
        """Delete a manifest of a table; return the files that nothing else of the table names."""
        before = self.reached(*name)
        self.lake.io.delete(manifest)
        return before - frozenset(_reached(self.table(*name)))

    def location(self, space: str, name: str) -> str:
        """Return the location of a table with a slash at the end: what its credentials cover."""
        return f"{str(self.lakes[space].metadata(name)['location']).rstrip('/')}/"

    def kept_by(self, task: Task) -> dict[str, str]:
        """Return the files that a purge's plan lists as kept, with the reasons."""
        kept: dict[str, str] = {}
        for index in self._indexes(task):
            for chunk in (one for one in index.chunks if one.kind is Phase.KEPT):
                data = gzip.decompress(self.plans.get(f"{index.plan_id}/{chunk.name}"))
                records = map(json.loads, data.decode().splitlines())
                kept |= {one["path"]: one["kept"] for one in records}
        return kept

    def found_unlisted(self, task: Task) -> set[str]:
        """Return the uuids of the tables that no catalog lists and that a purge found beside its table's metadata."""
        findings = (finding for index in self._indexes(task) for finding in index.findings)
        return {
            one.partition(" ")[0] for finding in findings if finding.code == FOREIGN_TABLE for one in finding.sample
        }

    def _indexes(self, task: Task) -> Iterator[PlanIndex]:
        for segment in task.details.get("plan_segments", ()):
            yield load_index(self.plans, PlanSegment(segment["id"], segment["sha256"]))


def _chain(lake: Lake, name: str) -> frozenset[str]:
    return frozenset({lake.pointers[name], *(one.metadata_file for one in lake.table(name).metadata.metadata_log)})


def _reached(table: Table) -> Iterator[str]:
    yield table.metadata_location
    yield from (one.metadata_file for one in table.metadata.metadata_log)
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
        try:
            manifests = snapshot.manifests(table.io)
        except FileNotFoundError:
            continue
        for manifest in manifests:
            yield manifest.manifest_path
            try:
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            except FileNotFoundError:
                continue
            yield from (entry.data_file.file_path for entry in entries)
