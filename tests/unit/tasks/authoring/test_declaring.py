"""A behavior declared over a plain function: its parameters, result, options and context."""

from datetime import date, timedelta

from pydantic import BaseModel

from delegation.tasks.authoring import Context, Retry, RunPostponed, behavior, retired
from delegation.tasks.life.model import Status
from delegation.tasks.testing import TaskHarness
from tests.kit.tasks.builders import MINUTE, SECOND


class Report(BaseModel):
    day: date
    rows: int


def test_a_plain_function_with_typed_parameters_is_a_behavior() -> None:
    @behavior("acme.report")
    def report(day: date, rows: int = 1) -> Report:
        return Report(day=day, rows=rows)

    harness = TaskHarness(report)
    handle = harness.submit(report.of(date(2026, 11, 22), rows=3))
    harness.run_until_idle()
    assert handle.result() == report(date(2026, 11, 22), rows=3) == Report(day=date(2026, 11, 22), rows=3)


def test_retries_are_declared_in_code_and_properties_take_precedence() -> None:
    @behavior("acme.flaky", retry=Retry(attempts=2, backoff=SECOND, on=(ConnectionError,)))
    def flaky(kind: str) -> None:
        raise ConnectionError("reset") if kind == "connection" else KeyError(kind)

    for properties, attempts in [({}, 2), ({"delegation.retry.acme.flaky.max-attempts": "4"}, 4)]:
        harness = TaskHarness(flaky, properties=properties)
        repeated, given_up = harness.submit(flaky.of("connection")), harness.submit(flaky.of("key"))
        harness.run_until_idle()
        assert repeated.get().attempt_count == attempts
        assert given_up.get().attempt_count == 1


def test_an_attempt_ends_at_its_time_limit() -> None:
    @behavior("acme.slow", timeout=10 * MINUTE, retry=Retry(attempts=1))
    def slow(context: Context) -> None:
        while True:
            harness.advance(MINUTE)
            context.checkpoint()

    harness = TaskHarness(slow)
    handle = harness.submit(slow.of())
    harness.run_until_idle()
    assert (handle.get().status, handle.get().error_code) == (Status.FAILURE, "TIMED_OUT")


def test_the_cursor_is_kept_over_lost_attempts_and_hand_overs() -> None:
    done: list[int] = []

    @behavior("acme.copy")
    def copy(context: Context) -> None:
        for row in range(context.cursor or 0, 10):
            context.checkpoint(cursor=row)
            done.append(row)
            harness.advance(5 * SECOND)

    harness = TaskHarness(copy)
    handle = harness.submit(copy.of())
    harness.crash(copy, at_checkpoint=4)
    harness.run_until_idle()
    harness.advance(2 * timedelta(hours=1))
    harness.hand_over(copy, at_checkpoint=4)
    harness.run_until_idle()
    assert handle.get().status is Status.SUCCESS
    assert handle.get().attempt_count == 3
    assert sorted(set(done)) == list(range(10))
    assert len(done) <= 11


def test_a_crashed_attempt_is_lost_and_another_one_succeeds() -> None:
    @behavior("acme.hello")
    def hello(name: str) -> str:
        return f"hello {name}"

    harness = TaskHarness(hello)
    harness.crash(hello, after_work=True)
    handle = harness.submit(hello.of("you"))
    harness.run_until_idle()
    assert handle.get().is_held
    harness.advance(timedelta(hours=1))
    harness.run_until_idle()
    assert (handle.get().status, handle.get().attempt_count, handle.result()) == (Status.SUCCESS, 2, "hello you")


def test_tasks_of_a_retired_kind_end_as_failures_and_recur_no_more() -> None:
    @behavior("acme.old", every=timedelta(hours=1))
    def old(name: str) -> None:
        raise AssertionError(name)

    harness = TaskHarness(retired("acme.old", "acme.new does its work"))
    handle = harness.submit(old.of("x"))
    harness.run_until_idle()
    assert (handle.get().status, handle.get().error_code) == (Status.FAILURE, "RETIRED")


def test_work_that_postpones_runs_again_after_its_wait_and_counts_no_attempt() -> None:
    postponed = iter([True] * 30 + [False])

    @behavior("acme.export")
    def export() -> str:
        if next(postponed):
            raise RunPostponed("the export runs", 10 * MINUTE)
        return "exported"

    harness = TaskHarness(export)
    handle = harness.submit(export.of())
    began = harness.now
    harness.run_due()
    task = handle.get()
    assert (task.status, task.error_code) == ("RETRY_SCHEDULED", "POSTPONED")
    assert "the export runs" in task.result_summary
    assert task.next_scheduled_run_ts == began + 10 * MINUTE
    harness.run_until_idle()
    assert handle.result() == "exported"
    assert harness.now == began + 300 * MINUTE
    assert handle.get().attempts_excused == 30
