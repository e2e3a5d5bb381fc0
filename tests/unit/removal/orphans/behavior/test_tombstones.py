"""A table that was dropped through the gateway and waits for its purge keeps its files from sweeps, and is restored.

A tombstone is a table of the catalog like any other: the reference index has it, and its unfinished task claims its
location. Each test is an order of events between the gateway, a sweep and a restore.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import combinations
from typing import Any

import pytest

from delegation.gateway.drop.tombstones import TombstoneState
from delegation.identifiers import TableIdentifier
from delegation.removal.orphans.behavior import OrphansBehavior
from delegation.removal.orphans.requests import OrphanLimits, TableOrphans
from delegation.removal.orphans.task_type import TASK_TYPE
from delegation.storage.memory import MemoryObjectStore
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.policy import Lease
from delegation.wire.requests import TableState
from tests.effort import every
from tests.kit.dynamodb import MemoryReferenceStore
from tests.kit.lakes.lake import Lake, rows
from tests.kit.stories.orphans import SMALL
from tests.kit.worlds.sweeping import AT_ONCE
from tests.unit.gateway.drop.world import ORDERS, REALM, DropWorld

AGAIN = TableIdentifier("lake", ("ns",), "again")
MOMENTS = ("listed", "look 1", "look 2", "deleting")
"""After the listing began, at the look for the plan, at the last look, and at the first delete."""
Event = Callable[[], object]


@dataclass
class Quay:
    """A gateway with a week of grace, a reference index, and sweeps; `orders` is dropped by its `drop`."""

    here: DropWorld
    index: MemoryReferenceStore
    sweeps: int = 0

    def drop(self, name: str = "orders") -> None:
        assert self.here.drop(name).status == 204

    def restore(self, to: TableIdentifier | None = None) -> None:
        record = self.here.tombstones.restore(self.here.record().tombstone_id, to)
        assert record.state is TombstoneState.RESTORED

    def plant(self, *names: str) -> set[str]:
        for name in names:
            self.here.lake.objects["lake", f"wh/ns/orders/data/{name}"] = b"orphan"
        return {f"s3://lake/wh/ns/orders/data/{name}" for name in names}

    def taker(self) -> str:
        """Register a table elsewhere that took a file at the location of `orders`; return that file's URI."""
        lake = Lake()
        lake.objects = lake.io.objects = self.here.lake.objects
        lake.create("taker", location="s3://lake/wh/ns/taker").append(rows(1, 2))
        [own] = [uri for uri in lake.below("s3://lake/wh/ns/taker/data/") if uri.endswith(".parquet")][:1]
        lake.objects["lake", "wh/ns/orders/data/taken.parquet"] = lake.objects["lake", own.removeprefix("s3://lake/")]
        taken = "s3://lake/wh/ns/orders/data/taken.parquet"
        lake.table("taker").add_files([taken], check_duplicate_files=False)
        self.here.register(lake.pointers["taker"], "taker")
        return taken

    def lacking(self, name: str, namespace: tuple[str, ...] = ("ns",)) -> set[str]:
        """Return the files that a table names and that are gone."""
        path = f"namespaces/{'%1F'.join(namespace)}/tables/{name}"
        found = self.here.send("GET", path).json()
        lake = self.here.lake
        lake.pointers["seen"] = found["metadata-location"]
        table = lake.table("seen")
        named = {found["metadata-location"], *(one.metadata_file for one in table.metadata.metadata_log)}
        for snapshot in table.snapshots():
            named.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(lake.io):
                named.add(manifest.manifest_path)
                named |= {one.data_file.file_path for one in manifest.fetch_manifest_entry(lake.io)}
        del lake.pointers["seen"]
        return named - set(lake.uris())

    def sweep(self, events: Mapping[str, Event] = {}) -> Task:
        """Sweep `orders` until it ends; `events` happen at some of MOMENTS."""
        here, self.sweeps = self.here, self.sweeps + 1
        loaded = here.polaris.load_table(ORDERS, vend=False)
        wanted = TableOrphans(realm=REALM, identifier=ORDERS, table=TableState.of(loaded), properties={})
        task, _ = here.tasks.submission.create(
            here.tasks.submission.first(
                task_id=f"01234567-89ab-cdef-0123-{self.sweeps:012d}",
                task_type=TASK_TYPE,
                payload=wanted.to_payload(),
                at=here.clock(),
            )
        )
        behavior = self._behavior(dict(events))
        for number in range(9):
            held = here.tasks.leases.acquire(task.task_id, f"sweeper{number}", _for_hours)
            task = behavior.run(held, hand_over_at=None)
            if task.status is not Status.RETRY_SCHEDULED:
                break
            here.clock.advance(timedelta(hours=1))
        assert not behavior.store.events, "a moment did not come"
        return task

    def _behavior(self, events: dict[str, Event]) -> "_Sweeps":
        here, looks = self.here, iter(range(99))
        purge = replace(here.purge, references=self.index)
        store = _Eventful(here.objects(), events)

        def places(_catalogs: Any, _before: Any) -> Iterator[Any]:
            # The first call is for the privileges; the others come just before the tables that overlap are read.
            store.at(f"look {next(looks)}")
            return iter(())

        return _Sweeps(
            tasks=here.tasks,
            open_table=lambda identifier: (_Source(here, identifier), store),
            plans=here.plans,
            search=purge.search,
            places=places,
            hold=purge.hold,
            limits=OrphanLimits.from_properties(AT_ONCE),
            settings=SMALL,
            monotonic=here.seconds,
            sleep=here.sleep,
            store=store,
        )


