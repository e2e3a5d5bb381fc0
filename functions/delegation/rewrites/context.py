"""The input of an attempt at rewriting a table (table, catalog, stores, what to rewrite, attempt), and its result."""

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
    """The attempt that a rewrite works for, `tasks.work.attempt_context.AttemptContext` for a leased task."""

    task_id: str
    attempt: int

    def checkpoint(self, *, moved: bool = True) -> None:
        """Raise RunStopped or another error if the attempt may begin nothing more.

        `moved` tells whether the work made progress since the last call; work that hangs must lose its lease.
        """
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
        """Report progress and details of the task; what is not given stays."""
        ...


def always_permitted(_table: LoadedTable) -> str | None:
    """Permit the rewrite that a caller asked for."""
    return None


class TableLoader(Protocol):
    """Loads a table from its catalog."""

    def load(self) -> LoadedTable:
        """Load the table with all snapshots and vended credentials; raise the errors of delegation.polaris."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFilesRewrite:
    """What Iceberg's action RewriteDataFiles is called with.

    `options` have Iceberg's names and values. `partitions` is an Iceberg expression as JSON (ExpressionParser) that
    selects the chosen partitions, None for the whole table; `where` is a condition in Spark's SQL that a request adds.
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
    """What Iceberg's action RewriteManifests is called with; it rewrites the manifests of one partition spec.

    `spec_id` None is the table's current one. `sort_by` are names of partition fields, none for Iceberg's order.
    """

    branch: str = "main"
    spec_id: int | None = None
    sort_by: tuple[str, ...] = ()


Rewrite = DataFilesRewrite | ManifestsRewrite


@dataclass(frozen=True, kw_only=True)
class RewriteContext:
    """One attempt at rewriting one table.

    `requests` sends to the catalog as the service's principal, and `tables` loads the table. `store` is the table's
    storage, opened with vended credentials; `plans` is the service's own bucket, where the receipt is stored. Commits
    of the task from `first_attempt` on are those of its present submission. `request` is for the receipt. `permitted`
    returns why the policy that asked for the rewrite no longer does, None if it does. `ended_early` gets what was
    committed before the error that ends the attempt. `clock` returns UTC, `now` and `sleep` count in seconds.
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
        # Last: the catalog may take longer to answer than the lease lasts.
        self.attempt.checkpoint()

    def load_permitted(self) -> LoadedTable:
        """Load the table as `load_table` does; raise RewriteWithdrawn too."""
        table = self.load_table()
        reason = self.permitted(table)
        if reason is not None:
            raise RewriteWithdrawn(reason)
        return table

    def load_table(self) -> LoadedTable:
        """Load the table as it is now; raise errors of the catalog and GuardRefused (TABLE_UUID_MISMATCH)."""
        self.attempt.checkpoint()
        table = self.tables.load()
        if table.table_uuid != self.table_uuid.lower():
            raise table_uuid_mismatch(self.table_uuid.lower(), table.table_uuid, work="rewrite")
        return table


CHANGED_FIRST: Final = "another writer changed their files first"


@dataclass(frozen=True, slots=True, kw_only=True)
class PutOff:
    """Groups of files that were not rewritten: another writer was first (`is_conflict`), or their work failed.

    The next run takes them.
    """

    groups: int
    reason: str
    is_conflict: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Performed:
    """What one call of an action came to; `groups` is how many there were, `groups_done` how many it committed."""

    groups: int = 0
    groups_done: int = 0
    put_off: tuple[PutOff, ...] = ()


class RewriteEngine(Protocol):
    """Calls Iceberg's actions."""

    @property
    def iceberg_version(self) -> str: ...

    def perform(self, gate: Gate, rewrite: Rewrite, attempt: RewriteAttempt) -> Performed:
        """Rewrite, and commit through the gate; raise what ended the attempt, RewriteError."""
        ...


RewriteStatus = Literal["REWRITTEN", "PLANNED", "NOTHING"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteResult:
    """What a rewrite changed, or with `status` PLANNED what it would.

    The figures are those of the task's own commits, which `snapshot_ids` names, oldest first; they come from the
    snapshots' summaries, so that an attempt whose answers were lost counts its commits too. `deletes_folded` are
    position deletes, equality deletes and deletion vectors that no data file needs any more; `manifests_before` are
    those that were rewritten, `manifests_after` those that took their place. NOTHING: nothing was or would be changed.
    `put_off` are groups that the next run takes.
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
        """The counts, as the task's details and the receipt have them."""
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
