"""The input of an expiry (table, commits, stores, settings, attempt), the index of its plan, its result and receipt."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Protocol, TypeVar

from pydantic import Field, ValidationError

from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.removal.choice import EngineChoice, Forecast, RemovalSettings, by_type
from delegation.removal.chunks import Stored
from delegation.removal.context import RemovalContext, RemovalResult
from delegation.removal.errors import PlanTampered
from delegation.removal.expiry.retention import Expired, Permission, Retention
from delegation.removal.expiry.snapshots import MAIN, history
from delegation.removal.index import ReducedIndex, ReplacedPlan
from delegation.removal.lost_refs import LostRefsKeeper
from delegation.removal.marks import seconds_since_planned
from delegation.removal.neighbourhood import LENIENT_PATHS, PathOptions
from delegation.removal.neighbours import PassRequest
from delegation.storage.base import ObjectNotFound, PlanStore


class Removal(Stored):
    """What the commit removes: snapshots, refs with the snapshot that each was at, schemas, partition specs."""

    snapshot_ids: tuple[int, ...] = ()
    refs: dict[str, int] = Field(default_factory=dict)
    schema_ids: tuple[int, ...] = ()
    spec_ids: tuple[int, ...] = ()

    @classmethod
    def of(cls, metadata: Mapping[str, Any], gone: Expired) -> "Removal":
        """Return what is removed from metadata, in order."""
        refs = history(metadata).refs
        return cls(
            snapshot_ids=tuple(sorted(gone.snapshot_ids)),
            refs={name: refs[name].snapshot_id for name in sorted(gone.refs)},
            schema_ids=tuple(sorted(gone.schema_ids)),
            spec_ids=tuple(sorted(gone.spec_ids)),
        )

    def gone_from(self, metadata: Mapping[str, Any]) -> "Removal":
        """Return what of it metadata has no more; raise CorruptMetadata."""
        present = history(metadata)
        return Removal(
            snapshot_ids=tuple(
                snapshot_id for snapshot_id in self.snapshot_ids if snapshot_id not in present.snapshots
            ),
            refs={name: at for name, at in self.refs.items() if name not in present.refs},
            schema_ids=tuple(schema_id for schema_id in self.schema_ids if schema_id not in present.schema_ids),
            spec_ids=tuple(spec_id for spec_id in self.spec_ids if spec_id not in present.spec_ids),
        )


class ExpiryIndex(ReducedIndex):
    """The index of an expiry's plan.

    A plan is reduced after the commit, when a file in it turns out to be needed; never extended. What was deleted by a
    reduced plan has its marks beside that one.
    """

    removal: Removal
    reduces: tuple[ReplacedPlan, ...] = ()


class OwnCommit(Stored):
    """A commit of this expiry whose answer is known: the snapshots that it removed, and the metadata file from before.

    `metadata_location` is the metadata file of the commit, `retention` what was to be kept then, `removed` all that it
    removed.
    """

    format: int = 1
    metadata_location: str
    before: str
    snapshot_ids: tuple[int, ...]
    retention: dict[str, Any] | None = None
    removed: Removal | None = None


class SentCommit(Stored):
    """A commit that was sent at a time, with refs that it asserts at their snapshots."""

    at: datetime
    refs: dict[str, int]


class SentCommits(Stored):
    """The commits that were sent and of which it is not known that they were refused."""

    format: int = 1
    commits: tuple[SentCommit, ...]


class ComparedRefs(Stored):
    """The snapshots that were gone when it was found that no ref was lost with them."""

    format: int = 1
    snapshot_ids: tuple[int, ...]


NOTES: Final[dict[type[Stored], str]] = {
    OwnCommit: "committed.json",
    SentCommits: "sent.json",
    ComparedRefs: "looked.json",
    PassRequest: "references.json",
}
_Note = TypeVar("_Note", bound=Stored)


class Notes:
    """The notes of one plan, by the id that it had before it was reduced."""

    def __init__(self, store: PlanStore, plan_id: str) -> None:
        self._store = store
        self._plan_id = plan_id

    def put(self, note: OwnCommit | SentCommits | ComparedRefs | PassRequest) -> None:
        """Store a note in place of the former one of its kind."""
        document = note.model_dump_json(indent=1)
        self._store.put(self._key(type(note)), f"{document}\n".encode())

    def get(self, kind: type[_Note]) -> _Note | None:
        """Return the note of a kind, None if there is none; raise PlanTampered if it cannot be read."""
        key = self._key(kind)
        try:
            return kind.model_validate_json(self._store.get(key), strict=True)
        except ObjectNotFound:
            return None
        except ValidationError as error:
            raise PlanTampered(key, "it cannot be read") from error

    def _key(self, kind: type[Stored]) -> str:
        return f"{self._plan_id}/{NOTES[kind]}"


_MOST_IDS: Final = 1_000
"""Snapshot ids in one update: an update is one JSON array, and readers of logs see it whole."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """Requirements and updates of a CommitTableRequest (Iceberg REST specification, updateTable)."""

    requirements: Sequence[Mapping[str, Any]]
    updates: Sequence[Mapping[str, Any]]


class Commits(Protocol):
    """Commits to tables of a catalog. A contract suite holds every implementation to it."""

    def commit_table(
        self,
        identifier: TableIdentifier,
        requirements: Sequence[Mapping[str, Any]],
        updates: Sequence[Mapping[str, Any]],
    ) -> LoadedTable:
        """Apply all updates or none, if the requirements hold, and return the table as of the commit.

        Raises CommitConflict if a requirement does not hold or another commit was first, and PolarisOutcomeUnknown if
        the commit may have been applied, or may be later; the errors of loading a table mean that it was not.
        """
        ...


def removal(metadata: Mapping[str, Any], gone: Expired) -> TableCommit:
    """Return the commit that removes these from the metadata as it was loaded.

    Every ref of the metadata is asserted, those that go included: a writer's commit, a rollback or a moved tag refuses
    it. A ref that is created meanwhile is not refused, because a requirement has to name it; the expiry looks for it in
    the metadata file from before its commit.
    """
    table = history(metadata)
    requirements: list[dict[str, Any]] = [{"type": "assert-table-uuid", "uuid": str(metadata["table-uuid"]).lower()}]
    requirements += [
        {"type": "assert-ref-snapshot-id", "ref": ref.name, "snapshot-id": ref.snapshot_id}
        for ref in table.refs.values()
    ]
    if MAIN not in table.refs:
        # A first commit to the branch may be of a writer that used a snapshot which goes.
        requirements.append({"type": "assert-ref-snapshot-id", "ref": MAIN, "snapshot-id": None})
    if gone.schema_ids:
        requirements.append({"type": "assert-current-schema-id", "current-schema-id": table.current_schema_id})
    if gone.spec_ids:
        requirements.append({"type": "assert-default-spec-id", "default-spec-id": table.default_spec_id})
    updates: list[dict[str, Any]] = [{"action": "remove-snapshot-ref", "ref-name": name} for name in sorted(gone.refs)]
    ids = sorted(gone.snapshot_ids)
    updates += [
        {"action": "remove-snapshots", "snapshot-ids": ids[at : at + _MOST_IDS]} for at in range(0, len(ids), _MOST_IDS)
    ]
    if gone.spec_ids:
        updates.append({"action": "remove-partition-specs", "spec-ids": sorted(gone.spec_ids)})
    if gone.schema_ids:
        updates.append({"action": "remove-schemas", "schema-ids": sorted(gone.schema_ids)})
    return TableCommit(requirements, updates)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpirySettings(RemovalSettings):
    """The operator's numbers.

    A commit that others forestall is decided and sent anew `most_commits` times in an attempt. A chunk has `lot_paths`
    files, or `chunk_paths` if executors wrote it. What Spark plans its executors delete, however few files that are.
    """

    probe: bool = True
    most_commits: int = 5


@dataclass(frozen=True, slots=True)
class ExpiryOptions:
    """The choices of a request and its operator; files outside the table's locations are always kept.

    `execute_plan` is the id of a dry run's plan, of which only what is still expired is removed.
    """

    dry_run: bool = False
    execute_plan: str | None = None
    neighbour: Literal["refuse", "report"] = "refuse"
    paths: PathOptions = LENIENT_PATHS

    @property
    def outside(self) -> Literal["keep", "refuse", "delete"]:
        """What happens to files outside the table's locations."""
        return self.paths.outside


