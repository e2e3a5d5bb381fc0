"""What a request is answered about a task that failed, and how often a key may have it run again."""

import json
from collections.abc import Callable
from datetime import timedelta

import pytest

from delegation.edge.answers import ApiResponse, Problem, failure_status, problem_of
from delegation.idempotency.keys import IdempotencyError
from delegation.polaris import answers as polaris
from delegation.references.errors import ReferencesUnavailable
from delegation.removal.details import purge_id
from delegation.storage.base import ObjectStoreDenied, ObjectStoreError, ObjectStoreUnavailable
from delegation.tasks.life.model import Status
from delegation.tasks.stores.base import Revise
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.worlds.service import LIFETIME, REALM, World

Answer = ApiResponse | Problem


def answer_of(call: Callable[[], ApiResponse]) -> Answer:
    """Return the answer as the API gives it."""
    try:
        return call()
    except DelegationError as error:
        return problem_of(error)


def task_of(world: World) -> str:
    return purge_id(REALM, "cat", str(world.lake.metadata("orders")["table-uuid"]))


def poison(world: World, task_id: str, payload: str) -> None:
    """Store a payload as a former release did, or a newer one does."""
    head = world.tasks.reads.get(task_id)
    world.store.apply(Revise(head, head.evolve(task_payload=payload, revision=head.revision + 1, nonce="p")))


CAUSES: list[tuple[DelegationError, int, bool | None]] = [
    (polaris.NoSuchTable("no table", status=404), 404, None),
    (polaris.NoSuchNamespace("no namespace", status=404), 404, None),
    (polaris.NoSuchCatalog("no catalog", status=404), 404, None),
    (polaris.TableMetadataMissing("no metadata.json", status=400), 409, None),
    (polaris.PolarisForbidden("no privilege", status=403), 502, False),
    (polaris.PolarisUnauthorized("bad secret", status=401), 502, False),
    (polaris.PolarisMisconfigured("bad realm", status=404), 502, False),
    (polaris.PolarisUnexpectedAnswer("no JSON", status=200), 502, False),
    (polaris.TableAlreadyExists("exists", status=409), 502, False),
    (polaris.PolarisUnavailable("away", status=503, retry_after=7.0), 502, True),
]


@pytest.mark.parametrize(("trouble", "status", "retryable"), CAUSES, ids=lambda one: getattr(one, "code", str(one)))
def test_a_cause_has_one_status(world: World, trouble: DelegationError, status: int, retryable: bool | None) -> None:
    world.tables.trouble = trouble
    background = answer_of(lambda: world.submit(world.identity("orders"), key="k1"))
    waiting = answer_of(lambda: world.execute(world.body("orders"), key="k1"))
    for answer in (background, waiting):
        body = json.loads(answer.body)
        assert (answer.status, body["error_code"], body.get("retryable")) == (status, trouble.code, retryable)
        assert retryable or "Retry-After" not in answer.headers
    if status == 502:
        assert all(record.answer is None for record in world.records._records.values())


@pytest.mark.parametrize(
    ("trouble", "retryable"), [(ObjectStoreDenied("denied"), False), (ObjectStoreUnavailable("away"), True)]
)
def test_an_answer_about_the_object_store_says_whether_the_request_may_be_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch, trouble: DelegationError, retryable: bool
) -> None:
    def fail(*_location: object, **_limit: object) -> bytes:
        raise trouble

    monkeypatch.setattr(world.objects, "read", fail)
    answer = world.execute(world.body("orders"), key="k1")
    assert (answer.status, json.loads(answer.body)["retryable"]) == (502, retryable)
    assert json.loads(problem_of(trouble).body)["retryable"] is retryable


