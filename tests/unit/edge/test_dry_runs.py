"""A dry run is never answered as a purge, and its id is computed, so that an approved plan is found again."""

import json
import uuid
from datetime import timedelta

import pytest
import rfc8785

from delegation.edge.answers import problem_of
from delegation.idempotency.keys import KeyConflict
from delegation.removal.purge.requests import options_of
from delegation.removal.purge.task_type import PurgeDetails
from delegation.storage.base import ObjectStoreUnavailable
from delegation.tasks.life.model import Status
from polaris_common.errors import DelegationError
from tests.kit.lakes.lake import filled, rows
from tests.kit.worlds.service import REALM, World

DRY = {"dry-run": "true"}


@pytest.fixture
def world() -> World:
    return filled(World(), "orders", "customers")


def plan_of(world: World, task_id: str) -> str:
    return PurgeDetails.of(world.tasks.reads.get(task_id)).plan_segments[0].id


@pytest.mark.parametrize("key", ["k1", None])
def test_a_dry_run_on_the_synchronous_endpoint_is_a_bad_request(world: World, key: str | None) -> None:
    with pytest.raises(DelegationError) as refused:
        world.execute(world.body("orders", **DRY), key=key)
    problem = problem_of(refused.value)
    assert (problem.status, problem.error) == (400, "INVALID_REQUEST")
    message = json.loads(problem.body)["message"]
    assert message.startswith("operation_parameters.properties.dry-run: ")
    assert "POST /v1/tasks" in message
    assert world.store.heads().tasks == ()


def test_the_same_dry_run_attaches_while_it_runs_and_is_replayed_after_it(world: World) -> None:
    first = world.submit(world.body("orders", **DRY))
    assert world.submit(world.body("orders", **DRY), key="k1").task_id == first.task_id
    world.drive()
    versions = world.statuses(first.task_id)
    again = world.submit(world.body("orders", **DRY), key="k2")
    assert (again.task_id, again.kind) == (first.task_id, "attached")
    assert world.statuses(first.task_id) == versions
    assert world.queue.sent == []


def test_a_dry_run_with_a_key_is_replayed_and_its_key_is_of_no_use_for_the_purge(world: World) -> None:
    first = world.submit(world.body("orders", **DRY), key="k1")
    world.drive()
    again = world.submit(world.body("orders", **DRY), key="k1")
    assert (again.kind, again.status, again.body) == ("replayed", first.status, first.body)
    with pytest.raises(KeyConflict):
        world.submit(world.body("orders"), key="k1")
    assert len(world.store.heads().tasks) == 1


def test_the_id_of_a_dry_run_is_the_hash_of_what_it_plans(world: World) -> None:
    table_uuid = str(world.lake.metadata("orders")["table-uuid"])
    location, options = world.lake.pointers["orders"], options_of(DRY, world.behavior.limits).recorded()
    parts = [REALM, "TABLE_PURGE_PLAN", "cat", table_uuid.lower(), ["cat", "ns", "orders"], location, options]
    name = f"polaris-delegation:{rfc8785.dumps(parts).decode()}"
    accepted = world.submit(world.body("orders", **DRY))
    assert accepted.task_id == str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def test_a_dry_run_by_identity_and_one_with_the_loaded_table_are_the_same(world: World) -> None:
    assert world.submit(world.identity("orders", **DRY)).task_id == world.submit(world.body("orders", **DRY)).task_id


def test_a_commit_gives_another_id_and_the_approved_plan_is_still_found(world: World) -> None:
    approved = world.submit(world.identity("orders", **DRY))
    earlier = world.body("orders", **DRY)
    world.drive()
    plan = plan_of(world, approved.task_id)
    world.lake.table("orders").append(rows(77))
    newer = world.submit(world.identity("orders", **DRY))
    assert newer.task_id != approved.task_id
    world.drive()
    assert world.submit(earlier).task_id == approved.task_id
    assert plan_of(world, approved.task_id) == plan


def test_a_dry_run_that_failed_is_planned_again_under_its_id(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = world.submit(world.body("orders", **DRY))

    def fail(*_location: object, **_limit: object) -> bytes:
        raise ObjectStoreUnavailable("the store is away")

    monkeypatch.setattr(world.objects, "read", fail)
    for _ in range(12):
        world.drive()
        world.clock.advance(timedelta(hours=2))
        world.sweep()
    assert world.tasks.reads.get(first.task_id).status is Status.FAILURE
    monkeypatch.undo()
    assert world.submit(world.body("orders", **DRY)).task_id == first.task_id
    world.drive()
    assert world.tasks.reads.get(first.task_id).status is Status.SUCCESS
