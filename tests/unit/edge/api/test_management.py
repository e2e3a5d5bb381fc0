"""Operators read a task's versions and its receipt, cancel it and retry it."""

import base64
import json

import pytest

from delegation.edge.api import lists
from delegation.edge.api.endpoints import ENDPOINTS, Endpoint
from delegation.edge.trust.permissions import OPEN_METHODS, Permission
from delegation.tasks.life.model import Caller, Status
from delegation.tasks.life.transitions import CANCELLED
from delegation.tasks.stores.admission import QueuePlace
from tests.kit.tasks.builders import acquired, failed, retried, started, submitted, succeeded
from tests.unit.edge.api.test_app import assert_problem, body_of
from tests.unit.edge.api.test_openapi import errors_of
from tests.unit.edge.conftest import TASK_ID, Api
from tests.unit.edge.requests import changed, loaded

TASK = f"/v1/tasks/{TASK_ID}"
UNKNOWN = "/v1/tasks/00000000-0000-0000-0000-000000000000"


def become(api: Api, status: Status) -> None:
    """Let the task get this status in the usual way."""
    first = submitted(TASK_ID)
    held = acquired(first)
    ways = {
        Status.SUBMITTED: first,
        Status.ACQUIRING_RESOURCES: held,
        Status.RUNNING: started(held),
        Status.RETRY_SCHEDULED: retried(held),
        Status.SUCCESS: succeeded(started(held)),
        Status.FAILURE: failed(held),
    }
    api.tasks.tasks[TASK_ID] = ways[status]


def test_versions_come_in_pages_oldest_first(api: Api) -> None:
    first = body_of(api.call("GET", f"{TASK}/versions", query={"page_size": "2"}))
    assert [row["version"] for row in first["versions"]] == [1, 2]
    rest = body_of(api.call("GET", f"{TASK}/versions", query={"page_token": first["next_page_token"]}))
    assert [row["version"] for row in rest["versions"]] == [3]
    assert rest["next_page_token"] is None
    assert body_of(api.call("GET", f"{TASK}/versions", query={"page_size": "3"}))["next_page_token"] is None


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ({"page_size": "0"}, "page_size"),
        ({"page_size": "101"}, "page_size"),
        ({"page_size": "x"}, "page_size"),
        ({"page_size": "²"}, "page_size"),
        ({"page_size": "9" * 5000}, "page_size"),
        ({"page_size": "000000001999"}, "page_size"),
        ({"page_token": "x"}, "page_token"),
        ({"page_token": "WyJ2ZXJzaW9ucyBvdGhlciIsIjEiXQ"}, "page_token"),
        ({"page_token": "[" * 3000}, "page_token"),
    ],
)
def test_an_invalid_page_is_a_bad_request(api: Api, query: dict[str, str], name: str) -> None:
    body = assert_problem(api.call("GET", f"{TASK}/versions", query=query), 400, "INVALID_REQUEST")
    assert body["message"].startswith(f"query {name}: ")


def token(position: object) -> str:
    document = json.dumps([f"versions {TASK_ID}", position]).encode()
    return base64.urlsafe_b64encode(document).decode().rstrip("=")


@pytest.mark.parametrize("position", ["abc", "", "-1", "1.0", "²", "1" * 5000, " 1", None, 7])
def test_a_token_with_a_position_that_is_no_version_is_a_bad_request(api: Api, position: object) -> None:
    response = api.call("GET", f"{TASK}/versions", query={"page_token": token(position)})
    assert assert_problem(response, 400, "INVALID_REQUEST")["message"].startswith("query page_token: ")


