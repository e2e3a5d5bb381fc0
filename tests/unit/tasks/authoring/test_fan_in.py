"""Parents that read the results of their children."""

import pytest

from delegation.tasks.authoring import ChildFailed, Context, Retry, behavior
from delegation.tasks.errors import AwaitedTaskFailed
from delegation.tasks.life.model import Status
from delegation.tasks.testing import MissingBehaviorError, TaskHarness
from tests.kit.tasks.builders import HOUR

runs: list[str] = []


@behavior("acme.half", retry=Retry(attempts=1))
def half(number: int) -> int:
    runs.append(f"half {number}")
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number // 2


@behavior("acme.halves")
def halves(context: Context, numbers: list[int]) -> int:
    runs.append("halves")
    return sum(context.gather([context.submit(half.of(number)) for number in numbers]))


@behavior("acme.some_halves")
def some_halves(context: Context, numbers: list[int]) -> list[str]:
    children = [context.submit(half.of(number)) for number in numbers]
    return [type(found).__name__ for found in context.gather(children, return_errors=True)]


@pytest.fixture(autouse=True)
def _no_runs() -> None:
    runs.clear()


def test_work_runs_again_only_when_its_children_have_ended() -> None:
    harness = TaskHarness(half, halves)
    handle = harness.submit(halves.of([2, 4, 6]))
    harness.run_until_idle()
    assert (handle.result(), len(handle.children())) == (6, 3)
    assert sorted(runs) == ["half 2", "half 4", "half 6", "halves", "halves"]
    assert handle.get().unexcused_attempts == 1


def test_a_failed_child_fails_the_work_that_needs_its_result() -> None:
    harness = TaskHarness(half, halves)
    handle = harness.submit(halves.of([2, 3]))
    harness.run_until_idle()
    with pytest.raises(AwaitedTaskFailed, match=f"{ChildFailed.code}.*UNEXPECTED_ERROR: ValueError: 3 is odd"):
        handle.result()
    assert runs.count("half 3") == 1


def test_work_may_forgive_failed_children() -> None:
    harness = TaskHarness(half, some_halves)
    handle = harness.submit(some_halves.of([2, 3]))
    harness.run_until_idle()
    assert handle.result() == ["int", "AwaitedTaskFailed"]


def test_forgiven_children_do_not_fail_work_that_waits_for_others() -> None:
    @behavior("acme.mixed")
    def mixed(context: Context) -> None:
        context.gather([context.submit(half.of(1))], return_errors=True)
        context.submit(half.of(2), delay=HOUR)

    harness = TaskHarness(half, mixed)
    handle = harness.submit(mixed.of())
    harness.run_until_idle()
    assert (handle.get().status, runs) == (Status.SUCCESS, ["half 1", "half 2"])


def test_work_that_submits_other_children_when_it_runs_again_fails() -> None:
    numbers = iter(range(10))

    @behavior("acme.careless")
    def careless(context: Context) -> int:
        return sum(context.gather([context.submit(half.of(2 * next(numbers)))]))

    harness = TaskHarness(half, careless)
    handle = harness.submit(careless.of())
    harness.run_until_idle()
    assert handle.get().error_code == "CHILD_CHANGED"


def test_a_child_of_a_type_that_the_harness_lacks_is_named_at_once() -> None:
    """The parent waited for it until the harness failed after 10,000 attempts."""
    harness = TaskHarness(halves)
    harness.submit(halves.of([2]))
    with pytest.raises(MissingBehaviorError, match=r"acme\.half.*TaskHarness"):
        harness.run_due()
    assert runs == ["halves"]
    with pytest.raises(MissingBehaviorError, match=r"acme\.half "):
        harness.submit(half.of(2))


def test_each_run_of_a_recurring_parent_has_children_of_its_own() -> None:
    harness = TaskHarness(half, halves)
    handle = harness.submit(halves.of([2]), every=HOUR)
    harness.run_until_idle()
    first = handle.peek()
    harness.advance(HOUR)
    harness.run_until_idle()
    assert (first, handle.peek()) == (handle.peek(), first)
    assert runs.count("half 2") == 2