@dataclass(frozen=True, kw_only=True)
class ExpiryContext(RemovalContext):
    """One attempt at expiring snapshots of one table.

    `check` raises the error of a guard that refuses the table as it is now; it is called before the plan and before the
    commit. `permitted` returns what may be expired of the table as it is now; it is called before the plan, before each
    commit and before the first delete of the attempt. None: nobody takes back what the request states. `neighbours`
    are as of a time after it is called. `lost_refs` has what a lost ref needs kept, None where nothing stores that.
    """

    commits: Commits
    retention: Retention = field(default_factory=Retention)
    options: ExpiryOptions = field(default_factory=ExpiryOptions)
    settings: ExpirySettings = field(default_factory=ExpirySettings)
    check: Callable[[LoadedTable], None] = lambda _table: None
    permitted: Callable[[LoadedTable], Permission] | None = None
    lost_refs: LostRefsKeeper | None = None

    def now_ms(self) -> int:
        """Return the time in milliseconds since 1970."""
        return int(self.clock().timestamp() * 1000)


ExpiryStatus = Literal["EXPIRED", "PLANNED", "NOTHING", "INCOMPLETE", "STOPPED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryResult(RemovalResult):
    """What an expiry removed and deleted, or with `status` PLANNED what it would.

    NOTHING: no snapshot or ref is expired, or none of the plan is any more. INCOMPLETE: the snapshots are removed, and
    some keys could not be deleted, which the receipt lists. STOPPED: it may not continue, `withdrawn` states why; what
    it removed before is in `snapshot_ids` and `refs`, and their files are left. `metadata_location` is what the plan
    was made from; `snapshot_ids`, `refs`, `schema_ids` and `spec_ids` are what of the plan the table has no more.
    `deletes_with` is the engine for so many files as are planned. A dry run has a `forecast` of what deleting them
    takes.
    """

    status: ExpiryStatus
    metadata_location: str
    snapshot_ids: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()
    schema_ids: tuple[int, ...] = ()
    spec_ids: tuple[int, ...] = ()
    files_kept: int = 0
    withdrawn: str | None = None
    deletes_with: EngineChoice = "inline"
    forecast: Forecast | None = None


def own_of_receipt(ctx: ExpiryContext, result: ExpiryResult, indexes: Sequence[ExpiryIndex]) -> dict[str, Any]:
    """Return the members of the receipt that operations do not have in common."""
    last = indexes[-1]
    return {
        "format_version": last.format_version,
        "snapshots_removed": [str(snapshot_id) for snapshot_id in result.snapshot_ids],
        "refs_removed": {name: str(last.removal.refs[name]) for name in result.refs},
        "schemas_removed": list(result.schema_ids),
        "partition_specs_removed": list(result.spec_ids),
        "plan": [index.plan_id for index in indexes],
        "seconds_since_planned": seconds_since_planned(ctx, indexes),
        "files_absent": result.files_absent,
        "files_kept": result.files_kept,
        "by_type": {name: total.model_dump() for name, total in by_type([last]).items()},
        "neighbours": [neighbour.model_dump() for neighbour in last.neighbours],
    }
