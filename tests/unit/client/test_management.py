"""The client reads a task's versions and receipt, cancels it and retries it."""

from datetime import UTC, datetime

import pytest

from delegation.client.errors import Conflict, NotFound, ServiceFailed
from tests.unit.client.service import ROOT, TASK_ID, TASKS, json_answer, record, refusal

TASK = f"{TASKS}/{TASK_ID}"


def test_versions_are_read_page_by_page(service):
    first = {"versions": [record(version=1), record(version=2)], "next_page_token": "t/2"}
    last = {"versions": [record(version=3)]}
    service.answer("GET", f"{TASK}/versions", json_answer(200, first), json_answer(200, last))
    assert [each.version for each in service.client.versions(TASK_ID, page_size=2)] == [1, 2, 3]
    asked = [dict(request.url.params) for request in service.asked("GET", f"{TASK}/versions")]
    assert asked == [{"page_size": "2"}, {"page_size": "2", "page_token": "t/2"}]


def test_a_list_is_read_page_by_page_with_its_filters(service):
    first = {"tasks": [record(version=1)], "unreadable": [], "next_page_token": "t/2"}
    empty = {"tasks": [], "unreadable": [{"task_id": "x", "reason": "newer"}], "next_page_token": "t/3"}
    last = {"tasks": [record(version=2)], "unreadable": [], "next_page_token": None}
    service.answer("GET", TASKS, *[json_answer(200, page) for page in (first, empty, last)])
    since = datetime(2026, 11, 22, 8, tzinfo=UTC)
    found = service.client.list(status=("RUNNING", "FAILURE"), table="lake.ä b.c", since=since, type=None, page_size=1)
    assert [each.version for each in found] == [1, 2]
    since = "2026-11-22T08:00:00.000000Z"
    query = {"status": "RUNNING,FAILURE", "table": "lake.ä b.c", "since": since, "page_size": "1"}
    asked = [dict(request.url.params) for request in service.asked("GET", TASKS)]
    assert asked == [query, {**query, "page_token": "t/2"}, {**query, "page_token": "t/3"}]


def test_one_page_of_a_list(service):
    page = {"tasks": [], "unreadable": [{"task_id": "x", "reason": "newer"}], "next_page_token": "t/3"}
    service.answer("GET", TASKS, json_answer(200, page))
    found = service.client.list_page(status="RUNNING", type="TABLE_PURGE", correlation_id="c-1", token="t/2")
    assert (found.unreadable[0].task_id, found.next_page_token) == ("x", "t/3")
    query = {"status": "RUNNING", "type": "TABLE_PURGE", "correlation_id": "c-1", "page_token": "t/2"}
    assert [dict(request.url.params) for request in service.asked("GET", TASKS)] == [query]


def test_pages_of_tasks_are_given_whole_even_empty_ones(service):
    pages = [
        {"tasks": [record()], "next_page_token": "a"},
        {"tasks": [], "next_page_token": "b"},
        {"tasks": [record()]},
    ]
    service.answer("GET", TASKS, *(json_answer(200, page) for page in pages))
    assert [len(page.tasks) for page in service.client.list_pages()] == [1, 0, 1]
    assert [request.url.query for request in service.asked("GET", TASKS)] == [b"", b"page_token=a", b"page_token=b"]


def test_a_receipt_keeps_members_that_this_release_does_not_know(service):
    found = {"format": 1, "task_id": TASK_ID, "status": "PURGED", "files_deleted": 9}
    service.answer("GET", f"{TASK}/receipt", json_answer(200, found))
    assert service.client.receipt(TASK_ID).model_dump() == found


def test_an_estimate_is_read_with_its_types(service):
    left = {"files_left": 3, "seconds_left": 0.5, "task_id": TASK_ID, "task_status": "SUCCESS", "engine": "inline"}
    total = {"files": 3, "bytes": 2**60}
    counts = {"by_type": {"data": total}, **total, "files_kept": 0, "findings": [{"code": "FILES_SHARED", "count": 1}]}
    rest = dict.fromkeys(("seconds", "emr_vcpu_hours", "emr_gb_hours", "lambda_gb_seconds", "cost"), 0.1)
    prices = {"currency": "USD", "prices_as_of": "2026-11-01", "prices_region": "eu-central-1"}
    requests = {"delete_requests": 1, "other_requests": 2, "keys_per_second": 3500.0}
    service.answer("GET", f"{TASK}/estimate", json_answer(200, {**left, **counts, **rest, **prices, **requests}))
    found = service.client.estimate(TASK_ID)
    assert (found.files_left, found.by_type["data"].bytes, found.findings[0].code) == (3, 2**60, "FILES_SHARED")


def test_the_place_of_a_task_is_read(service):
    place = {"task_id": TASK_ID, "waits": True, "lane": "TABLE_PURGE of sales", "place": 3, "reasons": ["all: 9 of 9"]}
    service.answer("GET", f"{TASK}/place", json_answer(200, place))
    found = service.client.place(TASK_ID)
    assert (found.waits, found.place, found.reasons) == (True, 3, ("all: 9 of 9",))


@pytest.mark.parametrize("part", ["receipt", "estimate"])
def test_a_part_that_a_task_lacks_is_not_found(service, part):
    service.answer("GET", f"{TASK}/{part}", refusal(404, f"{part.upper()}_NOT_FOUND"))
    with pytest.raises(NotFound, match=f"{part.upper()}_NOT_FOUND"):
        getattr(service.client, part)(TASK_ID)


def test_a_cancellation_is_repeated_after_a_failure_that_may_pass(service):
    refused = refusal(503, "STORE_UNAVAILABLE", retry_after="1")
    service.answer("POST", f"{TASK}/cancel", refused, json_answer(200, record(cancel_requested=True)))
    assert service.client.cancel(TASK_ID).cancel_requested
    assert service.slept == [1.0]


def test_a_retry_whose_answer_was_lost_is_not_a_conflict(service):
    lost = refusal(504, "TIMEOUT", retry_after="2")
    service.answer("POST", f"{TASK}/retry", lost, refusal(409, "TASK_NOT_FAILED"))
    service.answer("GET", TASK, json_answer(200, record(status="SUBMITTED")))
    assert service.client.retry(TASK_ID).status == "SUBMITTED"


def test_a_retry_of_a_task_that_did_not_fail_is_a_conflict(service):
    service.answer("POST", f"{TASK}/retry", refusal(409, "TASK_NOT_FAILED"))
    with pytest.raises(Conflict, match="TASK_NOT_FAILED"):
        service.client.retry(TASK_ID)


def test_a_service_that_is_down_is_asked_a_few_times(service):
    service.answer("GET", f"{ROOT}/v1/health", *[json_answer(503, {"status": "down"}, Retry_After="5")] * 4)
    with pytest.raises(ServiceFailed):
        service.client.health()
    assert service.slept == [5.0, 5.0, 5.0]
