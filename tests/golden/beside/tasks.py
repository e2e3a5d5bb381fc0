"""Forms beside tasks in their table: pauses, the register of admissions, notifications, children and large results.

A `LivedTable` is a service's tasks over any task store. What its functions return is what a release leaves behind.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from delegation.notifications.queue import SqsNotificationQueue, announce
from delegation.orchestration.dispatch import Admission, SqsDispatchQueue
from delegation.removal.purge.task_type import TASK_TYPE
from delegation.storage.memory import MemoryPlanStore
from delegation.tasks.life import notifications as owing
from delegation.tasks.life.model import Caller, Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Lease, Policies
from delegation.tasks.pauses import PAUSED, PAUSED_WAIT, PauseControl, PauseMode, PauseScope, ReadPauses
from delegation.tasks.stores.dynamodb import DynamoDbPauseStore
from delegation.tasks.stores.notifications import DynamoDbNotificationStore
from delegation.tasks.submit import Parent, Tasks
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior, Behaviors, FunctionBehavior
from delegation.tasks.work.hooks import TaskHooks
from delegation.tasks.work.reads import MOST_RESULT
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.worker import Worker, WorkerSettings
from delegation.wiring.types import TYPES
from tests.contract.task_tables import task_store
from tests.golden.moments import Aws
from tests.golden.stories import Count
from tests.kit.tasks.builders import HOUR, MINUTE, NOW, Clock

OPS = Caller(client_id="ops", subject="CN=ops")
REALM = PauseScope(realm="POLARIS")
AUDIT = PauseScope(table="lake.ns.audit")
NOTIFIED = {
    "delegation.notifications.events": "true",
    "delegation.notifications.callback.catalog": "https://catalog.internal/tasks",
    "delegation.notifications.max-attempts": "2",
}
ONE_AT_ONCE = {"delegation.limits.all": "1"}


class LivedTable:
    """Tasks over a store, with the queues, the record bucket and the pauses of a deployment with these properties."""

    def __init__(self, store: Any, pauses: Any, owed: Any, **properties: str) -> None:
        self.clock, self.aws, self.dispatches, self.results = Clock(NOW), Aws(), Aws(), MemoryPlanStore()
        self.store, self.owed = store, owed
        self.policies = Policies.from_properties(properties)
        self.control = PauseControl(pauses, self.clock)
        notices = SqsNotificationQueue(self.aws, "notifications")
        self.tasks = TaskService(
            store,
            self.policies,
            SqsDispatchQueue(self.dispatches, "dispatch"),
            clock=self.clock,
            hooks=TaskHooks(
                types=TYPES,
                results=self.results,
                announce=lambda found: announce(notices, found),
                pauses=ReadPauses(pauses.read, TYPES, monotonic=self.seconds),
            ),
        )
        self.started: list[tuple[str, int]] = []
        self.admission = Admission(
            self.tasks, store, {TASK_TYPE}, lambda *one: self.started.append(one), limits=self.policies.limits
        )
        self.behaviors = {one.task_type: one for one in (child(), parent(self.tasks))}
        runnable = Behaviors([FunctionBehavior(self.tasks, each) for each in self.behaviors.values()])
        self.worker = Worker(self.tasks, runnable, WorkerSettings("worker-1"))

    def seconds(self) -> float:
        """Return the clock's time in seconds."""
        return self.clock.now.timestamp()

    def submit(self, number: int, table: str, **fields: Any) -> Task:
        """Submit a purge of a table; its id is made of the number."""
        document = {
            "common_payload": {
                "operation_type": TASK_TYPE,
                "realm_identifier": "POLARIS",
                "polaris_correlation_id": "c-1",
            },
            "operation_parameters": {
                "table_identity": {"catalog_name": "lake", "namespace_levels": ["ns"], "table_name": table}
            },
        }
        first = self.tasks.submission.first(
            task_id=task_id(number), task_type=TASK_TYPE, payload=json.dumps(document), **fields
        )
        return self.tasks.submission.create(first)[0]

    def acquire(self, number: int) -> Task:
        """Have a process try to become the lease holder."""
        return self.tasks.leases.acquire(task_id(number), "run-1", lambda now: Lease.lasting(HOUR, now))

    def succeed(self, number: int) -> Task:
        """End the attempt that is held."""
        held = self.tasks.leases.start(task_id(number), self.tasks.reads.get(task_id(number)).attempt_count)
        return self.tasks.leases.succeed(held.task_id, held.attempt_count, "deleted 3 files")

    def work(self) -> None:
        """Have the worker run what is due."""
        while self.worker.run_once():
            pass


