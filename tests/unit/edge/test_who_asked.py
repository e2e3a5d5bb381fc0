"""Who asked for a purge and who cancelled it is recorded; a FAILURE after the first delete is told from others."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from delegation.tasks.life.model import Status, Task
from tests.unit.edge.conftest import Api
from tests.unit.edge.gateway import request
from tests.unit.edge.requests import loaded
from tests.unit.edge.world import World
from tests.unit.operations.purge.lake import busy_table

POLARIS = {"client_id": "polaris", "subject": "alice"}
OTHER = {"client_id": "other", "subject": "bob"}
WHO = "issue 12, line 25: who asked is not recorded"
PARTLY = "issue 12, line 25: a FAILURE after the first delete is not told from one before it"


@pytest.fixture
def world() -> World:
    world = World()
    busy_table(world.lake, "orders")
    return world


def asked(world: World, who: dict[str, str], key: str | None = None, **properties: str) -> str:
    """Ask for a purge in the background, and return the task's id."""
    submission = world._submission(world.identity("orders", **properties), key, who["client_id"], "/v1/tasks")
    object.__setattr__(submission, "subject", who["subject"])
    return world.submissions.submit(submission).task_id


def receipt(world: World) -> dict[str, Any]:
    [key] = [key for key in world.plans.keys("") if key.endswith("/receipt.json")]
    found: dict[str, Any] = json.loads(world.plans.get(key))
    return found


@pytest.mark.xfail(strict=True, reason=WHO)
def test_the_tokens_client_and_subject_reach_the_submission(api: Api) -> None:
    event = request("POST", "/v1/tasks", loaded())
    event["requestContext"]["authorizer"]["subject"] = "alice"
    assert api.send(event)["statusCode"] == 202
    [submission] = api.submissions.submitted
    assert (submission.caller, submission.subject) == ("polaris", "alice")  # type: ignore[attr-defined]


@pytest.mark.xfail(strict=True, reason=WHO)
def test_every_version_and_the_receipt_name_who_asked(world: World) -> None:
    task_id = asked(world, POLARIS)
    world.drive()
    assert [row.public()["requested_by"] for row in world.history(task_id)] == [POLARIS] * 4
    assert receipt(world)["requested_by"] == POLARIS
    assert receipt(world)["cancelled_by"] is None


@pytest.mark.xfail(strict=True, reason=WHO)
def test_a_caller_that_attaches_is_not_named_and_one_that_submits_again_is(world: World) -> None:
    task_id = asked(world, POLARIS)
    assert asked(world, OTHER) == task_id
    assert world.tasks.get(task_id).public()["requested_by"] == POLARIS
    world.tasks.cancel(task_id)
    asked(world, OTHER)
    assert world.tasks.get(task_id).public()["requested_by"] == OTHER
    world.tasks.cancel(task_id)
    world.tasks.retry(task_id)
    assert world.tasks.get(task_id).public()["requested_by"] == OTHER, "a retry changes nothing"


@pytest.mark.xfail(strict=True, reason=WHO)
def test_the_version_that_ends_a_cancelled_task_names_who_cancelled_it(world: World) -> None:
    task_id = asked(world, POLARIS)
    world.tasks.cancel(task_id, by=caller(OTHER))  # type: ignore[call-arg]
    [first, ended] = world.history(task_id)
    assert (first.public()["cancelled_by"], ended.public()["cancelled_by"]) == (None, OTHER)
    asked(world, POLARIS)
    assert world.tasks.get(task_id).public()["cancelled_by"] is None, "the next run is not cancelled"


@pytest.mark.xfail(strict=True, reason=WHO)
def test_the_receipt_of_a_half_done_purge_names_who_cancelled_it(world: World) -> None:
    task_id = asked(world, POLARIS)
    at_the_first_delete(world, lambda: world.tasks.cancel(task_id, by=caller(OTHER)))  # type: ignore[call-arg]
    world.drive()
    ended = world.tasks.get(task_id)
    assert (ended.status, ended.error_code, ended.public()["cancelled_by"]) == (Status.FAILURE, "CANCELLED", OTHER)
    found = receipt(world)
    assert (found["status"], found["requested_by"], found["cancelled_by"]) == ("INCOMPLETE", POLARIS, OTHER)
    assert found["files_deleted"] < found["files_planned"]


@pytest.mark.xfail(strict=True, reason=PARTLY)
def test_a_failure_after_the_first_delete_is_told_from_one_before_it(world: World) -> None:
    undeletable(world)
    answer = world.execute(world.body("orders"))
    assert json.loads(answer.body)["partly_deleted"] is True
    assert world.tasks.get(answer.task_id).public()["partly_deleted"] is True
    world.objects._denied = ()
    world.lake.rewrite_metadata("orders", {"properties": {"gc.enabled": "false"}})
    untouched = World()
    busy_table(untouched.lake, "orders")
    untouched.lake.rewrite_metadata("orders", {"properties": {"gc.enabled": "false"}})
    refused = untouched.execute(untouched.body("orders"))
    assert "partly_deleted" not in json.loads(refused.body)
    assert untouched.tasks.get(refused.task_id).public()["partly_deleted"] is False


@pytest.mark.xfail(strict=True, reason=PARTLY)
def test_each_failure_after_the_first_delete_is_reported_once(world: World) -> None:
    reported: list[Task] = []
    world.tasks._left_partly_done = reported.append  # type: ignore[attr-defined]
    undeletable(world)
    answer = world.execute(world.body("orders"))
    assert [task.task_id for task in reported] == [answer.task_id]
    world.execute(world.body("orders"))
    assert len(reported) == 2, "the purge was tried again, and failed again"


def caller(who: dict[str, str]) -> Any:
    from delegation.tasks.life.model import Caller  # type: ignore[attr-defined]

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
        return delete(*arguments, **options)

    world.objects.delete = acting  # type: ignore[method-assign]
