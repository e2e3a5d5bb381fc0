"""The input of an attempt to rewrite a table (table, catalog, stores, what to rewrite, attempt), and its result."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Protocol

from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.polaris.requests import CatalogRequests
from delegation.removal.errors import table_uuid_mismatch
from delegation.rewrites.errors import RewriteWithdrawn
from delegation.rewrites.fence import Gate
from delegation.storage.base import ObjectStore, PlanStore
from delegation.timestamps import elapsed, utc_now

Strategy = Literal["bin-pack", "sort", "z-order"]
Engine = Literal["inline", "spark"]


class RewriteAttempt(Protocol):
    """The attempt for which a rewrite works; `tasks.work.attempt_context.AttemptContext` for a leased task."""

    task_id: str
    attempt: int

    def checkpoint(self, *, moved: bool = True) -> None:
        """Raise RunStopped or another error if the attempt must start nothing more. `moved` states whether the work
        made progress since the last call; work that hangs must lose its lease."""
        ...

    def report(
        self,
        *,
        done: int | None = None,
        total: int | None = None,
        unit: str | None = None,
        message: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Report progress and details of the task. Omitted values stay."""
        ...


def always_permitted(_table: LoadedTable) -> str | None:
    """Permit the rewrite that a caller requested."""
    return None


class TableLoader(Protocol):
    def load(self) -> LoadedTable:
        """Load the table with all snapshots and vended credentials. Raises the errors of delegation.polaris."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFilesRewrite:
    """The arguments of Iceberg's action RewriteDataFiles.

    `options` have Iceberg's names and values. `partitions` is an Iceberg expression as JSON (ExpressionParser) that
    selects the chosen partitions, None for the whole table. `where` is the request's condition in Spark SQL.
    `sort_order` is written as for Iceberg's procedure, None for the table's own.
    """

    branch: str = "main"
    strategy: Strategy = "bin-pack"
    sort_order: str | None = None
    z_order_columns: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, Any] | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestsRewrite:
    """The arguments of Iceberg's action RewriteManifests, which rewrites the manifests of one partition spec. `spec_id`
    None is the table's current spec. `sort_by` are names of partition fields, empty for Iceberg's order."""

    branch: str = "main"
    spec_id: int | None = None
    sort_by: tuple[str, ...] = ()


Rewrite = DataFilesRewrite | ManifestsRewrite


@dataclass(frozen=True, kw_only=True)
class RewriteContext:
    """One attempt to rewrite one table.

    `requests` sends to the catalog as the service's principal, and `tables` loads the table. `store` is the table's
    storage, opened with vended credentials. `plans` is the service's own bucket, in which the receipt is stored. The
    task's commits from `first_attempt` on belong to its current submission. `request` is for the receipt. `permitted`
    returns why the policy no longer requires the rewrite, None if it does. `ended_early` gets what was committed before
    the error that ends the attempt. `clock` returns UTC, `now` and `sleep` count in seconds.
    """

    attempt: RewriteAttempt
    identifier: TableIdentifier
    table_uuid: str
    tables: TableLoader
    requests: CatalogRequests
    store: ObjectStore
    plans: PlanStore
    first_attempt: int = 1
    request: Mapping[str, Any] = field(default_factory=dict)
    permitted: Callable[[LoadedTable], str | None] = always_permitted
    ended_early: "Callable[[RewriteResult], None]" = lambda _result: None
    clock: Callable[[], datetime] = utc_now
    now: Callable[[], float] = elapsed
    sleep: Callable[[float], None] = time.sleep

    def check_before_commit(self) -> None:
        """Raise what ends the attempt: errors of `attempt.checkpoint` and of the catalog, RewriteWithdrawn."""
        if self.permitted is not always_permitted:
            self.load_permitted()
        # Last, because the catalog may take longer to answer than the lease lasts.
        self.attempt.checkpoint()

    def load_permitted(self) -> LoadedTable:
        """As `load_table`. Raises RewriteWithdrawn too."""
        table = self.load_table()
        reason = self.permitted(table)
        if reason is not None:
            raise RewriteWithdrawn(reason)
        return table

    def load_table(self) -> LoadedTable:
        """Load the current table. Raises errors of the catalog and GuardRefused (TABLE_UUID_MISMATCH)."""
        self.attempt.checkpoint()
        table = self.tables.load()
        if table.table_uuid != self.table_uuid.lower():
            raise table_uuid_mismatch(self.table_uuid.lower(), table.table_uuid, work="rewrite")
        return table


CHANGED_FIRST: Final = "another writer changed their files first"


@dataclass(frozen=True, slots=True, kw_only=True)
class PutOff:
    """Groups of files that were not rewritten, because another writer was first (`is_conflict`) or their work failed.
    The next run takes them."""

    groups: int
    reason: str
    is_conflict: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Performed:
    """The result of one call of an action. `groups` is their number, `groups_done` the number committed."""

    groups: int = 0
    groups_done: int = 0
    put_off: tuple[PutOff, ...] = ()


class RewriteEngine(Protocol):
    """Calls Iceberg's actions."""

    @property
    def iceberg_version(self) -> str: ...

    def perform(self, gate: Gate, rewrite: Rewrite, attempt: RewriteAttempt) -> Performed:
        """Rewrite, and commit through the gate. Raises what ended the attempt, RewriteError."""
        ...


RewriteStatus = Literal["REWRITTEN", "PLANNED", "NOTHING"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteResult:
    """What a rewrite changed, or would change with `status` PLANNED.

    The figures are those of the task's own commits, which `snapshot_ids` names, oldest first. They come from the
    snapshots' summaries, so commits whose answers were lost count too. `deletes_folded` are position deletes, equality
    deletes and deletion vectors that no data file needs any more. `manifests_before` were rewritten, `manifests_after`
    replaced them. With NOTHING nothing was or would be changed. `put_off` are groups that the next run takes.
    """

    status: RewriteStatus
    identifier: TableIdentifier
    table_uuid: str
    metadata_location: str = ""
    snapshot_ids: tuple[int, ...] = ()
    files_rewritten: int = 0
    files_added: int = 0
    bytes_rewritten: int = 0
    bytes_added: int = 0
    deletes_folded: int = 0
    manifests_before: int = 0
    manifests_after: int = 0
    groups_done: int = 0
    put_off: tuple[PutOff, ...] = ()
    iceberg_version: str | None = None
    receipt: str | None = None
    seconds: float = 0.0
    engine: Engine = "inline"

    @property
    def figures(self) -> dict[str, int]:
        """The counts, as in the task's details and the receipt."""
        return {
            "files_rewritten": self.files_rewritten,
            "files_added": self.files_added,
            "bytes_rewritten": self.bytes_rewritten,
            "bytes_added": self.bytes_added,
            "deletes_folded": self.deletes_folded,
            "manifests_before": self.manifests_before,
            "manifests_after": self.manifests_after,
            "groups_done": self.groups_done,
        }

    @property
    def groups_put_off(self) -> int:
        return sum(left.groups for left in self.put_off)

    @property
    def put_off_documents(self) -> list[dict[str, Any]]:
        return [asdict(put_off) for put_off in self.put_off]
