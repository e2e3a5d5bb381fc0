"""What a purge keeps only for a live table is taken over by the later purge of that table (issue 24, line 11)."""

import contextlib
import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import pytest

from delegation.removal.errors import PlanTampered
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.purge.context import PurgeContext, PurgeResult
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.task_type import DROP, PURGE
from delegation.storage.memory import Faults, Killed
from delegation.tasks.life.declared import TaskType
from tests.kit.lakes.lake import Lake, PurgedTables, codes, kept, neighbour, rows
from tests.unit.removal.purge.planning.executors_here import ENGINES, engines

STRICT = PurgeOptions(outside="refuse")
ALL = ("s3://lake/",)


def data_files(lake: Lake, name: str) -> set[str]:
    return {uri for uri in lake.below(f"s3://lake/wh/{name}/") if uri.endswith(".parquet")}


def table(lake: Lake, name: str) -> None:
    lake.create(name).append(rows(1, 2))


def borrow(lake: Lake, borrower: str, lender: str) -> set[str]:
    found = data_files(lake, lender)
    lake.table(borrower).add_files(sorted(found))
    return found


@pytest.fixture(scope="module")
def world() -> Lake:
    """Two tables with files of their own that borrow from each other."""
    lake = Lake()
    table(lake, "a")
    table(lake, "b")
    mine, theirs = data_files(lake, "a"), data_files(lake, "b")
    lake.table("a").add_files(sorted(theirs))
    lake.table("b").add_files(sorted(mine))
    return lake


class Purges:
    """Purges of several tables of a lake, each beside all others that the catalog has, over one plan bucket."""

    def __init__(self, world: Lake) -> None:
        self.lake = world.copy()
        self.benches: dict[str, PurgedTables] = {}
        self.plans = PurgedTables().plans

    def context(self, name: str, *, covered: Sequence[str] | None = None, faults: Faults | None = None) -> PurgeContext:
        bench = self.benches.setdefault(name, PurgedTables(lake=self.lake, plans=self.plans))
        prefixes = None if covered is None else tuple(covered)
        ctx = bench.context(name, options=STRICT, prefixes=prefixes, faults=faults, task_id=f"task-{name}")

        def others(_roots: Any) -> list[Neighbour]:
            return [neighbour(self.lake, other, certain=True) for other in self.lake.pointers if other != name]

        return dataclasses.replace(ctx, neighbours=others)

    def purge(self, engine: str, name: str, **how: Any) -> PurgeResult:
        """Purge a table as the service does, and drop it."""
        result = ENGINES[engine](self.context(name, **how))
        del self.lake.pointers[name]
        return result

    def left(self) -> set[str]:
        return set(self.lake.uris())


@engines
def test_nothing_stays_of_two_tables_that_borrow_from_each_other(world: Lake, engine: str) -> None:
    purges = Purges(world)
    lent = data_files(purges.lake, "a")
    first = purges.purge(engine, "a")
    assert codes(first) == {"FILES_SHARED": 2}
    assert data_files(purges.lake, "a") == lent
    second = purges.purge(engine, "b", covered=ALL)
    assert codes(second) == {}
    assert purges.left() == set()


@engines
@pytest.mark.parametrize("kind", [PURGE, DROP], ids=lambda kind: kind.name)
def test_a_job_run_may_write_all_that_its_purge_records(world: Lake, engine: str, kind: TaskType) -> None:
    """The policy of a job run allows the folders of its task and of its task type alone."""
    purges = Purges(world)
    purges.purge(engine, "a")
    written = {key.partition("/")[0] for key in purges.plans.objects}
    assert "kept" in written
    assert written <= {"task-a", *kind.folders}


@engines
def test_what_the_credentials_do_not_cover_is_kept_and_listed_with_the_command_that_finishes(
    world: Lake, engine: str
) -> None:
    purges = Purges(world)
    lent = data_files(purges.lake, "a")
    purges.purge(engine, "a")
    second = purges.purge(engine, "b")
    assert codes(second) == {"NOT_COVERED": len(lent)}
    assert purges.left() == lent
    [plan] = second.plan_ids
    assert {path for path, why in kept(purges.plans, plan).items() if why == "not-covered"} == lent
    command = f"delegation purge memory:{plan}/index.json --not-covered"
    assert json.loads(purges.plans.objects[f"{plan}/receipt.json"])["not_covered"] == second.left_over == command


