"""What the execution of a plan takes: of a dry run, of a purge before and while it deletes, and once it ended."""

import json
from datetime import timedelta
from typing import Any

import pytest

from delegation.edge.outlook import estimate_of
from delegation.removal.errors import PlanTampered
from delegation.removal.purge.task_type import DROP_TASK_TYPE, PLAN_TASK_TYPE, TASK_TYPE, PurgeDetails
from delegation.removal.task_attempt import forecast_of
from delegation.tasks.life.model import Status, Task
from delegation.wiring import types
from delegation.wiring.types import TYPES
from tests.kit.tasks.builders import submitted
from tests.kit.worlds.service import World
from tests.unit.edge.api.test_openapi import errors_of

DRY = {"dry-run": "true"}


def estimate(world: World, task: Task) -> dict[str, Any] | None:
    """Return the answer of `GET /v1/tasks/{taskId}/estimate`, which has to be as described."""
    found = forecast_of(task, world.plans, world.behavior.settings, is_dry_run=task.task_type == PLAN_TASK_TYPE)
    if found is None:
        return None
    answer = estimate_of(task, found.model_dump(mode="json"), world.clock(), TYPES)
    assert errors_of("Estimate", answer) == []
    return answer


def ended(world: World, **properties: str) -> Task:
    task_id = world.submit(world.body("orders", **properties)).task_id
    world.drive()
    task = world.tasks.reads.get(task_id)
    assert task.status is Status.SUCCESS
    return task


def test_a_dry_run_estimates_the_purge_that_it_did_not_do(world: World) -> None:
    files = len(world.lake.below("s3://lake/wh/orders/"))
    waiting = world.tasks.reads.get(world.submit(world.body("orders", **DRY)).task_id)
    assert estimate(world, waiting) is None
    found = estimate(world, ended(world, **DRY))
    assert (found["files"], found["files_left"], found["engine"]) == (files, files, "inline")
    assert sum(total["files"] for total in found["by_type"].values()) == files
    assert found["seconds_left"] == found["seconds"] == round(files / found["keys_per_second"], 1)


def test_the_estimate_of_a_dry_run_outlives_its_plan(world: World) -> None:
    task = ended(world, **DRY)
    before = estimate(world, task)
    stored = json.loads(world.plans.get(f"{PurgeDetails.of(task).plan_segments[0].id}/estimate.json"))
    world.plans.objects.clear()
    assert estimate(world, task) == before
    assert {name: before[name] for name in stored if name not in {"format", "findings"}} == {
        name: value for name, value in stored.items() if name not in {"format", "findings"}
    }


def test_a_running_purge_has_less_left_with_each_file_and_at_its_own_rate(world: World) -> None:
    seen: list[dict[str, Any] | None] = []
    task_id = world.submit(world.body("orders")).task_id

    def a_second_each(_bucket: str, _key: str, _nth: int) -> None:
        world.clock.advance(timedelta(seconds=1))
        seen.append(estimate(world, world.tasks.reads.get(task_id)))

    world.objects._refuse = a_second_each
    world.drive()
    found = [one for one in seen if one is not None]
    assert len(found) == len(seen)
    left = [one["files_left"] for one in found]
    assert left == sorted(left, reverse=True)
    assert left[0] == found[0]["files"] > left[-1] > 0
    assert found[-1]["seconds_left"] == left[-1], "it deletes one file a second"
    done = estimate(world, world.tasks.reads.get(task_id))
    assert (done["files_left"], done["seconds_left"], done["files"]) == (0, 0.0, found[0]["files"])


def test_a_purge_whose_plan_was_deleted_has_no_estimate_and_one_that_was_altered_is_an_error(world: World) -> None:
    task = ended(world)
    assert estimate(world, task) is not None
    (key,) = [key for key in world.plans.objects if key.endswith("/index.json")]
    world.plans.objects[key] += b" "
    with pytest.raises(PlanTampered):
        estimate(world, task)
    world.plans.objects.clear()
    assert estimate(world, task) is None


def test_a_task_of_another_type_has_no_estimate(world: World) -> None:
    assert estimate(world, submitted(task_type="acme.report")) is None


@pytest.mark.parametrize("kind", [TASK_TYPE, PLAN_TASK_TYPE, DROP_TASK_TYPE])
def test_the_api_estimates_every_type_with_a_plan(world: World, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr("delegation.wiring.operations.plan_store", lambda: world.plans)
    monkeypatch.setattr("delegation.wiring.operations.purge_settings", lambda: world.behavior.settings)
    purge = ended(world)
    expected = forecast_of(purge, world.plans, world.behavior.settings, is_dry_run=False)
    assert types.forecast_of(purge.evolve(task_type=kind, result_extended=None)) == expected.model_dump(mode="json")
    assert types.forecast_of(submitted(task_type="acme.report")) is None


def test_a_large_plan_without_an_attempt_is_estimated_for_spark(world: World) -> None:
    task = ended(world)
    small = World(inline_max_files=1)
    small.plans = world.plans
    found = estimate(small, task.evolve(engine=None))
    assert found["engine"] == "spark"
    assert found["emr_vcpu_hours"] > 0
