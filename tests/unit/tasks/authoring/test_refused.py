"""Declarations, cursors and schedules that cannot be used are refused with the reason."""

from datetime import UTC, datetime, timedelta, timezone
from threading import Event
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from delegation.tasks.authoring import Context, OnLost, Retry, behavior
from delegation.tasks.errors import RunPostponed, TaskError
from delegation.tasks.life.declared import Recurrence
from delegation.tasks.life.model import Status
from delegation.tasks.submit import pause_after
from delegation.tasks.testing import TaskHarness
from delegation.tasks.work.behaviors import Behavior
from polaris_common.errors import DelegationError
from tests.effort import examples
from tests.kit.errors import coded
from tests.kit.tasks.builders import HOUR, MINUTE, NOW, in_status


def untyped(day) -> None: ...  # type: ignore[no-untyped-def]
def starred(*days: int) -> None: ...
def without_result(day: int): ...  # type: ignore[no-untyped-def]
def unstorable(hour: int, day: Event) -> None: ...
def unstorable_result(day: int) -> Event: ...  # type: ignore[empty-body]
def fine(day: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "reason"),
    [
        (untyped, {}, "the parameter day has no type"),
        (starred, {}, "the parameter days cannot be"),
        (unstorable, {}, "the parameter day .*Event"),
        (unstorable_result, {}, "the result .*Event"),
        (without_result, {}, "-> None"),
        (fine, {"task_type": "acme report"}, r"acme\.report"),
        (fine, {"timeout": timedelta(0)}, "timeout must be positive"),
        (fine, {"timeout": timedelta(days=3_000_000)}, "timeout .*3650 days"),
        (fine, {"concurrency": 0}, "concurrency must be at least 1"),
    ],
)
def test_a_function_that_cannot_be_a_behavior_is_refused(function: Any, options: Any, reason: str) -> None:
    with pytest.raises(DelegationError, check=coded("BAD_BEHAVIOR"), match=reason):
        behavior(**{"task_type": "acme.x", **options})(function)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"every": HOUR, "cron": "0 3 * * *"}, "not both"),
        ({"every": timedelta(milliseconds=5)}, "shorter than a second"),
        ({"every": timedelta(seconds=1.9)}, "whole number of seconds"),
        ({"every": timedelta(days=3_000_000)}, "longer than 3650 days"),
        ({"cron": "0 3 * *"}, "does not have five fields"),
        ({"cron": "61 3 * * *"}, "Bad minute"),
        ({"cron": "0 3 30 2 *"}, "Bad day-of-month"),
        ({"cron": "CRON_TZ=Mars/Base 0 3 * * *"}, "the time zone 'Mars/Base' is not known"),
        ({"cron": "CRON_TZ=America 0 3 * * *"}, "the time zone 'America' is not known"),
        ({"cron": "CRON_TZ= 0 3 * * *"}, "the time zone '' is not known"),
        ({"at": NOW, "delay": HOUR}, "`at` or `delay`"),
        ({"at": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - that is the fault
        ({"delay": -HOUR}, "negative"),
        ({"delay": timedelta.max}, "longer than 3650 days"),
        ({"at": datetime.max.replace(tzinfo=UTC)}, "more than 3650 days from now"),
        ({"at": datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))}, "more than 3650 days from now"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(options: Any, reason: str) -> None:
    harness = TaskHarness()
    with pytest.raises(DelegationError, check=coded("BAD_SCHEDULE"), match=reason):
        harness.submit(behavior("acme.x")(fine).of(1), **options)
    assert harness.store.heads().entries == ()


@pytest.mark.parametrize("deadline", [timedelta(0), timedelta.max])
def test_a_deadline_that_no_clock_can_show_is_refused(deadline: timedelta) -> None:
    with pytest.raises(DelegationError, check=coded("BAD_BEHAVIOR"), match="deadline must be positive"):
        Behavior("acme.x", BaseModel, lambda _parameters, _run: None, deadline=deadline)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("attempts", 0), ("multiplier", 0.5), ("multiplier", float("nan")), ("multiplier", float("inf"))),
        *(("backoff", -HOUR), ("longest", -HOUR), ("longest", timedelta.max)),
    ],
)
def test_a_retry_that_cannot_be_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        Retry(**{name: value})


@pytest.mark.parametrize("wait", [timedelta(days=-1), timedelta.max])
def test_work_is_postponed_by_a_time_that_can_be(wait: timedelta) -> None:
    with pytest.raises(ValueError, match="wait"):
        RunPostponed("a bill", wait)


