"""How far a task is and what comes next, as `GET /v1/tasks/{taskId}` says it at a moment."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.edge.outlook import outlook_of, percent_of
from delegation.tasks.life import transitions as t
from delegation.tasks.life.lanes import Lane, Traits
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.progress import TaskProgress
from delegation.wire.tasks import Outlook, TaskRecord
from delegation.wiring.types import TYPES
from tests.kit.tasks.builders import (
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    acquired,
    failed,
    in_status,
    retried,
    started,
    submitted,
    succeeded,
    touched,
)
from tests.unit.edge.api.test_app import body_of
from tests.unit.edge.api.test_openapi import errors_of
from tests.unit.edge.conftest import NOW as ANSWERED
from tests.unit.edge.conftest import TASK_ID, Api
from tests.unit.tasks.strategies import tasks

MOMENTS = st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1), timezones=st.just(NOW.tzinfo))  # noqa: DTZ001
NOTHING: dict[str, Any] = dict.fromkeys(("progress", "rate", "eta_ts", "next_attempt", "next_step", "last_error"))


def outlook(task: Task, after: timedelta = 0 * SECOND) -> Outlook:
    """Return a task's outlook, which has to be as described."""
    found = outlook_of(task, NOW + after, TYPES)
    assert errors_of("Outlook", found) == []
    return Outlook.model_validate(found)


def deleting(**changes: Any) -> Task:
    running = started(acquired(submitted()), effects=True)
    made = {"files_planned": 1_000, "files_deleted": 400, "files_per_second": 50, "progress_ts": NOW, **changes}
    return touched(running, eta_ts=NOW + 12 * SECOND, **made)


def test_a_new_task_only_has_its_first_attempt_ahead() -> None:
    found = outlook(submitted(next_scheduled_run_ts=NOW + MINUTE), 20 * SECOND)
    assert found.model_dump() == {
        "as_of": NOW + 20 * SECOND,
        **NOTHING,
        "next_attempt": {"number": 1, "at": NOW + MINUTE, "seconds": 40.0, "awaits_admission": False, "lane": None},
    }


def test_a_running_purge_says_how_far_how_fast_and_until_when() -> None:
    found = outlook(deleting(), SECOND)
    assert found.progress.model_dump() == {
        "done": 400,
        "total": 1_000,
        "unit": "files",
        "percent": 40.0,
        "message": None,
        "reported_ts": NOW,
    }
    assert (found.rate.per_second, found.rate.unit) == (50, "files")
    assert found.eta_ts == NOW + 12 * SECOND
    assert (found.next_attempt, found.last_error) == (None, None)


def test_an_end_that_was_expected_in_the_past_is_not_repeated() -> None:
    assert outlook(deleting(), 12 * SECOND).eta_ts is None
    assert outlook(deleting(), 12 * SECOND).rate is not None


def test_a_lost_attempt_has_no_speed_and_a_next_attempt() -> None:
    found = outlook(deleting(), HOUR)
    assert (found.rate, found.eta_ts) == (None, None)
    assert (found.next_attempt.number, found.next_attempt.at, found.next_attempt.seconds) == (2, NOW + HOUR, 0.0)


def test_a_function_s_own_report_is_its_progress() -> None:
    report = TaskProgress(done=3, total=7, unit="partitions", message="eu")
    found = outlook(touched(started(acquired(submitted(task_type="acme.report"))), progress=report, progress_ts=NOW))
    assert (found.progress.done, found.progress.unit, found.progress.percent) == (3, "partitions", 42.8)
    assert (found.progress.message, found.rate) == ("eu", None)


def test_a_dry_run_deletes_nothing_so_planned_files_are_no_progress() -> None:
    plan = touched(started(acquired(submitted(task_type="TABLE_PURGE_PLAN"))), files_planned=1_000)
    assert outlook(plan).progress is None


def test_a_purge_that_ended_keeps_its_progress_and_has_nothing_ahead() -> None:
    found = outlook(succeeded(deleting(files_deleted=1_000)))
    assert found.progress.percent == 100.0
    assert (found.rate, found.eta_ts, found.next_attempt, found.last_error) == (None,) * 4


def test_a_scheduled_retry_names_its_error_and_its_time() -> None:
    found = outlook(retried(acquired(submitted()), NOW, NOW + 90 * SECOND), 30 * SECOND)
    assert (found.next_attempt.number, found.next_attempt.seconds) == (2, 60.0)
    assert found.last_error.model_dump() == {"code": "TIMEOUT", "message": "timed out", "at": NOW, "attempt": 1}