@engines
def test_a_third_table_keeps_the_files_and_its_purge_deletes_them(world: Lake, engine: str) -> None:
    purges = Purges(world)
    table(purges.lake, "c")
    lent = borrow(purges.lake, "c", "a")
    purges.purge(engine, "a")
    second = purges.purge(engine, "b", covered=ALL)
    assert codes(second) == {"FILES_SHARED": len(lent)}
    assert data_files(purges.lake, "a") == lent
    purges.purge(engine, "c", covered=ALL)
    assert purges.left() == set()


@engines
def test_a_table_that_does_not_reference_the_files_keeps_them_for_those_that_do(world: Lake, engine: str) -> None:
    purges = Purges(world)
    table(purges.lake, "near")
    lent = data_files(purges.lake, "a")
    purges.purge(engine, "a")
    purges.purge(engine, "near", covered=ALL)
    assert data_files(purges.lake, "a") == lent
    purges.purge(engine, "b", covered=ALL)
    assert purges.left() == set()


def test_a_table_that_was_made_at_the_old_location_meanwhile_loses_nothing(world: Lake) -> None:
    purges = Purges(world)
    lent = data_files(purges.lake, "a")
    purges.purge("inline", "a")
    purges.lake.create("again", location="s3://lake/wh/a").append(rows(7))
    again = purges.lake.below("s3://lake/wh/a/") - lent
    second = purges.purge("inline", "b", covered=ALL)
    assert codes(second) == {"FILES_AT_ANOTHER_TABLE": len(lent)}
    assert purges.left() == again | lent


def test_a_purge_killed_at_any_call_leaves_the_record(world: Lake) -> None:
    counted = Faults()
    ENGINES["inline"](Purges(world).context("a", faults=counted))
    for number in range(1, counted.calls + 1):
        purges = Purges(world)
        purges.benches["a"] = PurgedTables(lake=purges.lake, plans=purges.plans)
        purges.benches["a"].uuid("a")
        with contextlib.suppress(Killed):
            ENGINES["inline"](purges.context("a", faults=Faults(kill_at=number, after=True)))
        purges.purge("inline", "a")
        purges.purge("inline", "b", covered=ALL)
        assert purges.left() == set(), f"killed at call {number}"


def test_what_was_outside_the_purged_table_is_not_taken_over(world: Lake) -> None:
    """Only what the first purge would have deleted itself: here `a` borrows from a table that nobody purges."""
    purges = Purges(world)
    table(purges.lake, "lender")
    theirs = data_files(purges.lake, "lender")
    for borrower in ("a", "b"):
        purges.lake.table(borrower).add_files(sorted(theirs))
    first = ENGINES["inline"](purges.context("a"))
    del purges.lake.pointers["a"]
    assert codes(first)["FILES_SHARED"] >= len(theirs)
    ENGINES["inline"](purges.context("b", covered=ALL))
    assert data_files(purges.lake, "lender") == theirs


@engines
def test_what_was_kept_because_it_is_damaged_is_not_taken_over(world: Lake, engine: str) -> None:
    """The operator has it kept: the purge of another table must not delete it, nor what only it names."""
    purges = Purges(world)
    manifest = purges.lake.table("a").current_snapshot().manifests(purges.lake.io)[0].manifest_path
    purges.lake.write(manifest, b"no manifest")
    ctx = purges.context("a")
    first = ENGINES[engine](dataclasses.replace(ctx, options=dataclasses.replace(STRICT, damaged="keep")))
    del purges.lake.pointers["a"]
    assert codes(first).keys() == {"MANIFEST_MISMATCH", "FILES_SHARED"}
    purges.purge(engine, "b", covered=ALL)
    assert manifest in purges.left()


@pytest.mark.parametrize("how", ["record", "index", "paths"])
def test_an_altered_record_is_refused(world: Lake, how: str) -> None:
    purges = Purges(world)
    first = purges.purge("inline", "a")
    objects = purges.plans.objects
    [plan] = first.plan_ids
    [key] = {
        "record": [key for key in objects if key.startswith("kept/")],
        "index": [f"{plan}/index.json"],
        "paths": [key for key in objects if key.startswith(f"{plan}/KEPT-")],
    }[how]
    objects[key] = objects[key].replace(b"{", b"[") if how == "record" else objects[key][:-1] + b"?"
    before = purges.left()
    with pytest.raises(PlanTampered):
        purges.purge("inline", "b", covered=ALL)
    assert purges.left() == before
