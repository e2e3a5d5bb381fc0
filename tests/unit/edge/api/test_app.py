"""The API's four operations, and its answers to every other request."""

import base64
import json
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from delegation.edge.answers import ApiResponse
from delegation.edge.requests import MAX_BODY_BYTES
from delegation.idempotency.keys import KeyConflict, RequestInProgress
from delegation.polaris.answers import PolarisUnavailable
from delegation.tasks.errors import StoreUnavailable
from delegation.wire.tasks import shown
from infra.gateway_answers import ANSWERS
from tests.effort import THOROUGH
from tests.unit.edge.conftest import NOW, TASK_ID, Api, a_task, header
from tests.unit.edge.gateway import Context, request
from tests.unit.edge.requests import SECRET, changed, identity_only, loaded

EXECUTE = "/v1/tasks/execute/synchronous"
SUBMIT = "/v1/tasks"
OPERATIONS = [
    ("POST", EXECUTE, loaded()),
    ("POST", SUBMIT, loaded()),
    ("GET", f"/v1/tasks/{TASK_ID}", None),
    ("GET", "/v1/config", None),
]
COMMON = {"cache-control": "no-store", "content-type": "application/json", "x-content-type-options": "nosniff"}


def body_of(response: dict[str, Any]) -> dict[str, Any]:
    assert response["isBase64Encoded"] is False
    return json.loads(response["body"])


def assert_problem(response: dict[str, Any], status: int, code: str) -> dict[str, Any]:
    body = body_of(response)
    assert (response["statusCode"], body["error_code"]) == (status, code)
    assert {name: header(response, name) for name in COMMON} == COMMON
    return body


@pytest.mark.parametrize("base", ["/delegation-service/api", ""])
@pytest.mark.parametrize("slash", ["", "/"])
def test_a_submission_arrives_whole_and_its_answer_is_sent_byte_for_byte(api: Api, base: str, slash: str) -> None:
    sent = '{"b":1, "a":"é\\u00e9"}'.encode()
    api.submissions.answer = ApiResponse(202, sent, TASK_ID, "accepted", {"Retry-After": "9"})
    response = api.call("POST", SUBMIT + slash, loaded(), base=base, headers={"Idempotency-Key": "k-1"})
    assert response["statusCode"] == 202
    assert response["body"].encode() == sent
    assert {name: header(response, name) for name in COMMON} == COMMON
    assert header(response, "Retry-After") == "9"
    [submission] = api.submissions.submitted
    assert (submission.caller, submission.method, submission.path, submission.key) == ("polaris", "POST", SUBMIT, "k-1")
    assert submission.document == loaded()
    assert submission.payload.operation_parameters.table_identity.table_name == "T1"


def test_a_synchronous_request_gets_the_deadline_and_the_id_of_its_invocation(api: Api) -> None:
    api.submissions.answer = ApiResponse(200, b'{"status":"COMPLETED_SUCCESS"}', TASK_ID, "completed")
    response = api.send(request("POST", EXECUTE, loaded()), Context(aws_request_id="r-1", remaining_ms=12_500))
    assert response["statusCode"] == 200
    [(submission, deadline, owner)] = api.submissions.executed
    assert (submission.path, submission.key) == (EXECUTE, None)
    assert deadline == NOW + timedelta(seconds=12.5)
    assert owner == "r-1"


@pytest.mark.parametrize(
    ("ago", "counted"),
    [(4.0, 4.0), (28.0, 28.0), (0.0, 0.0), (29.5, 0.0), (-2.0, 0.0), (None, 0.0)],
    ids=["cold start", "just before the timeout", "at once", "after the timeout", "gateway clock ahead", "no time"],
)
def test_the_budget_starts_when_the_gateway_received_the_request(api: Api, ago: float | None, counted: float) -> None:
    api.submissions.answer = ApiResponse(200, b"{}", TASK_ID, "completed")
    event = request("POST", EXECUTE, loaded())
    if ago is not None:
        event["requestContext"]["requestTimeEpoch"] = int((NOW - timedelta(seconds=ago)).timestamp() * 1000)
    api.send(event)
    assert api.submissions.received == [NOW - timedelta(seconds=counted)]


