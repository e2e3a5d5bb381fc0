import json
import ssl

import httpx
import pytest

from delegation.client.conversations import SUBMIT, Bearer, Send, submission
from delegation.client.errors import (
    AnswerLost,
    Conflict,
    IdempotencyKeyConflict,
    IdempotencyWindowExpired,
    InvalidRequest,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    RequestStillRunning,
    ServiceFailed,
    ServiceUnreachable,
    TaskFailed,
    TlsRefused,
    TokenUnavailable,
    UnexpectedAnswer,
)
from delegation.polaris.answers import PolarisUnauthorized
from tests.unit.client.service import (
    CONFIG,
    SUCCEEDED,
    SUPPORTED,
    SYNCHRONOUS,
    TASK_ID,
    TASKS,
    in_progress,
    json_answer,
    record,
    refusal,
)

PAYLOAD = {"snapshot-id": 9_223_372_036_854_775_807}


def test_success_is_returned_with_exact_counts(service):
    service.answer("POST", SYNCHRONOUS, json_answer(200, SUCCEEDED))
    outcome = service.client.execute(PAYLOAD)
    assert outcome.delegation_task_id == TASK_ID
    assert outcome.execution_result.bytes_deleted == 9_007_199_254_740_993
    (request,) = service.asked("POST", SYNCHRONOUS)
    assert json.loads(request.content) == PAYLOAD
    assert request.headers["Authorization"] == "Bearer token-1"
    assert request.headers["Idempotency-Key"] == "key-1"


def test_in_progress_is_repeated_with_one_key_after_the_requested_pause(service):
    service.answer("POST", SYNCHRONOUS, in_progress("2"), in_progress("7"), json_answer(200, SUCCEEDED))
    service.client.execute(PAYLOAD)
    assert service.sent_keys(SYNCHRONOUS) == ["key-1"] * 3
    assert service.slept == [2.0, 7.0]
    assert len({request.content for request in service.asked("POST", SYNCHRONOUS)}) == 1


def test_each_call_has_a_new_key_and_the_config_is_requested_once(service):
    service.answer("POST", SYNCHRONOUS, json_answer(200, SUCCEEDED))
    service.client.execute(PAYLOAD)
    service.client.execute(PAYLOAD)
    service.client.config()
    assert service.sent_keys(SYNCHRONOUS) == ["key-1", "key-2"]
    assert len(service.asked("GET", CONFIG)) == 1


def test_given_key_is_sent_with_and_without_support(service, service_with):
    accepted = {"delegation_task_id": TASK_ID, "status": "QUEUED", "status_query_url": f"{TASKS}/{TASK_ID}"}
    service.answer("POST", TASKS, refusal(503, "STORE_UNAVAILABLE"), json_answer(202, accepted))
    assert service.client.submit(PAYLOAD, key="mine").status_query_url == f"{TASKS}/{TASK_ID}"
    assert service.sent_keys(TASKS) == ["mine", "mine"]
    service = service_with({})
    service.answer("POST", SYNCHRONOUS, in_progress())
    with pytest.raises(RequestStillRunning):
        service.client.execute(PAYLOAD, key="mine")
    assert service.sent_keys(SYNCHRONOUS) == ["mine"]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_failure_without_outcome_is_repeated(service, status):
    service.answer(
        "POST", SYNCHRONOUS, json_answer(status, {"message": "Endpoint request timed out"}), json_answer(200, SUCCEEDED)
    )
    service.client.execute(PAYLOAD)
    assert service.sent_keys(SYNCHRONOUS) == ["key-1", "key-1"]
    assert service.slept == [1.0]


@pytest.mark.parametrize("error", [httpx.ReadTimeout("t"), httpx.RemoteProtocolError("r"), httpx.ConnectError("c")])
def test_lost_answer_is_repeated(service, error):
    service.answer("POST", SYNCHRONOUS, error, json_answer(200, SUCCEEDED))
    service.client.execute(PAYLOAD)
    assert service.sent_keys(SYNCHRONOUS) == ["key-1", "key-1"]


