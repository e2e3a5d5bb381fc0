"""A purge killed before or after any call to a store, the catalog or the task leaves nothing when it runs again."""

import contextlib
import itertools
from dataclasses import replace

import pytest

from delegation.removal.purge.requests import PurgeSettings
from delegation.removal.purge.run import purge_table
from delegation.storage.memory import Faults, Killed
from tests.effort import apart
from tests.kit.lakes.lake import FAST, Lake, PurgedTables, busy_table, rows


@pytest.fixture(scope="module")
def world() -> Lake:
    lake = Lake()
    busy_table(lake, "doomed")
    busy_table(lake, "sibling")
    return lake


def fresh(world: Lake) -> PurgedTables:
    return PurgedTables.of(world, "doomed")


def calls_of_a_purge(world: Lake) -> Faults:
    faults = Faults()
    purge_table(fresh(world).context("doomed", faults=faults))
    return faults


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_call_and_run_again(world: Lake, after: bool) -> None:
    total = calls_of_a_purge(world).calls
    assert total > 60
    for number in range(1, total + 1):
        bench = fresh(world)
        doomed = bench.left("doomed")
        with pytest.raises(Killed):
            purge_table(bench.context("doomed", faults=Faults(kill_at=number, after=after)))
        result = purge_table(bench.context("doomed"))
        assert set(bench.lake.uris()) == world.below("s3://lake/wh/sibling/"), f"killed at call {number}"
        assert (result.status, result.files_deleted) == ("PURGED", len(doomed)), f"killed at call {number}"


def test_killed_twice_in_a_row(world: Lake) -> None:
    for number in range(1, calls_of_a_purge(world).calls + 1, 3):
        bench = fresh(world)
        for kill_at in (number, max(1, number // 2)):
            with contextlib.suppress(Killed):
                purge_table(bench.context("doomed", faults=Faults(kill_at=kill_at, after=True)))
        purge_table(bench.context("doomed"))
        assert set(bench.lake.uris()) == world.below("s3://lake/wh/sibling/"), f"killed at call {number}"


@pytest.mark.parametrize("number", [30, 45, 50, 55, 60, 70])
def test_killed_in_one_of_several_threads(world: Lake, number: int) -> None:
    settings = PurgeSettings(chunk_paths=8, read_threads=3, delete=replace(FAST, threads=4, batch=2))
    bench = fresh(world)
    with contextlib.suppress(Killed):
        purge_table(bench.context("doomed", settings=settings, faults=Faults(kill_at=number, after=True)))
    result = purge_table(bench.context("doomed", settings=settings))
    assert bench.left("doomed") == set()
    assert result.files_deleted == len(world.below("s3://lake/wh/doomed/"))


def test_resuming_reads_no_manifest_again(world: Lake) -> None:
    bench, second = fresh(world), Faults()
    first_delete = calls_of_a_purge(world).names.index("delete") + 1
    with pytest.raises(Killed):
        purge_table(bench.context("doomed", faults=Faults(kill_at=first_delete + 1)))
    purge_table(bench.context("doomed", faults=second))
    assert "read" not in second.names


@pytest.mark.parametrize("moment", range(1, 6))
def test_a_commit_before_any_load_is_purged_too(world: Lake, moment: int) -> None:
    """Loads are to plan, before DATA, META and ROOT, and after ROOT; a writer commits just before one of them."""
    bench = fresh(world)
    ctx = bench.context("doomed")
    writer = bench.lake.table("doomed")

    def commit() -> None:
        # After its first manifest is deleted a writer cannot append, but it can still commit metadata.
        if moment <= 3:
            writer.append(rows(9, part="z"))
        else:
            writer.transaction().set_properties(a="b").commit_transaction()

    bench.on_load(ctx, moment, commit)
    result = purge_table(ctx)
    assert set(bench.lake.uris()) == world.below("s3://lake/wh/sibling/")
    assert len(result.plan_ids) == (1 if moment == 1 else 2)
    assert result.metadata_location == bench.lake.pointers["doomed"]


def test_killed_anywhere_while_a_commit_extends_the_plan(world: Lake) -> None:
    """At every third call, and at each in a thorough run."""
    for number in itertools.count(1, apart(3)):
        bench = fresh(world)
        ctx = bench.context("doomed", faults=Faults(kill_at=number))
        writer = bench.lake.table("doomed")
        bench.on_load(ctx, 3, lambda writer=writer: writer.append(rows(9, part="z")))
        killed = True
        try:
            purge_table(ctx)
            killed = False
        except Killed:
            purge_table(bench.context("doomed"))
        assert set(bench.lake.uris()) == world.below("s3://lake/wh/sibling/"), f"killed at call {number}"
        if not killed:
            break
    assert number > 90