def test_an_identity_alone_is_accepted_only_asynchronously(api: Api) -> None:
    assert api.call("POST", SUBMIT, identity_only())["statusCode"] == 202
    body = assert_problem(api.call("POST", EXECUTE, identity_only()), 400, "INVALID_REQUEST")
    assert body["message"] == "operation_parameters.metadata_location: is required"
    assert api.submissions.calls == 1


def test_a_base64_body_is_decoded(api: Api) -> None:
    event = request("POST", SUBMIT, loaded())
    event |= {"body": base64.b64encode(event["body"].encode()).decode(), "isBase64Encoded": True}
    assert api.send(event)["statusCode"] == 202
    assert api.submissions.submitted[0].document == loaded()


def test_a_task_is_returned_as_stored(api: Api) -> None:
    for task_id in (TASK_ID, TASK_ID.upper()):
        response = api.call("GET", f"/v1/tasks/{task_id}")
        assert response["statusCode"] == 200
        found = body_of(response)
        assert found.pop("outlook")["as_of"] == "2026-11-21T03:00:00.000000Z"
        assert found == shown(a_task().public())
        assert header(response, "Content-Type") == "application/json"


def test_an_unknown_task_is_not_found(api: Api) -> None:
    unknown = "00000000-0000-0000-0000-000000000000"
    body = assert_problem(api.call("GET", f"/v1/tasks/{unknown}"), 404, "TASK_NOT_FOUND")
    assert body["delegation_task_id"] == unknown


@pytest.mark.parametrize(
    "task_id", ["x", "execute", "0d4c6d3e8f2a5c679f0e3f5f0e1d2c3b", f"{{{TASK_ID}}}", f"{TASK_ID}0"]
)
def test_a_malformed_task_id_is_a_bad_request(api: Api, task_id: str) -> None:
    body = assert_problem(api.call("GET", f"/v1/tasks/{task_id}"), 400, "INVALID_REQUEST")
    assert body["message"].startswith("taskId: ")


def test_the_configuration_advertises_idempotency_as_the_proposal_and_as_iceberg_do(api: Api) -> None:
    assert body_of(api.call("GET", "/v1/config")) == {
        "defaults": {},
        "overrides": {},
        "properties": {"idempotency-key-supported": "true", "idempotency-key-lifetime": "PT30M"},
        "idempotency-key-lifetime": "PT30M",
        "endpoints": [
            "POST /v1/tasks/execute/synchronous",
            "POST /v1/tasks",
            "GET /v1/tasks",
            "GET /v1/tasks/{taskId}",
            "GET /v1/tasks/{taskId}/versions",
            "GET /v1/tasks/{taskId}/receipt",
            "GET /v1/tasks/{taskId}/estimate",
            "GET /v1/tasks/{taskId}/place",
            "POST /v1/tasks/{taskId}/cancel",
            "POST /v1/tasks/{taskId}/retry",
            "POST /v1/tasks/{taskId}/notifications/resend",
            "POST /v1/tasks/{taskId}/approve",
            "GET /v1/tombstones",
            "GET /v1/tombstones/{tombstoneId}",
            "POST /v1/tombstones/{tombstoneId}/restore",
            "POST /v1/tombstones/{tombstoneId}/purge",
            "POST /v1/tombstones/{tombstoneId}/dismiss",
            "GET /v1/pause",
            "POST /v1/pause",
            "POST /v1/resume",
            "GET /v1/config",
            "GET /v1/health",
            "GET /openapi.json",
            "GET /docs",
        ],
    }


