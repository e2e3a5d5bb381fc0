"""Unfinished tasks whose records cannot be read: which removals of orphan files they hold."""

import json
from collections.abc import Collection, Mapping

import pytest

from delegation.removal.orphans import claims
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Status, Task
from delegation.tasks.stores import codec
from tests.kit.lakes.lake import busy_table, filled
from tests.kit.worlds.sweeping import SweepingWorld


@pytest.fixture
def world() -> SweepingWorld:
    return filled(SweepingWorld(), "t")


def damaged(world: SweepingWorld, task_id: str, **fields: object) -> None:
    """Have a record be unreadable, with other values for some of its stored fields, in its first version too."""
    head = world.tasks.reads.get(task_id)
    error = MalformedRecord("format: 2 is not 1", {**codec.head_item(head), "format": 2, **fields})
    many, one, version = world.store.get_many, world.store.get, world.store.get_version

    def get_many(ids: Collection[str]) -> Mapping[str, Task]:
        if task_id in ids:
            raise error
        return many(ids)

    def get(asked: str) -> Task | None:
        if asked == task_id:
            raise error
        return one(asked)

    def get_version(asked: str, number: int) -> Task | None:
        if asked == task_id and fields:
            raise error
        return version(asked, number)

    world.store.get_many, world.store.get, world.store.get_version = get_many, get, get_version  # type: ignore[method-assign]


def unfinished(world: SweepingWorld, name: str = "u") -> str:
    busy_table(world.lake, name)
    task_id = world.submit(world.body(name)).task_id
    world.queue.sent.clear()
    return str(task_id)


def elsewhere(world: SweepingWorld, task_id: str, location: str = "s3://lake/wh/elsewhere") -> str:
    """Return the payload of a task for a table of another catalog."""
    document = json.loads(world.tasks.reads.get(task_id).task_payload)
    document["operation_parameters"]["table_identity"]["catalog_name"] = "other"
    document["operation_parameters"]["metadata"]["location"] = location
    return json.dumps(document)


def test_an_unfinished_task_that_cannot_be_read_holds_the_removals_of_its_catalog(world: SweepingWorld) -> None:
    """It held those of all, with MALFORMED_RECORD."""
    task_id = unfinished(world)
    damaged(world, task_id)
    planted = world.plant("data/a.parquet")
    task = world.ask()
    assert task.error_code == "CLAIM_UNKNOWN"
    assert task_id in task.result_summary
    assert planted <= world.files()


def test_it_holds_none_of_another_catalog(world: SweepingWorld) -> None:
    task_id = unfinished(world)
    damaged(world, task_id, task_payload=elsewhere(world, task_id))
    planted = world.plant("data/a.parquet")
    assert world.ask().status is Status.SUCCESS
    assert not planted & world.files()


@pytest.mark.parametrize("location", ["s3://lake/wh/t", "s3://lake/wh", "s3://lake/wh/t/below"])
def test_it_holds_one_at_its_location_in_whatever_catalog(world: SweepingWorld, location: str) -> None:
    task_id = unfinished(world)
    damaged(world, task_id, task_payload=elsewhere(world, task_id, location))
    planted = world.plant("data/a.parquet")
    assert world.ask().error_code == "CLAIM_UNKNOWN"
    assert planted <= world.files()


@pytest.mark.parametrize("payload", ["", "[]", "{", None, 7, '{"operation_parameters": {}}'])
def test_one_whose_catalog_is_not_known_either_holds_all(world: SweepingWorld, payload: object) -> None:
    damaged(world, unfinished(world), task_payload=payload)
    assert world.ask().error_code == "CLAIM_UNKNOWN"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"task_type": "ORPHAN_FILES"}, None),
        ({"task_payload": '{"version": 9}'}, None),
        ({"task_payload": '{"version": 9}', "plan_segments": [{"id": "x"}]}, "CLAIM_UNKNOWN"),
        ({"task_payload": '{"version": 9}', "plan_segments": None}, "CLAIM_UNKNOWN"),
    ],
)
def test_maintenance_and_removals_that_cannot_be_read_hold_none(
    world: SweepingWorld, fields: dict[str, object], code: str | None
) -> None:
    damaged(world, unfinished(world), **fields)
    assert world.ask().error_code == code


def test_the_first_version_of_a_record_shows_the_table_that_its_head_does_not(world: SweepingWorld) -> None:
    task_id = unfinished(world)
    head = world.tasks.reads.get(task_id)
    error = MalformedRecord("an object is missing")
    found = claims._payload(world.tasks, task_id, error.stored)
    assert found == head.task_payload


def test_details_of_a_plan_that_cannot_be_read_hold_the_removals_of_the_catalog(world: SweepingWorld) -> None:
    task_id = unfinished(world)
    world.tasks.writes.change(task_id, lambda task, _now: task.with_details({"plan_segments": "garbage"}))
    assert world.ask().error_code == "CLAIM_UNKNOWN"
