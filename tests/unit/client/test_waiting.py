"""Waiting for a task, and the repeats that a client reports; the suite runs with both clients."""

import asyncio
import json
import logging
from datetime import timedelta

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegation.client.client import AsyncDelegationClient
from delegation.client.conversations import Repeat, SameKeyPauses, log_repeat, same_key_wait
from delegation.client.errors import (
    Conflict,
    HttpError,
    IdempotencyWindowExpired,
    PermanentFailure,
    RequestStillRunning,
    ServiceFailed,
    WaitTimedOut,
)
from delegation.identifiers import TableIdentifier
from delegation.wire.tables import PurgeRequest
from tests.unit.client.service import (
    CONFIG,
    SUCCEEDED,
    SYNCHRONOUS,
    TASK_ID,
    TASKS,
    Service,
    in_progress,
    json_answer,
    record,
    refusal,
)

TASK = f"{TASKS}/{TASK_ID}"
ACCEPTED = {"delegation_task_id": TASK_ID, "status": "QUEUED", "status_query_url": TASK}
PURGE = PurgeRequest(realm="POLARIS", identifier=TableIdentifier("lake", ("shop",), "orders"))


def answers(service, *steps):
    service.answer("GET", TASK, *(json_answer(200, step) for step in steps))


def test_waiting_returns_the_outcome_and_tells_of_each_change(service):
    answers(service, record(), record(), record(revision=10), record(version=4, revision=11, status="SUCCESS"))
    seen = []
    ended = service.client.wait(TASK_ID, on_progress=lambda task: seen.append((task.version, task.revision)))
    assert ended.succeeded
    assert seen == [(3, 9), (3, 10), (4, 11)]


def test_a_failed_task_is_an_outcome(service):
    answers(service, record(status="FAILURE", error_code="GC_DISABLED"))
    assert service.client.wait(TASK_ID).error_code == "GC_DISABLED"
    assert service.slept == []


def test_pauses_of_a_wait_grow_while_nothing_changes(service):
    steps = [record()] * 6 + [record(revision=10), record(revision=11, status="SUCCESS")]
    answers(service, *steps)
    service.client.wait(TASK_ID, longest_seconds=8)
    assert service.slept == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 1.0]


def test_a_wait_ends_at_its_timeout_with_the_task_as_read_last(service):
    answers(service, record())
    with pytest.raises(WaitTimedOut, match="still RUNNING") as caught:
        service.client.wait(TASK_ID, timeout_seconds=10)
    assert (caught.value.task.files_deleted, caught.value.delegation_task_id) == (100, TASK_ID)
    assert service.slept == [1.0, 2.0, 4.0, 3.0]


def test_each_repeat_is_reported_with_the_last_answer(service):
    service.answer(
        "POST", SYNCHRONOUS, in_progress("2"), refusal(503, "STORE_UNAVAILABLE"), json_answer(200, SUCCEEDED)
    )
    service.client.execute({})
    assert service.repeats == [
        "attempt 1 failed: as scripted (409 request_in_progress); the request is sent again in 2 s",
        "attempt 2 failed: as scripted (503 STORE_UNAVAILABLE); the request is sent again in 2 s",
    ]


def test_repeats_of_reads_are_reported_too(service):
    service.answer("GET", TASK, httpx.ReadTimeout("slow"), json_answer(200, record()))
    service.client.get(TASK_ID)
    assert [text.partition(";")[0] for text in service.repeats] == [
        "attempt 1 failed: https://edge.test/delegation-service/api did not answer: ReadTimeout"
    ]


def test_without_a_receiver_repeats_are_logged(caplog):
    with caplog.at_level(logging.WARNING, logger="delegation.client"):
        log_repeat(Repeat(3, ServiceFailed(refused(503)), 4.0))
    assert caplog.messages == ["attempt 3 failed: busy (503 BUSY); the request is sent again in 4 s"]


def refused(status):
    return HttpError(status, "BUSY", "busy")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refusal(409, "request_in_progress", retryable=False), Conflict),
        (refusal(429, "TOO_MANY", retryable=False), PermanentFailure),
        (refusal(500, "BROKEN", retryable=False), PermanentFailure),
    ],
)
def test_what_the_service_says_to_be_final_is_never_repeated(service, answer, error):
    service.answer("POST", SYNCHRONOUS, answer)
    with pytest.raises(error):
        service.client.execute({})
    assert len(service.asked("POST", SYNCHRONOUS)) == 1
    assert service.slept == service.repeats == []


