"""Real Iceberg tables, written by pyiceberg into the objects of a MemoryObjectStore, and a catalog that serves them."""

import gzip
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Protocol, Self, TypeVar, cast
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table, Transaction
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from delegation.iceberg.metadata import decode_metadata
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchTable, TableMetadataMissing
from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import MemoryAttempt, PlanHead, PlanSegment, StepsDone
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.requests import PurgeOptions, PurgeSettings
from delegation.removal.purge.run import purge_table
from delegation.storage.credentials import S3Credential
from delegation.storage.deleter import DeletePolicy
from delegation.storage.locations import parse
from delegation.storage.memory import Faults, MemoryObjectStore, MemoryPlanStore
from polaris_common.errors import DelegationError

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "part", StringType(), required=False),
)
SPEC = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="part"))
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


_STAGED: Final[WeakKeyDictionary[Transaction, tuple[TableMetadata, Any, TableMetadata]]] = WeakKeyDictionary()


def _staged_metadata(transaction: Transaction) -> TableMetadata:
    """Return the metadata with the staged updates, made once for each of them.

    pyiceberg makes a deep copy at each of a commit's twenty reads, which is a third of the time that a table takes.
    """
    base, updates = transaction._table.metadata, transaction._updates
    staged = _STAGED.get(transaction)
    if staged is None or staged[0] is not base or staged[1] is not updates:
        staged = _STAGED[transaction] = base, updates, update_table_metadata(base, updates)
    return staged[2]


Transaction.table_metadata = property(_staged_metadata)  # type: ignore[assignment, method-assign]


class _Out(io.BytesIO):
    def __init__(self, objects: dict[tuple[str, str], bytes], where: tuple[str, str]) -> None:
        super().__init__()
        self._objects, self._where = objects, where

    def close(self) -> None:
        if not self.closed:
            self._objects[self._where] = self.getvalue()
        super().close()


class MemoryFile(InputFile, OutputFile):
    def __init__(self, location: str, objects: dict[tuple[str, str], bytes]) -> None:
        super().__init__(location)
        found = parse(location)
        self._where, self._objects = (found.bucket, found.key), objects

    def __len__(self) -> int:
        return len(self._objects[self._where])

    def exists(self) -> bool:
        return self._where in self._objects

    def open(self, seekable: bool = True) -> io.BytesIO:
        if not self.exists():
            raise FileNotFoundError(self.location)
        return io.BytesIO(self._objects[self._where])

    def to_input_file(self) -> "MemoryFile":
        return self

    def create(self, overwrite: bool = False) -> io.BytesIO:
        return _Out(self._objects, self._where)


class MemoryIO(FileIO):
    def __init__(self, objects: dict[tuple[str, str], bytes]) -> None:
        super().__init__()
        self.objects = objects

    def new_input(self, location: str) -> MemoryFile:
        return MemoryFile(location, self.objects)

    def new_output(self, location: str) -> MemoryFile:
        return MemoryFile(location, self.objects)

    def delete(self, location: Any) -> None:
        found = parse(location if isinstance(location, str) else location.location)
        del self.objects[found.bucket, found.key]


class LakeCatalog(NoopCatalog):
    """The parts of a pyiceberg catalog that creating a table and committing need."""

    def __init__(self, lake: "Lake") -> None:
        super().__init__("lake")
        self.lake = lake

    def _load_file_io(self, properties: Any = None, location: str | None = None) -> MemoryIO:
        return self.lake.io

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        name = table.name()[-1]
        current = table if table.metadata_location == self.lake.pointers[name] else self.lake.table(name)
        staged = MetastoreCatalog._update_and_stage_table(
            cast("MetastoreCatalog", self), current, table.name(), requirements, updates
        )
        MetastoreCatalog._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        self.lake.pointers[name] = staged.metadata_location
        return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)

    _parse_metadata_version = staticmethod(MetastoreCatalog._parse_metadata_version)
    _empty_table_metadata = staticmethod(MetastoreCatalog._empty_table_metadata)
    _convert_schema_if_needed = staticmethod(Catalog._convert_schema_if_needed)


