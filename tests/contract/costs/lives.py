"""Whole lives of uncontended tasks, from acceptance to the last write of their record."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from delegation.notifications.delivery import DeliveryOutcome
from delegation.notifications.queue import Message
from delegation.orchestration.dispatch import Admission
from delegation.orchestration.failures import Step
from delegation.orchestration.job_runs import JobRun
from delegation.orchestration.steps import Steps
from delegation.removal.purge.run import purge_table
from delegation.removal.purge.task_type import TASK_TYPES
from delegation.tasks.life.lanes import Caps
from delegation.tasks.life.model import Status
from delegation.tasks.life.notifications import Notification, NotificationPolicy
from delegation.tasks.stores.dynamodb import DynamoDbTaskStore
from delegation.tasks.submit import Tasks
from delegation.tasks.work.behaviors import Behaviors, FunctionBehavior
from delegation.tasks.work.hooks import NoDispatchQueue
from delegation.tasks.work.worker import Worker, WorkerSettings
from tests.contract.costs.operations import Harness, Nothing, notifier_over
from tests.contract.task_tables import record_store
from tests.kit.lakes.lake import filled
from tests.kit.worlds.service import World
from tests.services import change_service


def world(store: DynamoDbTaskStore, *, inline_max_files: int = 1_000) -> World:
    return filled(World(stores=(store, record_store(store)), inline_max_files=inline_max_files), "orders")


def background(store: DynamoDbTaskStore) -> Callable[[], None]:
    """`POST /v1/tasks` with a key, run by the state machine in a Lambda."""
    there = world(store)

    def live() -> None:
        assert there.submit(there.body("orders"), "key-1").status == 202
        there.drive()
        assert [task.status for task in store.heads().tasks] == [Status.SUCCESS]

    return live


def notified(store: DynamoDbTaskStore) -> Callable[[], None]:
    """`POST /v1/tasks` with a key and a callback, run by the state machine; its end is an event too, both delivered."""
    there = world(store)
    policy = NotificationPolicy(events=True, callbacks={"catalog": "https://catalog.acme.org/hook"})
    change_service(there.tasks, policies=replace(there.tasks.policies, notifications=policy))
    announced: list[Notification] = []
    change_service(there.tasks, announce=announced.extend)
    notifier = notifier_over(store, policy, there.clock)

    def live() -> None:
        assert there.submit(there.body("orders", callback="catalog"), "key-1").status == 202
        there.drive()
        there.clock.advance(timedelta(seconds=1))
        assert len(announced) == 2
        for owed in announced:
            assert notifier.take(Message.of(owed)).outcome is DeliveryOutcome.DELIVERED

    return live


def with_limits(store: DynamoDbTaskStore) -> Callable[[], None]:
    """`POST /v1/tasks` with a key, admitted, then run by the state machine in a Lambda."""
    there = world(store)
    change_service(there.tasks, policies=replace(there.tasks.policies, limits=Caps(everything=100)))
    admission = Admission(there.tasks, store, TASK_TYPES, there.queue.send, limits=there.tasks.policies.limits)

    def live() -> None:
        assert there.submit(there.body("orders"), "key-1").status == 202
        assert admission.run() == 1
        there.drive()
        assert [task.status for task in store.heads().tasks] == [Status.SUCCESS]

    return live


def synchronous(store: DynamoDbTaskStore) -> Callable[[], None]:
    """`POST /v1/tasks/execute/synchronous` with a key, run in the request."""
    there = world(store)

    def live() -> None:
        assert there.execute(there.body("orders"), "key-1").status == 200

    return live


def by_a_job(store: DynamoDbTaskStore) -> Callable[[], None]:
    """`POST /v1/tasks` with a key, run by a Spark job that is polled while it waits, runs, and has ended."""
    there = world(store, inline_max_files=0)
    jobs = OneJob()
    steps = Steps(there.tasks, TASK_TYPES, behaviors=Behaviors([there.behavior]), jobs=jobs)

    def live() -> None:
        assert there.submit(there.body("orders"), "key-1").status == 202
        step = Step(*there.queue.sent.pop())
        step = Step.of(steps.acquire(step, there.deadline()))
        assert steps.prepare(step, there.deadline())["next"] == "spark"
        steps.start_job(step)
        there.clock.advance(timedelta(seconds=5))
        assert steps.heartbeat(step)["next"] == "heartbeat"
        jobs.state = "RUNNING"
        there.clock.advance(timedelta(seconds=30))
        assert steps.heartbeat(step)["next"] == "heartbeat"
        there.behavior.run_job(purge_table, step.task_id, step.attempt)
        jobs.state = "SUCCESS"
        assert steps.heartbeat(step)["next"] == "complete"
        assert steps.complete(step)["next"] == "succeeded"

    return live


def by_a_worker(store: DynamoDbTaskStore) -> Callable[[], None]:
    """`Tasks.submit`, run by a plain worker; work without progress to report. Its shard is fixed by its id."""
    harness = Harness(store)
    change_service(harness.service, queue=NoDispatchQueue())
    behaviors = Behaviors([FunctionBehavior(harness.service, harness.singleton)])
    worker = Worker(harness.service, behaviors, WorkerSettings("worker-1"))

    def live() -> None:
        submitted = Tasks(harness.service).submit(harness.singleton, Nothing())
        worker.run_once()
        outcome = submitted.handle.outcome()
        assert outcome is not None
        assert outcome.status is Status.SUCCESS

    return live


class OneJob:
    """A JobService with a single run."""

    def __init__(self) -> None:
        self.state = "SUBMITTED"
        self.name = ""

    def start(self, name: str, arguments: object, folders: object = (), *, with_jars: bool = False) -> str:
        self.name = name
        return name

    def get(self, run_id: str) -> JobRun | None:
        return JobRun(run_id, self.name, self.state)

    def active(self, prefix: str, *, as_of: datetime | None = None) -> list[JobRun]:
        return []

    def cancel(self, run_id: str) -> None:
        raise AssertionError("there is no former run")


LIVES = {
    "synchronous purge, in the request": synchronous,
    "background purge, in a Lambda": background,
    "background purge, in a Lambda, with limits": with_limits,
    "background purge, in a Lambda, with an event and a callback": notified,
    "background purge, in a Spark job": by_a_job,
    "task of a plain worker": by_a_worker,
}
