"""Updates the health of a catalog's tables from the reference index, and defines the task that does it.

The index's recurring task reads the health of each changed table in the same visit (`HealthRefresher.visited`). The
recurring task of healths reads the rest: tables that a purge's own pass visited, that failed or were too large, and
those due for review. A table has changed if its metadata location in the index differs from its health's. This
difference is the remaining work, so the next run continues one that was killed, and no change is lost. The task is
submitted when a pass of the index is complete, and recurs as often.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict

from delegation.iceberg.reach import Fetcher
from delegation.identifiers import TableIdentifier
from delegation.items import Asides, SetAside, each_item, is_answer
from delegation.polaris.answers import NoSuchNamespace, NoSuchTable, PolarisError, TableMetadataMissing
from delegation.polaris.model import LoadedTable
from delegation.references import CATALOG_HEALTH
from delegation.references.model import TableEntry
from delegation.references.recurring import RecurringCatalog
from delegation.references.store import ReferenceStore
from delegation.references.visits import TableVisited
from delegation.storage.base import ReadableStore
from delegation.storage.credentials import CredentialsUnavailable
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior
from delegation.upkeep.errors import HealthChanged, TooManyManifests, UpkeepError
from delegation.upkeep.health.model import REVIEW_EVERY, TableHealth
from delegation.upkeep.health.reading import LASTING, ExpiryByRule, HealthLimits, read_health
from delegation.upkeep.health.store import HealthStore
from polaris_common.errors import DelegationError, ErrorScope

_GONE: Final = (NoSuchTable, NoSuchNamespace, TableMetadataMissing)
_PASSING: Final = (*LASTING, PolarisError, CredentialsUnavailable, HealthChanged)
"""Errors of one table that others may not have."""
TABLES: Final = "health.tables"
ASIDE_FOR: Final = timedelta(hours=3)
"""A table is set aside for this long after its first failure: longer than between two runs."""
_RACES: Final = 3
MOST_VISITED: Final = 500
"""Manifest lists, and manifests, read of one table in a visit of the index, because purges may wait for it."""
MOST_VISITED_BYTES: Final = 64 * 1024 * 1024
"""Bytes of these manifests. A visit does not renew ownership of the pass, and reading a gigabyte takes minutes."""
MOST_FAILED: Final = 3
"""Visits in a row without an answer after which a pass of the index leaves the healths to their own task."""


class LoadsTables(Protocol):
    """The methods of a catalog that this needs; PolarisClient documents the errors."""

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable: ...


class _Known(NamedTuple):
    """What is kept of each health during a comparison: a few hundred bytes."""

    table_uuid: str
    metadata_location: str
    review_at: datetime | None
    aside: SetAside | None


@dataclass(frozen=True, slots=True)
class HealthCounts:
    """What one run did: tables in the index, read, left for the next run, and removed."""

    tables: int = 0
    read: int = 0
    left: int = 0
    removed: int = 0


@dataclass(frozen=True)
class HealthRefresher:
    """Refreshes the health of a catalog's tables, up to `at_once` at a time. `open_store` opens a loaded table's
    storage, `rule_of` returns what expires in it. `pace` returns when the next load may start. `checkpoint` is called
    before each table and stops the run by raising. `report` gets the number of tables up to date."""

    healths: HealthStore
    index: ReferenceStore
    catalog: LoadsTables
    open_store: Callable[[LoadedTable], ReadableStore]
    clock: Callable[[], datetime]
    rule_of: Callable[[LoadedTable], ExpiryByRule | None] = lambda _table: None
    pace: Callable[[], None] = lambda: None
    checkpoint: Callable[[], None] = lambda: None
    report: Callable[[int], None] = lambda _read: None
    at_once: int = 1
    limits: HealthLimits = field(default_factory=HealthLimits)

    def refresh(self, catalog: str) -> HealthCounts:
        """Read every changed table of the index, and remove the healths of tables that are gone. Raises the errors of
        both stores, and the last error if the catalog answers for no table."""
        known = {
            health.identifier: _Known(
                health.table_uuid, health.metadata_location, health.review_at, health.asides.get(TABLES)
            )
            for health in self.healths.healths(catalog)
        }
        counts = HealthCounts()
        compared = _Compared(known)
        with ThreadPoolExecutor(self.at_once, "health") as pool:
            for reading in each_item(
                self._stale(catalog, compared),
                self._refresh_entry,
                name=TABLES,
                clock=self.clock,
                shown=lambda entry: str(entry.identifier),
                stops=ErrorScope.CATALOG,
                asides=_EntryAsides(self.healths, known, self.clock),
                first_pause=ASIDE_FOR,
                probe=lambda: self._probe(compared),
                checkpoint=self.checkpoint,
                pool=pool,
                at_once=self.at_once,
            ):
                if not reading.is_done:
                    counts = replace(counts, left=counts.left + 1)
                    continue
                counts, compared.other = replace(counts, read=counts.read + 1), reading.item.identifier
                # It grows with every attempt, so that a run with many hand-overs shows its progress.
                self.report(len(compared.seen) - len(compared.stale) + counts.read)
        removed = self._remove_gone(catalog, known.keys() - compared.seen)
        return replace(counts, tables=len(compared.seen), removed=removed)

    def _stale(self, catalog: str, compared: "_Compared") -> Iterator[TableEntry]:
        """Yield the entries to read, and record these and all of the index."""
        now = self.clock()
        for entry in self.index.entries(catalog):
            # An absent table stays until the index has removed it: it may have been renamed and missed.
            compared.seen.add(entry.identifier)
            if entry.absent:
                continue
            if _is_stale(entry, compared.known.get(entry.identifier), now):
                compared.stale.add(entry.identifier)
                yield entry
            elif entry.problem is None:
                compared.other = entry.identifier

    def _probe(self, compared: "_Compared") -> bool:
        """Return whether an unchanged table loads, or one was read."""
        if compared.other is None:
            return False
        self.pace()
        try:
            self.catalog.load_table(compared.other, vend=False, snapshots="refs")
        except PolarisError as error:
            return is_answer(error)
        return True

    def _refresh_entry(self, entry: TableEntry) -> None:
        """Read one table. A permanent error becomes its health's problem. Raises the retryable errors."""
        try:
            self.refresh_table(entry.identifier)
        except _GONE:
            return
        except _PASSING as error:
            if error.retryable or error.scope > ErrorScope.ITEM:
                raise
            self._note(entry, error)

    def refresh_table(self, identifier: TableIdentifier) -> TableHealth:
        """Load one table, read what is new, store its health and return it. Raises NoSuchTable, NoSuchNamespace,
        TableMetadataMissing, and the errors of the catalog and the stores."""
        for attempt in range(_RACES):
            self.pace()
            asked = self.clock()
            table = self.catalog.load_table(identifier)
            try:
                return self.read(table, self.open_store(table), asked)
            except HealthChanged:
                # A maintenance run was recorded meanwhile, or another process read the table.
                if attempt == _RACES - 1:
                    raise
        raise AssertionError("the loop above returns or raises")

    def read(
        self, table: LoadedTable, files: ReadableStore, asked: datetime, limits: HealthLimits | None = None
    ) -> TableHealth:
        """Read what is new of a table that was loaded after `asked`, store its health and return it. A health that
        another process stored since stays, because its load was later. With the `limits` of a visit, a health of the
        same metadata stays until its review, because the index reads unreadable tables in each pass. Raises
        HealthChanged, TooManyManifests beyond `limits`, and the errors of the stores."""
        known = self.healths.health(table.identifier)
        if known is not None and (known.as_of > asked or (limits is not None and _is_current(known, table, asked))):
            return known
        limits = limits or self.limits
        health, state = read_health(
            table,
            Fetcher(files, threads=limits.threads, checkpoint=_continue),
            known,
            self.healths.read_state(table.identifier),
            rule=self.rule_of(table),
            now=self.clock(),
            limits=limits,
        )
        return self.healths.put(health.set_aside(TABLES, None), state)

    def visited(self) -> TableVisited:
        """Return a function that reads the health of each table visited by one pass of the index. A table that fails,
        or has too much to read, is left to the task of healths, which detects that it changed."""
        failed, limits = 0, replace(self.limits, most=MOST_VISITED, most_bytes=MOST_VISITED_BYTES)

        def read(visit: tuple[LoadedTable, ReadableStore, datetime]) -> None:
            with suppress(TooManyManifests):
                self.read(*visit, limits)

        def visited(*visit: Any) -> None:
            nonlocal failed
            if failed >= MOST_FAILED:
                return
            for outcome in each_item(
                [visit],
                read,
                name="health.visits",
                clock=self.clock,
                shown=lambda visit: str(visit[0].identifier),
                in_a_row=None,
            ):
                failed = 0 if outcome.error is None or is_answer(outcome.error) else failed + 1

        return visited

    def _note(self, entry: TableEntry, error: DelegationError) -> None:
        """Record why a table cannot be loaded in the index's state. Its numbers stay."""
        now = self.clock()
        health = self.healths.health(entry.identifier) or TableHealth(entry.identifier, "", "", now)
        problem = f"{error.code}: {error}"
        here = replace(health, table_uuid=entry.table_uuid, metadata_location=_location_of(entry))
        self.healths.put(replace(here, problem=problem, as_of=now, review_at=now + REVIEW_EVERY))

    def _remove_gone(self, catalog: str, gone: set[TableIdentifier]) -> int:
        """Remove the healths of tables that the index lacks; none before the first complete pass."""
        if self.index.pass_of(catalog).complete_as_of is None:
            return 0

        def remove(identifier: TableIdentifier) -> bool:
            health = self.healths.health(identifier)
            if health is None or self.index.get(identifier) is not None:
                return False
            self.healths.remove(health)
            return True

        done = each_item(gone, remove, name="health.gone", clock=self.clock, checkpoint=self.checkpoint)
        return sum(removal.result is True for removal in done)


