"""Every operation that talks to DynamoDB, uncontended, on small items: made ready by one function, done by another."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from delegation.idempotency import record as records
from delegation.idempotency.dynamodb import DynamoDbIdempotencyStore
from delegation.idempotency.record import Record, Scope, StoredAnswer
from delegation.idempotency.service import Acceptance, IdempotentRequest, Relation
from delegation.idempotency.store import RecordWrite
from delegation.tasks.errors import RevisionConflict
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Policies, RetryPolicy
from delegation.tasks.stores.base import Advance, Create, Expect, Revise
from delegation.tasks.stores.dynamodb import DynamoDbTaskStore
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.submit import Parent, Tasks
from tests.contract.task_tables import record_store
from tests.unit.tasks.builders import (
    HOUR,
    NOW,
    SECOND,
    Clock,
    acquired,
    failed,
    nonce,
    resubmitted,
    started,
    submitted,
    succeeded,
    touched,
)
from tests.unit.tasks.racing import Queue

SCOPE = Scope("polaris", "POLARIS", "POST", "/v1/tasks", "key-1")
ANSWER = StoredAnswer(202, '{"status":"QUEUED"}')
ERROR = AttemptError("TIMEOUT", "timed out", ErrorClass.TRANSIENT)
LIFETIME = timedelta(minutes=30)
Act = Callable[[], object]


class Nothing(BaseModel):
    """No parameters."""


class House:
    """Tasks and records in DynamoDB, a queue in memory, and a clock that stands still."""

    def __init__(self, store: DynamoDbTaskStore) -> None:
        self.store = store
        self.records: DynamoDbIdempotencyStore = record_store(store)
        self.clock = Clock()
        policies = Policies(default=RetryPolicy(max_attempts=3), by_type={})
        self.service = TaskService(store, policies, Queue(), clock=self.clock)
        self.tasks = Tasks(self.service)
        self.behavior = Behavior("NOTE", Nothing, lambda _parameters, _run: None)
        self.singleton = Behavior("NOTE", Nothing, lambda _parameters, _run: None, identify=lambda _parameters: "one")
        self.acceptance = Acceptance(store, self.records, lifetime=LIFETIME, clock=self.clock, nonce=nonce)

    def put(self, status: Status, **fields: Any) -> Task:
        """A task of a status, with its rows."""
        task = self.store.apply(Create(submitted(**fields)))
        if status is Status.SUBMITTED:
            return task
        task = self.store.apply(Advance(task, acquired(task)))
        if status is Status.ACQUIRING_RESOURCES:
            return task
        task = self.store.apply(Advance(task, started(task)))
        if status is Status.RUNNING:
            return task
        return self.store.apply(Advance(task, succeeded(task) if status is Status.SUCCESS else failed(task)))

    def record(self, task: Task, **changes: Any) -> Record:
        values: dict[str, Any] = {"payload_hash": "a" * 64, "answer": ANSWER, "now": NOW, "nonce": nonce()}
        return records.bind(SCOPE, task=task, **{**values, **changes})

    def request(
        self, *, keyed: bool, synchronous: bool = False, relation: Relation = Relation.ATTACH
    ) -> IdempotentRequest:
        return IdempotentRequest(
            scope=SCOPE if keyed else None,
            payload_hash="a" * 64,
            first=submitted("00000000-0000-4000-8000-000000000001"),
            relate=lambda _task: relation,
            conflict=lambda _task: "",
            again=resubmitted,
            answer_now=None if synchronous else (lambda _task: ANSWER),
            answer_of=lambda _task: StoredAnswer(200, "{}"),
        )


def lasting(now: Any) -> Lease:
    return Lease.lasting(2 * HOUR, now)


def held(house: House) -> str:
    return house.put(Status.ACQUIRING_RESOURCES).task_id


def running(house: House) -> str:
    return house.put(Status.RUNNING).task_id


def given_up(house: House) -> str:
    return house.put(Status.FAILURE).task_id


def create(house: House) -> Act:
    return lambda: house.store.apply(Create(submitted()))


def advance(house: House) -> Act:
    task = house.put(Status.SUBMITTED)
    return lambda: house.store.apply(Advance(task, acquired(task)))


def advance_to_the_end(house: House) -> Act:
    task = house.put(Status.RUNNING)
    return lambda: house.store.apply(Advance(task, succeeded(task)))


def advance_through(house: House) -> Act:
    task = house.put(Status.ACQUIRING_RESOURCES)
    passed = started(task)
    after = succeeded(passed).evolve(revision=passed.revision, nonce=passed.nonce)
    return lambda: house.store.apply(Advance(task, after, (passed,)))


def revise(house: House) -> Act:
    task = house.put(Status.RUNNING)
    return lambda: house.store.apply(Revise(task, touched(task, files_deleted=1)))


def revise_due(house: House) -> Act:
    task = house.put(Status.RUNNING)
    return lambda: house.store.apply(Revise(task, touched(task, due_at=NOW + 2 * HOUR)))


def expect(house: House) -> Act:
    task = house.put(Status.RUNNING)
    return lambda: house.store.apply(Expect(task))


def lost_race(house: House) -> Act:
    task = house.put(Status.SUBMITTED)
    house.store.apply(Revise(task, touched(task, dispatch_count=1)))

    def refused() -> None:
        try:
            house.store.apply(Advance(task, acquired(task)))
        except RevisionConflict:
            return
        raise AssertionError("the race was not lost")

    return refused


def remove(house: House) -> Act:
    task = house.put(Status.SUCCESS)
    return lambda: house.store.remove(task)


def give_back(house: House) -> Act:
    task_id = running(house)
    return lambda: house.service.give_back(task_id, 1, ERROR)


def reconcile(house: House) -> Act:
    task_id = running(house)
    house.clock.advance(2 * HOUR)
    return lambda: house.service.reconcile(task_id)


def hand_on(house: House) -> Act:
    task = house.put(Status.RUNNING)
    owner = task.lease_owner or ""
    return lambda: house.service.hand_to_next_execution(task.task_id, 1, owner, lambda n: f"{task.task_id}-{n}")


def child(house: House) -> Act:
    parent = Parent(running(house), 1)
    return lambda: house.tasks.submit(house.behavior, Nothing(), parent=parent)


def attach(house: House) -> Act:
    house.tasks.submit(house.singleton, Nothing())
    return lambda: house.tasks.submit(house.singleton, Nothing())


def poll(house: House, *, ended: bool) -> Act:
    submission = house.tasks.submit(house.behavior, Nothing())
    if ended:
        house.service.cancel(submission.task_id)
    return submission.completion.poll


def replay(house: House, *, ended: bool) -> Act:
    accepted = house.acceptance.accept(house.request(keyed=True))
    if ended:
        house.service.cancel(accepted.task.task_id)  # type: ignore[union-attr]
        house.acceptance.known(SCOPE, "a" * 64, lambda _task: ANSWER)  # begins its lifetime
    return lambda: house.acceptance.known(SCOPE, "a" * 64, lambda _task: ANSWER)


def attached(house: House) -> Act:
    house.acceptance.accept(house.request(keyed=False))
    return lambda: house.acceptance.accept(house.request(keyed=True))


def again(house: House) -> Act:
    accepted = house.acceptance.accept(house.request(keyed=False))
    house.service.cancel(accepted.task.task_id)  # type: ignore[union-attr]
    return lambda: house.acceptance.accept(house.request(keyed=True, relation=Relation.RESUBMIT))


def conclude(house: House) -> Act:
    accepted: Any = house.acceptance.accept(house.request(keyed=True, synchronous=True))
    outcome = house.service.cancel(accepted.task.task_id)
    return lambda: house.acceptance.conclude(accepted, outcome, lambda _task: StoredAnswer(200, "{}"))


def outcome(house: House) -> Act:
    accepted: Any = house.acceptance.accept(house.request(keyed=True, synchronous=True))
    return lambda: house.acceptance.outcome(accepted.task.task_id, accepted.bound_version)


def put_record(house: House) -> Act:
    task = house.put(Status.SUBMITTED)
    return lambda: house.records.put(RecordWrite(house.record(task)))


def accept_record(house: House) -> Act:
    task = submitted()
    return lambda: house.records.accept(Create(task), RecordWrite(house.record(task)))


def remove_expired(house: House) -> Act:
    task = house.put(Status.SUBMITTED)
    house.records.put(RecordWrite(house.record(task).model_copy(update={"expires_at": NOW})))
    return lambda: house.records.remove_expired(NOW + SECOND, 10)


def of(get_id: Callable[[House], str], act: Callable[[House, str], object]) -> Callable[[House], Act]:
    """An operation on a task that stands already."""

    def ready(house: House) -> Act:
        task_id = get_id(house)
        house.clock.advance(SECOND)
        return lambda: act(house, task_id)

    return ready


def waiting(house: House) -> str:
    return house.put(Status.SUBMITTED).task_id


OPERATIONS: dict[str, Callable[[House], Act]] = {
    "TaskStore.apply(Create)": create,
    "TaskStore.apply(Advance)": advance,
    "TaskStore.apply(Advance) to an end": advance_to_the_end,
    "TaskStore.apply(Advance) through another version": advance_through,
    "TaskStore.apply(Revise)": revise,
    "TaskStore.apply(Revise) that moves `due_at`": revise_due,
    "TaskStore.apply(Expect)": expect,
    "TaskStore.apply, a lost race": lost_race,
    "TaskStore.get": of(waiting, lambda house, task_id: house.store.get(task_id)),
    "TaskStore.get_version": of(waiting, lambda house, task_id: house.store.get_version(task_id, 1)),
    "TaskStore.history": of(running, lambda house, task_id: house.store.history(task_id)),
    "TaskStore.due": lambda house: lambda: house.store.due(NOW),
    "TaskStore.heads": lambda house: house.store.heads,
    "TaskStore.remove": remove,
    "TaskStore.forget, two rows": of(running, lambda house, task_id: house.store.forget(task_id, 3)),
    "IdempotencyStore.get": lambda house: lambda: house.records.get(SCOPE.id),
    "IdempotencyStore.put": put_record,
    "IdempotencyStore.accept": accept_record,
    "IdempotencyStore.without_expiry": lambda house: house.records.without_expiry,
    "IdempotencyStore.remove_expired, for one": remove_expired,
    "TaskService.get": of(waiting, lambda house, task_id: house.service.get(task_id)),
    "TaskService.acquire": of(waiting, lambda house, task_id: house.service.acquire(task_id, "run-1", lasting)),
    "TaskService.heartbeat": of(running, lambda house, task_id: house.service.heartbeat(task_id, 1, lasting)),
    "TaskService.note": of(
        running, lambda house, task_id: house.service.note(task_id, 1, details={"files_deleted": 1})
    ),
    "TaskService.start": of(held, lambda house, task_id: house.service.start(task_id, 1, effects=True)),
    "TaskService.succeed": of(running, lambda house, task_id: house.service.succeed(task_id, 1, "done")),
    "TaskService.give_back": give_back,
    "TaskService.cancel": of(waiting, lambda house, task_id: house.service.cancel(task_id)),
    "TaskService.retry": of(given_up, lambda house, task_id: house.service.retry(task_id)),
    "TaskService.dispatch": of(waiting, lambda house, task_id: house.service.dispatch(task_id)),
    "TaskService.reconcile": reconcile,
    "TaskService.adopt": of(running, lambda house, task_id: house.service.adopt(task_id, 1, "child")),
    "TaskService.hand_to_next_execution": hand_on,
    "Tasks.submit": lambda house: lambda: house.tasks.submit(house.behavior, Nothing()),
    "Tasks.submit, attached": attach,
    "Tasks.submit, a child": child,
    "Tasks.start_here": lambda house: (
        lambda: house.tasks.start_here(house.behavior, Nothing(), "run-1", Lease.lasting(HOUR, NOW))
    ),
    "Completion.poll, not over": lambda house: poll(house, ended=False),
    "Completion.poll, over": lambda house: poll(house, ended=True),
    "Acceptance.accept": lambda house: lambda: house.acceptance.accept(house.request(keyed=False)),
    "Acceptance.accept with a key": lambda house: lambda: house.acceptance.accept(house.request(keyed=True)),
    "Acceptance.accept with a key, attached": attached,
    "Acceptance.accept with a key, submitted again": again,
    "Acceptance.known": lambda house: lambda: house.acceptance.known(SCOPE, "a" * 64, lambda _task: ANSWER),
    "Acceptance.known, replayed while it runs": lambda house: replay(house, ended=False),
    "Acceptance.known, replayed": lambda house: replay(house, ended=True),
    "Acceptance.outcome, not over": outcome,
    "Acceptance.conclude": conclude,
}