@pytest.mark.parametrize("path", ["/", "", "/v1", "/v2/tasks", "/v1/tasks/a/b", "/v1/configs", "/delegation-service"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_resource_is_not_found(api: Api, method: str, path: str) -> None:
    assert_problem(api.call(method, path), 404, "NOT_FOUND")


@pytest.mark.parametrize("task_id", ["a\nb", "a\u2028b", "é\x00"])
def test_an_id_with_odd_characters_is_refused_and_its_resource_is_known(api: Api, task_id: str) -> None:
    assert_problem(api.call("GET", f"/v1/tasks/{task_id}"), 400, "INVALID_REQUEST")
    assert_problem(api.call("PUT", f"/v1/tasks/{task_id}"), 405, "METHOD_NOT_ALLOWED")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        (EXECUTE, "POST"),
        (SUBMIT, "POST, GET"),
        (f"/v1/tasks/{TASK_ID}", "GET"),
        (f"/v1/tasks/{TASK_ID}/cancel/", "POST"),
        ("/docs", "GET"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])
def test_another_method_is_refused_with_the_allowed_one(api: Api, path: str, allowed: str, method: str) -> None:
    response = api.call(method, path)
    if method in allowed.split(", "):
        assert response["statusCode"] != 405
    else:
        assert_problem(response, 405, "METHOD_NOT_ALLOWED")
        assert header(response, "Allow") == allowed


@pytest.mark.parametrize("path", [EXECUTE, SUBMIT])
def test_another_realm_is_refused_before_anything_is_stored(api: Api, path: str) -> None:
    other = changed(loaded(), "common_payload/realm_identifier", "OTHER")
    body = assert_problem(api.call("POST", path, other), 403, "REALM_MISMATCH")
    assert body["message"].startswith("common_payload.realm_identifier: ")
    assert api.submissions.calls == 0


@pytest.mark.parametrize(("method", "path", "body"), OPERATIONS)
@pytest.mark.parametrize("authorizer", [None, {}, {"client_id": ""}, {"principalId": "polaris"}])
def test_without_an_authorizer_context_every_operation_is_unauthorized(
    api: Api, method: str, path: str, body: Any, authorizer: dict[str, str] | None
) -> None:
    event = request(method, path, body, client_id=None)
    event["requestContext"]["authorizer"] = authorizer
    response = api.send(event)
    assert_problem(response, 401, "UNAUTHORIZED")
    assert header(response, "WWW-Authenticate") == "Bearer"
    assert api.submissions.calls == 0


@pytest.mark.parametrize(
    ("headers", "code", "accepted"),
    [
        *[
            ({"Content-Type": kind}, "UNSUPPORTED_MEDIA_TYPE", ("Accept", "application/json"))
            for kind in ("text/plain", "", "application/json; charset=latin-1", "application/jsonx")
        ],
        *[
            ({"Content-Encoding": coding}, "UNSUPPORTED_CONTENT_ENCODING", ("Accept-Encoding", "identity"))
            for coding in ("gzip", "identity, gzip", "Zstd", "identity;q=1")
        ],
    ],
)
@pytest.mark.parametrize("path", [EXECUTE, SUBMIT])
def test_another_content_type_or_encoding_is_refused(
    api: Api, path: str, headers: dict[str, str], code: str, accepted: tuple[str, str]
) -> None:
    response = api.call("POST", path, loaded(), headers=headers)
    assert_problem(response, 415, code)
    assert header(response, accepted[0]) == accepted[1]
    assert api.submissions.calls == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "Application/JSON; charset=UTF-8"},
        {"Content-Type": 'application/json;charset="utf-8"'},
        {"Content-Encoding": " Identity "},
        {"Content-Encoding": ""},
    ],
)
def test_json_in_utf_8_and_without_an_encoding_is_accepted(api: Api, headers: dict[str, str]) -> None:
    assert api.call("POST", SUBMIT, loaded(), headers=headers)["statusCode"] == 202


@pytest.mark.parametrize(
    ("name", "values", "status", "code"),
    [
        ("Content-Encoding", ["gzip", "identity"], 415, "UNSUPPORTED_CONTENT_ENCODING"),
        ("Idempotency-Key", ["a", "b"], 400, "INVALID_REQUEST"),
        ("Content-Type", [], 415, "UNSUPPORTED_MEDIA_TYPE"),
    ],
)
def test_every_value_of_a_header_counts(api: Api, name: str, values: list[str], status: int, code: str) -> None:
    event = request("POST", SUBMIT, loaded(), headers={name: (values or [""])[-1]})
    event["multiValueHeaders"][name] = values
    assert_problem(api.send(event), status, code)