class Lake:
    """One warehouse: objects, and the location of each table's current metadata file."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], bytes] = {}
        self.pointers: dict[str, str] = {}
        self.busy: set[str] = set()
        self.io = MemoryIO(self.objects)
        self.catalog = LakeCatalog(self)

    def copy(self) -> "Lake":
        other = Lake()
        other.objects.update(self.objects)
        other.pointers.update(self.pointers)
        other.busy |= self.busy
        return other

    def create(self, name: str, *, location: str | None = None, spec: PartitionSpec = SPEC, **properties: str) -> Table:
        location = location or f"s3://lake/wh/{name}"
        metadata = new_table_metadata(SCHEMA, spec, UNSORTED_SORT_ORDER, location, properties)
        root = properties.get("write.metadata.path", f"{location}/metadata")
        metadata_location = f"{root}/00000-{metadata.table_uuid}.metadata.json"
        MetastoreCatalog._write_metadata(metadata, self.io, metadata_location)
        self.pointers[name] = metadata_location
        return self.table(name)

    def table(self, name: str) -> Table:
        location = self.pointers[name]
        return Table(
            ("ns", name), FromInputFile.table_metadata(self.io.new_input(location)), location, self.io, self.catalog
        )

    def metadata(self, name: str) -> dict[str, Any]:
        found = parse(self.pointers[name])
        return dict(decode_metadata(self.pointers[name], self.objects[found.bucket, found.key]))

    def rewrite_metadata(self, name: str, changes: Mapping[str, Any]) -> None:
        """Change fields of the current metadata.json to values that pyiceberg would not write."""
        found = parse(self.pointers[name])
        self.objects[found.bucket, found.key] = json.dumps({**self.metadata(name), **changes}).encode()

    def needed(self, name: str, *, named: bool = False) -> set[str]:
        """Return every file that the snapshots of a table read, as pyiceberg finds them.

        With `named`, also the files of entries DELETED, and the former metadata files.
        """
        table = self.table(name)
        found = {self.pointers[name]}
        if named:
            found |= {one.metadata_file for one in table.metadata.metadata_log}
        for snapshot in table.snapshots():
            found.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(self.io):
                entries = manifest.fetch_manifest_entry(self.io, discard_deleted=not named)
                found |= {manifest.manifest_path, *(one.data_file.file_path for one in entries)}
        return found

    def write(self, uri: str, data: bytes = b"x") -> str:
        """Put an object there; return its path."""
        found = parse(uri)
        self.objects[found.bucket, found.key] = data
        return uri

    def read(self, uri: str) -> bytes:
        found = parse(uri)
        return self.objects[found.bucket, found.key]

    def below(self, prefix: str) -> set[str]:
        return {uri for uri in self.uris() if uri.startswith(prefix)}

    def uris(self) -> Iterator[str]:
        return (f"s3://{bucket}/{key}" for bucket, key in self.objects)


def rows(*ids: int, part: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "part": pa.array([part] * len(ids), pa.string())})


def busy_table(lake: Lake, name: str, **options: Any) -> Table:
    """Create a partitioned table with several snapshots, an overwrite, a delete and a tag.

    The first table of a name in a lake is a copy, with the uuid of that name in every lake of this process: pyiceberg
    takes a third of a second to write one.
    """
    if name in lake.busy:
        return _write_busy_table(lake, name, options)
    key = repr((name, sorted(options.items())))
    if key not in _BUSY:
        _write_busy_table(_BUSY.setdefault(key, Lake()), name, options)
    lake.busy.add(name)
    for where, data in _BUSY[key].objects.items():
        lake.objects[where] = data
    lake.pointers.update(_BUSY[key].pointers)
    return lake.table(name)


W = TypeVar("W", bound="HasLake")


class HasLake(Protocol):
    """A world with tables."""

    @property
    def lake(self) -> Lake: ...


def filled(world: W, *names: str) -> W:
    """Create busy tables in the lake of a world, and return the world."""
    for name in names:
        busy_table(world.lake, name)
    return world


_BUSY: dict[str, Lake] = {}


def _write_busy_table(lake: Lake, name: str, options: dict[str, Any]) -> Table:
    table = lake.create(name, **options)
    table.append(pa.concat_tables([rows(1, 2), rows(3, part="b")]))
    table.append(rows(4, 5, part="c"))
    table = lake.table(name)
    current = table.current_snapshot()
    assert current is not None
    table.manage_snapshots().create_tag(current.snapshot_id, "kept").commit()
    lake.table(name).overwrite(rows(6), overwrite_filter="part = 'a'")
    lake.table(name).delete("id = 4")
    return lake.table(name)


@dataclass
class LakeSource:
    """A TableSource over a lake, failing like Polaris without metadata.json; `before[n]` runs before load n."""

    lake: Lake
    name: str
    faults: Faults = field(default_factory=Faults)
    prefixes: tuple[str, ...] | None = None
    loads: int = 0
    before: dict[int, Callable[[], object]] = field(default_factory=dict)

    def load(self) -> LoadedTable:
        self.loads += 1
        self.before.get(self.loads, lambda: None)()
        with self.faults.call("load"):
            pointer = self.lake.pointers.get(self.name)
            if pointer is None:
                raise NoSuchTable(f"no table {self.name}", status=404)
            found = parse(pointer)
            if (found.bucket, found.key) not in self.lake.objects:
                raise TableMetadataMissing(f"Location does not exist: {pointer}", status=400)
            metadata = self.lake.metadata(self.name)
        prefixes = (str(metadata["location"]),) if self.prefixes is None else self.prefixes
        credentials = tuple(S3Credential(prefix, "key", "secret", "token", None) for prefix in prefixes)
        return LoadedTable(identifier(self.name), pointer, metadata, {}, credentials)


def identifier(name: str) -> TableIdentifier:
    return TableIdentifier("cat", ("ns",), name)


class MortalAttempt(MemoryAttempt):
    """An attempt whose writes to the task are calls at which the process can be killed, too."""

    faults: Faults

    def publish(self, segment: PlanSegment, *, files_planned: int) -> tuple[PlanSegment, ...]:
        with self.faults.call("publish"):
            return super().publish(segment, files_planned=files_planned)

    def replace_plan(self, segment: PlanSegment, *, files_planned: int) -> tuple[PlanSegment, ...]:
        with self.faults.call("publish"):
            return super().replace_plan(segment, files_planned=files_planned)

    def record_steps(self, done: StepsDone) -> None:
        with self.faults.call("steps"):
            super().record_steps(done)

    def begin_deleting(self) -> None:
        with self.faults.call("begin"):
            super().begin_deleting()

    def progress(self, *, files_deleted: int, files_failed: int, bytes_deleted: int) -> None:
        with self.faults.call("progress"):
            super().progress(files_deleted=files_deleted, files_failed=files_failed, bytes_deleted=bytes_deleted)


FAST = DeletePolicy(batch=3, threads=1, pause=0.0, longest_pause=0.0)


def neighbour(lake: Lake, name: str, store: MemoryObjectStore | None = None, **fields: Any) -> Neighbour:
    """Return a live table of a lake, as work on another table finds it."""
    reads = store or MemoryObjectStore()
    reads.objects = lake.objects
    return Neighbour(LakeSource(lake, name).load(), reads, **fields)


def kept(plans: MemoryPlanStore, plan_id: str) -> dict[str, str]:
    """Return the reason for each path that a plan keeps."""
    chunks = [data for key, data in sorted(plans.objects.items()) if key.startswith(f"{plan_id}/KEPT-")]
    lines = b"".join(gzip.decompress(data) for data in chunks).splitlines()
    return {one["path"]: one["kept"] for one in map(json.loads, lines)}


def codes(result: Any) -> dict[str, int]:
    """Return the count of each finding."""
    return {one.code: one.count for one in result.findings}


@dataclass
class PurgedTables:
    """A lake and what a purge of its tables needs; `context` returns a new attempt over the same state."""

    lake: Lake = field(default_factory=Lake)
    plans: MemoryPlanStore = field(default_factory=MemoryPlanStore)
    head: PlanHead = field(default_factory=PlanHead)
    attempts: int = 0

    @classmethod
    def of(cls, lake: Lake, name: str = "t") -> Self:
        """Return the tables of a copy of a lake, and know the uuid of one whatever becomes of its metadata."""
        tables = cls(lake=lake.copy())
        tables.uuid(name)
        return tables

    def context(
        self,
        name: str,
        *,
        options: PurgeOptions | None = None,
        settings: PurgeSettings | None = None,
        faults: Faults | None = None,
        prefixes: tuple[str, ...] | None = None,
        task_id: str = "task",
        **store: Any,
    ) -> PurgeContext:
        faults = faults or Faults()
        self.attempts += 1
        objects = MemoryObjectStore(faults=faults, **store)
        objects.objects = self.lake.objects
        self.plans.faults = faults
        attempt = MortalAttempt(task_id, self.attempts, head=self.head)
        attempt.faults = faults
        return PurgeContext(
            attempt=attempt,
            identifier=identifier(name),
            table_uuid=str(self.uuid(name)),
            tables=LakeSource(self.lake, name, faults, prefixes),
            store=objects,
            plans=self.plans,
            options=options or PurgeOptions(),
            settings=settings or PurgeSettings(chunk_paths=4, run_records=5, read_threads=1, delete=FAST),
            clock=lambda: NOW,
            now=lambda: 0.0,
            sleep=lambda _seconds: None,
        )

    def beside(self, *names: str, of: str = "t", store: MemoryObjectStore | None = None, **more: Any) -> PurgeContext:
        """Return the context of a purge with neighbours, which are loaded when they are asked for."""
        ctx = self.context(of, **more)
        return replace(ctx, neighbours=lambda _roots: [neighbour(self.lake, name, store) for name in names])

    def dry_run(self, name: str = "t", options: PurgeOptions | None = None, **more: Any) -> str:
        """Make the dry run of a task of its own; return its plan's id."""
        ctx = self.context(name, options=replace(options or PurgeOptions(), dry_run=True), **more)
        return purge_table(replace(ctx, attempt=MemoryAttempt("dry"))).plan_ids[0]

    def publish(self) -> str:
        """Stop an attempt at `t` after it published its plan and before its first delete; return the plan's id."""
        assert self.refused(self.context("t", denied=["s3://lake/"])).code == "CREDENTIALS_CANNOT_DELETE"
        return self.head.read()[0].id

    def refused(self, ctx: PurgeContext, purge: Callable[[PurgeContext], object] = purge_table) -> DelegationError:
        """Return the error of a purge that changes no object."""
        before = dict(self.lake.objects)
        try:
            purge(ctx)
        except DelegationError as error:
            assert self.lake.objects == before
            return error
        raise AssertionError("the purge was not refused")

    def left(self, name: str = "t") -> set[str]:
        """Return what is left below the usual location of a table."""
        return self.lake.below(f"s3://lake/wh/{name}/")

    def receipt(self, result: Any) -> dict[str, Any]:
        return dict(json.loads(self.plans.objects[result.receipt]))

    def on_load(self, ctx: PurgeContext, number: int, action: Callable[[], object]) -> None:
        """Run `action` just before a context's nth load of the table."""
        assert isinstance(ctx.tables, LakeSource)
        ctx.tables.before[number] = action

    def uuid(self, name: str) -> str:
        if name not in self._uuids:
            self._uuids[name] = str(self.lake.metadata(name)["table-uuid"])
        return self._uuids[name]

    _uuids: dict[str, str] = field(default_factory=dict)
