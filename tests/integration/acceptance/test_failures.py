"""A purge succeeds after its job or its execution was killed."""

import os
import signal

import pytest

from tests.integration.acceptance.world import SUBMIT, eventually

pytestmark = pytest.mark.stack


@pytest.mark.long
@pytest.mark.spark
def test_a_killed_spark_job_is_retried_until_nothing_is_left(world, killed_job):
    assert killed_job.when_killed["status"] == "RUNNING"
    assert killed_job.when_killed["attempt_count"] == killed_job.attempt
    outcome = killed_job.outcome
    assert (outcome["status"], outcome["engine"]) == ("SUCCESS", "spark")
    assert killed_job.left == frozenset()
    history = world.history(outcome["task_id"])
    statuses = [view.status for view in history]
    assert statuses[0] == "SUBMITTED"
    attempt = ["ACQUIRING_RESOURCES", "RUNNING"]
    assert statuses[-3:] == [*attempt, "SUCCESS"]
    of_killed = [view for view in history if view.attempt_count == killed_job.attempt]
    assert [view.status for view in of_killed][-3:] == [*attempt, "RETRY_SCHEDULED"]
    # It gave its place to others while it waited, so the retry was admitted, and dispatched, anew.
    killed = of_killed[-1].dispatch_count
    assert outcome["dispatch_count"] > killed
    executions = [world.states_of(world.execution(outcome["task_id"], n)) for n in (killed, killed + 1)]
    assert [(states.count("WaitUntilDue"), states.count("Acquire")) for states in executions] == [(0, 1), (0, 1)]
    assert outcome["files_planned"] == len(killed_job.table.objects)


@pytest.mark.long
@pytest.mark.spark
def test_a_submission_repeated_while_its_task_runs_gets_the_same_bytes(killed_job):
    first, again = killed_job.accepted
    assert (again.status_code, again.content) == (202, first.content)
    repeated = killed_job.when_repeated
    assert repeated["status"] in {"ACQUIRING_RESOURCES", "RUNNING"}
    assert repeated["attempt_count"] == killed_job.attempt


def invocations(world, function):
    log = world.process.state_dir / "logs" / f"{function}.log"
    return log.read_text().count("START RequestId: ")


def ended(found):
    return None if found["status"] == "RUNNING" else found["status"]


@pytest.mark.long
def test_an_execution_killed_before_acquire_is_dispatched_again(world, killed_job):
    # The worker that ran `acquire` is warm, so the next invocation goes to it.
    before = world.post(SUBMIT, world.request(world.table()))
    assert world.outcome(before.json()["delegation_task_id"])["status"] == "SUCCESS"
    table = world.table()
    earlier = invocations(world, "acquire")
    warm = world.processes("AWS_LAMBDA_FUNCTION_NAME=acquire", "lambdas.worker")
    for pid in warm:
        os.kill(pid, signal.SIGSTOP)
    try:
        accepted = world.post(SUBMIT, world.request(table))
        assert accepted.status_code == 202, accepted.text
        task_id = accepted.json()["delegation_task_id"]
        started = eventually(lambda: world.execution(task_id, 1))
        assert started["status"] == "RUNNING"
        # RUNNING precedes Acquire: stopped before it, the execution would never enter it, or invoke a new worker.
        eventually(lambda: invocations(world, "acquire") > earlier)
        world.aws("stepfunctions").stop_execution(executionArn=started["executionArn"])
        stopped = world.task(task_id)
    finally:
        # The worker never runs the invocation that it received.
        for pid in warm:
            os.kill(pid, signal.SIGKILL)
    assert (stopped["status"], stopped["attempt_count"], stopped["dispatch_count"]) == ("SUBMITTED", 0, 1)

    outcome = world.outcome(task_id)
    assert (outcome["status"], outcome["attempt_count"], outcome["dispatch_count"]) == ("SUCCESS", 1, 2)
    assert world.left(table) == frozenset()
    killed = world.execution(task_id, 1)
    # AWS reports a stopped execution as ABORTED; moto reports FAILED if its running call fails afterwards.
    assert killed["status"] in {"ABORTED", "FAILED"}
    assert world.states_of(killed) == ["Acquire"]
    assert eventually(lambda: ended(world.execution(task_id, 2))) == "SUCCEEDED"
    assert world.execution(task_id, 3) is None