class _Compared:
    """A catalog's tables by its index and by their healths. `other` is a table that loads, as far as known."""

    def __init__(self, known: Mapping[TableIdentifier, _Known]) -> None:
        self.known = known
        self.seen: set[TableIdentifier] = set()
        self.stale: set[TableIdentifier] = set()
        self.other: TableIdentifier | None = None


@dataclass(frozen=True, slots=True)
class _EntryAsides(Asides[TableEntry]):
    healths: HealthStore
    known: Mapping[TableIdentifier, _Known]
    clock: Callable[[], datetime]

    def of(self, item: TableEntry) -> SetAside | None:
        table = self.known.get(item.identifier)
        return None if table is None else table.aside

    def put(self, item: TableEntry, aside: SetAside | None) -> None:
        with suppress(UpkeepError):  # the next run tries it again
            before = self.healths.health(item.identifier) or TableHealth(item.identifier, "", "", self.clock())
            self.healths.put(before.set_aside(TABLES, aside))


def _is_stale(entry: TableEntry, known: _Known | None, now: datetime) -> bool:
    if known is None or (known.review_at is not None and known.review_at <= now):
        return True
    location = _location_of(entry)
    # A table that the index never loaded has no location. What is known of it stays until its review.
    return bool(location) and (entry.table_uuid, location) != (known.table_uuid, known.metadata_location)


