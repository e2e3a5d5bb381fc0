"""What MakeDue and Complete make of an attempt whose invocation ended, may still run, or was never started."""

from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from delegation.orchestration.failures import Step, execution_name
from delegation.orchestration.job_runs import JobServiceUnavailable
from delegation.orchestration.steps import Steps
from delegation.tasks.errors import LeaseLost
from delegation.tasks.life.model import AdoptedChildren, Status, Task
from delegation.tasks.stores.base import Revise
from delegation.tasks.work.behaviors import Behaviors
from infra.environment.functions import FUNCTIONS
from tests.kit.tasks.builders import HOUR, MINUTE, SECOND
from tests.kit.tasks.driven import TASK_TYPES, Driven, FixedEngine
from tests.services import change_service

REFUSED = "Lambda.TooManyRequestsException"
DIED = "Runtime.ExitError"
UNCLEAR = ("Lambda.SdkClientException", "Lambda.ServiceException", "Lambda.Unknown", "States.Timeout")
INVOCATION = 15 * MINUTE


class Worked(FixedEngine):
    """Begins its work and then raises `error`, or returns without an outcome."""

    error: Exception | None = None
    tasks: Any = None

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        self.tasks.leases.start(task.task_id, task.attempt_count)
        if self.error is not None:
            raise self.error
        return self.tasks.reads.get(task.task_id)


def inline(driven: Driven, error: Exception | None = None) -> dict[str, Any]:
    """Acquire, Prepare and RunInline; return the input of RunInline."""
    driven.acquire()
    behavior = Worked("inline")
    behavior.tasks, behavior.error = driven.tasks, error
    steps = Steps(driven.tasks, TASK_TYPES, behaviors=Behaviors([behavior]), jobs=driven.jobs)
    state = steps.prepare(driven.step, driven.clock() + MINUTE)
    driven.step = Step.of(state)
    with nullcontext() if error is None else pytest.raises(type(error)):
        steps.run_inline(driven.step, driven.clock() + INVOCATION)
    return state


def make_due(driven: Driven, state: dict[str, Any], error: str) -> str:
    """MakeDue after the state with this input ended with an error, which the state machine passes on; its answer."""
    return str(driven.steps.make_due(Step.of({**state, "failed": {"Error": error, "Cause": "{}"}}))["next"])


def runs_once(driven: Driven) -> None:
    change_service(driven.tasks, policies=replace(driven.tasks.policies, fail_when_lost=TASK_TYPES))


# ---- one decision


def test_work_that_may_run_once_is_not_repeated_after_its_invocation_died(driven: Driven) -> None:
    runs_once(driven)
    make_due(driven, inline(driven), DIED)
    assert driven.task.status is Status.FAILURE


def test_work_that_may_run_once_is_not_repeated_after_its_job_run_died(driven: Driven) -> None:
    runs_once(driven)
    driven.acquire()
    driven.start()
    driven.jobs.become(driven.step.job, "FAILED")
    assert driven.steps.complete(driven.step)["next"] == "failed"
    assert (driven.task.status, driven.task.error_code) == (Status.FAILURE, "JOB_FAILED")


def test_work_that_may_run_once_is_repeated_if_it_had_not_begun(driven: Driven) -> None:
    runs_once(driven)
    make_due(driven, driven.acquire(), "StoreUnavailable")
    assert driven.task.status is Status.RETRY_SCHEDULED


@pytest.mark.parametrize("error", [DIED, "Sandbox.Timedout", "StoreUnavailable"])
def test_other_work_is_repeated_after_its_invocation_ended(driven: Driven, error: str) -> None:
    make_due(driven, inline(driven), error)
    assert (driven.task.status, driven.task.error_code) == (Status.RETRY_SCHEDULED, "EXECUTION_INTERRUPTED")
    assert driven.task.attempts_excused == 0


def test_an_exception_of_the_work_is_recorded_as_a_worker_records_it(driven: Driven) -> None:
    runs_once(driven)
    make_due(driven, inline(driven, ZeroDivisionError("division by zero")), "ZeroDivisionError")
    assert (driven.task.status, driven.task.error_code) == (Status.RETRY_SCHEDULED, "UNEXPECTED_ERROR")
    assert driven.task.result_summary == "the work raised ZeroDivisionError"


