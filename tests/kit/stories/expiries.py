"""A table of a story and what its expiry needs; every context is a new attempt over the same state."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from delegation.removal.attempt import PlanHead
from delegation.removal.chunks import Phase
from delegation.removal.expiry.context import ExpiryContext, ExpiryIndex, ExpiryOptions, ExpiryResult, ExpirySettings
from delegation.removal.expiry.retention import Retention
from delegation.removal.expiry.run import expire_snapshots
from delegation.removal.index import load_index_as, planned_paths
from delegation.removal.neighbourhood import Neighbour
from delegation.storage.memory import Faults, MemoryObjectStore, MemoryPlanStore
from tests.kit.lakes.lake import FAST, MortalAttempt
from tests.kit.stories.tables import StandInCatalog, StoryTable, Warehouse, identifier

SMALL = ExpirySettings(chunk_paths=3, lot_paths=3, run_records=5, read_threads=1, delete=FAST)
EVERYTHING = Retention(older_than_ms=2**62, retain_last=1)
"""Expires whatever no ref is at."""


@dataclass
class ExpiringTables:
    """`neighbours_before` runs before the neighbours are looked up."""

    lake: Warehouse = field(default_factory=Warehouse)
    plans: MemoryPlanStore = field(default_factory=MemoryPlanStore)
    head: PlanHead = field(default_factory=PlanHead)
    attempts: int = 0
    catalogs: list[StandInCatalog] = field(default_factory=list)

    def context(
        self,
        table: StoryTable,
        retention: Retention = EVERYTHING,
        *,
        faults: Faults | None = None,
        prefixes: tuple[str, ...] | None = None,
        settings: ExpirySettings = SMALL,
        task_id: str = "task",
        table_uuid: str | None = None,
        **options: Any,
    ) -> ExpiryContext:
        faults = faults or Faults()
        self.attempts += 1
        store = MemoryObjectStore(faults=faults)
        store.objects = self.lake.objects
        self.plans.faults = faults
        attempt = MortalAttempt(task_id, self.attempts, head=self.head)
        attempt.faults = faults
        catalog = StandInCatalog(table, faults, prefixes=prefixes)
        self.catalogs.append(catalog)
        return ExpiryContext(
            attempt=attempt,
            identifier=identifier(table.name),
            table_uuid=table_uuid or str(table.document["table-uuid"]),
            tables=catalog,
            commits=catalog,
            store=store,
            plans=self.plans,
            retention=retention,
            options=ExpiryOptions(**options),
            settings=settings,
            neighbours=lambda _roots: list(self.neighbours(table.name)),
            clock=lambda: datetime.fromtimestamp(self.lake.now_ms / 1000, UTC),
            now=lambda: 0.0,
            sleep=lambda _seconds: None,
        )

    def neighbours(self, name: str) -> Iterator[Neighbour]:
        """Yield the other tables of the warehouse, as the reference index would."""
        for other in sorted(self.lake.pointers):
            if other != name:
                store = MemoryObjectStore()
                store.objects = self.lake.objects
                found = StandInCatalog(StoryTable(self.lake, other)).load()
                yield Neighbour(found, store, certain=True)

    def expire(self, table: StoryTable, retention: Retention = EVERYTHING, **more: Any) -> ExpiryResult:
        """Expire with a task of its own, in one attempt."""
        self.head = PlanHead()
        return expire_snapshots(self.context(table, retention, **more))

    def plan(self) -> ExpiryIndex:
        return load_index_as(ExpiryIndex, self.plans, self.head.read()[-1])

    def planned(self, index: ExpiryIndex | None = None) -> set[str]:
        return set(planned_paths(self.plans, [index or self.plan()], (Phase.DATA, Phase.META)))

    def commits(self) -> int:
        """Return how many commits of expiries were applied."""
        return sum(len(one.applied) for one in self.catalogs)
