"""Who asked for a purge and who cancelled it is recorded; a FAILURE after the first delete differs from others."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from delegation.metrics import NAMESPACE, TABLES_PARTLY_DELETED
from delegation.orchestration.failures import Step
from delegation.removal.purge.run import purge_table
from delegation.tasks.life.model import Caller, Status, Task
from delegation.tasks.life.policy import Lease
from delegation.wiring.tasks import count_partly_deleted
from tests.kit.lakes.lake import filled
from tests.kit.worlds.service import World
from tests.services import change_service
from tests.unit.edge.conftest import Api
from tests.unit.edge.gateway import request
from tests.unit.edge.requests import loaded

POLARIS = {"client_id": "polaris", "subject": "alice"}
OTHER = {"client_id": "other", "subject": "bob"}


def asked(world: World, who: dict[str, str], key: str | None = None, **properties: str) -> str:
    """Ask for a purge in the background, and return the task's id."""
    submission = world._submission(world.identity("orders", **properties), key, who["client_id"], "/v1/tasks")
    object.__setattr__(submission, "subject", who["subject"])
    return world.submissions.submit(submission).task_id


def receipt(world: World) -> dict[str, Any]:
    [key] = [key for key in world.plans.keys("") if key.endswith("/receipt.json")]
    return json.loads(world.plans.get(key))


def test_the_tokens_client_and_subject_reach_the_submission(api: Api) -> None:
    event = request("POST", "/v1/tasks", loaded())
    event["requestContext"]["authorizer"]["subject"] = "alice"
    assert api.send(event)["statusCode"] == 202
    [submission] = api.submissions.submitted
    assert (submission.caller, submission.subject) == ("polaris", "alice")


def test_every_version_and_the_receipt_name_who_asked(world: World) -> None:
    task_id = asked(world, POLARIS)
    world.drive()
    assert [row.public()["requested_by"] for row in world.history(task_id)] == [POLARIS] * 4
    assert receipt(world)["requested_by"] == POLARIS
    assert receipt(world)["cancelled_by"] is None


def test_a_caller_that_attaches_is_not_named_and_one_that_submits_again_is(world: World) -> None:
    task_id = asked(world, POLARIS)
    assert asked(world, OTHER) == task_id
    assert world.tasks.reads.get(task_id).public()["requested_by"] == POLARIS
    world.tasks.operators.cancel(task_id)
    asked(world, OTHER)
    assert world.tasks.reads.get(task_id).public()["requested_by"] == OTHER
    world.tasks.operators.cancel(task_id)
    world.tasks.operators.retry(task_id)
    assert world.tasks.reads.get(task_id).public()["requested_by"] == OTHER, "a retry changes nothing"


def test_the_version_that_ends_a_cancelled_task_names_who_cancelled_it(world: World) -> None:
    task_id = asked(world, POLARIS)
    world.tasks.operators.cancel(task_id, by=caller(OTHER))
    [first, ended] = world.history(task_id)
    assert (first.public()["cancelled_by"], ended.public()["cancelled_by"]) == (None, OTHER)
    asked(world, POLARIS)
    assert world.tasks.reads.get(task_id).public()["cancelled_by"] is None, "the next run is not cancelled"


def test_the_receipt_of_a_half_done_purge_names_who_cancelled_it(world: World) -> None:
    task_id = asked(world, POLARIS)
    at_the_first_delete(world, lambda: world.tasks.operators.cancel(task_id, by=caller(OTHER)))
    world.drive()
    ended = world.tasks.reads.get(task_id)
    assert (ended.status, ended.error_code, ended.public()["cancelled_by"]) == (Status.FAILURE, "CANCELLED", OTHER)
    found = receipt(world)
    assert (found["status"], found["requested_by"], found["cancelled_by"]) == ("INCOMPLETE", POLARIS, OTHER)
    assert found["files_deleted"] < found["files_planned"]


