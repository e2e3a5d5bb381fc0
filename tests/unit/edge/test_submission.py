"""Accepting purges at most once, and what every repeat of a request is told."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from delegation.idempotency.errors import KeyConflict, RequestInProgress, TaskConflict
from delegation.operations.purge.behavior.details import PurgeDetails
from delegation.operations.purge.behavior.options import InvalidPurgeProperty
from delegation.operations.purge.behavior.parameters import purge_id
from delegation.polaris.errors import NoSuchTable, PolarisUnavailable
from delegation.storage.locations import ObjectLocation
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.model import Status
from tests.unit.edge.world import LIFETIME, REALM, World
from tests.unit.operations.purge.lake import busy_table, rows

LIFE = ["SUBMITTED", "ACQUIRING_RESOURCES", "RUNNING", "SUCCESS"]


@pytest.fixture
def world() -> World:
    world = World()
    busy_table(world.lake, "orders")
    busy_table(world.lake, "sibling")
    return world


def task_of(world: World, name: str = "orders") -> str:
    return purge_id(REALM, "cat", str(world.lake.metadata(name)["table-uuid"]))


def test_a_small_purge_is_run_inside_the_request(world: World) -> None:
    sibling = world.lake.below("s3://lake/wh/sibling")
    before = world.lake.below("s3://lake/wh/orders")
    task_id = task_of(world)
    answer = world.execute(world.body("orders"))
    body = json.loads(answer.body)
    assert answer.status == 200
    assert body["status"] == "COMPLETED_SUCCESS"
    assert body["delegation_task_id"] == task_id == answer.task_id
    assert body["execution_result"]["files_deleted"] == len(before)
    assert world.lake.below("s3://lake/wh/orders") == set()
    assert world.lake.below("s3://lake/wh/sibling") == sibling
    assert world.statuses(task_id) == LIFE
    assert world.queue.sent == []


def test_a_replay_is_the_same_bytes_and_purges_nothing(world: World) -> None:
    body = world.body("orders")
    first = world.execute(body, key="k1")
    loads = world.tables.loads
    again = world.execute(body, key="k1")
    assert (again.status, again.body) == (first.status, first.body)
    assert again.kind == "replayed"
    assert world.tables.loads == loads
    assert world.statuses(first.task_id) == LIFE


def test_credentials_vended_anew_are_the_same_request(world: World) -> None:
    body = world.body("orders")
    first = world.execute(body, key="k1")
    parameters = {**body["operation_parameters"], "config": {"s3.session-token": "another"}}
    parameters["storage-credentials"] = [{"prefix": "s3://lake", "config": {"s3.session-token": "new"}}]
    again = world.execute({**body, "operation_parameters": parameters}, key="k1")
    assert again.body == first.body


def test_the_key_with_another_body_is_a_conflict(world: World) -> None:
    world.execute(world.body("orders"), key="k1")
    with pytest.raises(KeyConflict):
        world.execute(world.body("sibling"), key="k1")
    assert world.lake.below("s3://lake/wh/sibling")


def test_a_key_belongs_to_its_caller(world: World) -> None:
    first, second = world.body("orders"), world.body("sibling")
    world.execute(first, key="k1", caller="polaris")
    assert world.execute(second, key="k1", caller="somebody-else").status == 200


def test_without_a_key_the_same_table_is_replayed_from_its_task(world: World) -> None:
    body = world.body("orders")
    first = world.execute(body)
    assert world.execute(body).body == first.body
    assert world.statuses(first.task_id) == LIFE


def test_a_failure_of_a_guard_is_409_stored_and_replayed(world: World) -> None:
    world.lake.rewrite_metadata("orders", {"properties": {"gc.enabled": "false"}})
    body = world.body("orders")
    before = set(world.lake.uris())
    answer = world.execute(body, key="k1")
    error = json.loads(answer.body)
    assert answer.status == 409
    assert (error["error_code"], error["status"]) == ("GC_DISABLED", "FAILED_TERMINAL")
    assert set(world.lake.uris()) == before
    world.lake.rewrite_metadata("orders", {"properties": {}})
    assert world.execute(body, key="k1").body == answer.body


def test_a_5xx_is_never_stored_and_the_next_call_takes_over(world: World) -> None:
    body = world.body("orders")
    world.tables.trouble = PolarisUnavailable("Polaris answered 503", status=503)
    answer = world.execute(body, key="k1")
    assert answer.status == 502
    assert json.loads(answer.body)["error_code"] == "POLARIS_UNAVAILABLE"
    assert world.store.get(answer.task_id).status is Status.FAILURE  # type: ignore[union-attr]
    world.tables.trouble = None
    again = world.execute(body, key="k1")
    assert again.status == 200
    assert world.statuses(answer.task_id) == ["SUBMITTED", "ACQUIRING_RESOURCES", "FAILURE", *LIFE]
    assert world.execute(body, key="k1").body == again.body


def test_a_synchronous_task_that_fails_before_the_first_delete_is_not_tried_again(world: World) -> None:
    world.tables.trouble = PolarisUnavailable("Polaris answered 503", status=503)
    answer = world.execute(world.body("orders"))
    before = set(world.lake.uris())
    world.tables.trouble = None
    world.clock.advance(timedelta(days=2))
    world.sweep()
    world.drive()
    assert set(world.lake.uris()) == before
    assert world.store.get(answer.task_id).status is Status.FAILURE  # type: ignore[union-attr]


def test_a_table_that_is_not_small_is_handed_over_and_answers_in_progress(world: World) -> None:
    world = World(inline_max_files=1)
    busy_table(world.lake, "orders")
    body = world.body("orders")
    with pytest.raises(RequestInProgress) as waiting:
        world.execute(body, key="k1")
    task = world.tasks.get(waiting.value.task_id)
    assert (task.status, task.error_code) == (Status.RETRY_SCHEDULED, "HANDED_OVER")
    assert task.unexcused_attempts == 0
    assert world.queue.sent == [(task.task_id, 1)]
    with pytest.raises(RequestInProgress):
        world.execute(body, key="k1")
    assert world.queue.sent == [(task.task_id, 1)]


def test_another_key_or_none_attaches_to_the_running_task_and_gets_its_outcome(world: World) -> None:
    body = world.body("orders")
    accepted = world.submit(body)
    original = world.submissions.sleep
    done: list[float] = []

    def sleep(seconds: float) -> None:
        done.append(seconds)
        original(seconds)
        world.drive()

    world.submissions.sleep = sleep
    answer = world.execute(body, key="other")
    assert (answer.status, answer.task_id) == (200, accepted.task_id)
    assert done
    assert world.statuses(accepted.task_id) == LIFE


def test_submit_answers_202_at_once_and_the_same_202_for_ever(world: World) -> None:
    body = world.body("orders")
    first = world.submit(body, key="k1")
    assert first.status == 202
    assert json.loads(first.body) == {
        "delegation_task_id": first.task_id,
        "status": "QUEUED",
        "status_query_url": f"/delegation-service/api/v1/tasks/{first.task_id}",
    }
    assert world.submit(body, key="k1").body == first.body
    assert world.queue.sent == [(first.task_id, 1)]
    world.drive()
    assert world.statuses(first.task_id) == LIFE
    assert world.submit(body, key="k1").body == first.body
    assert world.statuses(first.task_id) == LIFE


def test_an_identity_is_completed_by_polaris_before_anything_is_stored(world: World) -> None:
    accepted = world.submit(world.identity("orders"), key="k1")
    assert accepted.task_id == task_of(world)
    world.drive()
    assert world.lake.below("s3://lake/wh/orders") == set()
    assert world.submit(world.identity("orders"), key="k1").body == accepted.body


@pytest.mark.parametrize("trouble", [NoSuchTable("no table", status=404), PolarisUnavailable("down", status=503)])
def test_nothing_is_stored_while_the_uuid_is_not_known(world: World, trouble: Exception) -> None:
    world.tables.trouble = trouble
    with pytest.raises(type(trouble)):
        world.submit(world.identity("orders"), key="k1")
    assert world.store.heads().tasks == ()
    world.tables.trouble = None
    assert world.submit(world.identity("orders"), key="k1").status == 202


def test_a_lost_message_is_made_up_for_by_the_sweeper(world: World) -> None:
    world.queue.trouble = StoreUnavailable("the queue answered ServiceUnavailable")
    accepted = world.submit(world.body("orders"))
    assert accepted.status == 202
    world.queue.trouble = None
    world.sweep()
    assert world.queue.sent == []
    world.clock.advance(timedelta(minutes=2))
    world.sweep()
    assert world.queue.sent == [(accepted.task_id, 2)]
    world.drive()
    assert world.statuses(accepted.task_id) == LIFE


def test_a_live_purge_with_other_properties_is_a_conflict(world: World) -> None:
    world.submit(world.body("orders"))
    with pytest.raises(TaskConflict, match="other properties"):
        world.submit(world.body("orders", outside="refuse"))


def test_a_clone_is_another_table_although_it_shares_the_uuid(world: World) -> None:
    world.lake.pointers["clone"] = world.lake.pointers["orders"]
    world.submit(world.body("orders"))
    with pytest.raises(TaskConflict, match="another identifier"):
        world.submit(world.body("clone"))


def test_a_property_with_a_wrong_value_is_named_before_anything_is_stored(world: World) -> None:
    with pytest.raises(InvalidPurgeProperty, match=r"properties\.outside"):
        world.submit(world.body("orders", outside="maybe"))
    assert world.store.heads().tasks == ()


def test_a_dry_run_plans_and_deletes_nothing_beside_a_live_purge(world: World) -> None:
    before = set(world.lake.uris())
    accepted = world.submit(world.body("orders", **{"dry-run": "true"}))
    world.drive()
    task = world.tasks.get(accepted.task_id)
    assert (task.status, task.task_type) == (Status.SUCCESS, "TABLE_PURGE_PLAN")
    assert PurgeDetails.of(task).files_planned
    told = json.loads(task.result_extended or "")
    assert (told["files"], told["engine"]) == (PurgeDetails.of(task).files_planned, "inline")
    assert told["by_type"]["metadata"] == {"files": 1, "bytes": 0}
    assert "executing the plan takes about 1 s and less than 0.01 USD" in (task.result_summary or "")
    assert set(world.lake.uris()) == before
    assert accepted.task_id != task_of(world)
    again = world.submit(world.body("orders", **{"dry-run": "true"}))
    assert again.task_id != accepted.task_id


def test_a_key_expires_a_lifetime_after_its_answer_was_first_read(world: World) -> None:
    body = world.body("orders")
    first = world.execute(body, key="k1")
    world.clock.advance(LIFETIME - timedelta(seconds=1))
    assert world.execute(body, key="k1").kind == "replayed"
    world.clock.advance(timedelta(seconds=1))
    other = world.body("sibling")
    assert world.execute(other, key="k1").status == 200
    assert first.task_id != task_of_sibling(world, other)


def task_of_sibling(_world: World, body: dict[str, Any]) -> str:
    return purge_id(REALM, "cat", body["operation_parameters"]["metadata"]["table-uuid"])


def test_a_key_does_not_expire_under_a_running_task(world: World) -> None:
    body = world.body("orders")
    first = world.submit(body, key="k1")
    world.clock.advance(timedelta(days=3))
    with pytest.raises(KeyConflict):
        world.submit(world.body("sibling"), key="k1")
    assert world.submit(body, key="k1").body == first.body


@pytest.mark.parametrize("key", ["one-key", None])
def test_sixteen_threads_make_one_task_and_one_purge(key: str | None) -> None:
    world = World()
    busy_table(world.lake, "orders")
    body = world.body("orders")
    world.submissions.sleep = lambda _seconds: None
    lives = []

    def call(_n: int) -> tuple[int, bytes] | str:
        while True:
            try:
                answer = world.execute(body, key=key)
            except RequestInProgress as waiting:
                lives.append(waiting.task_id)
                continue
            return answer.status, answer.body

    with ThreadPoolExecutor(16) as pool:
        answers = set(pool.map(call, range(16)))
    assert len(answers) == 1
    status, _body = answers.pop()
    assert status == 200
    heads = world.store.heads().tasks
    assert [head.status for head in heads] == [Status.SUCCESS]
    assert world.statuses(heads[0].task_id) == LIFE


def test_files_shared_with_a_clone_in_the_namespace_survive(world: World) -> None:
    world.lake.pointers["clone"] = world.lake.pointers["orders"]
    shared = set(world.lake.uris())
    world.lake.table("orders").append(rows(77))
    accepted = world.submit(world.body("orders"))
    world.drive()
    assert world.tasks.get(accepted.task_id).status is Status.SUCCESS
    assert set(world.lake.uris()) == shared


def test_a_success_that_left_the_table_its_root_is_not_replayed_for_the_next_request(world: World) -> None:
    world.lake.pointers["clone"] = world.lake.pointers["orders"]
    body, whole = world.body("orders"), set(world.lake.uris())
    assert world.execute(body, key="k1").status == 200
    assert set(world.lake.uris()) == whole
    del world.lake.pointers["clone"]
    again = world.execute(body)
    assert json.loads(again.body)["execution_result"]["files_deleted"] == len(whole - set(world.lake.uris()))
    assert world.lake.below("s3://lake/wh/orders") == set()
    assert world.execute(body).body == again.body


def test_the_plan_of_a_dry_run_is_executed_by_its_id(world: World) -> None:
    planned = world.submit(world.body("orders", **{"dry-run": "true"}))
    world.drive()
    [segment] = PurgeDetails.of(world.tasks.get(planned.task_id)).plan_segments
    accepted = world.submit(world.body("orders", plan=segment.id))
    world.drive()
    task = world.tasks.get(accepted.task_id)
    assert (task.status, PurgeDetails.of(task).plan_segments) == (Status.SUCCESS, (segment,))


def test_a_plan_is_refused_once_the_table_was_committed_to(world: World) -> None:
    planned = world.submit(world.body("orders", **{"dry-run": "true"}))
    world.drive()
    [segment] = PurgeDetails.of(world.tasks.get(planned.task_id)).plan_segments
    world.lake.table("orders").append(rows(77))
    before = set(world.lake.uris())
    accepted = world.submit(world.body("orders", plan=segment.id))
    world.drive()
    task = world.tasks.get(accepted.task_id)
    assert (task.status, task.error_code) == (Status.FAILURE, "PLAN_OUTDATED")
    assert set(world.lake.uris()) == before


@pytest.mark.parametrize("late", [timedelta(seconds=21), timedelta(seconds=28)])
def test_a_request_that_came_late_is_handed_over_and_told_in_time(world: World, late: timedelta) -> None:
    """After a cold start the gateway's 29 s are partly gone: 409 in time is worth more than 200 to nobody."""
    task_id, before = task_of(world), world.clock()
    with pytest.raises(RequestInProgress):
        world.execute(world.body("orders"), late=late)
    assert world.clock() - before + late < timedelta(seconds=29)
    assert world.history(task_id)[-1].error_code == "HANDED_OVER"
    world.drive()
    assert world.tasks.get(task_id).status is Status.SUCCESS


def test_waiting_for_somebody_elses_run_ends_in_time_too(world: World) -> None:
    world.submit(world.body("orders"))
    before = world.clock()
    with pytest.raises(RequestInProgress):
        world.execute(world.body("orders"), late=timedelta(seconds=10))
    assert world.clock() - before <= timedelta(seconds=15)


def test_manifest_lists_that_are_read_slowly_do_not_keep_the_caller(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = world.objects.read

    def slowly(location: ObjectLocation, *, limit: int) -> bytes:
        world.clock.advance(timedelta(seconds=6))
        return read(location, limit=limit)

    monkeypatch.setattr(world.objects, "read", slowly)
    before, whole, task_id = world.clock(), dict(world.lake.objects), task_of(world)
    with pytest.raises(RequestInProgress):
        world.execute(world.body("orders"))
    assert world.clock() - before <= timedelta(seconds=27)
    assert world.lake.objects == whole
    task = world.tasks.get(task_id)
    assert (task.error_code, task.attempts_excused) == ("HANDED_OVER", 1)
    monkeypatch.undo()
    world.drive()
    assert world.tasks.get(task_id).status is Status.SUCCESS
