"""A plan that is lost after the first delete: the same request, or an operator's retry, plans and deletes the rest."""

import json
from datetime import timedelta
from typing import Any

import pytest

from delegation.removal.purge.task_type import PurgeDetails
from delegation.tasks.life.model import Status, Task
from tests.kit.lakes.lake import filled
from tests.kit.worlds.service import World


@pytest.fixture
def world() -> World:
    return filled(World(), "orders", "customers")


def half_deleted(world: World, *, at: int) -> Task:
    """Purge a table until a store refuses its nth delete, for reasons that an operator has to mend."""
    usual, calls = world.objects.delete, iter(range(1, 1000))

    def delete(bucket: str, keys: Any) -> Any:
        world.objects._denied = ("s3://lake/wh/orders/",) if next(calls) >= at else ()
        return usual(bucket, keys)

    world.objects.delete = delete  # type: ignore[method-assign]
    accepted = world.submit(world.body("orders"))
    world.drive()
    world.objects.delete, world.objects._denied = usual, ()  # type: ignore[method-assign]
    return world.tasks.reads.get(accepted.task_id)


def lose(world: World, task: Task) -> None:
    for key in [key for key in world.plans.objects if key.startswith(f"{task.task_id}/")]:
        del world.plans.objects[key]


@pytest.mark.parametrize("at", range(2, 12))
def test_the_same_request_ends_the_purge_whose_plan_is_lost(world: World, at: int) -> None:
    customers = world.lake.below("s3://lake/wh/customers/")
    failed = half_deleted(world, at=at)
    assert (failed.status, failed.is_left_partly_done) == (Status.FAILURE, True)
    before = PurgeDetails.of(failed)
    lose(world, failed)
    accepted = world.submit(world.body("orders"))
    world.drive()
    task = world.tasks.reads.get(accepted.task_id)
    assert (task.task_id, task.status, task.error_code) == (failed.task_id, Status.SUCCESS, None)
    assert world.lake.below("s3://lake/wh/orders/") == set()
    assert world.lake.below("s3://lake/wh/customers/") == customers
    details = PurgeDetails.of(task)
    assert [(one.code, one.count) for one in details.findings] == [("REPLANNED", 1)]
    assert details.plan_segments != before.plan_segments
    [receipt] = [json.loads(data) for key, data in world.plans.objects.items() if key.endswith("receipt.json")]
    assert receipt["findings"] == [{"code": "REPLANNED", "count": 1, "sample": [before.plan_segments[0].id]}]


def test_the_head_records_which_steps_are_deleted_before_the_next_begins() -> None:
    recorded: list[tuple[str, ...]] = []
    for at in range(2, 12):
        world = filled(World(), "orders")
        done = PurgeDetails.of(half_deleted(world, at=at)).steps_done
        recorded.append(() if done is None else done.steps)
    assert list(dict.fromkeys(recorded)) == [(), ("DATA",), ("DATA", "META")]


def test_a_plan_altered_after_the_first_delete_stays_refused(world: World) -> None:
    failed = half_deleted(world, at=3)
    [segment] = PurgeDetails.of(failed).plan_segments
    index = f"{segment.id}/index.json"
    world.plans.objects[index] = world.plans.objects[index].replace(b'"keep"', b'"delete"').replace(b"{", b"{ ", 1)
    left = world.lake.below("s3://lake/wh/orders/")
    for _ in range(2):
        accepted = world.submit(world.body("orders"))
        world.drive()
        task = world.tasks.reads.get(accepted.task_id)
        assert (task.status, task.error_code) == (Status.FAILURE, "PLAN_TAMPERED")
        world.clock.advance(timedelta(hours=2))
    assert world.lake.below("s3://lake/wh/orders/") == left