def test_wrong_arguments_are_refused_at_the_submission() -> None:
    declared = behavior("acme.x")(fine)
    with pytest.raises(TypeError, match="day"):
        declared.of(days=1)  # type: ignore[call-arg]
    with pytest.raises(ValidationError, match="day"):
        declared.of("monday")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value", [float("inf"), float("nan"), {"a": [float("-inf")]}, "\ud800"], ids=["inf", "nan", "nested", "surrogate"]
)
def test_a_value_that_json_does_not_have_is_refused_as_a_parameter_and_as_a_result(value: Any) -> None:
    @behavior("acme.x", retry=Retry(attempts=1))
    def returned() -> object:
        return value

    @behavior("acme.y")
    def taken(given: object) -> None: ...

    harness = TaskHarness(returned, taken)
    for schedule in ({}, {"every": HOUR}):
        with pytest.raises(DelegationError, check=coded("ILLEGAL_PARAMETERS"), match=r"acme\.y"):
            harness.submit(taken.of(value), **schedule)  # type: ignore[arg-type]
    with pytest.raises(DelegationError, check=coded("ILLEGAL_PARAMETERS")):
        harness.tasks.submit_all([taken.of(1), taken.of(value)])
    assert harness.store.heads().entries == ()
    handle = harness.submit(returned.of())
    harness.run_until_idle()
    assert (handle.get().status, handle.get().error_code) == (Status.FAILURE, "ILLEGAL_RESULT")


@pytest.mark.parametrize("cursor", [{1, 2}, float("nan"), "x" * 5000])
def test_a_cursor_is_a_short_json_value(cursor: Any) -> None:
    @behavior("acme.x", retry=Retry(attempts=1))
    def work(context: Context) -> None:
        context.checkpoint(cursor=cursor)

    harness = TaskHarness(work)
    handle = harness.submit(work.of())
    harness.run_until_idle()
    assert (handle.get().status, handle.get().error_code) == (Status.FAILURE, "BAD_CURSOR")


def test_a_wrong_result_is_a_failure() -> None:
    @behavior("acme.x", retry=Retry(attempts=1))
    def work() -> int:
        return "many"  # type: ignore[return-value]

    harness = TaskHarness(work)
    handle = harness.submit(work.of())
    with pytest.raises(TaskError, check=coded("NO_OUTCOME_YET")):
        handle.result()
    harness.run_until_idle()
    assert handle.get().error_code == "ILLEGAL_RESULT"


def test_parameters_may_have_the_names_that_models_use() -> None:
    @behavior("acme.x")
    def work(copy: int, json: str, model_config: bool = True) -> list[object]:
        return [copy, json, model_config]

    harness = TaskHarness(work)
    handle = harness.submit(work.of(1, json="a"))
    harness.run_until_idle()
    assert handle.result() == [1, "a", True]
    assert handle.get().task_payload == '{"copy":1,"json":"a","model_config":true}'


def test_a_key_function_identifies_a_task_by_its_arguments() -> None:
    @behavior("acme.x", key=lambda day: f"day {day}", on_lost=OnLost.FAIL)
    def work(day: int) -> None: ...

    harness = TaskHarness(work)
    first, second, other = (harness.submit(work.of(day)) for day in (1, 1, 2))
    assert (first.task_id == second.task_id, first.task_id == other.task_id) == (True, False)
    harness.lose(work, after_work=True)
    harness.run_until_idle()
    assert {handle.get().error_code for handle in (first, other)} == {"LOST", None}


def test_a_time_that_daylight_saving_leaves_out_or_repeats_is_run_once() -> None:
    nightly = Recurrence(cron="CRON_TZ=Europe/Berlin 30 2 * * *")
    left_out = nightly.next_run(datetime(2026, 3, 28, 12, tzinfo=UTC))
    assert left_out == datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert nightly.next_run(left_out) == datetime(2026, 3, 30, 0, 30, tzinfo=UTC)
    began = nightly.next_run(datetime(2026, 10, 24, 12, tzinfo=UTC))
    assert began == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    # The run ends at 02:10, when the local clock shows that hour for the second time.
    for now in (began, began + timedelta(minutes=40)):
        assert nightly.next_run(now) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


@settings(max_examples=examples(300))
@given(
    minutes=st.integers(-60, 240),
    minute=st.sampled_from(["0", "30", "*/7", "59"]),
    hour=st.sampled_from(["*", "1", "2", "3", "*/2"]),
    zone=st.sampled_from(["Europe/Berlin", "Antarctica/Troll", "Atlantic/Azores", "UTC"]),
)
def test_the_next_time_is_later_than_now_when_clocks_are_set_back(minutes, minute, hour, zone):
    now = datetime(2026, 10, 25, tzinfo=UTC) + timedelta(minutes=minutes)
    assert Recurrence(cron=f"CRON_TZ={zone} {minute} {hour} * * *").next_run(now) > now


@given(status=st.sampled_from(Status), growing=st.floats(0.05, 60), late=st.integers(0, 7200))
def test_a_wait_reads_at_most_once_a_minute_and_never_spins(status: Status, growing: float, late: int) -> None:
    pause = pause_after(in_status(status), growing, NOW + timedelta(seconds=late))
    assert 0.05 <= pause <= 60


def test_a_wait_uses_the_times_on_the_record() -> None:
    held, waiting = in_status(Status.RUNNING), in_status(Status.RETRY_SCHEDULED)
    assert pause_after(held, 45.0, NOW) == 45.0
    assert pause_after(held, 45.0, NOW + HOUR) == 2.0
    assert pause_after(waiting, 0.05, NOW + MINUTE / 2) == 30.0
