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
    """The contents of a commit: removed snapshots, refs with the snapshot of each, schemas, partition specs."""

    snapshot_ids: tuple[int, ...] = ()
    refs: dict[str, int] = Field(default_factory=dict)
    schema_ids: tuple[int, ...] = ()
    spec_ids: tuple[int, ...] = ()

    @classmethod
    def of(cls, metadata: Mapping[str, Any], gone: Expired) -> "Removal":
        """Return what is removed from metadata, sorted."""
        refs = history(metadata).refs
        return cls(
            snapshot_ids=tuple(sorted(gone.snapshot_ids)),
            refs={name: refs[name].snapshot_id for name in sorted(gone.refs)},
            schema_ids=tuple(sorted(gone.schema_ids)),
            spec_ids=tuple(sorted(gone.spec_ids)),
        )

    def gone_from(self, metadata: Mapping[str, Any]) -> "Removal":
        """Return the part that metadata no longer has. Raises CorruptMetadata."""
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
    """The index of an expiry's plan. After the commit a plan is reduced when one of its files turns out to be needed.
    It is never extended. Files deleted by a reduced plan have their marks beside that plan."""

    removal: Removal
    reduces: tuple[ReplacedPlan, ...] = ()


class OwnCommit(Stored):
    """A commit of this expiry with a known outcome. `metadata_location` is the commit's metadata file, `before` the
    file from before it. `snapshot_ids` were removed, `removed` is everything removed, `retention` what was to be
    kept."""

    format: int = 1
    metadata_location: str
    before: str
    snapshot_ids: tuple[int, ...]
    retention: dict[str, Any] | None = None
    removed: Removal | None = None


class SentCommit(Stored):
    """A commit sent at a time, with the refs that it asserts at their snapshots."""

    at: datetime
    refs: dict[str, int]


class SentCommits(Stored):
    """The sent commits that are not known to be refused."""

    format: int = 1
    commits: tuple[SentCommit, ...]


class ComparedRefs(Stored):
    """The snapshots that were gone when no lost ref was found."""

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
    """The notes of one plan, by the id that it had before reductions."""

    def __init__(self, store: PlanStore, plan_id: str) -> None:
        self._store = store
        self._plan_id = plan_id

    def put(self, note: OwnCommit | SentCommits | ComparedRefs | PassRequest) -> None:
        """Store a note; replaces the former note of its kind."""
        document = note.model_dump_json(indent=1)
        self._store.put(self._key(type(note)), f"{document}\n".encode())

    def get(self, kind: type[_Note]) -> _Note | None:
        """Return the note of a kind, None without one. Raises PlanTampered if it cannot be read."""
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
"""Snapshot ids in one update: an update is one JSON array, which readers of logs see as a whole."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """Requirements and updates of a CommitTableRequest (Iceberg REST specification, updateTable)."""

    requirements: Sequence[Mapping[str, Any]]
    updates: Sequence[Mapping[str, Any]]


class Commits(Protocol):
    """Commits to tables of a catalog. One contract suite tests every implementation."""

    def commit_table(
        self,
        identifier: TableIdentifier,
        requirements: Sequence[Mapping[str, Any]],
        updates: Sequence[Mapping[str, Any]],
    ) -> LoadedTable:
        """Apply all updates or none, if the requirements hold, and return the table as of the commit. Raises
        CommitConflict if a requirement does not hold or another commit was first, and PolarisOutcomeUnknown if the
        commit may have been applied or may be later. The errors of loading a table mean that it was not applied."""
        ...


def removal(metadata: Mapping[str, Any], gone: Expired) -> TableCommit:
    """Return the commit that removes these from the loaded metadata. Every ref of the metadata is asserted, including
    removed ones, so a writer's commit, a rollback or a moved tag refuses the commit. A ref that is created meanwhile
    does not, because a requirement must name the ref. The expiry looks for it in the metadata file from before its
    commit."""
    table = history(metadata)
    requirements: list[dict[str, Any]] = [{"type": "assert-table-uuid", "uuid": str(metadata["table-uuid"]).lower()}]
    requirements += [
        {"type": "assert-ref-snapshot-id", "ref": ref.name, "snapshot-id": ref.snapshot_id}
        for ref in table.refs.values()
    ]
    if MAIN not in table.refs:
        # A first commit to the branch may use a snapshot that is to be removed.
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
    """The operator's numbers. If other commits are first, the commit is decided and sent again up to `most_commits`
    times in an attempt. A chunk has `lot_paths` files, or `chunk_paths` if executors wrote it. Executors delete what
    Spark planned, however few files that are."""

    probe: bool = True
    most_commits: int = 5


@dataclass(frozen=True, slots=True)
class ExpiryOptions:
    """The choices of a request and its operator. Files outside the table's locations are always kept. `execute_plan` is
    the id of a dry run's plan, of which only what is still expired is removed."""

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

    `check` raises the error of a guard that refuses the current table. It is called before the plan and before the
    commit. `permitted` returns what may be expired of the current table. It is called before the plan, before each
    commit and before the attempt's first delete. None: nothing withdraws the request. `neighbours` are as of a time
    after its call. `lost_refs` keeps what a lost ref needs, None without a store for it.
    """

    commits: Commits
    retention: Retention = field(default_factory=Retention)
    options: ExpiryOptions = field(default_factory=ExpiryOptions)
    settings: ExpirySettings = field(default_factory=ExpirySettings)
    check: Callable[[LoadedTable], None] = lambda _table: None
    permitted: Callable[[LoadedTable], Permission] | None = None
    lost_refs: LostRefsKeeper | None = None

    def now_ms(self) -> int:
        return int(self.clock().timestamp() * 1000)


ExpiryStatus = Literal["EXPIRED", "PLANNED", "NOTHING", "INCOMPLETE", "STOPPED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryResult(RemovalResult):
    """What an expiry removed and deleted, or would with `status` PLANNED.

    NOTHING: no snapshot or ref is expired, or none of the plan still is. INCOMPLETE: the snapshots are removed, but
    some keys could not be deleted; the receipt lists them. STOPPED: it may not continue, and `withdrawn` states why.
    What it removed before is in `snapshot_ids` and `refs`, and their files are left. The plan was made from
    `metadata_location`. `snapshot_ids`, `refs`, `schema_ids` and `spec_ids` are the plan's that the table no longer
    has. `deletes_with` is the engine for the number of planned files. A dry run has a `forecast` of their deletes.
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
    """Return the members of the receipt that only expiries have."""
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