@dataclass
class _Eventful:
    """A table's store whose first listing and first delete are moments."""

    store: MemoryObjectStore
    events: dict[str, Event]

    def at(self, moment: str) -> None:
        event = self.events.pop(moment, None)
        if event is not None:
            event()

    def folder(self, bucket: str, prefix: str) -> Any:
        found = self.store.folder(bucket, prefix)
        self.at("listed")
        return found

    def delete_unchanged(self, bucket: str, listed: Any) -> Any:
        self.at("deleting")
        return self.store.delete_unchanged(bucket, listed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@dataclass(frozen=True, kw_only=True)
class _Sweeps(OrphansBehavior):
    store: _Eventful


def _for_hours(now: datetime) -> Lease:
    return Lease.lasting(timedelta(hours=9), now)


@dataclass
class _Source:
    here: DropWorld
    identifier: TableIdentifier

    def load(self) -> Any:
        return self.here.polaris.load_table(self.identifier)


@pytest.fixture
def quay() -> Iterator[Quay]:
    here = DropWorld(grace="7d")
    here.table()
    yield Quay(here, MemoryReferenceStore())
    here.close()


def test_a_table_that_got_the_location_again_is_not_swept_while_the_dropped_one_can_be_restored(quay: Quay) -> None:
    quay.drop()
    quay.here.table()
    planted, before = quay.plant("a.parquet"), quay.here.data()
    task = quay.sweep()
    assert (task.status, task.error_code) == (Status.FAILURE, "LOCATION_SHARED")
    assert planted < before == quay.here.data()
    quay.restore(AGAIN)
    assert quay.lacking("again") == quay.lacking("orders") == set()
    # Two live tables still share the location.
    assert quay.sweep().error_code == "LOCATION_SHARED"
    assert quay.lacking("again") == set()


def test_only_after_the_dropped_table_is_purged_is_the_location_swept(quay: Quay) -> None:
    quay.drop()
    quay.here.table()
    planted = quay.plant("a.parquet")
    quay.here.clock.advance(timedelta(days=8))
    quay.here.settle()
    assert quay.here.record().state is TombstoneState.DROPPED
    task = quay.sweep()
    assert task.status is Status.SUCCESS, task.result_summary
    assert not planted & quay.here.data()
    assert quay.lacking("orders") == set()


@pytest.mark.parametrize(("dropped", "restored"), every(4, combinations(["before", *MOMENTS, "after"], 2)))
def test_a_dropped_table_elsewhere_keeps_the_files_that_it_took(quay: Quay, dropped: str, restored: str) -> None:
    taken = quay.taker()
    planted = quay.plant("a.parquet", "b.parquet")
    events: dict[str, Event] = {dropped: lambda: quay.drop("taker"), restored: quay.restore}
    if "before" in events:
        events.pop("before")()
    task = quay.sweep({moment: event for moment, event in events.items() if moment != "after"})
    assert task.status is Status.SUCCESS, task.result_summary
    assert taken in quay.here.data()
    assert not planted & quay.here.data()
    if "after" in events:
        events["after"]()
    assert quay.lacking("taker") == quay.lacking("orders") == set()


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_table_that_is_dropped_while_it_is_swept_is_whole_when_it_is_restored(quay: Quay, moment: str) -> None:
    """A new table may get its name and location meanwhile: its files are not the sweep's either."""
    planted = quay.plant(*(f"{number}.parquet" for number in range(9)))

    def replaced() -> None:
        quay.drop()
        quay.here.table()

    task = quay.sweep({moment: replaced})
    assert task.status is Status.FAILURE
    assert task.error_code in ("TABLE_UUID_MISMATCH", "LOCATION_SHARED"), task.result_summary
    left = planted & quay.here.data()
    # Of the sweep's own chunks the one that was being deleted is deleted.
    assert left == planted if moment != "deleting" else len(left) == 6
    quay.restore(AGAIN)
    assert quay.lacking("again") == quay.lacking("orders") == set()
