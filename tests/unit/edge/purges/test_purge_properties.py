"""`operation_parameters.properties`: applied, refused or recorded; and the execution of a dry run's plan."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.edge.answers import failure_status, problem_of
from delegation.edge.errors import BadRequest
from delegation.idempotency.keys import IdempotencyError
from delegation.removal.purge.requests import Limits
from delegation.removal.purge.task_type import PurgeDetails
from delegation.tasks.life.model import Status, Task
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.lakes.lake import filled, rows
from tests.kit.worlds.service import World

STRICT = {
    "outside": "refuse",
    "uncovered": "refuse",
    "shared": "refuse",
    "overlap-scan": "catalog",
    "versioned": "refuse",
    "deleteMarkerFiles": "true",
    "engine": "inline",
    "dry-run": "false",
    "skipTrash": "true",
}


@pytest.fixture
def world() -> World:
    return filled(World(), "orders", "customers")


def ours(world: World) -> set[str]:
    return world.lake.below("s3://lake/wh/orders/")


def run(world: World, **properties: str) -> Task:
    accepted = world.submit(world.body("orders", **properties))
    world.drive()
    return world.tasks.reads.get(accepted.task_id)


def plan_of(world: World) -> str:
    """Make a dry run and return the id of its plan."""
    task = run(world, **{"dry-run": "true"})
    assert task.status is Status.SUCCESS
    return PurgeDetails.of(task).plan_segments[0].id


def test_known_properties_are_applied_and_all_are_recorded(world: World) -> None:
    task = run(world, **STRICT)
    assert task.status is Status.SUCCESS
    assert ours(world) == set()
    assert json.loads(task.task_payload)["operation_parameters"]["properties"] == STRICT
    receipt = json.loads(world.plans.objects[f"{PurgeDetails.of(task).plan_segments[-1].id}/receipt.json"])
    assert receipt["request"]["operation_parameters"]["properties"] == STRICT
    assert "vended" not in json.dumps(receipt)


@pytest.mark.parametrize(
    ("properties", "status", "code", "field"),
    [
        ({"outside": "sweep"}, 400, "INVALID_REQUEST", "properties.outside"),
        ({"skipTrash": "false"}, 400, "INVALID_REQUEST", "properties.skipTrash"),
        ({"deleteMarkerFiles": "yes"}, 400, "INVALID_REQUEST", "properties.deleteMarkerFiles"),
        ({"plan": "../1/ab"}, 400, "INVALID_REQUEST", "properties.plan"),
        ({"outside": "delete"}, 403, "PROPERTY_NOT_ALLOWED", "properties.outside"),
        ({"uncovered": "keep"}, 403, "PROPERTY_NOT_ALLOWED", "properties.uncovered"),
    ],
)
def test_an_invalid_or_forbidden_property_is_refused_before_anything_is_stored(
    world: World, properties: dict[str, str], status: int, code: str, field: str
) -> None:
    with pytest.raises(DelegationError) as refused:
        world.submit(world.body("orders", **properties))
    problem = problem_of(refused.value)
    body = json.loads(problem.body)
    assert (problem.status, body["error_code"]) == (status, code)
    assert body["message"].startswith(f"operation_parameters.{field}: ")
    assert world.store.heads().tasks == ()


@pytest.mark.parametrize("value", [True, 1, None, ["keep"], {"a": "b"}])
def test_a_value_that_is_not_a_string_is_refused(world: World, value: Any) -> None:
    body = world.body("orders")
    body["operation_parameters"]["properties"] = {"outside": value}
    with pytest.raises(BadRequest, match=r"operation_parameters\.properties\.outside: must be a string"):
        world.submit(body)


def test_stricter_settings_also_apply_to_tasks_accepted_before(world: World) -> None:
    world.lake.pointers["clone"] = world.lake.pointers["orders"]
    accepted = world.submit(world.body("orders", shared="subtract"))
    before = set(world.lake.uris())
    stricter = {"delegation.purge.shared": "refuse"}
    world.become(replace(world.behavior, limits=Limits.from_properties(stricter)), stricter)
    world.drive()
    task = world.tasks.reads.get(accepted.task_id)
    assert (task.status, task.error_code) == (Status.FAILURE, "FILES_SHARED")
    assert set(world.lake.uris()) == before


@pytest.mark.parametrize("other", [{}, {"outside": "keep"}, {"shared": "refuse"}])
def test_a_request_with_other_properties_does_not_attach_to_a_purge(world: World, other: dict[str, str]) -> None:
    first = world.submit(world.body("orders", outside="refuse"))
    assert world.submit(world.body("orders", outside="refuse")).task_id == first.task_id
    with pytest.raises(IdempotencyError, check=coded("TASK_EXISTS")) as refused:
        world.submit(world.body("orders", **other))
    assert problem_of(refused.value).status == 409
    assert all(fact in str(refused.value) for fact in (first.task_id, "SUBMITTED", "(outside"))


def test_the_refusal_of_a_clones_purge_names_the_task_that_runs_and_its_table(world: World) -> None:
    world.lake.pointers["clone"] = world.lake.pointers["orders"]
    first = world.submit(world.body("orders"))
    with pytest.raises(IdempotencyError, check=coded("TASK_EXISTS")) as refused:
        world.submit(world.body("clone"))
    answer = problem_of(refused.value)
    body = json.loads(answer.body)
    assert (answer.status, body["error_code"], body["delegation_task_id"]) == (409, "TASK_EXISTS", first.task_id)
    assert all(fact in body["message"] for fact in ("SUBMITTED", "orders", "same table-uuid"))
    world.drive()
    assert world.submit(world.body("clone")).task_id == first.task_id


def test_a_plan_is_executed_by_its_id_a_day_later(world: World) -> None:
    plan = plan_of(world)
    world.clock.advance(timedelta(days=1))
    task = run(world, plan=plan)
    assert (task.status, [one.id for one in PurgeDetails.of(task).plan_segments]) == (Status.SUCCESS, [plan])
    assert ours(world) == set()


def test_a_plan_is_refused_after_a_commit_and_a_new_plan_is_executed(world: World) -> None:
    plan = plan_of(world)
    world.clock.advance(timedelta(days=1))
    world.lake.table("orders").append(rows(77))
    before = set(world.lake.uris())
    task = run(world, plan=plan)
    assert (task.status, task.error_code, task.effects_began_ts) == (Status.FAILURE, "PLAN_OUTDATED", None)
    assert set(world.lake.uris()) == before
    assert sorted(world.lake.table("orders").scan().to_arrow()["id"].to_pylist()) == [3, 5, 6, 77]
    renewed = plan_of(world)
    assert run(world, plan=renewed).status is Status.SUCCESS
    assert ours(world) == set()


def test_a_commit_while_a_plan_is_executed_fails_it_and_a_request_without_it_purges_the_rest(
    world: World,
) -> None:
    plan = plan_of(world)
    writer = world.lake.table("orders")
    world.tables.after_load = {4: lambda: writer.append(rows(77, part="z"))}
    world.tables.loads = 0
    task = run(world, plan=plan)
    assert (task.status, task.error_code) == (Status.FAILURE, "PLAN_OUTDATED")
    assert task.effects_began_ts is not None
    left = ours(world)
    assert world.lake.pointers["orders"] in left
    with pytest.raises(IdempotencyError, check=coded("TASK_EXISTS")):
        world.submit(world.body("orders", outside="refuse"))
    again = run(world)
    assert (again.task_id, again.status) == (task.task_id, Status.SUCCESS)
    assert PurgeDetails.of(again).plan_segments[0].id == plan
    assert ours(world) == set()


def test_a_plan_that_no_task_published_is_refused(world: World) -> None:
    plan = plan_of(world)
    unpublished = plan.rpartition("/")[0] + "/0123456789ab"
    for key in [key for key in world.plans.objects if key.startswith(plan)]:
        world.plans.objects[key.replace(plan, unpublished)] = world.plans.objects[key].replace(b"refuse", b"delete")
    before = set(world.lake.uris())
    task = run(world, plan=unpublished)
    assert (task.status, task.error_code) == (Status.FAILURE, "PLAN_NOT_FOUND")
    assert set(world.lake.uris()) == before


def test_a_plan_of_a_task_that_does_not_exist_is_no_fault_of_the_service(world: World) -> None:
    before = set(world.lake.uris())
    task = run(world, plan="00000000-0000-0000-0000-000000000000/0/0")
    assert (task.status, task.error_code) == (Status.FAILURE, "PLAN_NOT_FOUND")
    assert failure_status(task.error_code) == 409
    assert set(world.lake.uris()) == before