@pytest.mark.parametrize("name", ["start_job", "heartbeat", "complete", "make_due"])
def test_the_functions_that_end_attempts_know_the_added_behaviors(name: str) -> None:
    assert "behaviors" in FUNCTIONS[name].variables


# ---- an invocation that may still run


@pytest.mark.parametrize("error", UNCLEAR)
def test_an_attempt_whose_invocation_may_still_run_is_held_until_its_lease_ends(driven: Driven, error: str) -> None:
    state = inline(driven)
    driven.clock.advance(21 * SECOND)
    make_due(driven, state, error)
    assert (driven.task.status, driven.task.attempt_count) == (Status.RUNNING, 1)
    driven.tasks.leases.succeed(driven.task_id, 1, "the invocation that was not heard of finished its work")
    assert driven.task.status is Status.SUCCESS


@pytest.mark.parametrize("error", ["States.Timeout", None], ids=["present definition", "former definition"])
def test_such_an_attempt_is_found_lost_when_its_lease_ends(driven: Driven, error: str | None) -> None:
    """An execution of the former definition passes no error on, but its input tells that RunInline was next."""
    state = inline(driven)
    if error is None:
        driven.steps.make_due(Step.of(state))
    else:
        make_due(driven, state, error)
    assert driven.task.is_held
    driven.clock.advance(INVOCATION + MINUTE)
    driven.tasks.dispatching.reconcile(driven.task_id)
    assert driven.task.status is Status.RETRY_SCHEDULED


# ---- throttled functions


def test_a_refused_acquire_leaves_the_task_as_it_is(driven: Driven) -> None:
    before = driven.task
    assert make_due(driven, {"task_id": driven.task_id, "n": 1}, REFUSED) == "due"
    assert driven.task is before


@pytest.mark.parametrize("following", ["prepare", "inline", "spark", "start-again"])
@pytest.mark.parametrize("synchronous", [False, True])
def test_a_refused_start_is_excused_and_counted(following: str, synchronous: bool) -> None:
    driven = Driven(synchronous=synchronous)
    make_due(driven, {**driven.acquire(), "next": following}, REFUSED)
    task = driven.task
    assert (task.status, task.error_code) == (Status.RETRY_SCHEDULED, "START_REFUSED")
    assert (task.unexcused_attempts, task.starts_refused) == (0, 1)
    assert task.next_scheduled_run_ts == driven.clock() + MINUTE


def test_no_number_of_refused_starts_fails_a_task(driven: Driven) -> None:
    waits = []
    for n in range(1, 61):
        driven.acquire()
        make_due(driven, driven.acquire(), REFUSED)
        assert driven.task.starts_refused == n
        waits.append((driven.task.next_scheduled_run_ts or driven.clock()) - driven.clock())
        driven.clock.advance(waits[-1])
    assert driven.task.status is Status.RETRY_SCHEDULED
    assert driven.task.unexcused_attempts == 0
    assert waits == sorted(waits)
    assert max(waits) == 5 * MINUTE


def test_a_refused_heartbeat_or_complete_ends_the_attempt(driven: Driven) -> None:
    """The job had started: nothing shows that the work did not begin."""
    driven.acquire()
    driven.start()
    make_due(driven, driven.beat(), REFUSED)
    assert (driven.task.status, driven.task.error_code) == (Status.RETRY_SCHEDULED, "EXECUTION_INTERRUPTED")
    assert driven.task.attempts_excused == 0
    assert driven.jobs.cancelled == [f"{driven.task_id}-1"]


def test_a_refused_start_is_excused_although_its_lease_ended_before_make_due_ran(driven: Driven) -> None:
    state = driven.acquire()
    driven.clock.advance(HOUR)
    driven.tasks.dispatching.reconcile(driven.task_id)
    assert (driven.task.error_code, driven.task.unexcused_attempts) == ("LOST", 1)
    make_due(driven, state, "StoreUnavailable")
    assert (driven.task.error_code, driven.task.unexcused_attempts) == ("LOST", 1)
    for _ in range(2):  # Step Functions repeats MakeDue when its answer is lost
        make_due(driven, state, REFUSED)
        assert (driven.task.error_code, driven.task.unexcused_attempts) == ("START_REFUSED", 0)
    driven.acquire(n=2)
    before = driven.task
    make_due(driven, state, REFUSED)
    assert driven.task is before