def _is_current(known: TableHealth, table: LoadedTable, now: datetime) -> bool:
    same = (known.table_uuid, known.metadata_location) == (table.table_uuid, table.metadata_location)
    return same and (known.review_at is None or now < known.review_at)


def _continue() -> None:
    """Do nothing before a read in a thread: a checkpoint's error would end that thread."""


def _location_of(entry: TableEntry) -> str:
    """Return the metadata file that the index saw last, "" if it never loaded the table."""
    return entry.problem_location or entry.metadata_location


class HealthReport(BaseModel):
    """What one run did: tables in the index, read, left for the next run and removed, or why it ended early."""

    model_config = ConfigDict(frozen=True)

    tables: int | None = None
    read: int | None = None
    left: int | None = None
    removed: int | None = None
    problem: str | None = None


def catalog_health(
    refresher: Callable[[AttemptContext], HealthRefresher], *, every: timedelta
) -> Behavior[RecurringCatalog, HealthReport]:
    def work(parameters: RecurringCatalog, run: AttemptContext) -> HealthReport:
        try:
            counts = refresher(run).refresh(parameters.catalog)
        except DelegationError as error:
            if not error.retryable:
                raise
            # The next run continues. A failure would end the recurrence.
            return HealthReport(problem=f"{error.code}: {error}")
        return HealthReport(tables=counts.tables, read=counts.read, left=counts.left, removed=counts.removed)

    return Behavior(
        CATALOG_HEALTH,
        RecurringCatalog,
        work,
        result=HealthReport,
        identify=lambda parameters: parameters.catalog,
        every=every,
    )