def test_an_outage_of_the_service_s_own_tables_is_retryable_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A throttled reference table ended a waiting purge with an answer from which no caller knew to repeat it."""

    def fail(*_location: object, **_limit: object) -> bytes:
        raise ReferencesUnavailable("query failed: ProvisionedThroughputExceededException")

    monkeypatch.setattr(world.objects, "read", fail)
    answer = world.execute(world.body("orders"), key="k1")
    body = json.loads(answer.body)
    assert (answer.status, body["error_code"], body["retryable"]) == (500, "REFERENCES_UNAVAILABLE", True)
    monkeypatch.undo()
    assert world.execute(world.body("orders"), key="k1").status == 200


def repeated(world: World, key: str, every: timedelta, within: timedelta) -> list[Answer]:
    """Send the same request with one key in a loop."""
    body, answers, end = world.body("orders"), [], world.clock() + within
    while world.clock() < end:
        answers.append(answer_of(lambda: world.execute(body, key=key)))
        world.clock.advance(every)
    return answers


def attempts(world: World) -> int:
    return world.tasks.reads.get(task_of(world)).attempt_count


def test_a_key_repeated_in_a_loop_runs_its_task_a_few_times_only(world: World) -> None:
    """62 runs in 8 seconds were seen."""
    world.tables.trouble = polaris.PolarisForbidden("no privilege", status=403)
    answers = repeated(world, "k1", timedelta(milliseconds=130), timedelta(seconds=8))
    assert len(answers) >= 60
    assert attempts(world) <= 4
    early = [json.loads(answer.body) for answer in answers if answer.status == 503]
    assert len(early) == len(answers) - attempts(world)
    assert {(body["error_code"], body["retryable"]) for body in early} == {("RESUBMITTED_TOO_SOON", True)}
    waits = [int(answer.headers["Retry-After"]) for answer in answers if answer.status == 503]
    assert max(waits) >= 4
    assert min(waits) >= 1


def test_a_key_has_its_task_run_a_bounded_number_of_times_and_a_new_key_runs_it_again(world: World) -> None:
    world.tables.trouble = polaris.PolarisForbidden("no privilege", status=403)
    answers = repeated(world, "k1", timedelta(minutes=6), timedelta(hours=5))
    assert attempts(world) <= 10
    last = answers[-1]
    body = json.loads(last.body)
    assert (last.status, body["error_code"]) == (409, "RESUBMITS_EXHAUSTED")
    assert "POLARIS_FORBIDDEN" in body["message"]
    assert "new key" in body["message"]
    world.tables.trouble = None
    assert answer_of(lambda: world.execute(world.body("orders"), key="k1")).status == 409
    assert answer_of(lambda: world.execute(world.body("orders"), key="k2")).status == 200


def test_a_client_that_waits_as_it_is_answered_has_its_task_run(world: World) -> None:
    world.tables.trouble = polaris.PolarisUnavailable("away", status=503)
    body, runs = world.body("orders"), []
    for _ in range(4):
        answer = answer_of(lambda: world.execute(body, key="k1"))
        while answer.status == 503:
            world.clock.advance(timedelta(seconds=int(answer.headers["Retry-After"])))
            answer = answer_of(lambda: world.execute(body, key="k1"))
        runs.append(attempts(world))
    assert runs == [1, 2, 3, 4]


def test_an_expired_key_is_a_new_key(world: World) -> None:
    world.tables.trouble = polaris.PolarisUnavailable("away", status=503)
    body = world.body("orders")
    world.execute(body, key="k1")
    record = next(iter(world.records._records.values()))
    expired = record.model_copy(update={"expires_at": world.clock() + LIFETIME})
    world.records._records[record.scope] = expired
    world.clock.advance(LIFETIME)
    world.tables.trouble = None
    assert world.execute(body, key="k1").status == 200


UNPADDED = '"request_timestamp_utc": "1-01-01T00:00:00.000000Z"'


def poisoned(world: World) -> str:
    """Return the id of a FAILURE whose payload has a time that no release can read."""
    body = world.body("orders")
    body["common_payload"]["request_timestamp_utc"] = "2026-11-20T12:00:00Z"
    world.tables.trouble = polaris.PolarisForbidden("no privilege", status=403)
    task_id = world.execute(body).task_id
    world.tables.trouble = None
    payload = world.tasks.reads.get(task_id).task_payload
    poison(world, task_id, payload.replace('"request_timestamp_utc": "2026-11-20T12:00:00.000000Z"', UNPADDED))
    assert UNPADDED in world.tasks.reads.get(task_id).task_payload
    return task_id


@pytest.mark.parametrize("payload", [None, "", "{}", "[]", "null"], ids=["unpadded", "empty", "{}", "[]", "null"])
def test_a_new_request_replaces_a_failed_task_whose_payload_cannot_be_read(world: World, payload: str | None) -> None:
    task_id = poisoned(world)
    if payload is not None:
        poison(world, task_id, payload)
    answer = answer_of(lambda: world.execute(world.body("orders"), key="k1"))
    assert (answer.status, world.tasks.reads.get(task_id).status) == (200, Status.SUCCESS)
    assert world.lake.below("s3://lake/wh/orders") == set()


def fail_after_the_first_delete(world: World, **properties: str) -> str:
    """Run a purge that cannot delete one file; return its task's id."""
    victim = next(uri for uri in sorted(world.lake.below("s3://lake/wh/orders")) if uri.endswith(".parquet"))
    world.objects._denied = (victim,)
    answer = world.execute(world.body("orders", **properties))
    assert answer.status == 500
    world.objects._denied = ()
    return answer.task_id


