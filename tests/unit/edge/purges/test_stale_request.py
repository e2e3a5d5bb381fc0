"""What a caller states about a table, compared with what the catalog has at the purge's first load."""

import json
from dataclasses import replace
from typing import Any

import pytest

from delegation.edge.answers import ApiResponse
from delegation.removal.purge.task_type import PurgeDetails
from delegation.tasks.life.model import Status
from tests.kit.lakes.lake import busy_table, filled, rows
from tests.kit.worlds.service import World
from tests.unit.edge.requests import changed

PARAMETERS = "operation_parameters"


@pytest.fixture
def world() -> World:
    return filled(World(), "orders")


def ours(world: World) -> set[str]:
    return world.lake.below("s3://lake/wh/orders/")


def commit(world: World) -> None:
    world.lake.table("orders").append(rows(9))


def error_of(answer: ApiResponse) -> dict[str, Any]:
    assert answer.status == 409
    return dict(json.loads(answer.body))


@pytest.mark.parametrize("load", [0, 1, 2, 3])
def test_a_purge_raced_by_a_commit_stays_purged_when_it_is_asked_again(world: World, load: int) -> None:
    body = world.body("orders")
    if load:
        world.tables.after_load[load] = lambda: commit(world)
    else:
        commit(world)
    first = world.execute(body, "k1")
    assert (first.status, ours(world)) == (200, set())
    again = world.execute(body, "k2")
    assert (again.status, again.body) == (200, first.body)
    assert world.tasks.reads.get(first.task_id).status is Status.SUCCESS


def test_a_caller_with_any_state_that_was_purged_gets_the_success(world: World) -> None:
    bodies = [world.body("orders")]
    for _ in range(3):
        commit(world)
        bodies.append(world.body("orders"))
    first = world.execute(bodies[1])
    del world.lake.pointers["orders"]
    assert [world.execute(body).body for body in bodies] == [first.body] * 4


def test_a_known_key_is_answered_before_any_load(world: World) -> None:
    body = world.body("orders")
    first = world.execute(body, "k1")
    loads = world.tables.loads
    busy_table(world.lake, "orders")
    assert world.execute(body, "k1").body == first.body
    assert world.tables.loads == loads


def test_older_metadata_and_an_older_format_version_are_merely_stale(world: World) -> None:
    body = changed(world.body("orders"), f"{PARAMETERS}/metadata/format-version", 1)
    commit(world)
    assert world.execute(body).status == 200
    assert ours(world) == set()


def test_another_location_is_refused_with_both(world: World) -> None:
    before = set(world.lake.uris())
    body = changed(world.body("orders"), f"{PARAMETERS}/metadata/location", "s3://lake/wh/invoices")
    error = error_of(world.execute(body))
    assert error["error_code"] == "TABLE_STATE_MISMATCH"
    assert "s3://lake/wh/invoices" in error["message"]
    assert "s3://lake/wh/orders" in error["message"]
    assert set(world.lake.uris()) == before


def test_a_metadata_location_that_the_table_never_had_is_refused_with_both(world: World) -> None:
    before = set(world.lake.uris())
    unknown = "s3://lake/wh/orders/metadata/00099-none.metadata.json"
    error = error_of(world.execute(changed(world.body("orders"), f"{PARAMETERS}/metadata_location", unknown)))
    assert error["error_code"] == "TABLE_STATE_MISMATCH"
    assert unknown in error["message"]
    assert world.lake.pointers["orders"] in error["message"]
    assert set(world.lake.uris()) == before


def test_a_newer_format_version_than_the_catalogs_is_refused(world: World) -> None:
    error = error_of(world.execute(changed(world.body("orders"), f"{PARAMETERS}/metadata/format-version", 3)))
    assert error["error_code"] == "TABLE_STATE_MISMATCH"
    assert "format-version" in error["message"]


def test_another_uuid_is_refused_with_both(world: World) -> None:
    other = "11111111-2222-3333-4444-555555555555"
    mine = str(world.lake.metadata("orders")["table-uuid"])
    error = error_of(world.execute(changed(world.body("orders"), f"{PARAMETERS}/metadata/table-uuid", other)))
    assert error["error_code"] == "TABLE_UUID_MISMATCH"
    assert other in error["message"]
    assert mine in error["message"]


@pytest.mark.parametrize("spelled", ["s3a://lake/wh/orders", "s3://lake/wh/orders/"])
def test_another_spelling_of_the_location_is_the_same(world: World, spelled: str) -> None:
    body = changed(world.body("orders"), f"{PARAMETERS}/metadata/location", spelled)
    assert world.execute(body).status == 200


def test_a_table_that_kept_its_metadata_file_is_purged_when_it_is_asked_again(world: World) -> None:
    world.lake.pointers["clone"] = world.lake.pointers["orders"]
    body = world.body("orders")
    first = world.execute(body)
    assert first.status == 200
    del world.lake.pointers["clone"]
    assert ours(world)
    assert world.execute(body).status == 200
    assert ours(world) == set()


def test_another_table_of_the_name_is_purged_too(world: World) -> None:
    world.execute(world.body("orders"))
    busy_table(world.lake, "orders")
    assert world.execute(world.body("orders")).status == 200
    assert ours(world) == set()


def test_a_resumed_purge_compares_nothing_again(world: World) -> None:
    """After the first delete the plan decides; a commit that changed the location must not block its end."""
    body = world.body("orders")
    world.objects._denied = (world.lake.pointers["orders"],)
    first = world.execute(body)
    assert first.status == 500
    world.objects._denied = ()
    task = world.tasks.reads.get(first.task_id)
    assert PurgeDetails.of(task).plan_segments
    world.become(replace(world.behavior))
    assert world.execute(body).status == 200
