"""Submissions are accepted at most once, and repeats are replayed, attached or refused."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from delegation.edge.answers import problem_of
from delegation.idempotency.keys import KeyConflict, RequestInProgress
from delegation.polaris.answers import NoSuchTable, PolarisError, PolarisUnavailable
from delegation.removal.details import purge_id
from delegation.removal.requests import check_storage
from delegation.storage.locations import ObjectLocation, UnsupportedLocation
from delegation.tasks.life.model import Status
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Lease
from delegation.tasks.life.transitions import HANDED_OVER
from tests.kit.lakes.lake import filled
from tests.kit.worlds.service import LIFETIME, REALM, World
from tests.unit.removal.purge.sizes import state

STATUSES = ["SUBMITTED", "ACQUIRING_RESOURCES", "RUNNING", "SUCCESS"]


@pytest.fixture
def world() -> World:
    return filled(World(), "orders", "customers")


def task_of(world: World, name: str = "orders") -> str:
    return purge_id(REALM, "cat", str(world.lake.metadata(name)["table-uuid"]))


def test_a_small_purge_runs_within_the_request(world: World) -> None:
    customers = world.lake.below("s3://lake/wh/customers")
    before = world.lake.below("s3://lake/wh/orders")
    task_id = task_of(world)
    answer = world.execute(world.body("orders"))
    body = json.loads(answer.body)
    assert answer.status == 200
    assert body["status"] == "COMPLETED_SUCCESS"
    assert body["delegation_task_id"] == task_id == answer.task_id
    assert body["execution_result"]["files_deleted"] == len(before)
    assert world.lake.below("s3://lake/wh/orders") == set()
    assert world.lake.below("s3://lake/wh/customers") == customers
    assert world.statuses(task_id) == STATUSES
    assert world.queue.sent == []


def test_a_replay_is_the_same_bytes_and_purges_nothing(world: World) -> None:
    body = world.body("orders")
    first = world.execute(body, key="k1")
    loads = world.tables.loads
    again = world.execute(body, key="k1")
    assert (again.status, again.body) == (first.status, first.body)
    assert again.kind == "replayed"
    assert world.tables.loads == loads
    assert world.statuses(first.task_id) == STATUSES


def test_a_key_with_another_body_is_a_conflict(world: World) -> None:
    world.execute(world.body("orders"), key="k1")
    with pytest.raises(KeyConflict):
        world.execute(world.body("customers"), key="k1")
    assert world.lake.below("s3://lake/wh/customers")


def test_a_key_is_scoped_to_its_caller(world: World) -> None:
    first, second = world.body("orders"), world.body("customers")
    world.execute(first, key="k1", caller="polaris")
    assert world.execute(second, key="k1", caller="another-client").status == 200


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [("gc.enabled", "false", "GC_DISABLED"), ("delegation.protected", "true", "TABLE_PROTECTED")],
)
def test_a_refusal_by_a_guard_is_409_and_replayed(world: World, name: str, value: str, code: str) -> None:
    world.lake.rewrite_metadata("orders", {"properties": {name: value}})
    body = world.body("orders")
    before = set(world.lake.uris())
    answer = world.execute(body, key="k1")
    error = json.loads(answer.body)
    assert (answer.status, error["error_code"], error["status"]) == (409, code, "FAILED_TERMINAL")
    assert set(world.lake.uris()) == before
    world.lake.rewrite_metadata("orders", {"properties": {}})
    assert world.execute(body, key="k1").body == answer.body


def test_a_5xx_is_not_stored_and_a_repeat_runs_the_task_again(world: World) -> None:
    body = world.body("orders")
    world.tables.trouble = PolarisUnavailable("Polaris answered 503", status=503)
    answer = world.execute(body, key="k1")
    assert answer.status == 502
    assert json.loads(answer.body)["error_code"] == "POLARIS_UNAVAILABLE"
    assert world.store.get(answer.task_id).status is Status.FAILURE  # type: ignore[union-attr]
    world.tables.trouble = None
    again = world.execute(body, key="k1")
    assert again.status == 200
    assert world.statuses(answer.task_id) == ["SUBMITTED", "ACQUIRING_RESOURCES", "FAILURE", *STATUSES]
    assert world.execute(body, key="k1").body == again.body


def test_a_synchronous_task_that_fails_before_its_first_delete_is_not_retried(world: World) -> None:
    world.tables.trouble = PolarisUnavailable("Polaris answered 503", status=503)
    answer = world.execute(world.body("orders"))
    before = set(world.lake.uris())
    world.tables.trouble = None
    world.clock.advance(timedelta(days=2))
    world.sweep()
    world.drive()
    assert set(world.lake.uris()) == before
    assert world.store.get(answer.task_id).status is Status.FAILURE  # type: ignore[union-attr]


def test_a_purge_too_large_for_the_request_is_handed_over_and_answered_in_progress(world: World) -> None:
    world = filled(World(inline_max_files=1), "orders")
    body = world.body("orders")
    with pytest.raises(RequestInProgress) as waiting:
        world.execute(body, key="k1")
    task = world.tasks.reads.get(waiting.value.task_id)
    assert (task.status, task.error_code) == (Status.RETRY_SCHEDULED, "HANDED_OVER")
    assert task.unexcused_attempts == 0
    assert world.queue.sent == [(task.task_id, 1)]
    with pytest.raises(RequestInProgress):
        world.execute(body, key="k1")
    assert world.queue.sent == [(task.task_id, 1)]


@pytest.mark.parametrize("properties", [{}, {"engine": "inline"}])
def test_a_purge_that_cannot_end_within_the_request_is_handed_over_at_once(properties: dict[str, str]) -> None:
    """A million files take S3 five minutes, which a Lambda has and a request has not."""
    world = filled(World(inline_max_files=10_000_000), "orders")
    state(world.lake, "orders", added_files_count=1_000_000)
    asked = world.clock()
    with pytest.raises(RequestInProgress) as waiting:
        world.execute(world.body("orders", **properties))
    handed_over = next(one for one in world.history(waiting.value.task_id) if one.error_code == "HANDED_OVER")
    assert (handed_over.status, handed_over.last_status_change_ts) == (Status.RETRY_SCHEDULED, asked)
    assert world.queue.sent == [(handed_over.task_id, 1)]
    held = world.tasks.leases.acquire(handed_over.task_id, "background", lambda now: Lease.until(world.deadline(), now))
    assert world.behavior.prepare(held) == "inline"


@pytest.mark.parametrize("files", [20, 20_000])
def test_a_purge_that_ends_within_the_request_is_run_in_it(files: int) -> None:
    world = filled(World(inline_max_files=10_000_000), "orders")
    state(world.lake, "orders", added_files_count=files // 7)
    world.execute(world.body("orders"))
    assert world.queue.sent == []


def test_a_plan_that_two_attempts_could_not_make_in_their_time_is_made_with_spark(world: World) -> None:
    task_id = world.submit(world.body("orders")).task_id

    def next_engine() -> str | None:
        held = world.tasks.leases.acquire(task_id, "background", lambda now: Lease.until(world.deadline(), now))
        engine = world.behavior.prepare(held)
        error = AttemptError(HANDED_OVER, "the Lambda function ends", ErrorClass.HANDED_OVER)
        world.tasks.leases.end_attempt(task_id, held.attempt_count, error)
        return engine

    assert [next_engine() for _ in range(3)] == ["inline", "inline", "spark"]


def test_a_request_with_another_key_attaches_to_the_running_task_and_gets_its_outcome(world: World) -> None:
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
    assert world.statuses(accepted.task_id) == STATUSES


def test_submit_answers_202_at_once_and_repeats_get_the_same_202(world: World) -> None:
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
    assert world.statuses(first.task_id) == STATUSES
    assert world.submit(body, key="k1").body == first.body
    assert world.statuses(first.task_id) == STATUSES


def test_a_table_named_by_its_identity_is_loaded_from_polaris(world: World) -> None:
    accepted = world.submit(world.identity("orders"), key="k1")
    assert accepted.task_id == task_of(world)
    world.drive()
    assert world.lake.below("s3://lake/wh/orders") == set()
    assert world.submit(world.identity("orders"), key="k1").body == accepted.body


@pytest.mark.parametrize("trouble", [NoSuchTable("no table", status=404), PolarisUnavailable("down", status=503)])
def test_nothing_is_stored_while_the_table_cannot_be_loaded(world: World, trouble: Exception) -> None:
    world.tables.trouble = trouble
    with pytest.raises(type(trouble)):
        world.submit(world.identity("orders"), key="k1")
    assert world.store.heads().tasks == ()
    world.tables.trouble = None
    assert world.submit(world.identity("orders"), key="k1").status == 202


def test_a_key_expires_a_lifetime_after_its_answer(world: World) -> None:
    body = world.body("orders")
    first = world.execute(body, key="k1")
    world.clock.advance(LIFETIME - timedelta(seconds=1))
    assert world.execute(body, key="k1").kind == "replayed"
    world.clock.advance(timedelta(seconds=1))
    other = world.body("customers")
    answer = world.execute(other, key="k1")
    assert (answer.status, answer.task_id != first.task_id) == (200, True)


def test_a_key_does_not_expire_while_its_task_runs(world: World) -> None:
    body = world.body("orders")
    first = world.submit(body, key="k1")
    world.clock.advance(timedelta(days=3))
    with pytest.raises(KeyConflict):
        world.submit(world.body("customers"), key="k1")
    assert world.submit(body, key="k1").body == first.body


@pytest.mark.parametrize("key", ["one-key", None])
def test_concurrent_requests_cause_one_task_and_one_purge(key: str | None) -> None:
    world = filled(World(), "orders")
    body = world.body("orders")
    world.submissions.sleep = lambda _seconds: None
    in_progress = []

    def call(_n: int) -> tuple[int, bytes] | str:
        while True:
            try:
                answer = world.execute(body, key=key)
            except RequestInProgress as waiting:
                in_progress.append(waiting.task_id)
                continue
            return answer.status, answer.body

    with ThreadPoolExecutor(16) as pool:
        answers = set(pool.map(call, range(16)))
    assert len(answers) == 1
    status, _body = answers.pop()
    assert status == 200
    heads = world.store.heads().tasks
    assert [head.status for head in heads] == [Status.SUCCESS]
    assert world.statuses(heads[0].task_id) == STATUSES


def test_a_repeat_after_a_purge_that_kept_shared_files_purges_again(world: World) -> None:
    world.lake.pointers["clone"] = world.lake.pointers["orders"]
    body, whole = world.body("orders"), set(world.lake.uris())
    assert world.execute(body, key="k1").status == 200
    assert set(world.lake.uris()) == whole
    del world.lake.pointers["clone"]
    again = world.execute(body)
    assert json.loads(again.body)["execution_result"]["files_deleted"] == len(whole - set(world.lake.uris()))
    assert world.lake.below("s3://lake/wh/orders") == set()
    assert world.execute(body).body == again.body


@pytest.mark.parametrize("late", [timedelta(seconds=21), timedelta(seconds=28)])
def test_a_purge_whose_request_arrived_late_is_handed_over_and_answered_in_time(world: World, late: timedelta) -> None:
    """A cold start uses up part of API Gateway's 29 s; a 409 in time is better than a 200 after the timeout."""
    task_id, before = task_of(world), world.clock()
    with pytest.raises(RequestInProgress):
        world.execute(world.body("orders"), late=late)
    assert world.clock() - before + late < timedelta(seconds=29)
    assert world.history(task_id)[-1].error_code == "HANDED_OVER"
    world.drive()
    assert world.tasks.reads.get(task_id).status is Status.SUCCESS