@pytest.mark.parametrize(
    "answer",
    [json_answer(405, {}), httpx.Response(200, content=b"<html>"), json_answer(200, {"properties": ["odd"]})],
    ids=["no method", "no JSON", "odd properties"],
)
def test_a_discovery_that_cannot_be_read_means_no_support(service, answer):
    service.answer("GET", CONFIG, answer)
    service.answer("POST", SYNCHRONOUS, in_progress())
    with pytest.raises(RequestStillRunning):
        service.client.execute({})
    assert service.sent_keys(SYNCHRONOUS) == [None]
    assert service.slept == []


def test_a_service_that_does_not_answer_the_discovery_gets_no_request(service):
    service.answer("GET", CONFIG, refusal(403, "NOT_PERMITTED"))
    with pytest.raises(Exception, match="NOT_PERMITTED"):
        service.client.submit({})
    assert service.asked("POST", TASKS) == []


def test_the_end_of_the_window_names_the_last_answer(service_with):
    service = service_with({"idempotency-key-supported": "true", "idempotency-key-lifetime": "PT10S"})
    service.answer("POST", SYNCHRONOUS, refusal(503, "STORE_UNAVAILABLE"))
    with pytest.raises(IdempotencyWindowExpired, match="503 STORE_UNAVAILABLE") as caught:
        service.client.execute({})
    assert isinstance(caught.value.last, ServiceFailed)
    assert sum(service.slept) < 10


def test_a_purge_is_sent_as_its_operation(service):
    service.answer("POST", SYNCHRONOUS, json_answer(200, SUCCEEDED))
    service.answer("POST", TASKS, json_answer(202, ACCEPTED))
    service.client.execute(PURGE)
    service.client.submit(PURGE)
    sent = [json.loads(service.asked("POST", path)[0].content)["common_payload"] for path in (SYNCHRONOUS, TASKS)]
    assert [common["operation_type"] for common in sent] == ["SYNCHRONOUS_TABLE_PURGE", "TABLE_PURGE"]


@pytest.mark.parametrize(("dry_run", "query"), [(True, {"dry-run": "true"}), (False, {})])
def test_a_dry_run_is_asked_for_in_the_query(service, dry_run, query):
    service.answer("POST", TASKS, json_answer(202, ACCEPTED))
    service.client.submit(PURGE, dry_run=dry_run)
    assert dict(service.asked("POST", TASKS)[0].url.params) == query


def test_without_repeats_each_request_is_sent_once(service):
    service.answer("POST", TASKS, refusal(503, "STORE_UNAVAILABLE"))
    service.answer("GET", TASK, httpx.ReadTimeout("slow"))
    once = service.client.without_repeats()
    with pytest.raises(ServiceFailed):
        once.submit(PURGE, key="mine")
    with pytest.raises(Exception, match="did not answer"):
        once.get(TASK_ID)
    assert service.sent_keys(TASKS) == ["mine"]
    assert len(service.asked("GET", TASK)) == 1
    assert service.slept == []


@settings(max_examples=30, deadline=None)
@given(
    window=st.integers(1, 7200),
    asked=st.lists(st.none() | st.integers(0, 4000), min_size=1, max_size=40),
    sent=st.integers(0, 40),
)
def test_no_repeat_begins_when_the_key_may_be_forgotten(window, asked, sent):
    """Whatever the service asks for and however long its answers take, each repeat begins within the window."""
    elapsed, lifetime, pauses = timedelta(0), timedelta(seconds=window), SameKeyPauses()
    for attempt, seconds in enumerate(asked, start=1):
        error = ServiceFailed(HttpError(503, "BUSY", "busy", retry_after_seconds=seconds))
        elapsed += timedelta(seconds=sent)
        try:
            wait = same_key_wait(error, attempt, pauses, key="k", window=lifetime, elapsed=elapsed)
        except IdempotencyWindowExpired:
            assert elapsed + timedelta(seconds=pauses.wait(attempt, seconds)) >= lifetime
            return
        assert wait >= (seconds or 0)
        elapsed += timedelta(seconds=wait)
        assert elapsed < lifetime


def test_asyncio_waits_for_several_tasks_at_once_and_awaits_what_it_tells():
    service = Service()
    answers(service, record(), record(status="SUCCESS", revision=10))
    seen: list[str] = []

    async def receive(task) -> None:
        await asyncio.sleep(0)
        seen.append(task.status)

    async def both():
        http = httpx.AsyncClient(transport=httpx.MockTransport(service._handle))
        client = AsyncDelegationClient("https://edge.test/delegation-service/api", service.tokens, http=http)
        async with client, http:
            waits = (client.wait(TASK_ID, on_progress=receive, interval_seconds=0.001) for _ in range(2))
            return await asyncio.gather(*waits)

    assert [task.status for task in asyncio.run(both())] == ["SUCCESS", "SUCCESS"]
    assert seen.count("SUCCESS") == 2
