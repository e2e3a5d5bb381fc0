"""The steps of the state machine over the in-memory store, a job service that remembers, and a clock moved by hand."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from delegation.orchestration.job_runs import JobRefused, JobRun
from delegation.orchestration.step_input import MalformedStep, Step
from delegation.orchestration.steps import MAX_TURNS, Steps, wait_seconds
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.model import Status
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.work.behaviors import Behaviors
from tests.unit.orchestration.driven import KINDS, Chooses, Driven
from tests.unit.tasks.builders import HOUR, MINUTE, SECOND


@pytest.fixture
def driven() -> Driven:
    return Driven()


def test_acquire_takes_the_lease_until_after_the_deadline(driven: Driven) -> None:
    answer = driven.acquire()
    assert (answer["next"], answer["attempt"]) == ("prepare", 1)
    assert driven.task.lease_owner == f"{driven.task_id}-1"
    assert driven.task.lost_not_before == driven.clock() + 2 * MINUTE + 10 * SECOND


def test_prepare_goes_on_with_the_lease_of_acquire(driven: Driven) -> None:
    """Unless it comes so late that the lease would end before its own invocation."""
    driven.acquire()
    steps = Steps(driven.tasks, KINDS, behaviors=Behaviors([Chooses("inline")]), jobs=driven.jobs)
    acquired = driven.task
    for after, renewed in ((30 * SECOND, False), (31 * SECOND, True)):
        driven.clock.advance(after)
        steps.prepare(driven.step, driven.clock() + MINUTE)
        assert (driven.task != acquired) == renewed
    assert driven.task.lost_not_before == driven.clock() + MINUTE + 10 * SECOND


def test_acquire_again_is_the_same_attempt(driven: Driven) -> None:
    assert driven.acquire()["attempt"] == driven.acquire()["attempt"] == 1
    assert driven.task.version == 2


def test_another_execution_leaves_a_held_task(driven: Driven) -> None:
    driven.acquire()
    assert driven.acquire(n=2)["next"] == "stop"


def test_acquire_waits_until_a_retry_is_due(driven: Driven) -> None:
    driven.acquire()
    driven.steps.make_due(driven.step)
    answer = driven.acquire(n=2)
    assert answer["next"] == "wait"
    assert answer["wait_until"] == "2026-11-21T12:01:00.000000Z"
    driven.clock.advance(MINUTE)
    assert driven.acquire(n=2)["attempt"] == 2


def test_a_wait_ends_on_a_whole_second_when_the_retry_is_due(driven: Driven) -> None:
    """Step Functions truncates: told a fraction, it would come back too early, again and again."""
    driven.clock.advance(timedelta(microseconds=1))
    driven.acquire()
    driven.steps.make_due(driven.step)
    wait_until = driven.acquire(n=2)["wait_until"]
    assert wait_until == "2026-11-21T12:01:01.000000Z"
    driven.clock.advance(datetime.fromisoformat(wait_until) - driven.clock())
    assert driven.acquire(n=2)["next"] == "prepare"


def test_a_kind_of_a_newer_deployment_is_left_alone() -> None:
    driven = Driven(task_type="TABLE_COMPACTION")
    assert driven.acquire()["next"] == "stop"
    assert driven.task.version == 1


def test_a_task_that_is_gone_stops_the_execution(driven: Driven) -> None:
    unknown = Step("00000000-0000-4000-8000-000000000000", 1)
    assert driven.steps.acquire(unknown, driven.clock())["next"] == "stop"
    assert driven.steps.complete(unknown)["next"] == "stop"
    assert driven.steps.make_due(unknown)["next"] == "stop"


def test_a_job_is_started_once_under_the_attempts_name(driven: Driven) -> None:
    driven.acquire()
    assert driven.start()["next"] == driven.start()["next"] == "heartbeat"
    name = f"{driven.task_id}-1"
    arguments = ["--task-id", driven.task_id, "--attempt", "1"]
    assert driven.jobs.started == [(name, arguments)]
    driven.tasks.note(driven.task_id, 1, job_run_id=None)  # as when the first start was never answered
    assert driven.start()["next"] == "heartbeat"
    assert driven.jobs.started == [(name, arguments), (name, arguments)]
    assert list(driven.jobs.runs) == [name]
    assert driven.task.job_run_id == name
    assert driven.task.lost_not_before == driven.clock() + HOUR


def test_a_former_attempts_job_is_ended_first_even_if_its_id_was_not_stored(driven: Driven) -> None:
    former = f"{driven.task_id}-1"
    driven.acquire()
    driven.jobs.become(former, "RUNNING")
    driven.steps.make_due(driven.step)
    driven.clock.advance(MINUTE)
    driven.acquire(n=2)
    assert driven.start()["next"] == "start-again"
    assert set(driven.jobs.cancelled) == {former}
    driven.jobs.become(former, "CANCELLED")
    assert driven.start()["next"] == "heartbeat"
    assert [name for name, _arguments in driven.jobs.started] == [f"{driven.task_id}-2"]


def test_a_job_that_is_refused_fails_the_task(driven: Driven) -> None:
    driven.acquire()
    driven.jobs.refuses = True
    assert driven.start()["next"] == "complete"
    assert (driven.task.status, driven.task.error_code) == (Status.FAILURE, "JOB_REFUSED")


def test_an_outcome_that_the_job_recorded_stands(driven: Driven) -> None:
    driven.acquire()
    driven.start()
    driven.tasks.start(driven.task_id, 1, effects=True)
    driven.tasks.succeed(driven.task_id, 1, "deleted 3 files")
    driven.jobs.become(f"{driven.task_id}-1", "RUNNING")
    assert driven.beat()["next"] == "complete"
    assert driven.steps.complete(driven.step)["next"] == "succeeded"


def test_a_failure_fails_the_execution(driven: Driven) -> None:
    driven.tasks.cancel(driven.task_id)
    assert driven.steps.complete(driven.step)["next"] == "failed"


def test_a_long_run_goes_on_in_the_next_execution_with_the_same_attempt(driven: Driven) -> None:
    driven.acquire()
    driven.start()
    driven.step = replace(driven.step, turn=MAX_TURNS - 1)
    assert driven.beat()["next"] == "continue"
    assert driven.sent == [(driven.task_id, 2)]
    assert driven.beat()["next"] == "continue"  # the same message again: an execution of this name runs once
    assert driven.sent == [(driven.task_id, 2)] * 2
    answer = driven.acquire(n=2)
    assert (answer["next"], answer["attempt"], answer["turn"]) == ("prepare", 1, 0)


def test_heartbeats_are_counted_over_all_attempts_of_an_execution(driven: Driven) -> None:
    """Four attempts of half a day each would use up Step Functions' 25,000 events as well as one of two days."""
    driven.acquire()
    driven.start()
    driven.step = replace(driven.step, turn=MAX_TURNS - 2)
    driven.beat()
    driven.jobs.become(driven.step.job, "FAILED")
    assert driven.steps.complete(driven.step)["next"] == "wait"
    driven.clock.advance(HOUR)
    answer = driven.steps.acquire(driven.step, driven.clock() + MINUTE)
    driven.step = Step.of(answer)
    driven.start()
    assert driven.beat()["next"] == "continue"


