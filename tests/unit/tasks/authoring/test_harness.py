"""delegation.tasks.testing: tasks in memory, on a clock moved by hand."""

from datetime import timedelta

from delegation.tasks.authoring import behavior, retired
from delegation.tasks.life.model import Status
from delegation.tasks.testing import TaskHarness


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
