"""`delegation tasks cancel` and `retry`: how an operator changes a task."""

import json

import pytest

from delegation.tasks.life.model import Status
from delegation.tasks.stores.base import Create
from tests.kit.tasks.builders import NOW, failed, in_status
from tests.unit.cli.conftest import OPERATOR, lines
from tests.unit.client.service import TASK_ID

WAITING = [Status.SUBMITTED, Status.RETRY_SCHEDULED]
HELD = [Status.ACQUIRING_RESOURCES, Status.RUNNING]
ENDED = [Status.SUCCESS, Status.FAILURE]


def put(store, status, **fields):
    store.apply(Create(in_status(status, task_id=TASK_ID, **fields)))
    return store.get(TASK_ID)


@pytest.mark.parametrize("status", WAITING)
def test_a_waiting_task_is_cancelled_now(run, store, status):
    put(store, status)
    result = run("tasks", "cancel", "--direct", TASK_ID, "--json")
    assert result.exit_code == 0
    (printed,) = lines(result.stdout)
    after = store.get(TASK_ID)
    assert (printed["status"], after.status, after.error_code, after.due_at) == (
        "FAILURE",
        "FAILURE",
        "CANCELLED",
        None,
    )


@pytest.mark.parametrize("status", HELD)
def test_cancelling_a_running_task_requests_its_cancellation(run, store, status):
    before = put(store, status)
    assert run("tasks", "cancel", "--direct", TASK_ID).exit_code == 0
    after = store.get(TASK_ID)
    assert after.cancel_requested
    assert (after.status, after.version, after.attempt_count) == (before.status, before.version, before.attempt_count)


@pytest.mark.parametrize("status", ENDED)
def test_a_terminal_task_is_not_cancelled(run, store, status):
    before = put(store, status)
    result = run("tasks", "cancel", "--direct", TASK_ID, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stderr)["error_code"] == "TASK_STAYS"
    assert store.get(TASK_ID) == before


def test_a_failed_task_is_retried_with_a_fresh_attempt_budget_and_due_at_once(run, store):
    before = put(store, Status.FAILURE)
    result = run("tasks", "retry", "--direct", TASK_ID, "--json")
    assert result.exit_code == 0
    (printed,) = lines(result.stdout)
    after = store.get(TASK_ID)
    assert printed["status"] == after.status == Status.SUBMITTED
    assert after.task_payload == before.task_payload
    assert after.attempts_excused == before.attempt_count
    assert after.due_at == after.next_scheduled_run_ts == after.received_timestamp
    assert (after.error_code, after.cancel_requested) == (None, False)


PLAN = [{"id": f"{TASK_ID}/1/aaaaaaaaaaaa", "sha256": "0" * 64}]


@pytest.mark.parametrize(("begun", "kept"), [(NOW, PLAN), (None, None)], ids=["begun to delete", "only planned"])
def test_only_a_purge_that_began_to_delete_keeps_its_plan(run, store, begun, kept):
    task = failed(
        in_status(Status.RUNNING, task_id=TASK_ID).evolve(details={"plan_segments": PLAN}, effects_began_ts=begun)
    )
    store.apply(Create(task))
    assert run("tasks", "retry", "--direct", TASK_ID).exit_code == 0
    after = store.get(TASK_ID)
    assert (after.status, after.effects_began_ts, after.details.get("plan_segments")) == (Status.SUBMITTED, begun, kept)


@pytest.mark.parametrize("status", [*WAITING, *HELD, Status.SUCCESS])
def test_only_a_failed_task_is_retried(run, store, status):
    before = put(store, status)
    result = run("tasks", "retry", "--direct", TASK_ID, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stderr)["error_code"] == "TASK_STAYS"
    assert store.get(TASK_ID) == before


def test_maintenance_is_cancelled_and_retried_like_other_tasks(run, store):
    put(store, Status.SUBMITTED, task_type="STORE_MAINTENANCE", recurrence_seconds=3600)
    for word, status in (("cancel", Status.FAILURE), ("retry", Status.SUBMITTED)):
        assert run("tasks", word, "--direct", TASK_ID).exit_code == 0
        assert store.get(TASK_ID).status is status


def test_a_retry_keeps_the_details_of_a_type_that_this_release_does_not_have(run, store):
    put(store, Status.FAILURE, task_type="COMPACTION", tier="gold")
    assert run("tasks", "retry", "--direct", TASK_ID).exit_code == 0
    assert (store.get(TASK_ID).status, store.get(TASK_ID).details["tier"]) == (Status.SUBMITTED, "gold")


@pytest.mark.parametrize("word", ["cancel", "retry"])
def test_an_unknown_task_is_reported(run, store, word):
    result = run("tasks", word, "--direct", "00000000-0000-4000-8000-000000000000", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stderr)["error_code"] == "TASK_NOT_FOUND"


@pytest.mark.parametrize("status", [*WAITING, *HELD])
def test_a_cancelled_task_names_the_operator(run, store, status):
    put(store, status)
    assert run("tasks", "cancel", "--direct", TASK_ID).exit_code == 0
    assert store.get(TASK_ID).public()["cancelled_by"] == {"client_id": "aws", "subject": OPERATOR}
