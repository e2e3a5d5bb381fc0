"""Waiting for a task while the service restarts; the suite runs with both clients."""

import httpx
import pytest

from delegation.client.errors import (
    NotFound,
    PermanentFailure,
    ServiceFailed,
    ServiceUnreachable,
    TokenUnavailable,
    WaitTimedOut,
)
from delegation.polaris.answers import PolarisUnauthorized, PolarisUnavailable
from tests.unit.client.service import TASK_ID, TASKS, json_answer, record, refusal

TASK = f"{TASKS}/{TASK_ID}"
DOWN = httpx.ConnectError("refused")


def answered(**changes):
    return json_answer(200, record(**changes))


def ended():
    return answered(version=4, revision=11, status="SUCCESS")


@pytest.mark.parametrize(
    "failure",
    [DOWN, httpx.ReadTimeout("slow"), refusal(503, "STORE_UNAVAILABLE"), refusal(502, "BAD_GATEWAY")],
    ids=["refused connections", "lost answers", "503", "502"],
)
def test_a_wait_outlives_an_outage_of_any_length(service, failure):
    service.answer("GET", TASK, answered(), *[failure] * 40, ended())
    assert service.client.wait(TASK_ID).succeeded
    assert sum(service.slept) > 600
    assert len(service.repeats) == 40


def issuing(service, *failures):
    """Have the token source fail after its first token, and recover then."""
    answers = iter(["token-1", *failures])

    def token():
        found = next(answers, "token-1")
        if isinstance(found, Exception):
            raise found
        return found

    service.tokens.token = token


def test_a_wait_outlives_an_outage_of_the_issuer_of_tokens(service):
    """A token lasts an hour, a purge may take many; a restart of Polaris, which issues them, ended the wait."""
    issuing(service, *[PolarisUnavailable("Polaris did not answer: ConnectError")] * 40)
    service.answer("GET", TASK, answered(), ended())
    assert service.client.wait(TASK_ID).succeeded
    assert sum(service.slept) > 600


def test_a_client_that_the_issuer_refuses_ends_a_wait_at_once(service):
    issuing(service, PolarisUnauthorized("refused", status=401))
    service.answer("GET", TASK, answered(), ended())
    with pytest.raises(TokenUnavailable, match="answered 401"):
        service.client.wait(TASK_ID)


def test_following_a_task_outlives_an_outage(service):
    service.answer("GET", TASK, answered(), *[DOWN] * 9, answered(revision=10), *[DOWN] * 9, ended())
    assert [task.revision for task in service.client.follow(TASK_ID)] == [9, 10, 11]


def test_pauses_start_anew_with_each_outage(service):
    service.answer("GET", TASK, answered(), DOWN, DOWN, answered(revision=10), DOWN, ended())
    service.client.wait(TASK_ID)
    assert service.slept == [1.0, 1.0, 2.0, 1.0, 1.0]


def test_a_wait_with_a_timeout_ends_at_it_although_the_service_is_away(service):
    service.answer("GET", TASK, answered(), DOWN)
    with pytest.raises(WaitTimedOut) as caught:
        service.client.wait(TASK_ID, timeout_seconds=100)
    assert sum(service.slept) == 100
    assert caught.value.task.files_deleted == 100


def test_a_wait_for_a_task_that_was_never_read_ends_at_its_timeout_with_the_last_error(service):
    service.answer("GET", TASK, DOWN)
    with pytest.raises(ServiceUnreachable):
        service.client.wait(TASK_ID, timeout_seconds=100)
    assert sum(service.slept) == 100


def test_a_request_of_a_wait_gets_no_more_time_than_is_left(service):
    service.answer("GET", TASK, answered())
    with pytest.raises(WaitTimedOut):
        service.client.wait(TASK_ID, timeout_seconds=4)
    limits = [request.extensions["timeout"]["read"] for request in service.asked("GET", TASK)]
    assert limits == [4, 3, 1, 1]


def test_a_wrong_address_is_reported_after_a_few_tries(service):
    service.answer("GET", TASK, DOWN)
    with pytest.raises(ServiceUnreachable):
        service.client.wait(TASK_ID)
    assert len(service.asked("GET", TASK)) == 4


def test_a_service_that_answered_this_client_before_is_waited_for(service):
    service.answer("GET", TASK, *[DOWN] * 20, ended())
    service.client.config()
    assert service.client.wait(TASK_ID).succeeded


@pytest.mark.parametrize(
    ("answer", "error"),
    [(refusal(404, "TASK_NOT_FOUND"), NotFound), (refusal(500, "BROKEN", retryable=False), PermanentFailure)],
)
def test_a_final_answer_ends_a_wait_at_once(service, answer, error):
    service.answer("GET", TASK, answered(), answer)
    with pytest.raises(error):
        service.client.wait(TASK_ID)
    assert len(service.asked("GET", TASK)) == 2


def test_a_client_without_repeats_reports_an_outage_at_once(service):
    service.answer("GET", TASK, answered(), refusal(503, "BUSY"))
    with pytest.raises(ServiceFailed):
        service.client.without_repeats().wait(TASK_ID)


@pytest.mark.parametrize("key", ["", "two words", "line\nbreak", "é", "-x", "x" * 256, "k\r\nX-Other: 1"])
def test_a_malformed_key_is_refused_before_anything_is_sent(service, key):
    """It was repeated as if its answer had been lost."""
    with pytest.raises(ValueError, match="the idempotency key must be 1 to 255 characters"):
        service.client.submit({}, key=key)
    assert (service.requests, service.slept) == ([], [])