def task_id(number: int) -> str:
    """Return the id of a task of these forms."""
    return f"00000000-0000-4000-8000-{number:012d}"


def child() -> Behavior[Count, Any]:
    """A behavior whose result is too large for the record."""

    def work(parameters: Count, _run: AttemptContext) -> Any:
        return Large(text="x" * MOST_RESULT, number=parameters.number)

    return Behavior("CHILD", Count, work, result=Large, identify=lambda parameters: str(parameters.number))


def parent(tasks: TaskService) -> Behavior[Count, Any]:
    """A behavior with so many children, of which it waits for all; its result is too large for the record."""
    submitted = Tasks(tasks)

    def work(parameters: Count, run: AttemptContext) -> Any:
        for number in range(parameters.number):
            adopter = Parent(run.task.task_id, run.task.attempt_count)
            submitted.submit(child(), Count(number=number), parent=adopter)
        return Large(text="y" * MOST_RESULT, number=parameters.number)

    return Behavior("PARENT", Count, work, result=Large)


class Large(Count):
    """A large result."""

    text: str


@contextmanager
def lived(client: Any, **properties: str) -> Iterator[LivedTable]:
    """Tasks in a table of their own in DynamoDB."""
    with task_store(client) as store:
        pauses = DynamoDbPauseStore(store.dynamodb, store.table)
        yield LivedTable(store, pauses, DynamoDbNotificationStore(store), **properties)


def paused(table: LivedTable) -> None:
    """A realm is paused, whose one attempt was handed over and whose other task waits; a table is drained."""
    for number, name in enumerate(("orders", "events", "audit"), 1):
        table.submit(number, name)
    held = table.acquire(1)
    table.control.pause(REALM, by=OPS, reason="Polaris is being upgraded")
    table.control.pause(AUDIT, by=OPS, mode=PauseMode.DRAIN)
    table.clock.advance(MINUTE)
    error = AttemptError(PAUSED, "paused by ops", ErrorClass.PAUSED)
    table.tasks.leases.end_attempt(held.task_id, held.attempt_count, error, wait=PAUSED_WAIT)


def limited(table: LivedTable) -> None:
    """One task may run at once: one runs, two wait in their lanes, and the register has the admission."""
    for number, name in enumerate(("orders", "events", "audit"), 1):
        table.submit(number, name)
        table.clock.advance(timedelta(seconds=1))
    assert table.admission.run() == 1
    table.acquire(1)


def notifying(table: LivedTable) -> None:
    """Two ends announce an event and a callback each; the first one's were tried, and its callback is a dead letter."""
    policy = table.policies.notifications
    for number in (1, 2):
        table.submit(number, "orders", callback="catalog")
        table.acquire(number)
        table.succeed(number)
        table.clock.advance(HOUR)
        for owed in table.owed.notifications_of(task_id(1)) if number == 1 else ():
            for _ in range(1 if owed.channel == "event" else policy.max_attempts):
                begun = owing.begun(owed, table.clock(), policy)
                tried = owing.failed(begun, "CALLBACK_NOT_ACCEPTED: 500", table.clock(), policy)
                assert table.owed.revise_notification(owed, begun)
                assert table.owed.revise_notification(begun, tried)
                owed = tried  # noqa: PLW2901


def awaiting(table: LivedTable) -> None:
    """A parent waits for two children: one has ended, with a result in the record bucket, the other is to begin.

    The parent's own result is in the bucket too, and its record names it until it ends.
    """
    Tasks(table.tasks).submit(table.behaviors["PARENT"], Count(number=2))
    for _ in range(2):
        table.clock.advance(2 * MINUTE)
        assert table.worker.run_once()


TABLES: Mapping[str, tuple[Callable[[LivedTable], None], Mapping[str, str]]] = {
    "paused": (paused, {}),
    "limited": (limited, ONE_AT_ONCE),
    "notifying": (notifying, NOTIFIED),
    "awaiting": (awaiting, {}),
}
"""What lives each form, and the properties of its deployment."""
