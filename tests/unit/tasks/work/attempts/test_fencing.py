"""A task that was removed and submitted again refuses the attempts of its former life."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from delegation.orchestration.failures import Step
from delegation.orchestration.steps import Steps
from delegation.tasks.errors import LeaseLost
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.stores.base import Create
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.service import TaskService
from tests.kit.tasks.builders import HOUR, MINUTE, submitted
from tests.kit.tasks.harness import RacedService, an_hour

BROKEN = AttemptError("BROKEN", "it broke", ErrorClass.TRANSIENT)


def lives_again(harness: RacedService, owner: str, *, after: timedelta = HOUR) -> tuple[Task, Task]:
    """Return a lease of a task's first life and one of its second, both of attempt 1."""
    task_id = harness.submit()
    former = harness.acquire(task_id, "worker-a")
    harness.service.operators.cancel(task_id)
    ended = harness.service.leases.end_attempt(task_id, 1, BROKEN)
    assert harness.rival.writes.remove(ended)
    harness.clock.advance(after)
    harness.store.calm.apply(submitted_again(harness, task_id))
    return former, harness.service.leases.acquire(task_id, owner, an_hour)


def submitted_again(harness: RacedService, task_id: str) -> object:
    return Create(submitted(task_id, next_scheduled_run_ts=harness.clock()))


WRITES: dict[str, Callable[[TaskService, Task], object]] = {
    "heartbeat": lambda service, task: service.leases.heartbeat(task.task_id, 1, an_hour, engine="inline"),
    "note": lambda service, task: service.leases.note(task.task_id, 1, details={"files": 1}),
    "start": lambda service, task: service.leases.start(task.task_id, 1),
    "succeed": lambda service, task: service.leases.succeed(task.task_id, 1, "done"),
    "end": lambda service, task: service.leases.end_attempt(task.task_id, 1, BROKEN),
    "adopt": lambda service, task: service.leases.adopt(task.task_id, 1, submitted()),
}


@pytest.mark.parametrize(("owner", "after"), [("worker-b", timedelta(0)), ("worker-a", HOUR)])
@pytest.mark.parametrize("write", WRITES)
def test_an_attempt_of_a_former_life_writes_nothing(write: str, owner: str, after: timedelta) -> None:
    harness = RacedService()
    former, present = lives_again(harness, owner, after=after)
    assert (former.attempt_count, present.attempt_count) == (1, 1)
    with pytest.raises(LeaseLost, match="attempt 1 of worker-a"):
        WRITES[write](harness.service.holding(former), former)
    assert harness.service.reads.get(present.task_id) == present
    WRITES[write](harness.service.holding(present), present)
    assert harness.service.reads.get(present.task_id) != present


def test_an_attempt_of_a_former_life_does_not_take_the_present_outcome_for_its_own() -> None:
    harness = RacedService()
    former, present = lives_again(harness, "worker-b")
    harness.service.leases.succeed(present.task_id, 1, "done by worker-b")
    with pytest.raises(LeaseLost):
        harness.service.holding(former).leases.succeed(former.task_id, 1, "done by worker-a")
    with pytest.raises(LeaseLost):
        harness.service.holding(former).leases.end_attempt(former.task_id, 1, BROKEN)


def test_work_of_a_former_life_stops_at_its_next_checkpoint() -> None:
    harness = RacedService()
    seconds = iter(range(1000))
    task_id = harness.submit()
    former = harness.acquire(task_id, "worker-a")
    run = AttemptContext(harness.service, former, hand_over_at=None, monotonic=lambda: float(next(seconds)))
    run.checkpoint()
    harness.service.operators.cancel(task_id)
    assert harness.rival.writes.remove(harness.service.leases.end_attempt(task_id, 1, BROKEN))
    harness.store.calm.apply(submitted_again(harness, task_id))
    harness.service.leases.acquire(task_id, "worker-b", an_hour)
    with pytest.raises(LeaseLost):
        run.checkpoint()


def test_the_steps_of_an_execution_do_nothing_for_an_attempt_of_another_holder() -> None:
    harness = RacedService()
    former, present = lives_again(harness, "worker-b")
    steps = Steps(harness.service, frozenset({present.task_type}))
    step = Step(former.task_id, 1, attempt=1)
    deadline = harness.clock() + MINUTE
    assert steps.prepare(step, deadline)["next"] == "complete"
    assert steps.run_inline(step, deadline)["next"] == "complete"
    assert steps.complete(step)["next"] == "stop"
    assert harness.service.reads.get(present.task_id) == present


def test_the_execution_that_continues_an_attempt_has_the_same_lease() -> None:
    """The driver of its job run does not learn which execution watches it."""
    harness = RacedService()
    task_id = harness.submit()
    first = harness.acquire(task_id, f"{task_id}-0")
    harness.service.leases.hand_to_next_execution(task_id, 1, f"{task_id}-0", lambda n: f"{task_id}-{n}")
    after = harness.service.holding(first).leases.note(task_id, 1, details={"files": 1})
    assert (after.lease.owner, after.details) == (f"{task_id}-1", {"files": 1})
