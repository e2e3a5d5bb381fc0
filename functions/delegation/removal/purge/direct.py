"""Purges a table by its metadata file alone, without service, catalog or task store.

It is for a table that its catalog has already dropped. The engines are the service's; the credentials are the
operator's. `head.json` beside the plan names the table and the published segments. Use a plan's directory for one run
at a time. An interrupted run resumes when it is started again.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from delegation.iceberg.history import version_of
from delegation.iceberg.metadata import MAX_METADATA_BYTES, decode_metadata, parse_metadata
from delegation.identifiers import NAMESPACE_SEPARATOR, TableIdentifier
from delegation.polaris.answers import TableMetadataMissing
from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import MemoryAttempt, PlanHead, PlanSegment, StepsDone
from delegation.removal.choice import EngineChoice
from delegation.removal.errors import PlanLost, PlanTampered, plan_of_another_table
from delegation.removal.index import PlanIndex, load_index
from delegation.removal.marks import Deleted, Marks, deleted_by_marks
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.path_guard import NOBODYS
from delegation.removal.purge.context import PurgeContext, PurgeResult, difference_of
from delegation.removal.purge.errors import PlanNotAllowed
from delegation.removal.purge.requests import PurgeOptions, PurgeSettings
from delegation.removal.purge.run import purge_table
from delegation.removal.spark_executors import no_checkpoint
from delegation.storage.base import ObjectNotFound, ObjectStore, ObjectStoreError, PlanStore
from delegation.storage.credentials import S3Settings
from delegation.storage.deleter import DeletePolicy
from delegation.storage.file_system import FileObjectStore, FilePlanStore
from delegation.storage.listing.model import ListableStore
from delegation.storage.locations import LOCAL, ForeignLocations, Roots, canonical, parse, uri_of
from delegation.storage.s3 import S3ObjectStore
from delegation.storage.s3_errors import check_listing
from delegation.storage.s3_plans import S3PlanStore
from delegation.storage.sessions import s3_client
from polaris_common.errors import DelegationError, shown


def newer_metadata(
    path: str, table_uuid: str, store: ObjectStore, names: Callable[[str, str], Iterable[str]]
) -> str | None:
    """Return the table's newest metadata file in the directory of `path` if its version is higher, else None. `names`
    lists the canonical URIs directly below a directory, starting with a name. Files of other tables and unreadable
    files are ignored."""
    version = version_of(path)
    if version is None:
        return None
    directory, _, name = path.rpartition("/")
    listed = names(f"{directory}/", "v" if name.startswith("v") else name)
    versions = [(other.number, path) for path in listed if (other := version_of(path)) is not None]
    for number, newer in sorted(versions, reverse=True):
        if number <= version.number:
            return None
        if _uuid(newer, store) == table_uuid:
            return newer
    return None


def _uuid(path: str, store: ObjectStore) -> str | None:
    try:
        data = store.read(parse(path), limit=MAX_METADATA_BYTES)
        return parse_metadata(path, decode_metadata(path, data), experimental=True).table_uuid
    except DelegationError:
        return None


HEAD = "head.json"
FORMAT = 1
_TASK = "direct"


@dataclass(frozen=True, slots=True)
class DirectResources:
    """ExecutorResources with the operator's credentials, as found by boto3. `place` has the plan and the receipt: a
    directory, also as `file:///…`, or `s3://bucket/prefix`."""

    place: str
    settings: S3Settings = field(default_factory=S3Settings)

    def store(self, identifier: TableIdentifier) -> ListableStore:
        """Open the storage of a table's metadata file, whose URI is the identifier's name."""
        if identifier.name.startswith("file:"):
            return FileObjectStore()
        return S3ObjectStore(settings=self.settings)

    def names(self, directory: str, after: str) -> list[str]:
        """Return the canonical URIs of files directly below a directory's URI, which ends with a slash. In S3 they are
        the first page of the names after `after`, which has newer metadata files."""
        where = parse(directory + HEAD)
        below = where.key.removesuffix(HEAD)
        if where.bucket == LOCAL:
            return [f"{directory}{path.name}" for path in Path("/", below).iterdir() if path.is_file()]
        client = s3_client(self.settings)
        listing = client.list_objects_v2(Bucket=where.bucket, Prefix=below, Delimiter="/", StartAfter=f"{below}{after}")
        check_listing(client, directory, listing)
        return [uri_of(where.bucket, item["Key"]) for item in listing.get("Contents", ()) if "Key" in item]

    def plans(self) -> PlanStore:
        if "://" not in self.place:
            return FilePlanStore(Path(self.place))
        where = parse(self.place.rstrip("/") + "/" + HEAD)
        if where.bucket == LOCAL:
            return FilePlanStore(Path("/", where.key.removesuffix(HEAD)))
        return S3PlanStore(s3_client(self.settings), where.bucket, where.key.removesuffix(HEAD))

    def checkpoint(self, task_id: str, attempt: int) -> Callable[[], None]:
        """Return a checkpoint that never raises, because there is no task and no lease."""
        del task_id, attempt
        return no_checkpoint


@dataclass(frozen=True, slots=True)
class DirectPurge:
    """What to purge and how, without files at a `foreign` place or of the tables in `protect` (metadata files)."""

    metadata_location: str
    engine: EngineChoice = "inline"
    options: PurgeOptions = field(default_factory=PurgeOptions)
    protect: tuple[str, ...] = ()
    foreign: ForeignLocations = NOBODYS


def default_place(metadata_location: str) -> str:
    """Return `./delegation-plans/{id}`, the same for the same metadata file, so that a repeated command resumes."""
    name = hashlib.sha256(canonical(metadata_location).encode()).hexdigest()[:16]
    return f"./delegation-plans/{name}"


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """A TableSource that reads one metadata file. Raises TableMetadataMissing once the file is deleted."""

    path: str
    store: ObjectStore

    def load(self) -> LoadedTable:
        """See TableSource.load. Also raises CorruptMetadata and the errors of the store."""
        try:
            data = self.store.read(parse(self.path), limit=MAX_METADATA_BYTES)
        except ObjectNotFound as error:
            raise TableMetadataMissing(f"{self.path} does not exist") from error
        return LoadedTable(identifier_of(self.path), self.path, decode_metadata(self.path, data), {}, ())


class DirectHead(PlanHead):
    """The published segments, stored in `head.json` with their table."""

    def __init__(self, plans: PlanStore) -> None:
        super().__init__()
        self._plans = plans
        self.stored = self._read_stored()

    def read(self) -> tuple[PlanSegment, ...]:
        stored = self.stored or {}
        return tuple(PlanSegment(segment["id"], segment["sha256"]) for segment in stored.get("segments", ()))

    def open(self, metadata_location: str, table_uuid: str) -> None:
        """Claim an unused place for this table."""
        if self.stored is None:
            self._write({"metadata_location": canonical(metadata_location), "table_uuid": table_uuid, "segments": []})

    def append(
        self, segment: PlanSegment, *, seen: tuple[PlanSegment, ...], files_planned: int
    ) -> tuple[PlanSegment, ...]:
        del files_planned
        if self.read() == seen:
            self._write({**(self.stored or {}), "segments": [asdict(each) for each in (*seen, segment)]})
        return self.read()

    def replace(
        self, segment: PlanSegment, *, seen: tuple[PlanSegment, ...], files_planned: int
    ) -> tuple[PlanSegment, ...]:
        del files_planned
        if self.read() == seen:
            done = self.done()
            kept = {} if done is None else {"steps_done": asdict(replace(done, of=segment.id))}
            self._write({**(self.stored or {}), "segments": [asdict(segment)], **kept})
        return self.read()

    def done(self) -> StepsDone | None:
        stored = (self.stored or {}).get("steps_done")
        if stored is None:
            return None
        return StepsDone(
            stored["of"], stored["state"], tuple(stored["steps"]), tuple(stored["roots"]), stored.get("lost", "")
        )

    def record(self, done: StepsDone) -> None:
        self._write({**(self.stored or {}), "steps_done": asdict(done)})

    def protect(self, paths: Sequence[str]) -> None:
        """Record which tables the place's plan protects."""
        if self.stored is not None and not self.read() and self.protected != set(paths):
            self._write({**self.stored, "protect": sorted(paths)})

    @property
    def protected(self) -> frozenset[str]:
        return frozenset((self.stored or {}).get("protect", ()))

    def discard(self) -> None:
        """Forget the plan, so that the next run makes another."""
        self._write({**(self.stored or {}), "segments": [], "steps_done": None})

    def table_uuid(self, metadata_location: str) -> str | None:
        """Return the uuid of the place's table, None if unused. Raises GuardRefused (PLAN_OF_ANOTHER_TABLE)."""
        if self.stored is None:
            return None
        if self.stored["metadata_location"] != canonical(metadata_location):
            raise plan_of_another_table(
                f"--plan names a place with a plan for {self.stored['metadata_location']}. Name another place"
            )
        return str(self.stored["table_uuid"])

    def _read_stored(self) -> dict[str, Any] | None:
        try:
            data = self._plans.get(HEAD)
        except ObjectNotFound:
            return None
        try:
            stored = json.loads(data)
            segments = [(segment["id"], segment["sha256"]) for segment in stored["segments"]]
            named = [stored["metadata_location"], stored["table_uuid"], *(text for pair in segments for text in pair)]
        except (ValueError, KeyError, TypeError) as error:
            raise PlanTampered(HEAD, "it cannot be read") from error
        if stored.get("format") != FORMAT:
            raise PlanTampered(HEAD, f"its format {stored.get('format')} is not supported")
        if not all(isinstance(text, str) for text in named):
            raise PlanTampered(HEAD, "metadata_location, table_uuid or a segment is not text")
        return dict(stored)

    def _write(self, stored: dict[str, Any]) -> None:
        stored = {"format": FORMAT, **stored}
        self._plans.put(HEAD, (json.dumps(stored, indent=1, ensure_ascii=False) + "\n").encode())
        self.stored = stored


