"""Purging in this process: the service's engine, its guards, and a process that is killed at any call."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from delegation.client.errors import ClientMisconfigured, NotAuthorised
from delegation.client.executor import LocalTaskExecutor
from delegation.errors import GuardRefused
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchTable
from delegation.polaris.model import LoadedTable
from delegation.storage.memory import Faults, Killed, MemoryObjectStore, MemoryPlanStore
from delegation.tasks.options import InvalidOption
from polaris_common.errors import DelegationError
from tests.kit.lakes.lake import Lake, LakeSource, busy_table, identifier


@dataclass
class LakeTables:
    """A WholeCatalog over a lake with one namespace; each call may be the last one of the process."""

    lake: Lake = field(default_factory=Lake)
    faults: Faults = field(default_factory=Faults)
    drops: list[str] = field(default_factory=list)

    def load_table(self, table: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable:
        return LakeSource(self.lake, table.name, self.faults).load()

    def load_if_changed(self, table: TableIdentifier, etag: str | None) -> LoadedTable | None:
        return self.load_table(table)

    def list_tables(self, catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]:
        return iter([identifier(name) for name in self.lake.pointers])

    def list_namespaces(self, catalog: str, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        return iter([] if parent else [("ns",)])

    def drop_table(self, table: TableIdentifier, *, purge: bool = False) -> None:
        assert not purge
        with self.faults.call("drop"):
            if self.lake.pointers.pop(table.name, None) is None:
                raise NoSuchTable(f"no table {table}", status=404)
            self.drops.append(table.name)

    def store_of(self, _table: TableIdentifier) -> MemoryObjectStore:
        store = MemoryObjectStore(faults=self.faults)
        store.objects = self.lake.objects
        return store


@pytest.fixture(scope="module")
def written() -> Lake:
    lake = Lake()
    busy_table(lake, "orders")
    lake.create("customers")
    return lake


@pytest.fixture
def tables(written: Lake) -> LakeTables:
    return LakeTables(written.copy())


def executor(tables: LakeTables, plans: Path, **options: Any) -> LocalTaskExecutor:
    given: dict[str, Any] = {"authorise": lambda _table: True, "plans": str(plans), "store_of": tables.store_of}
    return LocalTaskExecutor(tables, "POLARIS", **(given | options))


def test_all_files_go_and_then_the_table(tables, tmp_path):
    before = tables.lake.below("s3://lake/wh/orders/")
    outcome = executor(tables, tmp_path).execute_purge_task(identifier("orders"))
    assert outcome.status == "COMPLETED_SUCCESS"
    assert outcome.execution_result.files_deleted == len(before)
    assert tables.lake.below("s3://lake/wh/orders/") == set()
    assert tables.drops == ["orders"]
    assert tables.lake.below("s3://lake/wh/customers/")
    assert list(tmp_path.rglob("receipt.json"))


def test_a_caller_who_may_only_read_purges_nothing(tables, tmp_path):
    before = set(tables.lake.uris())
    refusing = executor(tables, tmp_path / "plans", authorise=lambda _table: False)
    with pytest.raises(NotAuthorised, match=r"cat\.ns\.orders"):
        refusing.execute_purge_task(identifier("orders"))
    assert set(tables.lake.uris()) == before
    assert tables.faults.calls == 0
    assert not (tmp_path / "plans").exists()


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        ({"dry-run": "true"}, ClientMisconfigured),
        ({"outside": "burn"}, InvalidOption),
        *(({name: "true"}, DelegationError) for name in ("dry-rnu", "dryRun", "DRY-RUN", "Outside")),
    ],
)
def test_an_option_that_cannot_be_followed_or_is_misspelled_deletes_nothing(tables, tmp_path, properties, error):
    before = set(tables.lake.uris())
    with pytest.raises(error, match=r"dry.run|outside"):
        executor(tables, tmp_path).execute_purge_task(identifier("orders"), properties=properties)
    assert set(tables.lake.uris()) == before
    assert tables.drops == []


def test_the_guards_of_the_service_hold(tables, tmp_path):
    tables.lake.rewrite_metadata("orders", {"properties": {"gc.enabled": "false"}})
    before = set(tables.lake.uris())
    with pytest.raises(GuardRefused):
        executor(tables, tmp_path).execute_purge_task(identifier("orders"))
    assert set(tables.lake.uris()) == before
    assert tables.drops == []


def test_an_unknown_table_is_an_error(tables, tmp_path):
    with pytest.raises(NoSuchTable):
        executor(tables, tmp_path).execute_purge_task(identifier("nobody"))


def test_a_table_that_was_created_anew_under_the_name_is_purged_anew(tables, tmp_path):
    local = executor(tables, tmp_path)
    local.execute_purge_task(identifier("orders"))
    tables.lake.create("orders")
    local.execute_purge_task(identifier("orders"))
    assert tables.lake.below("s3://lake/wh/orders/") == set()
    assert tables.drops == ["orders", "orders"]


def interrupted_once(
    written: Lake, monkeypatch: pytest.MonkeyPatch, kill_at: int, *, after: bool
) -> tuple[Faults, LakeTables]:
    """Purge in a process that is killed at this call, then in another one until it is done."""
    plans = MemoryPlanStore()
    monkeypatch.setattr("delegation.client.local_purge.DirectResources", lambda _place: Plans(plans))
    first = Faults(kill_at=kill_at, after=after)
    tables = LakeTables(written.copy(), first)
    plans.faults = first
    try:
        executor(tables, Path("anywhere")).execute_purge_task(identifier("orders"))
    except Killed:
        tables.faults = plans.faults = Faults()
        try:
            executor(tables, Path("anywhere")).execute_purge_task(identifier("orders"))
        except NoSuchTable:
            assert first.names[-1] == "drop"  # the table was dropped, and no caller got the answer
    return first, tables


@dataclass
class Plans:
    store: MemoryPlanStore

    def plans(self) -> MemoryPlanStore:
        return self.store


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_process_killed_at_any_call_is_continued_by_the_next_one(written, monkeypatch, after):
    calls = interrupted_once(written, monkeypatch, 10**6, after=after)[0].calls
    assert calls > 20
    for kill_at in range(1, calls + 1):
        killed, tables = interrupted_once(written, monkeypatch, kill_at, after=after)
        where = f"{kill_at}: {killed.names[-1]}"
        assert tables.lake.below("s3://lake/wh/orders/") == set(), where
        assert tables.drops == ["orders"], where
        assert tables.lake.below("s3://lake/wh/customers/"), where
