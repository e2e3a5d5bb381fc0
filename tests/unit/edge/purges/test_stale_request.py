"""What a caller states about a table, compared with what the catalog has at the purge's first load."""

import json
from dataclasses import replace
from typing import Any

import pytest

from delegation.removal.purge.task_type import PurgeDetails
from delegation.tasks.life.model import Status
from tests.kit.lakes.lake import rows
from tests.kit.worlds.service import World
from tests.unit.edge.requests import changed

PARAMETERS = "operation_parameters"


def ours(world: World) -> set[str]:
    return world.lake.below("s3://lake/wh/orders/")


def commit(world: World) -> None:
    world.lake.table("orders").append(rows(9))


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


def test_older_metadata_and_an_older_format_version_are_merely_stale(world: World) -> None:
    body = changed(world.body("orders"), f"{PARAMETERS}/metadata/format-version", 1)
    commit(world)
    assert world.execute(body).status == 200
    assert ours(world) == set()


@pytest.mark.parametrize(
    ("place", "stated", "code", "mine"),
    [
        ("metadata/location", "s3://lake/wh/invoices", "TABLE_STATE_MISMATCH", "s3://lake/wh/orders"),
        (
            "metadata_location",
            "s3://lake/wh/orders/metadata/00099-none.metadata.json",
            "TABLE_STATE_MISMATCH",
            "metadata.json",
        ),
        ("metadata/format-version", 3, "TABLE_STATE_MISMATCH", "format-version"),
        ("metadata/table-uuid", "11111111-2222-3333-4444-555555555555", "TABLE_UUID_MISMATCH", ""),
    ],
    ids=["location", "metadata file", "newer format version", "uuid"],
)
def test_what_the_table_never_was_is_refused(world: World, place: str, stated: Any, code: str, mine: str) -> None:
    before = set(world.lake.uris())
    own = mine or str(world.lake.metadata("orders")["table-uuid"])
    answer = world.execute(changed(world.body("orders"), f"{PARAMETERS}/{place}", stated))
    error = json.loads(answer.body)
    assert (answer.status, error["error_code"]) == (409, code)
    assert str(stated) in error["message"]
    assert own in error["message"].replace(str(stated), "")
    assert set(world.lake.uris()) == before


@pytest.mark.parametrize("spelled", ["s3a://lake/wh/orders", "s3://lake/wh/orders/"])
def test_another_spelling_of_the_location_is_the_same(world: World, spelled: str) -> None:
    body = changed(world.body("orders"), f"{PARAMETERS}/metadata/location", spelled)
    assert world.execute(body).status == 200


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