def test_pauses_grow_to_half_a_minute(service):
    answers = [refusal(503, "STORE_UNAVAILABLE")] * 7
    service.answer("POST", SYNCHRONOUS, *answers, json_answer(200, SUCCEEDED))
    service.client.execute(PAYLOAD)
    assert service.slept == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_retries_end_with_the_advertised_lifetime(service_with):
    service = service_with({**SUPPORTED, "idempotency-key-lifetime": "PT1M"})
    service.answer("POST", SYNCHRONOUS, in_progress("25"))
    with pytest.raises(IdempotencyWindowExpired) as caught:
        service.client.execute(PAYLOAD)
    assert service.slept == [25.0, 25.0]  # a third pause would exceed the minute
    assert caught.value.key == "key-1"
    assert caught.value.delegation_task_id == TASK_ID
    assert isinstance(caught.value.__cause__, RequestStillRunning)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"idempotency-key-supported": "true"},
        {"idempotency-key-lifetime": "PT30M"},
        {"idempotency-key-supported": "false", "idempotency-key-lifetime": "PT30M"},
        {"idempotency-key-supported": True, "idempotency-key-lifetime": "PT30M"},
        {"idempotency-key-supported": "true", "idempotency-key-lifetime": "30m"},
        {"idempotency-key-supported": "true", "idempotency-key-lifetime": "PT0S"},
        {"idempotency-key-supported": "true", "idempotency-key-lifetime": "PTsoon"},
        {"idempotency-key-supported": "true", "idempotency-key-lifetime": 1800},
    ],
)
@pytest.mark.parametrize(
    ("answer", "error"), [(in_progress(), RequestStillRunning), (refusal(502, "POLARIS_UNAVAILABLE"), ServiceFailed)]
)
def test_nothing_is_repeated_unless_both_properties_are_valid(service_with, properties, answer, error):
    service = service_with(properties)
    service.answer("POST", SYNCHRONOUS, answer)
    with pytest.raises(error):
        service.client.execute(PAYLOAD)
    assert service.sent_keys(SYNCHRONOUS) == [None]
    assert service.slept == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refusal(400, "INVALID_REQUEST"), InvalidRequest),
        (refusal(403, "REALM_MISMATCH"), NotPermitted),
        (refusal(404, "NO_SUCH_TABLE"), NotFound),
        (refusal(409, "TASK_EXISTS"), Conflict),
        (refusal(409, "GC_DISABLED", status="FAILED_TERMINAL"), TaskFailed),
        (refusal(422, "idempotency_key_conflict"), IdempotencyKeyConflict),
        (refusal(500, "LOST", status="FAILED_TERMINAL"), TaskFailed),
    ],
)
def test_final_error_is_raised_at_once_with_its_fields(service, answer, error):
    service.answer("POST", SYNCHRONOUS, answer)
    with pytest.raises(error) as caught:
        service.client.execute(PAYLOAD)
    assert len(service.asked("POST", SYNCHRONOUS)) == 1
    body = json.loads(answer.content)
    assert (caught.value.http_status, caught.value.error_code) == (answer.status_code, body["error_code"])
    assert (caught.value.message, caught.value.status) == ("as scripted", body.get("status"))


@pytest.mark.parametrize("answer", [refusal(404, "NOT_FOUND"), json_answer(404, {"message": "Not Found"})])
def test_service_without_a_configuration_supports_no_keys(service, answer):
    """Idempotency-Key proposal, Discovery: without the two properties clients treat keys as unsupported."""
    service.answer("GET", CONFIG, answer)
    service.answer("POST", SYNCHRONOUS, json_answer(200, SUCCEEDED))
    service.client.execute(PAYLOAD)
    service.client.execute(PAYLOAD)
    assert service.sent_keys(SYNCHRONOUS) == [None, None]
    assert len(service.asked("GET", CONFIG)) == 1
    service.answer("POST", SYNCHRONOUS, in_progress())
    with pytest.raises(RequestStillRunning):
        service.client.execute(PAYLOAD)
    assert service.slept == []


@pytest.mark.parametrize("retryable", [True, None, "false"])
def test_failure_that_is_not_said_to_be_permanent_is_repeated(service, retryable):
    service.answer(
        "POST", SYNCHRONOUS, refusal(502, "POLARIS_UNAVAILABLE", retryable=retryable), json_answer(200, SUCCEEDED)
    )
    service.client.execute(PAYLOAD)
    assert len(service.asked("POST", SYNCHRONOUS)) == 2


def test_error_body_of_api_gateway_is_read(service):
    service.answer("POST", SYNCHRONOUS, json_answer(403, {"message": "User is not authorized"}))
    with pytest.raises(NotPermitted) as caught:
        service.client.execute(PAYLOAD)
    assert (caught.value.error_code, caught.value.message) == ("HTTP_403", "User is not authorized")


def test_no_token_and_no_body_is_in_the_text_of_a_step():
    """A traceback with locals, and a log of steps, have it."""
    request = submission(SUBMIT, {"secret": "of-the-caller"}, None)
    for step in (Bearer("t0ken"), Send(request, "t0ken")):
        assert "t0ken" not in repr(step)
        assert "of-the-caller" not in repr(step)


