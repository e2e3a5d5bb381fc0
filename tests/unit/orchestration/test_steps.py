"""The steps of the state machine over the in-memory store, a recording job service and a manual clock."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from delegation.orchestration.failures import Step
from delegation.orchestration.job_runs import JobRefused, JobRun
from delegation.orchestration.steps import MAX_TURNS, Steps, wait_seconds
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.model import Status
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Lease
from delegation.tasks.work.behaviors import Behaviors
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.tasks.builders import HOUR, MINUTE, NOW, SECOND
from tests.kit.tasks.driven import TASK_TYPES, Driven, FixedEngine


def test_acquire_gets_a_lease_beyond_the_deadline_of_prepare_and_is_repeated_as_the_same_attempt(driven) -> None:
    for _ in range(2):
        answer = driven.acquire()
        assert (answer["next"], answer["attempt"], driven.task.version) == ("prepare", 1, 2)
    assert driven.task.lease.owner == f"{driven.task_id}-1"
    assert driven.task.lease.lost_not_before == driven.clock() + 2 * MINUTE + 10 * SECOND
    assert driven.steps.make_due(Step(driven.task_id, 2))["next"] == "due"
    assert driven.task.is_held, "another execution ends nothing"


def test_prepare_continues_with_the_lease_of_acquire(driven: Driven) -> None:
    """Unless it starts so late that the lease would end before the invocation."""
    driven.acquire()
    steps = Steps(driven.tasks, TASK_TYPES, behaviors=Behaviors([FixedEngine("inline")]), jobs=driven.jobs)
    acquired = driven.task
    for after, renewed in ((30 * SECOND, False), (31 * SECOND, True)):
        driven.clock.advance(after)
        steps.prepare(driven.step, driven.clock() + MINUTE)
        assert (driven.task != acquired) == renewed
    assert driven.task.lease.lost_not_before == driven.clock() + MINUTE + 10 * SECOND


def test_a_wait_ends_on_a_whole_second_when_the_retry_is_due(driven: Driven) -> None:
    """Step Functions truncates fractions, and would resume too early."""
    driven.clock.advance(timedelta(microseconds=1))
    driven.acquire()
    driven.steps.make_due(driven.step)
    wait_until = driven.acquire(n=2)["wait_until"]
    assert wait_until == "2026-11-21T12:01:01.000000Z"
    driven.clock.advance(datetime.fromisoformat(wait_until) - driven.clock())
    assert driven.acquire(n=2)["next"] == "prepare"


def test_a_kind_of_a_newer_deployment_is_not_acquired() -> None:
    driven = Driven(task_type="TABLE_COMPACTION")
    assert driven.acquire()["next"] == "stop"
    assert driven.task.version == 1


def test_an_unknown_task_stops_the_execution(driven: Driven) -> None:
    unknown = Step("00000000-0000-4000-8000-000000000000", 1)
    assert driven.steps.acquire(unknown, driven.clock())["next"] == "stop"
    assert driven.steps.complete(unknown)["next"] == "stop"
    assert driven.steps.make_due(unknown)["next"] == "stop"


def test_a_job_is_started_once_under_the_attempts_name(driven: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    driven.acquire()
    assert driven.start()["next"] == driven.start()["next"] == "heartbeat"
    name = f"{driven.task_id}-1"
    arguments = ["--task-id", driven.task_id, "--attempt", "1"]
    assert driven.jobs.started == [(name, arguments)]
    driven.tasks.leases.note(driven.task_id, 1, job_run_id=None)  # as when the first start was never answered
    monkeypatch.setattr(driven.jobs, "active", lambda *_arguments, **_named: [])  # nor is its job listed yet
    assert driven.start()["next"] == "heartbeat"
    assert driven.jobs.started == [(name, arguments), (name, arguments)]
    assert list(driven.jobs.runs) == [name]
    assert driven.task.job_run_id == name
    assert driven.task.lease.lost_not_before == driven.clock() + HOUR


def test_a_former_attempts_job_is_cancelled_first_even_if_its_id_was_not_stored(driven: Driven) -> None:
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


def starting_behind_a_job_that_never_ends(driven: Driven) -> list[str]:
    """Return the answers of StartJob, as the state machine repeats it, until one is no "start-again"."""
    driven.jobs.become(f"{driven.task_id}-1", "CANCELLING")
    answers: list[str] = []
    while len(answers) < 1_000 and answers[-1:] in ([], ["start-again"]):
        answer = driven.start()
        answers.append(answer["next"])
        driven.clock.advance(timedelta(seconds=answer.get("wait_seconds", 0)))
    return answers


def second_attempt(driven: Driven) -> None:
    driven.acquire()
    driven.steps.make_due(driven.step)
    driven.clock.advance(MINUTE)
    driven.acquire(n=2)


def test_an_attempt_behind_a_job_that_never_ends_fails_and_names_it(driven: Driven) -> None:
    second_attempt(driven)
    answers = starting_behind_a_job_that_never_ends(driven)
    assert answers[-1] == "complete"
    assert len(answers) < 100
    assert (driven.task.status, driven.task.error_code) == (Status.RETRY_SCHEDULED, "FORMER_JOB_ACTIVE")
    assert f"{driven.task_id}-1" in (driven.task.result_summary or "")
    assert driven.jobs.started == []


@pytest.mark.parametrize("code", ["DEADLINE_EXCEEDED", "CANCELLED"])
def test_a_task_past_its_deadline_or_cancelled_ends_although_a_former_job_never_does(code: str) -> None:
    driven = Driven(deadline_ts=NOW + 3 * MINUTE)
    second_attempt(driven)
    if code == "CANCELLED":
        driven.tasks.operators.cancel(driven.task_id)
    assert starting_behind_a_job_that_never_ends(driven)[-1] == "complete"
    assert (driven.task.status, driven.task.error_code) == (Status.FAILURE, code)
    assert driven.clock() < NOW + (5 if code == "DEADLINE_EXCEEDED" else 2) * MINUTE


def test_a_start_repeated_after_a_deployment_finds_the_job_of_the_former_application(driven: Driven) -> None:
    """A client token holds for one application: started in the new one, the attempt would have two jobs."""
    driven.acquire()
    driven.jobs.runs["former"] = JobRun("former", driven.step.job, "RUNNING")  # its id was not stored
    assert driven.start()["next"] == "heartbeat"
    assert (driven.jobs.started, driven.task.job_run_id) == ([], "former")


def test_a_job_that_is_refused_fails_the_task(driven: Driven) -> None:
    driven.acquire()
    driven.jobs.refuses = True
    assert driven.start()["next"] == "complete"
    assert (driven.task.status, driven.task.error_code) == (Status.FAILURE, "JOB_REFUSED")


def test_an_outcome_that_the_job_recorded_is_kept(driven: Driven) -> None:
    driven.acquire()
    driven.start()
    driven.tasks.leases.start(driven.task_id, 1, effects=True)
    driven.tasks.leases.succeed(driven.task_id, 1, "deleted 3 files")
    driven.jobs.become(f"{driven.task_id}-1", "RUNNING")
    assert driven.beat()["next"] == "complete"
    assert driven.steps.complete(driven.step)["next"] == "succeeded"


def test_a_long_run_continues_in_the_next_execution_with_the_same_attempt(driven: Driven) -> None:
    driven.acquire()
    driven.start()
    driven.step = replace(driven.step, turn=MAX_TURNS - 1)
    assert driven.beat()["next"] == "continue"
    assert driven.queue.sent == [(driven.task_id, 2)]
    assert driven.beat()["next"] == "continue"  # the same message: an execution of this name runs once
    assert driven.queue.sent == [(driven.task_id, 2)] * 2
    assert driven.task.dispatches.count == 2
    answer = driven.acquire(n=2)
    assert (answer["next"], answer["attempt"], answer["turn"]) == ("prepare", 1, 0)


def test_heartbeats_are_counted_over_all_attempts_of_an_execution(driven: Driven) -> None:
    """Several attempts together could otherwise exceed Step Functions' 25,000 events."""
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
def test_very_many_attempts_continue_in_another_execution(attempts: int, following: str) -> None:
    """A parent may wait for its children for days, with an attempt per minute."""
    driven = Driven(attempt_count=attempts, attempts_excused=attempts)
    driven.acquire()
    waiting = AttemptError("CHILDREN_PENDING", "1 of 1 children are not done", ErrorClass.WAITING)
    driven.tasks.leases.end_attempt(driven.task_id, driven.step.attempt, waiting, wait=MINUTE)
    assert driven.steps.complete(driven.step)["next"] == following
    driven.clock.advance(3 * MINUTE)
    driven.tasks.dispatching.reconcile(driven.task_id)
    assert driven.queue.sent == [(driven.task_id, 2)]


