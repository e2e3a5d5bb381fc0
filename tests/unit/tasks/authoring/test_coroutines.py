"""`async def` behaviors run, are stopped while they wait, and generators are refused where they are declared."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial, wraps
from typing import Any

import pytest
from pydantic import BaseModel

from delegation.tasks import calls
from delegation.tasks.authoring import AsyncContext, Context, Retry, behavior
from delegation.tasks.errors import (
    StoreUnavailable,
)
from delegation.tasks.life.model import Status
from delegation.tasks.testing import TaskHarness
from delegation.tasks.work.behaviors import Behavior
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.tasks.builders import MINUTE
from tests.kit.tasks.sites import Total


class Rows(BaseModel):
    rows: int = 3


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "POLL_EVERY", calls.POLL_EVERY / 100)


def ended(harness: TaskHarness, handle: Any) -> tuple[Status, str | None]:
    harness.run_until_idle()
    return handle.get().status, handle.get().error_code


def test_a_coroutine_runs_and_its_result_is_recorded() -> None:
    @behavior("acme.sum")
    async def added(context: AsyncContext, rows: int) -> Total:
        total = 0
        for row in range(context.cursor or 0, rows):
            await asyncio.sleep(0)
            total += row
            await context.checkpoint(cursor=row)
            await context.report(done=row)
        return Total(total=total)

    harness = TaskHarness(added)
    handle = harness.submit(added.of(4))
    assert ended(harness, handle) == (Status.SUCCESS, None)
    assert handle.result() == Total(total=6)
    assert handle.get().progress is not None


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_error_of_a_coroutine_is_recorded_and_retried_also_one_of_a_plain_function(wrapped: bool) -> None:
    async def inner() -> None:
        await asyncio.sleep(0)
        raise ConnectionError("reset")

    def outer() -> None:
        return inner()  # type: ignore[return-value]

    fails = behavior("acme.fails", retry=Retry(attempts=2))(outer if wrapped else inner)
    harness = TaskHarness(fails)
    handle = harness.submit(fails.of())
    assert ended(harness, handle) == (Status.FAILURE, "UNEXPECTED_ERROR")
    assert handle.get().attempt_count == 2


def test_a_coroutine_that_waits_is_cancelled_without_a_checkpoint() -> None:
    seen: list[str] = []

    @behavior("acme.waits")
    async def waits() -> None:
        harness.service.operators.cancel(handle.task_id)
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("closed")

    harness = TaskHarness(waits)
    handle = harness.submit(waits.of())
    assert ended(harness, handle) == (Status.FAILURE, "CANCELLED")
    assert seen == ["closed"]


def test_a_coroutine_that_swallows_a_cancellation_is_cancelled_again() -> None:
    swallowed: list[int] = []

    @behavior("acme.stubborn")
    async def stubborn() -> None:
        harness.service.operators.cancel(handle.task_id)
        for _ in range(3):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.append(1)
        await asyncio.Event().wait()

    harness = TaskHarness(stubborn)
    handle = harness.submit(stubborn.of())
    assert ended(harness, handle) == (Status.FAILURE, "CANCELLED")
    assert len(swallowed) == 3


def test_a_store_that_does_not_answer_ends_no_coroutine() -> None:
    looks: list[int] = []
    twice = threading.Event()

    @behavior("acme.patient")
    async def patient(context: AsyncContext) -> None:
        find = harness.store.get

        def unavailable(task_id: str) -> Any:
            looks.append(1)
            if len(looks) > 1:
                twice.set()
            raise StoreUnavailable("no answer")

        harness.store.get = unavailable  # type: ignore[method-assign]
        harness.advance(MINUTE)
        await asyncio.to_thread(twice.wait)
        harness.store.get = find  # type: ignore[method-assign]
        await context.checkpoint()

    harness = TaskHarness(patient)
    assert ended(harness, harness.submit(patient.of())) == (Status.SUCCESS, None)


def test_a_cancellation_within_a_group_of_tasks_ends_the_attempt() -> None:
    @behavior("acme.group")
    async def group(context: AsyncContext) -> None:
        harness.service.operators.cancel(handle.task_id)
        harness.advance(MINUTE)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(context.checkpoint())
            tasks.create_task(asyncio.sleep(60))

    harness = TaskHarness(group)
    handle = harness.submit(group.of())
    assert ended(harness, handle) == (Status.FAILURE, "CANCELLED")


def test_a_coroutine_that_cancels_itself_fails_and_ends_no_worker() -> None:
    @behavior("acme.own", retry=Retry(attempts=1))
    async def own() -> None:
        raise asyncio.CancelledError

    @behavior("acme.plain", retry=Retry(attempts=1))
    def plain() -> None:
        raise asyncio.CancelledError

    harness = TaskHarness(own, plain)
    for task in (harness.submit(own.of()), harness.submit(plain.of())):
        assert ended(harness, task) == (Status.FAILURE, "UNEXPECTED_ERROR")


def test_a_coroutine_reads_the_results_of_its_children() -> None:
    @behavior("acme.child")
    async def child(number: int) -> int:
        return number * 2

    @behavior("acme.parent")
    async def parent(context: AsyncContext) -> int:
        children = [await context.submit(child.of(number)) for number in range(3)]
        try:
            return sum(await context.gather(children))
        except Exception:  # noqa: BLE001 - as careless work does
            return -1

    harness = TaskHarness(parent, child)
    handle = harness.submit(parent.of())
    assert ended(harness, handle) == (Status.SUCCESS, None)
    assert handle.result() == 6


@pytest.mark.parametrize("what", ["cancel", "hand over", "time out"])
def test_work_that_catches_every_exception_is_stopped(what: str) -> None:
    rounds: list[int] = []

    @behavior("acme.careless", timeout=MINUTE, retry=Retry(attempts=1))
    def careless(context: Context) -> None:
        for row in range(5):
            rounds.append(row)
            if what == "cancel":
                harness.service.operators.cancel(handle.task_id)
            if what == "time out" or row == 0:
                harness.advance(MINUTE / 2)
            try:
                context.checkpoint()
            except Exception:  # noqa: BLE001 - as careless work does
                continue

    harness = TaskHarness(careless)
    if what == "hand over":
        harness.hand_over(careless, at_checkpoint=1)
    handle = harness.submit(careless.of())
    expected = {"cancel": "CANCELLED", "time out": "TIMED_OUT", "hand over": None}[what]
    status = Status.SUCCESS if expected is None else Status.FAILURE
    assert ended(harness, handle) == (status, expected)
    assert len(rounds) == {"cancel": 1, "time out": 2, "hand over": 6}[what]


def numbers() -> Iterator[int]:
    yield 1


async def async_numbers() -> AsyncIterator[int]:
    yield 1


class Called:
    def __call__(self) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize("function", [numbers, async_numbers, partial(numbers), Called()])
def test_a_generator_is_refused_at_declaration(function: Callable[..., Any]) -> None:
    with pytest.raises(DelegationError, check=coded("BAD_BEHAVIOR"), match="generator"):
        behavior("acme.numbers")(function)
    with pytest.raises(DelegationError, check=coded("BAD_BEHAVIOR"), match="generator"):
        Behavior("acme.numbers", Rows, function)


def test_a_generator_behind_another_function_ends_as_failure() -> None:
    @wraps(numbers)
    def hidden(*arguments: Any) -> Any:
        return numbers()

    for declared in (Behavior("acme.hidden", Rows, hidden), Behavior("acme.hidden", Rows, hidden, result=Total)):
        harness = TaskHarness(declared)
        handle = harness.submit(declared, Rows())
        assert ended(harness, handle) == (Status.FAILURE, "ILLEGAL_RESULT")


def test_a_coroutine_takes_the_context_that_it_can_await() -> None:
    async def plain(context: Context) -> None: ...
    def awaited(context: AsyncContext) -> None: ...

    with pytest.raises(DelegationError, check=coded("BAD_BEHAVIOR"), match="AsyncContext"):
        behavior("acme.plain")(plain)
    with pytest.raises(DelegationError, check=coded("BAD_BEHAVIOR"), match="Context"):
        behavior("acme.awaited")(awaited)
