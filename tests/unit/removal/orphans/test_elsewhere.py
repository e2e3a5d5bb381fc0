"""A removal looks beside a table's location only where the operator allows it, and deletes nothing that is needed."""

from typing import Any

import pytest

from delegation.errors import GuardRefused
from delegation.references.errors import ReferencesNotKnown
from delegation.removal.orphans.details import ApprovalLimits
from delegation.removal.orphans.errors import LocationShared
from delegation.removal.orphans.place import Place
from delegation.removal.orphans.run import remove_orphan_files
from tests.kit.errors import coded
from tests.kit.stories.orphans import SweptTables
from tests.kit.stories.tables import StoryTable

HERE = "s3://lake/wh/t/data/old.parquet"
ELSEWHERE = "s3://lake/elsewhere/t/"
THERE = f"{ELSEWHERE}old.parquet"
ALLOWED = ("s3://lake/elsewhere/",)
WHERE: dict[str, Any] = {"location": ELSEWHERE, "locations": ALLOWED}


def beach() -> tuple[SweptTables, StoryTable, str]:
    """Return a table that wrote one of its files elsewhere, with an orphan file there and one at its location."""
    world = SweptTables()
    table = world.table(**{"write.data.path": ELSEWHERE})
    mine = world.lake.put(f"{ELSEWHERE}mine.parquet")
    table.append(paths=[mine])
    world.orphan(HERE)
    world.orphan(THERE)
    world.lake.pass_days(4)
    return world, table, mine


def test_only_the_place_named_in_the_request_is_searched() -> None:
    world, table, mine = beach()
    result = world.sweep(table, **WHERE)
    assert (result.location, result.files_listed, result.files_deleted) == (ELSEWHERE, 2, 1)
    assert THERE not in world.lake.uris()
    assert {HERE, mine} <= world.lake.uris()
    assert not world.missing()
    assert world.sweep(table).location == "s3://lake/wh/t/"
    assert HERE not in world.lake.uris()


def test_a_write_path_alone_is_not_searched() -> None:
    world, table, _ = beach()
    assert world.sweep(table, locations=ALLOWED).files_deleted == 1
    assert THERE in world.lake.uris()


def test_each_place_has_a_first_run_of_its_own() -> None:
    world, table, _ = beach()
    assert world.sweep(table, limits=ApprovalLimits(max_share=1.0)).waits == "first-run"
    assert world.sweep(table, limits=ApprovalLimits(max_share=1.0), **WHERE).waits == "first-run"
    assert {HERE, THERE} <= world.lake.uris()


def test_files_that_another_table_has_there_stay() -> None:
    """Two tables may write to one place; a job of the other one committed its file between listing and plan."""
    world, table, mine = beach()
    ctx = world.context(table, **WHERE)
    world.passes.late = 1
    with pytest.raises(ReferencesNotKnown):
        remove_orphan_files(ctx)
    other = StoryTable.create(world.lake, "other", **{"write.data.path": ELSEWHERE})
    other.append(paths=[THERE])
    assert remove_orphan_files(world.context(table, **WHERE)).status == "NOTHING"
    assert {THERE, mine} <= world.lake.uris()
    assert not world.missing()


@pytest.mark.parametrize(
    "place",
    [
        Place("view", "cat.ns.v", f"{ELSEWHERE}v"),
        Place("namespace", "cat.deep", ELSEWHERE),
        Place("table of another format", "cat.ns.d", "s3a://lake/elsewhere"),
    ],
    ids=lambda one: one.kind,
)
def test_a_place_that_something_else_has_is_refused(place: Place) -> None:
    world, table, _ = beach()
    world.places.append(place)
    with pytest.raises(LocationShared):
        world.sweep(table, **WHERE)
    assert THERE in world.lake.uris()


def test_a_table_that_is_there_by_the_second_comparison_refuses() -> None:
    world, table, _ = beach()
    waiting = world.sweep(table, limits=ApprovalLimits(), **WHERE)
    other = StoryTable.create(world.lake, "other")
    other.apply({"action": "set-location", "location": f"{ELSEWHERE}other"})
    with pytest.raises(LocationShared, match=r"cat\.ns\.other"):
        world.sweep(table, execute_plan=waiting.plan_ids[-1], locations=ALLOWED)
    assert THERE in world.lake.uris()


def test_a_plan_for_a_place_that_is_not_allowed_any_more_deletes_nothing() -> None:
    world, table, _ = beach()
    waiting = world.sweep(table, limits=ApprovalLimits(), **WHERE)
    with pytest.raises(GuardRefused, check=coded("LOCATION_NOT_ALLOWED"), match="nor below one of"):
        world.sweep(table, execute_plan=waiting.plan_ids[-1], locations=("s3://lake/elsewhere2/",))
    assert THERE in world.lake.uris()
    done = world.sweep(table, execute_plan=waiting.plan_ids[-1], locations=ALLOWED)
    assert (done.status, done.files_deleted) == ("SWEPT", 1)


def test_a_plan_for_a_place_elsewhere_is_executed_after_the_table_moved() -> None:
    world, table, mine = beach()
    waiting = world.sweep(table, limits=ApprovalLimits(), **WHERE)
    table.apply({"action": "set-location", "location": "s3://lake/wh/moved"})
    assert world.sweep(table, execute_plan=waiting.plan_ids[-1], locations=ALLOWED).files_deleted == 1
    assert mine in world.lake.uris()
    assert not world.missing()


def test_a_plan_for_the_location_is_not_executed_after_the_table_moved_even_where_the_place_is_allowed() -> None:
    """Nobody asked for that place: the plan was made for wherever the table is."""
    world, table, _ = beach()
    waiting = world.sweep(table, limits=ApprovalLimits())
    table.apply({"action": "set-location", "location": "s3://lake/wh/moved"})
    with pytest.raises(GuardRefused, check=coded("PLAN_OF_ANOTHER_TABLE"), match="moved"):
        world.sweep(table, execute_plan=waiting.plan_ids[-1], locations=("s3://lake/wh/t/",))
    assert HERE in world.lake.uris()