def test_a_half_deleted_table_whose_task_cannot_be_read_is_finished_with_its_plan(world: World) -> None:
    task_id = fail_after_the_first_delete(world)
    plan = world.tasks.reads.get(task_id).details["plan_segments"]
    poison(world, task_id, "{}")
    assert answer_of(lambda: world.execute(world.body("orders"))).status == 200
    assert world.tasks.reads.get(task_id).details["plan_segments"] == plan
    assert world.lake.below("s3://lake/wh/orders") == set()


def test_a_live_task_whose_payload_cannot_be_read_is_a_conflict(world: World) -> None:
    task_id = world.submit(world.body("orders")).task_id
    poison(world, task_id, "{}")
    answer = answer_of(lambda: world.submit(world.body("orders")))
    assert answer.status == 409
    assert "cannot be read" in json.loads(answer.body)["message"]


def test_a_request_with_other_properties_than_a_purge_that_failed_half_way_is_answered_what_it_is(world: World) -> None:
    task_id = fail_after_the_first_delete(world, outside="refuse")
    with pytest.raises(IdempotencyError, check=coded("TASK_EXISTS")) as refused:
        world.execute(world.body("orders", shared="refuse"))
    message = str(refused.value)
    assert message.startswith(f"task {task_id} failed after its first delete (")
    assert "other properties (outside, shared)" in message
    assert "payload" in message
    assert "wait" not in message


def test_a_request_in_the_background_that_is_repeated_in_a_loop_runs_its_task_a_few_times_only(world: World) -> None:
    """A refusal by a guard too: the task loads the table and reads its manifest lists each time."""
    world.lake.rewrite_metadata("orders", {"properties": {"gc.enabled": "false"}})
    for _ in range(60):
        answer_of(lambda: world.submit(world.identity("orders")))
        world.drive()
        world.clock.advance(timedelta(milliseconds=130))
    assert attempts(world) <= 4


def test_repeats_without_a_key_are_bounded_and_the_task_can_be_run_again_later(world: World) -> None:
    world.tables.trouble = polaris.PolarisForbidden("no privilege", status=403)
    began = world.clock()
    while world.clock() < began + timedelta(hours=1):
        answer_of(lambda: world.execute(world.body("orders")))
        world.clock.advance(timedelta(seconds=10))
    assert attempts(world) <= 10
    world.tables.trouble = None
    refused = answer_of(lambda: world.execute(world.body("orders")))
    assert (refused.status, json.loads(refused.body)["error_code"]) == (503, "RESUBMITTED_TOO_SOON")
    world.clock.advance(timedelta(seconds=int(refused.headers["Retry-After"])))
    assert answer_of(lambda: world.execute(world.body("orders"))).status == 200


def test_an_operators_retry_begins_a_new_series_of_repeats(world: World) -> None:
    world.tables.trouble = polaris.PolarisForbidden("no privilege", status=403)
    for _ in range(4):
        answer_of(lambda: world.execute(world.body("orders")))
        world.clock.advance(timedelta(seconds=30))
    world.tasks.operators.cancel(world.tasks.operators.retry(task_of(world)).task_id)
    before = attempts(world)
    answer_of(lambda: world.execute(world.body("orders")))
    assert attempts(world) == before + 1


def classes(kind: type[DelegationError]) -> list[type[DelegationError]]:
    return [kind, *(one for below in kind.__subclasses__() for one in classes(below))]


@pytest.mark.parametrize(
    "kind", [*classes(polaris.PolarisError), *classes(ObjectStoreError)], ids=lambda kind: str(kind.__name__)
)
def test_a_request_and_a_task_that_meet_one_error_answer_it_alike(kind: type[DelegationError]) -> None:
    problem = problem_of(kind("trouble"))
    assert (problem.error, problem.status) == (kind.code, failure_status(kind.code))