def test_a_failure_after_the_first_delete_differs_from_one_before_it(world: World) -> None:
    undeletable(world)
    answer = world.execute(world.body("orders"))
    assert json.loads(answer.body)["partly_deleted"] is True
    assert world.tasks.reads.get(answer.task_id).public()["partly_deleted"] is True
    world.objects._denied = ()
    world.lake.rewrite_metadata("orders", {"properties": {"gc.enabled": "false"}})
    untouched = filled(World(), "orders")
    untouched.lake.rewrite_metadata("orders", {"properties": {"gc.enabled": "false"}})
    refused = untouched.execute(untouched.body("orders"))
    assert "partly_deleted" not in json.loads(refused.body)
    assert untouched.tasks.reads.get(refused.task_id).public()["partly_deleted"] is False


def test_each_failure_after_the_first_delete_is_reported_once(world: World) -> None:
    reported: list[Task] = []
    change_service(world.tasks, left_partly_done=reported.append)
    undeletable(world)
    answer = world.execute(world.body("orders"))
    assert [task.task_id for task in reported] == [answer.task_id]
    world.execute(world.body("orders"))
    assert len(reported) == 2, "the purge was tried again, and failed again"


def caller(who: dict[str, str]) -> Caller:
    return Caller(**who)


def undeletable(world: World) -> None:
    """Let one data file of the table be undeletable."""
    root = world.lake.metadata("orders")["location"]
    world.objects._denied = (next(uri for uri in sorted(world.lake.below(root)) if uri.endswith(".parquet")),)


def at_the_first_delete(world: World, act: Callable[[], object]) -> None:
    """Call `act` once, when the first batch is deleted."""
    delete = world.objects.delete

    def acting(*arguments: Any, **options: Any) -> Any:
        world.objects.delete = delete  # type: ignore[method-assign]
        act()
        world.sleep(2)  # the task is read at most once a second
        return delete(*arguments, **options)

    world.objects.delete = acting  # type: ignore[method-assign]


def test_the_metric_is_that_of_the_alarm_and_its_line_names_the_task(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "delegation-prod")
    undeletable(world)
    task = world.tasks.reads.get(world.execute(world.body("orders")).task_id)
    count_partly_deleted(task)
    [line] = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    [directive] = line["_aws"]["CloudWatchMetrics"]
    assert (directive["Namespace"], directive["Dimensions"]) == (NAMESPACE, [["service"]])
    assert (line["service"], line[TABLES_PARTLY_DELETED.name]) == ("delegation-prod", [1.0])
    assert (line["task_id"], line["error_code"]) == (task.task_id, "FILES_NOT_DELETED")


def test_a_repeated_complete_counts_a_half_deleted_table_once(world: World) -> None:
    reported: list[Task] = []
    step = half_deleted_by_a_job(world)
    change_service(world.tasks, left_partly_done=reported.append)
    assert {world.steps.complete(step)["next"] for _ in range(3)} == {"failed"}
    assert [task.task_id for task in reported] == [step.task_id]
    assert world.tasks.reads.get(step.task_id).public() == reported[0].public() | {"revision": reported[0].revision}


def half_deleted_by_a_job(world: World) -> Step:
    """Have a job leave the table half deleted and record that; return the input of the step that follows."""
    task_id = asked(world, POLARIS, engine="spark")
    (_, n) = world.queue.sent.pop()
    step = Step.of(world.steps.acquire(Step(task_id, n), world.deadline()))
    world.tasks.leases.heartbeat(
        task_id, step.attempt, lambda now: Lease.lasting(timedelta(hours=1), now), engine="spark"
    )
    undeletable(world)
    world.behavior.run_job(purge_table, task_id, step.attempt)
    return step


def test_a_table_that_a_second_run_leaves_half_deleted_is_counted_again(world: World) -> None:
    reported: list[Task] = []
    change_service(world.tasks, left_partly_done=reported.append)
    for _ in range(2):
        step = half_deleted_by_a_job(world)
        world.steps.complete(step)
        world.steps.complete(step)
        world.clock.advance(timedelta(minutes=1))
    assert [task.version for task in reported] == sorted({task.version for task in reported})
    assert len(reported) == 2