@pytest.mark.parametrize("given", ["x" * 129, "a\tb", "\u00e9"])
@pytest.mark.parametrize(("method", "path", "body"), OPERATIONS)
def test_a_request_id_beyond_its_limits_is_refused(api: Api, method: str, path: str, body: Any, given: str) -> None:
    response = api.call(method, path, body, headers={"X-Request-Id": given})
    assert assert_problem(response, 400, "INVALID_REQUEST")["message"].startswith("X-Request-ID: ")
    assert api.submissions.calls == 0
    assert header(response, "X-Request-ID") == "41b45ea3-70b5-11e6-b7bd-69b5aaebc7d9"


def test_a_body_that_is_too_large_has_one_code_from_the_gateway_and_the_service(api: Api) -> None:
    """4 MB: escaped as a string, a body of JSON can be half as long again, and Lambda accepts 6 MB."""
    assert MAX_BODY_BYTES == 4_000_000
    body = assert_problem(api.call("POST", SUBMIT, " " * (MAX_BODY_BYTES - 1) + "{}"), 413, "PAYLOAD_TOO_LARGE")
    (of_gateway,) = [answer for answer in ANSWERS.values() if answer.status == 413]
    assert of_gateway.error_code == body["error_code"]
    assert all("4000000 bytes" in message for message in (body["message"], of_gateway.message))
    assert api.submissions.calls == 0


@pytest.mark.parametrize("name", ["Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"])
def test_a_malformed_key_is_refused_whatever_the_case_of_its_header(api: Api, name: str) -> None:
    body = assert_problem(api.call("POST", SUBMIT, loaded(), headers={name: "-x"}), 400, "INVALID_REQUEST")
    assert body["message"].startswith("Idempotency-Key: ")
    assert api.submissions.calls == 0


@pytest.mark.parametrize("body", [None, "", "[]", "nonsense", '{"a":1,"a":2}'])
def test_a_bad_body_is_refused(api: Api, body: str | None) -> None:
    assert_problem(api.call("POST", SUBMIT, body), 400, "INVALID_JSON")


@pytest.mark.parametrize(
    ("error", "status", "code", "metric"),
    [
        (RequestInProgress(TASK_ID), 409, "request_in_progress", "RequestsInProgress"),
        (KeyConflict(), 422, "idempotency_key_conflict", "KeyConflicts"),
        (PolarisUnavailable("no answer"), 502, "POLARIS_UNAVAILABLE", "RequestsFailed"),
        (StoreUnavailable("no answer"), 503, "STORE_UNAVAILABLE", "RequestsFailed"),
        (ZeroDivisionError(SECRET), 500, "INTERNAL_ERROR", "RequestsFailed"),
        (RuntimeError(SECRET), 500, "INTERNAL_ERROR", "RequestsFailed"),
    ],
)
def test_errors_are_answered_and_counted(api: Api, error: Exception, status: int, code: str, metric: str) -> None:
    api.submissions.answer = error
    response = api.call("POST", SUBMIT, loaded())
    assert_problem(response, status, code)
    [blob] = api.metrics()
    assert (blob[metric], blob["operation"], blob["service"]) == ([1.0], "submitTask", "delegation-api")
    [line] = api.lines
    assert (line["action"], line["status"], line["outcome"]) == ("submitTask", status, code)
    assert line["level"] == ("ERROR" if status == 500 else "INFO")


@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        ("accepted", "TasksAccepted"),
        ("attached", "RequestsAttached"),
        ("replayed", "RequestsReplayed"),
        ("completed", "TasksCompleted"),
        ("failed", "TasksFailed"),
        ("of-a-later-release", "RequestsServed"),
    ],
)
def test_each_outcome_has_its_metric_and_its_log_line(api: Api, kind: str, metric: str) -> None:
    api.submissions.answer = ApiResponse(202, b"{}", TASK_ID, kind)
    api.call("POST", SUBMIT, loaded())
    [blob] = api.metrics()
    assert blob[metric] == [1.0]
    [definition] = blob["_aws"]["CloudWatchMetrics"]
    assert definition["Namespace"] == "Delegation"
    assert [sorted(one) for one in definition["Dimensions"]] == [["service"], ["operation", "service"]]
    [line] = api.lines
    assert (line["outcome"], line["task_id"], line["status"]) == (kind, TASK_ID, 202)