def test_a_continuation_that_could_not_be_sent_is_sent_again(driven: Driven) -> None:
    """Step Functions repeats the heartbeat, so that a healthy job does not lose its lease."""
    driven.acquire()
    driven.start()
    driven.step = replace(driven.step, turn=MAX_TURNS - 1)
    before = driven.step
    driven.queue.trouble = StoreUnavailable("the queue could not be reached")
    with pytest.raises(StoreUnavailable):
        driven.beat()
    driven.queue.trouble = None
    driven.step = before
    assert driven.beat()["next"] == "continue"
    assert driven.queue.sent == [(driven.task_id, 2)]
    assert driven.task.dispatches.count == 2
    assert driven.acquire(n=2)["attempt"] == 1


def test_a_continuation_keeps_the_job_of_its_attempt(driven: Driven) -> None:
    """For the rest of the plan the estimate would choose inline, and two processes would run one attempt."""
    driven.acquire()
    driven.start()
    behavior = FixedEngine("inline")
    steps = Steps(driven.tasks, TASK_TYPES, behaviors=Behaviors([behavior]), jobs=driven.jobs)
    assert steps.prepare(driven.step, driven.clock() + MINUTE)["next"] == "spark"
    assert behavior.asked == 0
    assert driven.start()["next"] == "heartbeat"
    assert len(driven.jobs.started) == 1


