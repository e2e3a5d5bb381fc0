"""Idempotency keys on every operation that changes something, and the switch that ignores them."""

import io
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from aws_lambda_powertools import Logger

from delegation.edge.api.app import create_app
from delegation.edge.api.endpoints import ENDPOINTS, EXECUTE, SUBMIT
from delegation.idempotency.mutations import Mutations
from delegation.idempotency.reservations import KeyPolicy, MemoryReservationStore, RecordsUnavailable
from delegation.metrics import MetricLines
from delegation.storage.memory import Killed
from delegation.tasks.life.model import Caller, Status, Task
from delegation.tasks.pauses import MOST_PAUSES, MemoryPauseStore, PauseControl, PauseMode, PauseScope
from delegation.tasks.stores.base import Advance, Create
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.wire.responses import ServiceConfig
from tests.kit.tasks.builders import Clock, acquired, failed, nonce, submitted
from tests.kit.tasks.queues import Queue
from tests.kit.tasks.services import task_service
from tests.unit.edge.api.test_app import assert_problem, body_of
from tests.unit.edge.conftest import TASK_ID, FakeSubmissions, dependencies, header
from tests.unit.edge.gateway import Context, request
from tests.unit.edge.requests import loaded

CANCEL, RETRY = f"/v1/tasks/{TASK_ID}/cancel", f"/v1/tasks/{TASK_ID}/retry"
LIFETIME = timedelta(minutes=30)
LEASE = timedelta(seconds=70)


@dataclass
class ApiOverTasks:
    """The API over real tasks in memory; `fault` is called before and after each write of a key's record."""

    lifetime: timedelta | None = LIFETIME
    clock: Clock = field(default_factory=Clock)
    submissions: FakeSubmissions = field(default_factory=FakeSubmissions)

    def __post_init__(self) -> None:
        self.store = MemoryTaskStore()
        self.queue = Queue()
        self.tasks = task_service(self.store, queue=self.queue, clock=self.clock)
        self.records = MemoryReservationStore()
        self.pauses = PauseControl(MemoryPauseStore(), self.clock)
        policy = KeyPolicy(lifetime=self.lifetime or LIFETIME)
        self.mutations = Mutations(self.records, policy=policy, clock=self.clock, nonce=nonce)
        deps = dependencies(
            self.submissions,
            self.tasks,
            idempotency_lifetime=self.lifetime,
            clock=self.clock,
            mutations=lambda: self.mutations,
            pauses=lambda: self.pauses,
        )
        logger = Logger(service=f"edge-{uuid.uuid4()}", stream=io.StringIO())
        self.handle = create_app(deps, logger=logger, metrics=MetricLines("Delegation", "keys"))

    def post(self, path: str, key: str | None = "k", body: Any = None, **options: Any) -> dict[str, Any]:
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.handle(request("POST", path, body, headers=headers, **options), Context())

    def put(self, status: Status) -> Task:
        task = self.store.apply(Create(submitted(TASK_ID)))
        if status is not Status.SUBMITTED:
            task = self.store.apply(Advance(task, acquired(task)))
        if status is Status.FAILURE:
            task = self.store.apply(Advance(task, failed(task)))
        return task

    def fail_again(self) -> None:
        head = self.tasks.reads.get(TASK_ID)
        held = self.store.apply(Advance(head, acquired(head)))
        self.store.apply(Advance(held, failed(held)))

    @property
    def statuses(self) -> list[str]:
        return [task.status.value for task in self.store.history(TASK_ID)]


@pytest.fixture
def site() -> Iterator[ApiOverTasks]:
    return ApiOverTasks()


def test_a_retry_with_a_key_happens_once_and_is_replayed_byte_for_byte(site: ApiOverTasks) -> None:
    site.put(Status.FAILURE)
    first = site.post(RETRY)
    site.fail_again()
    again = site.post(RETRY)
    assert (first["statusCode"], again["statusCode"], again["body"]) == (200, 200, first["body"])
    assert site.statuses.count("SUBMITTED") == 2
    assert site.post(RETRY, "another")["statusCode"] == 200
    assert site.statuses.count("SUBMITTED") == 3


def test_no_body_and_an_empty_object_however_it_is_spelled_are_one_payload(site: ApiOverTasks) -> None:
    site.put(Status.FAILURE)
    first = site.post(RETRY)
    for same in ("{}", "{ }", "\n{\n}\n", " "):
        assert site.post(RETRY, body=same)["body"] == first["body"]
    for other in ('{"a": 1}', "[]", "{"):
        assert_problem(site.post(RETRY, body=other), 422, "idempotency_key_conflict")


@pytest.mark.parametrize(("sent", "again"), [('{"a":1,"b":2}', '{ "b": 2, "a": 1 }'), ("{", "{")])
def test_a_body_that_is_not_read_is_compared_in_its_canonical_form(site: ApiOverTasks, sent: str, again: str) -> None:
    site.put(Status.FAILURE)
    first = site.post(RETRY, body=sent)
    assert site.post(RETRY, body=again)["body"] == first["body"]


def test_a_pause_with_a_key_does_not_pause_what_was_resumed_since(site: ApiOverTasks) -> None:
    first = site.post("/v1/pause", body={"reason": "upgrade"})
    site.post("/v1/resume", "other", body={})
    again = site.post("/v1/pause", body={"reason": "upgrade"})
    assert (again["statusCode"], again["body"]) == (200, first["body"])
    assert site.pauses.shown().pauses == ()
    assert_problem(site.post("/v1/pause", body={"reason": "another"}), 422, "idempotency_key_conflict")