def test_a_refused_start_of_a_cancelled_parent_is_excused_once(driven: Driven) -> None:
    """The loss was excused already, because a cancelled parent only waits for its children."""
    state = driven.acquire()
    parent = driven.task.evolve(
        cancel_requested=True,
        family=AdoptedChildren(children=("another",)),
        revision=driven.task.revision + 1,
        nonce="n",
    )
    driven.store.apply(Revise(driven.task, parent))
    driven.clock.advance(HOUR)
    driven.tasks.dispatching.reconcile(driven.task_id)
    assert driven.task.unexcused_attempts == 0
    make_due(driven, state, REFUSED)
    assert driven.task.attempts_excused == 1


def test_a_start_that_was_refused_after_the_job_had_started_counts(driven: Driven) -> None:
    """The first StartJob started it and could not record it, and the repetition was refused."""
    state = {**driven.acquire(), "next": "spark"}
    driven.tasks.leases.start(driven.task_id, 1, effects=True)  # by the job
    make_due(driven, state, REFUSED)
    assert (driven.task.error_code, driven.task.unexcused_attempts) == ("EXECUTION_INTERRUPTED", 1)


def continued(driven: Driven) -> dict[str, Any]:
    """Start the attempt's job, hand the attempt to a new execution, and return the input of its Prepare."""
    driven.acquire()
    driven.start()
    driven.tasks.leases.hand_to_next_execution(
        driven.task_id, 1, driven.step.execution, lambda n: execution_name(driven.task_id, n)
    )
    return driven.acquire(n=driven.task.dispatches.count)


def test_a_refused_start_of_a_continued_attempt_is_excused_if_its_job_has_not_begun(driven: Driven) -> None:
    make_due(driven, continued(driven), REFUSED)
    assert (driven.task.status, driven.task.error_code) == (Status.RETRY_SCHEDULED, "START_REFUSED")
    assert driven.task.unexcused_attempts == 0
    assert driven.jobs.cancelled == [f"{driven.task_id}-1"]


@pytest.mark.parametrize("when", ["before", "until it is cancelled"])
def test_a_refused_start_of_a_continued_attempt_counts_if_its_job_has_begun(driven: Driven, when: str) -> None:
    state = continued(driven)
    cancel = driven.jobs.cancel

    def begins(run_id: str) -> None:
        driven.tasks.leases.start(driven.task_id, 1, effects=True)
        cancel(run_id)

    if when == "before":
        driven.tasks.leases.start(driven.task_id, 1, effects=True)
    else:
        driven.jobs.cancel = begins  # type: ignore[method-assign]
    make_due(driven, state, REFUSED)
    assert (driven.task.error_code, driven.task.unexcused_attempts) == ("EXECUTION_INTERRUPTED", 1)


def test_a_refused_start_that_is_only_excused_fails_its_execution_from_the_tenth_on(driven: Driven) -> None:
    """A reserve was used up for a moment, so nobody need be called; a repeated MakeDue answers the same."""
    answers = []
    for _ in range(11):
        driven.acquire()
        state = {**driven.acquire(), "next": "inline"}
        answers.append({make_due(driven, state, REFUSED) for _ in range(2)})
        driven.clock.advance(HOUR)
    assert answers == [{"refused"}] * 9 + [{"due"}] * 2


@pytest.mark.parametrize("error", [DIED, *UNCLEAR])
def test_a_step_that_failed_otherwise_fails_its_execution(error: str, driven: Driven) -> None:
    assert make_due(driven, {**driven.acquire(), "next": "prepare"}, error) == "due"


# ---- a job service that starts no job

NO_JOB_SERVICE = "JobServiceUnavailable"


