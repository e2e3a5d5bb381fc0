"""`GET /v1/tasks` pages through tasks, the newest received first, and filters them."""

import base64
import json
from datetime import timedelta
from typing import Any

import httpx
import pytest

from delegation.client.client import DelegationClient
from delegation.client.errors import ErrorAnswer
from delegation.edge.api import lists
from delegation.tasks.life.model import Labels, Status
from delegation.tasks.work import reads
from infra.local.front.apigateway import ApiRequest, LocalApiGateway, integration_response
from tests.kit.names import SAMPLE
from tests.kit.tasks.builders import in_status
from tests.unit.client.service import Tokens
from tests.unit.edge.api.test_app import assert_problem, body_of
from tests.unit.edge.api.test_openapi import described_as, errors_of
from tests.unit.edge.conftest import NOW, Api

ORDERS = Labels("lake.sales.orders", "c-1")
MINUTE = timedelta(minutes=1)


def put(api: Api, age: int, status: Status = Status.SUBMITTED, labels: Labels = ORDERS, **fields: Any) -> str:
    """Store a task that was received `age` minutes ago, and return its id."""
    task = in_status(status, received_timestamp=NOW - age * MINUTE, **labels.keys(), **fields)
    api.tasks.tasks[task.task_id] = task
    return task.task_id


@pytest.fixture(autouse=True)
def _no_other_task(api: Api) -> None:
    api.tasks.tasks.clear()


def listed(api: Api, **query: str) -> list[str]:
    """Return the ids of all pages."""
    found: list[str] = []
    for _ in range(50):
        response = api.call("GET", "/v1/tasks", query=query)
        assert described_as("/v1/tasks", "GET", response) == []
        body = body_of(response)
        found += [task["task_id"] for task in body["tasks"]]
        if body["next_page_token"] is None:
            return found
        query = {**query, "page_token": body["next_page_token"]}
    raise AssertionError("the list has no end")


def test_the_newest_received_is_first_in_pages_of_any_size(api: Api) -> None:
    ids = [put(api, age) for age in range(7)]
    for size in (1, 2, 3, 7, 100):
        assert listed(api, page_size=str(size)) == ids
    page = body_of(api.call("GET", "/v1/tasks", query={"page_size": "7"}))
    assert (len(page["tasks"]), page["next_page_token"]) == (7, None)


def test_each_filter_leaves_the_tasks_that_it_names(api: Api) -> None:
    running = put(api, 1, Status.RUNNING)
    failed = put(api, 2, Status.FAILURE, Labels("lake.sales.items", "c-1"))
    plan = put(api, 3, labels=Labels("lake.sales.orders", "c-2"), task_type="TABLE_PURGE_PLAN")
    assert listed(api) == [running, failed, plan]
    assert listed(api, status="RUNNING") == [running]
    assert listed(api, status="FAILURE,SUBMITTED") == [failed, plan]
    assert listed(api, type="TABLE_PURGE") == [running, failed]
    assert listed(api, type="TABLE_PURGE", status="SUBMITTED") == []
    assert listed(api, table="lake.sales.orders") == [running, plan]
    assert listed(api, table="lake.sales.orders", status="SUBMITTED") == [plan]
    assert listed(api, table="lake.sales.orders", correlation_id="c-1") == [running]
    assert listed(api, table="lake.sales") == []
    assert listed(api, correlation_id="c-1") == [running, failed]
    assert listed(api, since=(NOW - 2 * MINUTE).isoformat()) == [running, failed]
    assert listed(api, since="2026-11-21t02:58:00z", correlation_id="c-2") == []


def test_each_name_filters_by_itself_through_the_client_and_the_front(api: Api) -> None:
    front = LocalApiGateway("edge.test", "/delegation-service/api", "us-east-1", "1", vpc_endpoint="vpce-1")

    def send(request: httpx.Request) -> httpx.Response:
        target = request.url.raw_path.decode()
        received = ApiRequest("GET", target, tuple(request.headers.items()), b"", b"", "127.0.0.1", NOW)
        event = front.proxy_event(received, str(front.route(received)), {"client_id": "polaris", "principalId": "p"})
        made = integration_response(None, json.dumps(api.send(event)).encode(), "r-1")
        return httpx.Response(made.status, headers=list(made.headers), content=made.body)

    client = DelegationClient(
        f"https://edge.test{front.base_path}", Tokens(), http=httpx.Client(transport=httpx.MockTransport(send))
    )
    ids = {name: put(api, 0, labels=Labels(f"lake.ns.{name}", f"c {name}")) for name in SAMPLE}
    for name, task_id in ids.items():
        assert [one.task_id for one in client.list(table=f"lake.ns.{name}", page_size=1)] == [task_id]
        assert [one.task_id for one in client.list(correlation_id=f"c {name}")] == [task_id]
        with pytest.raises(ErrorAnswer):
            client.get(name)