@dataclass
class DirectRun:
    """One run. `attempt` has its progress, also after an error."""

    purge: DirectPurge
    resources: DirectResources
    attempt: MemoryAttempt | None = None
    checkpoint: Callable[[], None] = no_checkpoint
    warn: Callable[[str], None] = field(default=lambda _text: None)

    def __call__(self) -> PurgeResult:
        """Make a plan unless there is one, then execute it. Raises as `run.purge_table`."""
        ctx = self.context()
        if self.purge.engine == "inline":
            return purge_table(ctx)
        # Only the Spark engine needs pyspark.
        from delegation.removal.purge.spark import purge_in_session  # noqa: PLC0415

        return purge_in_session(ctx, self.resources)

    def context(self) -> PurgeContext:
        """Return the input of the engines. Raises GuardRefused (PLAN_OF_ANOTHER_TABLE), PlanTampered, and as
        MetadataFile.load."""
        path = canonical(self.purge.metadata_location)
        plans = self.resources.plans()
        store = self.resources.store(identifier_of(path))
        source = MetadataFile(path, store)
        head = DirectHead(plans)
        table_uuid = head.table_uuid(path)
        if table_uuid is None:
            table = source.load()
            table_uuid = parse_metadata(path, table.metadata, experimental=True).table_uuid
            head.open(path, table_uuid)
        self._check_options(head, plans)
        head.protect([canonical(path) for path in self.purge.protect])
        self._warn_of_newer(path, table_uuid, store)
        self.attempt = MemoryAttempt(_TASK, head=head, on_checkpoint=self.checkpoint)
        return PurgeContext(
            attempt=self.attempt,
            identifier=identifier_of(path),
            table_uuid=table_uuid,
            tables=source,
            store=store,
            plans=plans,
            options=self.purge.options,
            settings=PurgeSettings(vended=False, delete=DeletePolicy(foreign=self.purge.foreign)),
            neighbours=self._protected,
            request={
                "metadata_location": path,
                "protect": list(self.purge.protect),
                "engine": self.purge.engine,
                "options": {k: v for k, v in asdict(self.purge.options).items() if k != "references"},
            },
        )

    def _warn_of_newer(self, path: str, table_uuid: str, store: ObjectStore) -> None:
        try:
            newest = newer_metadata(path, table_uuid, store, self.resources.names)
        except (OSError, ClientError, BotoCoreError, ObjectStoreError):
            return  # a directory that may not be listed shows nothing
        if newest is not None:
            self.warn(
                f"{path} is not the table's newest metadata file. Purge {newest} instead. Otherwise, files "
                "that only that metadata file references stay"
            )

    def marked(self) -> tuple[int, Deleted]:
        """Return the planned files, and what all runs here deleted. Raises PlanTampered and the plan store's errors."""
        plans = self.resources.plans()
        indexes = _readable(plans, DirectHead(plans).read())
        return sum(index.files_planned for index in indexes), deleted_by_marks(plans, indexes)

    def _check_options(self, head: DirectHead, plans: PlanStore) -> None:
        """Raise PlanNotAllowed if the place's plan was made under other options. A dry run replaces such a plan, unless
        its execution has started."""
        indexes = _readable(plans, head.read())
        try:
            self._check_same(head, indexes)
        except PlanNotAllowed as error:
            if any(Marks(plans, index.plan_id).begun() for index in indexes):
                raise PlanNotAllowed(
                    f"{error}. The plan's deletes have begun. Repeat the command with the plan's options"
                ) from None
            if not self.purge.options.dry_run:
                raise PlanNotAllowed(f"{error}. To replace the plan, run the command with --dry-run first") from None
            head.discard()

    def _check_same(self, head: DirectHead, indexes: Sequence[PlanIndex]) -> None:
        for index in indexes:
            if difference := difference_of(index, self.purge.options):
                raise PlanNotAllowed(difference)
            self._check_protected(head)

    def _check_protected(self, head: DirectHead) -> None:
        removed = head.protected - {canonical(path) for path in self.purge.protect}
        if removed:
            raise PlanNotAllowed(f"the plan protects {shown(sorted(removed))}, but this command does not")

    def _protected(self, _roots: Roots | None) -> Sequence[Neighbour]:
        tables = []
        for path in map(canonical, self.purge.protect):
            store = self.resources.store(identifier_of(path))
            tables.append(Neighbour(MetadataFile(path, store).load(), store, certain=True))
        return tables


def _readable(plans: PlanStore, segments: Sequence[PlanSegment]) -> list[PlanIndex]:
    """Return the indexes that are not lost. The rest of the table is planned again without lost ones."""
    indexes = []
    for segment in segments:
        with suppress(PlanLost):
            indexes.append(load_index(plans, segment))
    return indexes


def identifier_of(path: str) -> TableIdentifier:
    """Return an identifier for a table outside any catalog. Its name is the metadata file's canonical URI."""
    return TableIdentifier("-", ("-",), path.replace(NAMESPACE_SEPARATOR, "%1F"))