@pytest.mark.parametrize(
    ("given", "most"),
    [
        ({"late": timedelta(seconds=10)}, timedelta(seconds=15)),
        # AWS Lambda ends the invocation at its deadline without an answer; the last second is for writing it.
        ({"remaining": timedelta(seconds=12)}, timedelta(seconds=11)),
    ],
    ids=["budget", "invocation"],
)
def test_waiting_for_a_running_task_ends_in_time(world: World, given: dict[str, timedelta], most: timedelta) -> None:
    world.submit(world.body("orders"))
    before = world.clock()
    with pytest.raises(RequestInProgress):
        world.execute(world.body("orders"), **given)
    assert most - timedelta(seconds=1) < world.clock() - before <= most


def test_a_purge_whose_manifest_lists_are_slow_is_handed_over(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
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
    task = world.tasks.reads.get(task_id)
    assert (task.error_code, task.attempts_excused) == ("HANDED_OVER", 1)
    monkeypatch.undo()
    world.drive()
    assert world.tasks.reads.get(task_id).status is Status.SUCCESS


@pytest.mark.parametrize("stated", [True, False], ids=["with metadata", "by identity"])
def test_a_table_of_a_federated_catalog_is_refused_at_submission(world: World, stated: bool) -> None:
    world.unsupported = {"cat"}
    body = world.body("orders") if stated else world.identity("orders")
    with pytest.raises(PolarisError, match="EXTERNAL") as raised:
        world.submit(body)
    assert problem_of(raised.value).status == 409
    assert world.queue.sent == []


def test_a_table_in_another_storage_is_refused_at_submission() -> None:
    with pytest.raises(UnsupportedLocation, match="the scheme gs is not supported"):
        check_storage("gs://b/t/metadata/1.metadata.json")
    check_storage("s3a://b/t/1.metadata.json")
    check_storage("s3://b/a#b/1.metadata.json")  # the task refuses it, with its reason