def test_a_page_of_versions_ends_before_it_is_too_large(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest version, 400 KB, always has room."""
    monkeypatch.setattr(lists, "MOST_BYTES", 1)
    seen, query = [], {}
    for _ in range(3):
        body = body_of(api.call("GET", f"{TASK}/versions", query=query))
        seen.append([row["version"] for row in body["versions"]])
        query = {"page_token": body["next_page_token"]}
    assert (seen, query) == ([[1], [2], [3]], {"page_token": None})


@pytest.mark.parametrize(
    ("method", "action"),
    [
        ("GET", "versions"),
        ("GET", "receipt"),
        ("GET", "estimate"),
        ("GET", "place"),
        ("POST", "cancel"),
        ("POST", "retry"),
    ],
)
def test_every_operation_names_an_unknown_task(api: Api, method: str, action: str) -> None:
    assert_problem(api.call(method, f"{UNKNOWN}/{action}"), 404, "TASK_NOT_FOUND")
    assert_problem(api.call(method, f"/v1/tasks/x/{action}"), 400, "INVALID_REQUEST")


def test_a_receipt_is_sent_byte_for_byte(api: Api) -> None:
    api.receipts[TASK_ID] = '{"é": 1}\n'.encode()
    response = api.call("GET", f"{TASK}/receipt")
    assert (response["statusCode"], response["body"].encode()) == (200, api.receipts[TASK_ID])


@pytest.mark.parametrize("what", ["receipt", "estimate"])
def test_a_task_without_receipt_or_plan_is_said_to_have_none(api: Api, what: str) -> None:
    body = assert_problem(api.call("GET", f"{TASK}/{what}"), 404, f"{what.upper()}_NOT_FOUND")
    assert body["delegation_task_id"] == TASK_ID


def test_an_estimate_says_what_is_left(api: Api) -> None:
    become(api, Status.RUNNING)
    api.estimates[TASK_ID] = {"format": 1, "files": 700, "keys_per_second": 3500.0, "engine": "inline"}
    body = body_of(api.call("GET", f"{TASK}/estimate"))
    assert body == {
        "task_id": TASK_ID,
        "task_status": "RUNNING",
        "files": 700,
        "keys_per_second": 3500.0,
        "engine": "inline",
        "files_left": 700,
        "seconds_left": 0.2,
    }


def test_the_place_of_a_task_that_waits_is_named_with_what_keeps_its_lane(api: Api) -> None:
    body = body_of(api.call("GET", f"{TASK}/place"))
    assert (body["waits"], body["lane"], body["place"], body["reasons"]) == (False, None, None, [])
    assert errors_of("TaskPlace", body) == []
    api.places[TASK_ID] = QueuePlace("TABLE_PURGE of sales on lake", 3, ("all: 9 of 9 run",))
    assert body_of(api.call("GET", f"{TASK}/place")) == {
        "task_id": TASK_ID,
        "waits": True,
        "lane": "TABLE_PURGE of sales on lake",
        "place": 3,
        "reasons": ["all: 9 of 9 run"],
    }


def test_a_cancellation_names_who_asked_and_can_be_repeated(api: Api) -> None:
    for _ in range(2):
        body = body_of(api.call("POST", f"{TASK}/cancel", client_id="ops"))
        assert (body["status"], body["error_code"]) == ("FAILURE", CANCELLED)
        assert body["cancelled_by"] == {"client_id": "ops", "subject": ""}


def test_a_failure_is_retried_dispatched_and_names_who_asked(api: Api) -> None:
    become(api, Status.FAILURE)
    body = body_of(api.call("POST", f"{TASK}/retry", client_id="ops"))
    assert (body["status"], body["error_code"]) == ("SUBMITTED", None)
    assert api.tasks.tasks[TASK_ID].requested_by == Caller(client_id="ops", subject="")
    assert api.tasks.dispatched == [TASK_ID]


def test_a_task_that_ended_cannot_be_cancelled(api: Api) -> None:
    become(api, Status.SUCCESS)
    assert_problem(api.call("POST", f"{TASK}/cancel"), 409, "TASK_ENDED")


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.FAILURE])
def test_only_a_failure_is_retried(api: Api, status: Status) -> None:
    become(api, status)
    body = assert_problem(api.call("POST", f"{TASK}/retry"), 409, "TASK_NOT_FAILED")
    assert status in body["message"]
    assert api.tasks.dispatched == []


def test_dead_letters_are_sent_again_and_the_task_stays(api: Api) -> None:
    become(api, Status.SUCCESS)
    before = api.tasks.tasks[TASK_ID]
    for _ in range(2):
        body = body_of(api.call("POST", f"{TASK}/notifications/resend", client_id="ops"))
        assert (body["task_id"], body["status"]) == (TASK_ID, "SUCCESS")
    assert api.resent == [TASK_ID, TASK_ID]
    assert api.tasks.tasks[TASK_ID] == before


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.operation)
def test_each_operation_needs_its_permission(api: Api, endpoint: Endpoint) -> None:
    """Without it the answer is 403 before anything is read or written."""
    path = endpoint.path.replace("{taskId}", TASK_ID)
    others = " ".join(sorted(set(Permission) - {endpoint.permission}))
    response = api.call(endpoint.method, path, loaded() if endpoint.method == "POST" else None, permissions=others)
    if endpoint.permission is None:
        assert response["statusCode"] == 200
        return
    body = assert_problem(response, 403, "PERMISSION_MISSING")
    assert str(endpoint.permission) in body["message"]
    assert ("operators-may-submit" in body["message"]) is (endpoint.permission is Permission.SUBMIT)
    assert ("polaris-may-manage" in body["message"]) is (endpoint.permission is Permission.MANAGE)
    assert (api.submissions.calls, api.tasks.dispatched) == (0, [])


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.operation)
def test_only_the_open_operations_answer_without_a_token(api: Api, endpoint: Endpoint) -> None:
    path = endpoint.path.replace("{taskId}", TASK_ID)
    response = api.call(endpoint.method, path, loaded() if endpoint.method == "POST" else None, client_id=None)
    assert (response["statusCode"] == 401) is (f"{endpoint.method}{endpoint.path}" not in OPEN_METHODS)


DRY = "/v1/tasks"


def test_the_query_dry_run_is_the_property_dry_run(api: Api) -> None:
    by_property = changed(loaded(), "operation_parameters/properties/dry-run", "true")
    assert api.call("POST", DRY, loaded(), query={"dry-run": "true"})["statusCode"] == 202
    assert api.call("POST", DRY, loaded(), query={"dry-run": "false"})["statusCode"] == 202
    assert [one.document for one in api.submissions.submitted] == [by_property, loaded()]
    assert api.submissions.submitted[0].payload.operation_parameters.properties["dry-run"] == "true"
    assert_problem(api.call("POST", DRY, loaded(), query={"dry-run": "yes"}), 400, "INVALID_REQUEST")


def test_who_may_manage_tasks_sees_the_lease_holder_and_others_do_not(api: Api) -> None:
    become(api, Status.RUNNING)
    assert body_of(api.call("GET", TASK, permissions="read manage"))["lease_owner"] == "worker-1"
    assert "lease_owner" not in body_of(api.call("GET", TASK, permissions="read submit"))
    become(api, Status.SUCCESS)
    assert "lease_owner" not in body_of(api.call("GET", TASK, permissions="read manage"))