def test_steps_of_a_stale_attempt_write_nothing(driven: Driven) -> None:
    driven.acquire()
    stale = driven.step
    driven.clock.advance(3 * MINUTE)
    driven.tasks.leases.acquire(driven.task_id, "worker", lambda now: Lease.lasting(HOUR, now))
    before = driven.task
    assert before.attempt_count == 2

    def refused(_prefix: str) -> list[JobRun]:
        raise JobRefused("EMR Serverless answered AccessDeniedException to list_job_runs")

    driven.jobs.active = refused  # type: ignore[method-assign]
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
def test_a_malformed_input_is_refused_naming_the_field(event: dict[str, Any], field: str) -> None:
    with pytest.raises(DelegationError, match=field, check=coded("MALFORMED_STEP")):
        Step.of(event)


def test_an_execution_ends_with_its_run_of_a_recurring_task() -> None:
    """The sweeper dispatches the next run, because the history of an execution is limited to 25,000 events."""
    driven = Driven(recurrence_seconds=3600)
    driven.acquire()
    driven.tasks.leases.start(driven.task_id, 1, effects=False)
    driven.tasks.leases.succeed(driven.task_id, 1, "done")
    assert driven.task.status is Status.SUBMITTED
    assert driven.steps.complete(driven.step)["next"] == "stop"
    driven.clock.advance(HOUR + MINUTE)
    assert [entry.task_id for entry in driven.store.due(driven.clock())] == [driven.task_id]
    driven.tasks.dispatching.reconcile(driven.task_id)
    assert driven.queue.sent == [(driven.task_id, 2)]
    assert driven.acquire(n=2)["next"] == "prepare"