def test_unknown_resources_are_counted_as_one_operation(api: Api) -> None:
    for path in ("/a", "/b", "/c"):
        api.call("GET", path)
    assert {blob["operation"] for blob in api.metrics()} == {"unknown"}


def test_log_lines_carry_the_correlation_id_of_the_payload_or_of_the_request(api: Api) -> None:
    api.call("POST", SUBMIT, loaded())
    api.call("GET", "/v1/config", headers={"X-Request-ID": "mine"})
    api.call("GET", "/v1/config")
    assert [line["correlation_id"] for line in api.lines] == [
        "drop-t1-request-uuid-1234",
        "mine",
        "41b45ea3-70b5-11e6-b7bd-69b5aaebc7d9",
    ]


@pytest.mark.parametrize("given", ["a-b", "x" * 128])
def test_a_request_id_is_echoed(api: Api, given: str) -> None:
    assert header(api.call("GET", "/v1/config", headers={"X-Request-Id": given}), "X-Request-ID") == given


@pytest.mark.parametrize("given", ["", "a\r\nSet-Cookie: x", "é", "x" * 129])
def test_a_request_id_that_cannot_be_echoed_is_replaced(api: Api, given: str) -> None:
    response = api.call("GET", "/nowhere", headers={"X-Request-Id": given})
    assert header(response, "X-Request-ID") == "41b45ea3-70b5-11e6-b7bd-69b5aaebc7d9"


SECRET_BEARING = [
    loaded(),
    changed(loaded(), "operation_parameters/metadata/table-uuid", SECRET),
    changed(loaded(), "operation_parameters/config", SECRET),
    changed(loaded(), "operation_parameters/config", {"s3.session-token": [SECRET]}),
    changed(loaded(), "operation_parameters/storage-credentials", [SECRET]),
    changed(loaded(), "common_payload/operation_type", SECRET),
    changed(loaded(), "common_payload/request_timestamp_utc", SECRET),
    changed(loaded(), "common_payload/realm_identifier", SECRET),
    f'{{"config": {SECRET}}}',
    f'{{"a": "{SECRET}", "a": 1}}',
    SECRET,
]


OUTCOMES = (None, RuntimeError(f"bug with {SECRET}"))
LOUD = ("POWERTOOLS_DEV", "POWERTOOLS_LOGGER_LOG_EVENT", "POWERTOOLS_DEBUG")
SURROUNDINGS = list(product(OUTCOMES, [(), LOUD]))
SECRET_REQUESTS = [
    (body, path, *surroundings)
    for number, (body, path) in enumerate(product(SECRET_BEARING, [EXECUTE, SUBMIT, "/v1/nowhere"]))
    for surroundings in (SURROUNDINGS if THOROUGH else [SURROUNDINGS[number % len(SURROUNDINGS)]])
]
"""Every body to every path; a short run takes the outcomes and variables in turn, so that all pairs are there."""


@pytest.mark.parametrize(("body", "path", "outcome", "variables"), SECRET_REQUESTS)
def test_no_log_line_metric_or_answer_contains_a_credential_of_a_request(
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
    body: Any,
    path: str,
    outcome: Exception | None,
    variables: tuple[str, ...],
) -> None:
    for variable in variables:
        monkeypatch.setenv(variable, "true")
    if outcome is not None:
        api.submissions.answer = outcome
    token = {"Authorization": f"Bearer {SECRET}", "Idempotency-Key": "k"}
    response = api.call("POST", path, body, headers=token)
    seen = [json.dumps(response), api.log.getvalue(), json.dumps(api.metrics()), api.output]
    seen += [repr(submission) for submission in api.submissions.submitted]
    seen += [repr(call) for call in api.submissions.executed]
    assert not any(SECRET in text for text in seen)
    assert api.lines