def test_a_filtered_list_has_each_task_once_whatever_is_between(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages end after a number of reads, so some are short or empty."""
    monkeypatch.setattr(reads, "AT_ONCE", 3)
    monkeypatch.setattr(reads, "MOST_READS", 2)
    ids = [put(api, age, Status.FAILURE if age in {1, 2, 3, 4, 30} else Status.SUBMITTED) for age in range(32)]
    expected = [ids[age] for age in (1, 2, 3, 4, 30)]
    for size in ("1", "2", "3", "4", "100"):
        assert listed(api, status="FAILURE", page_size=size) == expected
    page = body_of(api.call("GET", "/v1/tasks", query={"status": "SUCCESS"}))
    assert (page["tasks"], page["next_page_token"] is None) == ([], False)


def test_a_page_reads_a_bounded_number_of_times(api: Api) -> None:
    put(api, 0)
    body_of(api.call("GET", "/v1/tasks", query={"status": "FAILURE"}))
    assert api.tasks.lists == 1
    for age in range(1, 1200):
        api.tasks.tasks[str(age)] = in_status(Status.SUBMITTED, task_id=str(age), received_timestamp=NOW - age * MINUTE)
    page = body_of(api.call("GET", "/v1/tasks", query={"status": "FAILURE"}))
    assert (page["tasks"], api.tasks.lists) == ([], 1 + reads.MOST_READS)
    assert page["next_page_token"] is not None


def test_a_page_ends_before_it_is_too_large_to_be_answered(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "MOST_BYTES", 10_000)
    ids = [put(api, age, task_payload="x" * size) for age, size in enumerate((4_000, 30_000, 1, 4_000, 4_000))]
    pages, query = [], {}
    while not pages or query:
        body = body_of(api.call("GET", "/v1/tasks", query=query))
        pages.append([task["task_id"] for task in body["tasks"]])
        query = {"page_token": body["next_page_token"]} if body["next_page_token"] else {}
    assert pages == [ids[:1], ids[1:2], ids[2:4], ids[4:]]


def test_a_task_of_a_newer_release_is_named_in_every_list(api: Api) -> None:
    ours, theirs = put(api, 0), put(api, 1, Status.RUNNING)
    api.tasks.unreadable.add(theirs)
    response = api.call("GET", "/v1/tasks", query={"status": "SUBMITTED"})
    body = body_of(response)
    assert errors_of("TaskList", body) == []
    assert [task["task_id"] for task in body["tasks"]] == [ours]
    assert [task["task_id"] for task in body["unreadable"]] == [theirs]


def token(of: str, position: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([of, position]).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ({"status": "DONE"}, "status"),
        ({"status": ""}, "status"),
        ({"status": "RUNNING,"}, "status"),
        ({"status": "running"}, "status"),
        ({"type": ""}, "type"),
        ({"type": "x" * 257}, "type"),
        ({"table": ""}, "table"),
        ({"correlation_id": "x" * 1025}, "correlation_id"),
        ({"since": "yesterday"}, "since"),
        ({"since": "2026-11-21"}, "since"),
        ({"since": "2026-11-21T00:00:00"}, "since"),
        ({"since": "2026-11-21T00:00:00 00:00"}, "since"),
        ({"since": "0001-01-01T00:00:00+23:00"}, "since"),
        ({"page_size": "101"}, "page_size"),
        ({"page_size": "000000001999"}, "page_size"),
        ({"page_token": "x"}, "page_token"),
    ],
)
def test_an_invalid_filter_is_named(api: Api, query: dict[str, str], name: str) -> None:
    body = assert_problem(api.call("GET", "/v1/tasks", query=query), 400, "INVALID_REQUEST")
    assert body["message"].startswith(f"query {name}: ")


def test_a_token_is_for_the_list_with_the_same_filters(api: Api) -> None:
    for age in range(3):
        put(api, age)
    query = {"status": "SUBMITTED", "page_size": "1"}
    found = body_of(api.call("GET", "/v1/tasks", query=query))["next_page_token"]
    body_of(api.call("GET", "/v1/tasks", query={**query, "page_size": "2", "page_token": found}))
    for other in ({}, {"status": "RUNNING"}, {**query, "type": "TABLE_PURGE"}):
        response = api.call("GET", "/v1/tasks", query={**other, "page_token": found})
        assert_problem(response, 400, "INVALID_REQUEST")
    padded = found + "=" * (-len(found) % 4)
    of, _ = json.loads(base64.urlsafe_b64decode(padded))
    for position in ("", "x", "2026-13-01~", "2026-11-21T00:00:00.000000Z/", "2026-11-21T00:00:00.000000Z/a/b", "~"):
        response = api.call("GET", "/v1/tasks", query={**query, "page_token": token(of, position)})
        assert_problem(response, 400, "INVALID_REQUEST")


def test_a_list_shows_records_as_a_read_of_one_task_does(api: Api) -> None:
    task_id = put(api, 0, Status.RUNNING)
    one = body_of(api.call("GET", f"/v1/tasks/{task_id}"))
    (shown,) = body_of(api.call("GET", "/v1/tasks"))["tasks"]
    assert {name: one[name] for name in shown if name != "children"} == {
        name: value for name, value in shown.items() if name != "children"
    }
