"""Everything a purge is given (what to purge, with which stores and settings, for which attempt), and what it gives."""

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol

from delegation.identifiers import TableIdentifier
from delegation.operations.purge.options import EngineChoice, PurgeOptions
from delegation.polaris.model import LoadedTable
from delegation.storage.base import ObjectStore, PlanStore
from delegation.storage.deleter import DeletePolicy
from delegation.timestamps import utc_now
from delegation.worksets.attempt import Attempt, PlanSegment
from delegation.worksets.index import Finding, segment_of
from delegation.worksets.sorting import RUN_RECORDS

if TYPE_CHECKING:
    from delegation.operations.purge.estimate import Forecast


class TableSource(Protocol):
    """The catalog's present word on the table to be purged."""

    def load(self) -> LoadedTable:
        """Load with all snapshots and vended credentials.

        Raises NoSuchTable, TableMetadataMissing and the other errors of delegation.polaris.
        """
        ...


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another live table that may share files with the one purged, and the store to read its manifests with.

    A `certain` one is read wherever it lies: somebody said that its files have to stay.
    """

    table: LoadedTable
    store: ObjectStore
    certain: bool = False


def no_neighbours() -> Iterable[Neighbour]:
    return ()


@dataclass(frozen=True, slots=True)
class PurgeSettings:
    """The operator's numbers. `vended` is false where the operator's own credentials are used and reach everything.

    `store_keys_per_second` is what forecasts take for the store's rate (S3: deletes a second of one prefix partition).
    """

    inline_max_files: int = 1_000
    chunk_paths: int = 10_000
    run_records: int = RUN_RECORDS
    read_threads: int = 8
    max_file_bytes: int = 256 * 1024 * 1024
    vended: bool = True
    neighbours_per_second: float = 50.0
    store_keys_per_second: float = 3_500.0
    delete: DeletePolicy = field(default_factory=DeletePolicy)


def random_nonce() -> str:
    return secrets.token_hex(6)


@dataclass(frozen=True)
class PurgeContext:
    """One attempt at purging one table.

    `store` reaches the table's files with vended credentials, `plans` the service's bucket with the service's role.
    `now` and `sleep` are a monotonic clock and a wait, in seconds; `clock` gives aware UTC for what is written down.
    `find_plan` tells what was published under the id of a plan made before; without it the plan is taken as stored.
    `request` is what was asked for in the caller's own words, for the receipt.
    """

    attempt: Attempt
    identifier: TableIdentifier
    table_uuid: str
    tables: TableSource
    store: ObjectStore
    plans: PlanStore
    options: PurgeOptions = field(default_factory=PurgeOptions)
    settings: PurgeSettings = field(default_factory=PurgeSettings)
    neighbours: Callable[[], Iterable[Neighbour]] = no_neighbours
    clock: Callable[[], datetime] = utc_now
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    nonce: Callable[[], str] = random_nonce
    find_plan: Callable[[str], PlanSegment] | None = None
    request: Mapping[str, Any] = field(default_factory=dict)

    def named_plan(self, plan_id: str) -> PlanSegment:
        """A plan made before, by its id; raises PlanTampered."""
        return self.find_plan(plan_id) if self.find_plan is not None else segment_of(self.plans, plan_id)


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """What a finished purge did, or (`status` PLANNED) what it would do.

    `metadata_location` is that of the last file deleted, unless even that stayed (`root_kept`). `bytes_freed` is None
    where the bucket keeps versions, for then nothing was freed. `files_kept` were reachable and left alone; `findings`
    say why. INCOMPLETE is a purge that ended with keys it could not delete, for its receipt; PLANNED has a `forecast`
    of its execution.
    """

    status: Literal["PURGED", "PLANNED", "INCOMPLETE"]
    engine: EngineChoice
    identifier: TableIdentifier
    table_uuid: str
    metadata_location: str
    plan_ids: tuple[str, ...]
    files_planned: int
    files_deleted: int
    bytes_planned: int
    bytes_deleted: int
    bytes_freed: int | None
    files_kept: int
    findings: tuple[Finding, ...]
    receipt: str | None
    seconds: float
    root_kept: bool = False
    forecast: "Forecast | None" = None
