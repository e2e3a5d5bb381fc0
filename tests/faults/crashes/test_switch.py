"""The switch of the Spark crash matrix: which process it kills, at which call, before or after the effect."""

import os
from collections.abc import Iterator

import pytest

from delegation.storage.base import ObjectNotFound
from delegation.storage.locations import parse
from delegation.storage.memory import Killed
from tests.faults.crashes.switch import DRIVER, EXECUTOR, Call, StoreServer, Switch
from tests.kit.lakes.lake import PurgedTables, filled, identifier


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreServer]:
    def die(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(os, "_exit", die)
    with StoreServer() as server:
        yield server


@pytest.fixture
def bench() -> PurgedTables:
    return filled(PurgedTables(), "doomed")


@pytest.mark.parametrize("after", [False, True])
def test_an_executor_is_killed_once_at_one_call(server: StoreServer, bench: PurgedTables, *, after: bool) -> None:
    one, other = sorted(key for _, key in bench.lake.objects)[:2]
    switch = Switch(Call(EXECUTOR, "delete", f"lake {other}", 1), after=after)
    store = server.resources(bench.context("doomed", faults=switch)).store(identifier("doomed"))
    assert store.delete("lake", [one]).deleted == (one,)
    with pytest.raises(SystemExit):
        store.delete("lake", [other])
    assert (("lake", other) in bench.lake.objects) is not after
    assert store.delete("lake", [other]).deleted == (other,)
    assert [call.nth for call in switch.made] == [1, 1, 2]


def test_calls_of_a_killed_driver_fail_and_calls_of_executors_do_not(server: StoreServer, bench: PurgedTables) -> None:
    switch = Switch(Call(DRIVER, "plan put", "", 1))
    ctx = bench.context("doomed", faults=switch)
    plans = server.resources(ctx).plans()
    plans.put("a", b"1")
    for _ in range(2):
        with pytest.raises(Killed):
            ctx.plans.put("b", b"2")
    assert list(plans.keys("")) == ["a"]
    assert plans.get("a") == b"1"


def test_an_error_of_a_store_is_raised_in_the_executor(server: StoreServer, bench: PurgedTables) -> None:
    store = server.resources(bench.context("doomed")).store(identifier("doomed"))
    with pytest.raises(ObjectNotFound):
        store.read(parse("s3://lake/none"), limit=1)
    assert store.exists(parse(bench.lake.pointers["doomed"]))
    assert store.probe_delete("s3://lake/wh") is None
    assert store.versioned("lake") is False


def test_executors_with_a_former_plan_store_are_killed(server: StoreServer, bench: PurgedTables) -> None:
    former = server.resources(bench.context("doomed")).plans()
    server.resources(bench.context("doomed")).plans().put("a", b"1")
    assert former.get("a") == b"1"
    server.resources(PurgedTables(lake=bench.lake).context("doomed"))
    with pytest.raises(SystemExit):
        former.get("a")