@pytest.mark.parametrize(("attempts", "following"), [(248, "wait"), (249, "stop")])
def test_very_many_attempts_go_on_in_another_execution(attempts: int, following: str) -> None:
    """A parent looks after its children for days, an attempt a minute."""
    driven = Driven(attempt_count=attempts, attempts_excused=attempts)
    driven.acquire()
    waiting = AttemptError("CHILDREN_PENDING", "1 of 1 children are not done", ErrorClass.WAITING)
    driven.tasks.give_back(driven.task_id, driven.step.attempt, waiting, wait=MINUTE)
    assert driven.steps.complete(driven.step)["next"] == following
    driven.clock.advance(3 * MINUTE)
    driven.tasks.reconcile(driven.task_id)
    assert driven.sent == [(driven.task_id, 2)]


def test_a_job_that_was_started_too_late_and_cannot_be_listed_is_left(driven: Driven) -> None:
    """A worker whose steps raise anything but a passing error ends."""
    driven.acquire()
    stale = replace(driven.step, attempt=7)

    def refused(_prefix: str) -> list[JobRun]:
        raise JobRefused("EMR Serverless answered AccessDeniedException to list_job_runs")

    driven.jobs.active = refused  # type: ignore[method-assign]
    assert driven.steps.start_job(stale)["next"] == "complete"


def test_a_continuation_that_the_queue_did_not_take_is_sent_again(driven: Driven) -> None:
    """Step Functions repeats the heartbeat; a healthy job must not be left to run into its lease."""
    driven.acquire()
    driven.start()
    driven.step = replace(driven.step, turn=MAX_TURNS - 1)
    before = driven.step
    driven.trouble = StoreUnavailable("the queue could not be reached")
    with pytest.raises(StoreUnavailable):
        driven.beat()
    driven.trouble = None
    driven.step = before
    assert driven.beat()["next"] == "continue"
    assert driven.sent == [(driven.task_id, 2)]
    assert driven.task.dispatch_count == 2
    assert driven.acquire(n=2)["attempt"] == 1