def test_refused_token_is_replaced_once(service):
    service.answer("POST", SYNCHRONOUS, refusal(401, "UNAUTHORIZED"), json_answer(200, SUCCEEDED))
    service.client.execute(PAYLOAD)
    sent = [request.headers["Authorization"] for request in service.asked("POST", SYNCHRONOUS)]
    assert sent == ["Bearer token-1", "Bearer token-2"]
    assert service.sent_keys(SYNCHRONOUS) == ["key-1", "key-1"]


def test_second_refusal_of_a_token_is_final(service):
    service.answer("POST", SYNCHRONOUS, refusal(401, "UNAUTHORIZED"))
    with pytest.raises(NotAuthenticated):
        service.client.execute(PAYLOAD)
    assert len(service.asked("POST", SYNCHRONOUS)) == 2


def test_refusal_by_the_token_endpoint_is_reported_without_its_message(service, monkeypatch):
    def refuse():
        raise PolarisUnauthorized("bad secret hunter2", status=401, error_type="unauthorized_client")

    monkeypatch.setattr(service.tokens, "token", refuse)
    with pytest.raises(TokenUnavailable, match="401 unauthorized_client") as caught:
        service.client.config()
    assert "hunter2" not in str(caught.value)


def test_nothing_is_posted_to_an_unreachable_service(service):
    service.answer("GET", CONFIG, httpx.ConnectError("refused"))
    with pytest.raises(ServiceUnreachable):
        service.client.execute(PAYLOAD)
    assert service.asked("POST", SYNCHRONOUS) == []
    assert service.slept == [1.0, 2.0, 4.0]


def test_reads_are_retried(service):
    path = f"{TASKS}/{TASK_ID}"
    service.answer(
        "GET", path, httpx.ReadTimeout("slow"), refusal(503, "STORE_UNAVAILABLE"), json_answer(200, record())
    )
    assert service.client.get(TASK_ID).files_planned == 400


def test_unknown_task_is_not_found(service):
    service.answer("GET", f"{TASKS}/nope%2F..", refusal(404, "TASK_NOT_FOUND"))
    with pytest.raises(NotFound) as caught:
        service.client.get("nope/..")
    assert caught.value.error_code == "TASK_NOT_FOUND"


def test_record_of_a_newer_service_is_kept_whole(service):
    service.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, record()))
    view = service.client.get(TASK_ID)
    assert view.table == "lake.sales.eu.orders"
    assert view.model_dump()["added_by_a_later_release"] == {"x": 1}


@pytest.mark.parametrize("payload", ["", "not json", "[1]", '{"operation_parameters": {"table_identity": "odd"}}'])
def test_payload_of_another_behavior_names_no_table(service, payload):
    service.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, record(task_payload=payload)))
    assert service.client.get(TASK_ID).table is None


def test_following_yields_each_change_once_and_ends_with_the_outcome(service):
    steps = [
        record(),
        record(),
        record(revision=10, files_deleted=200),
        record(version=4, revision=11, status="SUCCESS"),
    ]
    service.answer("GET", f"{TASKS}/{TASK_ID}", *(json_answer(200, step) for step in steps))
    seen = [(view.version, view.files_deleted) for view in service.client.follow(TASK_ID, interval_seconds=0.5)]
    assert seen == [(3, 100), (3, 200), (4, 100)]
    assert service.slept == [0.5, 0.5, 0.5]


def test_following_ends_at_the_timeout(service):
    service.answer("GET", f"{TASKS}/{TASK_ID}", json_answer(200, record()))
    assert [view.status for view in service.client.follow(TASK_ID, timeout_seconds=3)] == ["RUNNING"]
    assert service.slept == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"status": "COMPLETED_SUCCESS"}'])
def test_success_with_an_invalid_body_is_an_error(service, body):
    service.answer("POST", SYNCHRONOUS, httpx.Response(200, content=body))
    with pytest.raises(UnexpectedAnswer):
        service.client.execute(PAYLOAD)


def ssl_failure(error: ssl.SSLError) -> httpx.TransportError:
    failure = httpx.ReadError("tls")
    failure.__cause__ = error
    return failure


def alert(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    return error


@pytest.mark.parametrize("reason", ["TLSV13_ALERT_CERTIFICATE_REQUIRED", "TLSV1_ALERT_UNKNOWN_CA"])
def test_refused_certificate_is_reported_without_retries(service, reason):
    service.answer("GET", CONFIG, ssl_failure(alert(reason)))
    with pytest.raises(TlsRefused, match=reason):
        service.client.config()
    assert service.slept == []


def test_other_tls_failure_is_a_lost_answer(service):
    service.answer("GET", CONFIG, ssl_failure(alert("APPLICATION_DATA_AFTER_CLOSE_NOTIFY")))
    with pytest.raises(AnswerLost):
        service.client.config()