def test_a_pause_that_was_refused_may_be_made_with_the_same_key_once_there_is_room(site: ApiOverTasks) -> None:
    def scope(number: int) -> PauseScope:
        return PauseScope(table=f"lake.sales.t{number}")

    for number in range(MOST_PAUSES):
        site.pauses.pause(scope(number), by=Caller(client_id="bob"), reason="", mode=PauseMode.STOP)
    assert_problem(site.post("/v1/pause", body={"reason": "upgrade"}), 409, "TOO_MANY_PAUSES")
    site.pauses.resume(scope(0))
    again = site.post("/v1/pause", body={"reason": "upgrade"})
    assert again["statusCode"] == 200, again
    assert site.pauses.shown().of_everything is not None


def test_a_refusal_is_replayed_byte_for_byte(site: ApiOverTasks) -> None:
    site.put(Status.SUBMITTED)
    first = site.post(RETRY)
    assert_problem(first, 409, "TASK_NOT_FAILED")
    again = site.post(RETRY)
    assert (again["statusCode"], again["body"]) == (409, first["body"])
    assert_problem(site.post("/v1/tasks/00000000-0000-0000-0000-000000000000/cancel"), 404, "TASK_NOT_FOUND")


def test_keys_belong_to_caller_operation_and_task(site: ApiOverTasks) -> None:
    site.put(Status.FAILURE)
    assert site.post(RETRY, client_id="ops")["statusCode"] == 200
    assert_problem(site.post(RETRY, client_id="polaris"), 409, "TASK_NOT_FAILED")
    assert site.post(CANCEL, client_id="ops")["statusCode"] == 200


@pytest.mark.parametrize("point", ["before reserve", "after reserve", "before replace", "after replace"])
@pytest.mark.parametrize(("path", "status"), [(RETRY, Status.FAILURE), (CANCEL, Status.SUBMITTED)])
def test_a_kill_at_any_write_leaves_one_change(site: ApiOverTasks, path: str, status: Status, point: str) -> None:
    before = site.put(status)

    def fault(at: str) -> None:
        if at == point:
            raise Killed

    site.records.fault = fault
    with pytest.raises(Killed):
        site.post(path)
    site.records.fault = lambda _point: None
    again = site.post(path)
    if again["statusCode"] == 409:
        assert_problem(again, 409, "request_in_progress")
        assert header(again, "Retry-After") == "2"
        site.clock.advance(LEASE)
        again = site.post(path)
    assert again["statusCode"] == 200
    assert site.post(path)["body"] == again["body"]
    assert site.tasks.reads.get(TASK_ID).version == before.version + 1


def test_a_store_of_keys_that_does_not_answer_changes_nothing(site: ApiOverTasks) -> None:
    site.put(Status.FAILURE)

    def fault(_point: str) -> None:
        raise RecordsUnavailable("no answer")

    site.records.fault = fault
    assert_problem(site.post(RETRY), 503, "STORE_UNAVAILABLE")
    assert site.tasks.reads.get(TASK_ID).status is Status.FAILURE


CHANGING = [endpoint for endpoint in ENDPOINTS if endpoint.method in {"POST", "PUT", "PATCH", "DELETE"}]


@pytest.mark.parametrize("endpoint", CHANGING, ids=lambda endpoint: endpoint.operation)
@pytest.mark.parametrize("key", ["-x", "", "a b", "k" * 256])
def test_every_changing_operation_reads_its_key(site: ApiOverTasks, endpoint: Any, key: str) -> None:
    site.put(Status.FAILURE)
    body = loaded() if endpoint in {EXECUTE, SUBMIT} else None
    response = site.handle(
        request(
            endpoint.method,
            endpoint.path.replace("{taskId}", TASK_ID).replace("{tombstoneId}", "ab-1"),
            body,
            headers={"Idempotency-Key": key},
        ),
        Context(),
    )
    assert assert_problem(response, 400, "INVALID_REQUEST")["message"].startswith("Idempotency-Key: ")
    assert site.submissions.calls == 0


def test_keys_that_are_switched_off_are_ignored_and_so_advertised() -> None:
    site = ApiOverTasks(lifetime=None)
    site.put(Status.FAILURE)
    config = body_of(site.handle(request("GET", "/v1/config", None), Context()))
    assert config["properties"] == {"idempotency-key-supported": "false"}
    assert "idempotency-key-lifetime" not in config
    assert ServiceConfig.model_validate(config).same_key_window is None
    assert site.post("/v1/tasks", "-not-a-key", loaded())["statusCode"] == 202
    assert site.submissions.submitted[0].key is None
    assert site.post(RETRY, "-x")["statusCode"] == 200
    assert_problem(site.post(RETRY, "-x"), 409, "TASK_NOT_FAILED")
    assert site.records._records == {}


@pytest.mark.parametrize(("lifetime", "text"), [(timedelta(hours=2), "PT120M"), (timedelta(seconds=90), "PT1M30S")])
def test_the_lifetime_that_is_set_is_advertised_and_kept(lifetime: timedelta, text: str) -> None:
    site = ApiOverTasks(lifetime=lifetime)
    site.put(Status.FAILURE)
    config = body_of(site.handle(request("GET", "/v1/config", None), Context()))
    assert (config["idempotency-key-lifetime"], config["properties"]["idempotency-key-lifetime"]) == (text, text)
    assert ServiceConfig.model_validate(config).same_key_window == lifetime
    first = site.post(RETRY)
    site.clock.advance(lifetime - timedelta(seconds=1))
    assert site.post(RETRY)["body"] == first["body"]
    site.clock.advance(timedelta(seconds=10))
    assert json.loads(site.post(RETRY)["body"])["error_code"] == "TASK_NOT_FAILED"


def test_a_request_without_a_key_writes_no_record(site: ApiOverTasks) -> None:
    site.put(Status.FAILURE)
    assert site.post(RETRY, None)["statusCode"] == 200
    assert site.records._records == {}