def test_a_continuation_leaves_the_job_of_its_attempt_alone(driven: Driven) -> None:
    """With little left of the plan the estimate says inline: two workers for one attempt."""
    driven.acquire()
    driven.start()
    behavior = Chooses("inline")
    steps = Steps(driven.tasks, KINDS, behaviors=Behaviors([behavior]), jobs=driven.jobs)
    assert steps.prepare(driven.step, driven.clock() + MINUTE)["next"] == "spark"
    assert behavior.asked == 0
    assert driven.start()["next"] == "heartbeat"
    assert len(driven.jobs.started) == 1


def test_the_next_attempt_is_no_continuation(driven: Driven) -> None:
    driven.acquire()
    driven.start()
    driven.jobs.become(f"{driven.task_id}-1", "FAILED")
    driven.beat()
    driven.steps.complete(driven.step)
    driven.clock.advance(HOUR)
    driven.acquire()
    assert driven.task.job_run_id is None
    steps = Steps(driven.tasks, KINDS, behaviors=Behaviors([Chooses("inline")]), jobs=driven.jobs)
    assert steps.prepare(driven.step, driven.clock() + MINUTE)["next"] == "inline"


def test_make_due_gives_back_only_what_its_execution_holds(driven: Driven) -> None:
    driven.acquire()
    assert driven.steps.make_due(Step(driven.task_id, 2))["next"] == "due"
    assert driven.task.status is Status.ACQUIRING_RESOURCES
    driven.steps.make_due(driven.step)
    assert driven.task.status is Status.RETRY_SCHEDULED
    assert driven.task.due_at is not None


def test_steps_of_a_stale_attempt_write_nothing(driven: Driven) -> None:
    driven.acquire()
    stale = driven.step
    driven.clock.advance(3 * MINUTE)
    driven.tasks.acquire(driven.task_id, "somebody", lambda now: Lease.lasting(HOUR, now))
    before = driven.task
    assert before.attempt_count == 2
    for call in (
        lambda: driven.steps.prepare(stale, driven.clock()),
        lambda: driven.steps.run_inline(stale, driven.clock()),
        lambda: driven.steps.start_job(stale),
        lambda: driven.steps.heartbeat(stale),
    ):
        assert call()["next"] == "complete"
    assert driven.steps.complete(stale)["next"] == "stop"
    assert driven.task == before


def test_waits_lengthen_with_age() -> None:
    ages = [timedelta(0), 40 * SECOND, 2 * MINUTE, 10 * MINUTE, timedelta(days=1)]
    assert [wait_seconds(age, HOUR) for age in ages] == [5, 5, 12, 60, 60]
    assert [wait_seconds(age, MINUTE) for age in ages] == [5, 5, 12, 15, 15]


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"task_id": "no uuid", "n": 1}, "task_id"),
        ({"n": 1}, "task_id"),
        ({"task_id": "00000000-0000-4000-8000-000000000000", "n": "1"}, "n"),
        ({"task_id": "00000000-0000-4000-8000-000000000000", "n": 1, "attempt": -1}, "attempt"),
        ({"task_id": "00000000-0000-4000-8000-000000000000", "n": 1, "turn": True}, "turn"),
    ],
)
def test_a_malformed_input_is_named(event: dict[str, Any], field: str) -> None:
    with pytest.raises(MalformedStep, match=field):
        Step.of(event)


def test_an_execution_ends_with_its_run_of_a_recurring_task() -> None:
    """Waiting for the next run would go on until Step Functions' 25,000 events are used up; the sweeper starts that."""
    driven = Driven(recurrence_seconds=3600)
    driven.acquire()
    driven.tasks.start(driven.task_id, 1, effects=False)
    driven.tasks.succeed(driven.task_id, 1, "done")
    assert driven.task.status is Status.SUBMITTED
    assert driven.steps.complete(driven.step)["next"] == "stop"
    driven.clock.advance(HOUR + MINUTE)
    assert [entry.task_id for entry in driven.store.due(driven.clock())] == [driven.task_id]
    driven.tasks.reconcile(driven.task_id)
    assert driven.sent == [(driven.task_id, 2)]
    assert driven.acquire(n=2)["next"] == "prepare"