def test_the_error_before_a_running_attempt_is_still_named() -> None:
    again = acquired(retried(acquired(submitted())), "worker-2", NOW + MINUTE)
    found = outlook(started(again, NOW + MINUTE), 2 * MINUTE)
    assert (found.last_error.attempt, found.last_error.at) == (1, NOW)


def test_of_several_errors_the_last_is_named() -> None:
    first = retried(acquired(submitted()))
    second = acquired(first, "w-2", NOW + MINUTE)
    text = "gone\nfor attempt 9 X: y\n2026-99-99T00:00:00Z attempt 7 X: y"
    lost = t.fail(second, NOW + 2 * MINUTE, code="LOST", summary=text)
    found = outlook(lost, HOUR)
    assert found.last_error.model_dump() == {"code": "LOST", "message": text, "at": NOW + 2 * MINUTE, "attempt": 2}
    assert found.next_attempt is None


@pytest.mark.parametrize("code", ["HANDED_OVER", "CHILDREN_PENDING"])
def test_a_hand_over_is_no_error(code: str) -> None:
    def handed_over(task: Task) -> Task:
        return t.schedule_retry(acquired(task), NOW, at=NOW, grace=MINUTE, code=code, summary="continues elsewhere")

    assert outlook(handed_over(submitted())).last_error is None
    found = outlook(handed_over(retried(acquired(submitted()))))
    assert found.last_error.code == "TIMEOUT"


def test_a_task_submitted_again_has_no_error_of_before() -> None:
    ended = failed(acquired(submitted()))
    again = t.resubmit(ended, NOW, payload="{}", synchronous=False, grace=MINUTE, restarted={})
    assert outlook(again).last_error is None


def test_a_task_that_waits_for_its_admission_says_so() -> None:
    lane = Lane.of("TABLE_PURGE", Traits("sales", "lake")).text
    found = outlook(t.queued(submitted(), lane, NOW), MINUTE)
    assert (found.next_attempt.seconds, found.next_attempt.awaits_admission) == (0.0, True)


def test_details_of_a_newer_release_hide_only_the_progress() -> None:
    found = outlook(deleting(files_planned="many"))
    assert (found.progress, found.rate) == (None, None)
    assert found.eta_ts is not None


@given(task=tasks(), now=MOMENTS)
def test_every_record_has_an_outlook_as_described(task: Task, now: datetime) -> None:
    found = outlook_of(task, now, TYPES)
    assert errors_of("Outlook", found) == []
    assert outlook_of(task, now, TYPES) == found
    parsed = Outlook.model_validate(found)
    assert parsed.eta_ts is None or parsed.eta_ts > now
    assert parsed.next_attempt is None or parsed.next_attempt.seconds >= 0
    if task.is_terminal:
        assert (parsed.rate, parsed.eta_ts, parsed.next_attempt) == (None, None, None)


@given(done=st.integers(0, 2**63), total=st.integers(0, 2**63))
def test_a_hundred_percent_means_that_nothing_is_left(done: int, total: int) -> None:
    percent = percent_of(done, total)
    if total == 0:
        assert percent is None
    else:
        assert percent is not None
        assert 0 <= percent <= 100
        assert (percent == 100.0) is (done >= total)


def test_one_task_and_a_list_have_it_and_what_is_stored_does_not(api: Api) -> None:
    held = in_status(Status.RUNNING, task_id=TASK_ID, received_timestamp=ANSWERED)
    api.tasks.tasks = {TASK_ID: held.evolve(version=1)}
    one = TaskRecord.of(body_of(api.call("GET", f"/v1/tasks/{TASK_ID}")))
    (listed,) = body_of(api.call("GET", "/v1/tasks"))["tasks"]
    assert one.outlook.as_of == ANSWERED
    assert Outlook.model_validate(listed["outlook"]) == one.outlook
    assert listed["outlook"]["as_of"] == "2026-11-21T03:00:00.000000Z"
    (version,) = body_of(api.call("GET", f"/v1/tasks/{TASK_ID}/versions"))["versions"]
    assert "outlook" not in version
    assert "outlook" not in body_of(api.call("POST", f"/v1/tasks/{TASK_ID}/cancel"))