def job_refused(driven: Driven, n: int) -> str:
    """Run an execution while EMR does not answer, as the state machine does; return MakeDue's answer."""
    driven.acquire(n)
    steps = Steps(driven.tasks, TASK_TYPES, behaviors=Behaviors([FixedEngine("spark")]), jobs=driven.jobs)
    state = steps.prepare(driven.step, driven.clock() + MINUTE)
    driven.step = Step.of(state)
    with pytest.raises(JobServiceUnavailable):
        driven.start()
    return make_due(driven, state, NO_JOB_SERVICE)


def unavailable(*_arguments: Any, **_named: Any) -> Any:
    raise JobServiceUnavailable("EMR Serverless answered ServiceQuotaExceededException to start_job_run")


def test_an_outage_of_the_job_service_costs_no_attempt_however_many_hours_it_lasts(driven: Driven) -> None:
    start, active = driven.jobs.start, driven.jobs.active
    driven.jobs.start = unavailable  # type: ignore[method-assign]
    driven.jobs.active = unavailable  # type: ignore[method-assign]
    began, answers = driven.clock(), []
    while driven.clock() < began + 9 * HOUR:
        answers.append(job_refused(driven, driven.task.dispatches.count))
        task = driven.task
        assert (task.status, task.error_code, task.unexcused_attempts) == (Status.RETRY_SCHEDULED, "JOB_NOT_STARTED", 0)
        assert task.next_scheduled_run_ts is not None
        assert task.next_scheduled_run_ts - driven.clock() <= 15 * MINUTE
        driven.clock.now = task.next_scheduled_run_ts
    assert len(answers) < 60
    assert answers == ["refused"] * 9 + ["due"] * (len(answers) - 9)  # then the execution fails, which an alarm counts
    driven.jobs.start, driven.jobs.active = start, active  # type: ignore[method-assign]
    driven.acquire(driven.task.dispatches.count)
    driven.start()
    assert driven.task.job_run_id is not None


def test_a_job_service_that_never_starts_a_job_fails_the_task_in_the_end(driven: Driven) -> None:
    driven.jobs.start = unavailable  # type: ignore[method-assign]
    while not driven.task.is_terminal:
        job_refused(driven, driven.task.dispatches.count)
        driven.clock.now = driven.task.next_scheduled_run_ts or driven.clock.now
    assert (driven.task.error_code, driven.task.attempts_excused) == ("JOB_NOT_STARTED", 200)
    assert driven.task.unexcused_attempts == 10


def test_a_job_that_was_started_without_an_answer_is_cancelled_before_the_next_one(driven: Driven) -> None:
    start, active = driven.jobs.start, driven.jobs.active

    def unanswered(*arguments: Any, **named: Any) -> str:
        start(*arguments, **named)
        raise JobServiceUnavailable("EMR Serverless could not be reached: ReadTimeoutError")

    driven.acquire()
    steps = Steps(driven.tasks, TASK_TYPES, behaviors=Behaviors([FixedEngine("spark")]), jobs=driven.jobs)
    state = steps.prepare(driven.step, driven.clock() + MINUTE)
    driven.step, first = Step.of(state), f"{driven.task_id}-1"
    driven.jobs.start = unanswered  # type: ignore[method-assign]
    with pytest.raises(JobServiceUnavailable):
        driven.start()
    driven.jobs.start, driven.jobs.active = start, unavailable  # type: ignore[method-assign]
    make_due(driven, state, NO_JOB_SERVICE)
    with pytest.raises(LeaseLost):
        driven.tasks.leases.start(driven.task_id, 1, effects=True)
    driven.jobs.active = active  # type: ignore[method-assign]
    driven.clock.advance(HOUR)
    driven.acquire(driven.task.dispatches.count)
    assert driven.start()["next"] == "start-again"
    assert driven.jobs.cancelled == [first]


def test_a_job_that_may_work_is_no_refused_one(driven: Driven) -> None:
    driven.acquire()
    driven.start()
    driven.jobs.active = driven.jobs.cancel = unavailable  # type: ignore[method-assign, assignment]
    with pytest.raises(JobServiceUnavailable):
        make_due(driven, {**driven.step.to("spark"), "next": "spark"}, NO_JOB_SERVICE)
    assert driven.task.is_held
