"""Every operation that calls DynamoDB, uncontended, on small items: one function prepares it, another runs it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from delegation.idempotency.keys import Scope
from delegation.idempotency.reservations import DynamoDbReservationStore, Reservation
from delegation.idempotency.service import Acceptance, IdempotentRequest, bind
from delegation.idempotency.store import DynamoDbIdempotencyStore, Record, RecordWrite, StoredAnswer
from delegation.notifications.delivery import Notifier
from delegation.notifications.queue import Message
from delegation.tasks.errors import RevisionConflict
from delegation.tasks.life import transitions as t
from delegation.tasks.life.lanes import Caps, Lane, Traits
from delegation.tasks.life.model import AdoptedChildren, Labels, Status, Task
from delegation.tasks.life.notifications import (
    Notification,
    NotificationPolicy,
    Receiver,
    after_failure,
    joined,
    owed_by,
    sent_again,
)
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Lease, Policies, RetryPolicy
from delegation.tasks.stores.admission import EVERY_LANE, Recent, Register
from delegation.tasks.stores.base import Adopt, Advance, Child, Create, Expect, Received, Revise
from delegation.tasks.stores.dynamodb import DynamoDbTaskStore
from delegation.tasks.stores.notifications import DynamoDbNotificationStore
from delegation.tasks.submit import Call, Parent, Tasks
from delegation.tasks.work.behaviors import Behavior
from delegation.testing.reservations import finalized, reserved
from tests.contract.mutations.world import EffectfulCatalog
from tests.contract.task_tables import record_store, reservation_store
from tests.kit.tasks.builders import (
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
from tests.kit.tasks.queues import Queue
from tests.kit.tasks.services import task_service
from tests.services import change_service

SCOPE = Scope("polaris", "POLARIS", "POST", "/v1/tasks", "key-1")
LANE = Lane.of("TABLE_PURGE", Traits("sales", "lake"))
ANSWER = StoredAnswer(202, '{"status":"QUEUED"}')
ERROR = AttemptError("TIMEOUT", "timed out", ErrorClass.TRANSIENT)
LIFETIME = timedelta(minutes=30)
TABLE = "lake.sales.orders"
LIST = Received(until=NOW, since=NOW - timedelta(days=3))
Act = Callable[[], object]


class Nothing(BaseModel):
    """No parameters."""


class Harness:
    """Tasks and records in DynamoDB, a queue in memory, and a clock that does not move."""

    def __init__(self, store: DynamoDbTaskStore) -> None:
        self.store = store
        self.records: DynamoDbIdempotencyStore = record_store(store)
        self.clock = Clock()
        self.service = task_service(
            store, Policies(default=RetryPolicy(max_attempts=3), by_type={}), Queue(), clock=self.clock
        )
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
        return bind(SCOPE, task=task, **{**values, **changes})

    def request(self, *, keyed: bool, synchronous: bool = False, resubmits: bool = False) -> IdempotentRequest:
        return IdempotentRequest(
            scope=SCOPE if keyed else None,
            payload_hash=payload_hash,
            answer_now=None if synchronous else (lambda _task: ANSWER),
            answer_of=lambda _task: StoredAnswer(200, "{}"),
            first=lambda: submitted("00000000-0000-4000-8000-000000000001"),
            obstacle=lambda _task: None,
            again=lambda task, now: resubmitted(task, now) if resubmits else None,
        )


def payload_hash(_rule: int) -> str:
    return "a" * 64


def lasting(now: Any) -> Lease:
    return Lease.lasting(2 * HOUR, now)


def held(harness: Harness) -> str:
    return harness.put(Status.ACQUIRING_RESOURCES).task_id


def running(harness: Harness) -> str:
    return harness.put(Status.RUNNING).task_id


def excuse(harness: Harness) -> Act:
    task_id = held(harness)
    harness.clock.advance(2 * HOUR)
    harness.service.dispatching.presume_lost(task_id)
    return lambda: harness.service.dispatching.excuse_refused_start(task_id, 1)


def failed_task(harness: Harness) -> str:
    return harness.put(Status.FAILURE).task_id


def create(harness: Harness) -> Act:
    return lambda: harness.store.apply(Create(submitted()))


def advance(harness: Harness) -> Act:
    task = harness.put(Status.SUBMITTED)
    return lambda: harness.store.apply(Advance(task, acquired(task)))


def advance_to_the_end(harness: Harness) -> Act:
    task = harness.put(Status.RUNNING)
    return lambda: harness.store.apply(Advance(task, succeeded(task)))


def advance_through(harness: Harness) -> Act:
    task = harness.put(Status.ACQUIRING_RESOURCES)
    passed = started(task)
    after = succeeded(passed).evolve(revision=passed.revision, nonce=passed.nonce)
    return lambda: harness.store.apply(Advance(task, after, (passed,)))


def revise(harness: Harness) -> Act:
    task = harness.put(Status.RUNNING)
    return lambda: harness.store.apply(Revise(task, touched(task, files_deleted=1)))


def revise_due(harness: Harness) -> Act:
    task = harness.put(Status.RUNNING)
    return lambda: harness.store.apply(Revise(task, touched(task, due_at=NOW + 2 * HOUR)))


def announce(harness: Harness) -> Act:
    task = harness.put(Status.RUNNING, notify=("callback:catalog",))
    return lambda: harness.store.apply(Advance(task, succeeded(task)))


def announce_late(harness: Harness) -> Act:
    task = harness.put(Status.SUCCESS)
    return lambda: harness.store.apply(Expect(task, joined(task, ("callback:catalog",))[1]))


def owed(harness: Harness, act: Callable[[DynamoDbNotificationStore, Notification], object]) -> Act:
    """Return an operation on a notification that a task announces."""
    task = harness.put(Status.SUCCESS, notify=("callback:catalog",))
    (one,) = owed_by([task])
    store = DynamoDbNotificationStore(harness.store)
    return lambda: act(store, one)


def deliver(harness: Harness) -> Act:
    """Deliver one callback: the reads and writes of the notifier."""
    task = harness.put(Status.SUCCESS, notify=("callback:catalog",))
    (one,) = owed_by([task])
    policy = NotificationPolicy(callbacks={"catalog": "https://catalog.acme.org/hook"})
    notifier = notifier_over(harness.store, policy, harness.clock)
    harness.clock.advance(SECOND)
    return lambda: notifier.take(Message.of(one))


def known(harness: Harness, act: Callable[[DynamoDbNotificationStore, Receiver], object]) -> Act:
    store = DynamoDbNotificationStore(harness.store)
    one = after_failure(None, "callback:catalog", SECOND, NOW)
    assert store.revise_receiver(None, one)
    return lambda: act(store, one)


class AcceptingBus:
    """An event bus that accepts every event."""

    def put(self, owed: Notification) -> None:
        """Accept it."""


def notifier_over(store: DynamoDbTaskStore, policy: NotificationPolicy, clock: Clock) -> Notifier:
    """The notifier with receivers that accept everything."""
    return Notifier(
        DynamoDbNotificationStore(store),
        policy,
        lambda _url, _headers, _body: 200,
        lambda _name: (b"a key of the receiver, 32 bytes at least",),
        AcceptingBus(),
        clock,
    )


def expect(harness: Harness) -> Act:
    task = harness.put(Status.RUNNING)
    return lambda: harness.store.apply(Expect(task))


def lost_race(harness: Harness) -> Act:
    task = harness.put(Status.SUBMITTED)
    harness.store.apply(Revise(task, touched(task, dispatches=task.dispatches.evolve(count=1))))

    def refused() -> None:
        try:
            harness.store.apply(Advance(task, acquired(task)))
        except RevisionConflict:
            return
        raise AssertionError("the race was not lost")

    return refused


def adopt(harness: Harness, **changes: Any) -> Act:
    task = harness.put(Status.RUNNING)
    after = touched(task, **changes) if changes else task
    return lambda: harness.store.apply(Adopt(task, after, Child("child", 1, "NOTE", "{}")))


def disown(harness: Harness) -> Act:
    task = harness.put(Status.RUNNING)
    harness.store.apply(Adopt(task, task, Child("child", 1, "NOTE", "{}")))
    return lambda: harness.store.disown(task.task_id, 1)


def labelled(harness: Harness) -> str:
    return harness.put(Status.SUBMITTED, **Labels(TABLE, "c-1").keys()).task_id


def received(harness: Harness) -> Act:
    harness.put(Status.RUNNING)
    return lambda: harness.store.received(LIST, limit=1)


def remove(harness: Harness) -> Act:
    task = harness.put(Status.SUCCESS)
    return lambda: harness.store.remove(task)


def end_attempt(harness: Harness) -> Act:
    task_id = running(harness)
    return lambda: harness.service.leases.end_attempt(task_id, 1, ERROR)


def reconcile(harness: Harness) -> Act:
    task_id = running(harness)
    harness.clock.advance(2 * HOUR)
    return lambda: harness.service.dispatching.reconcile(task_id)


def hand_on(harness: Harness) -> Act:
    task = harness.put(Status.RUNNING)
    owner = task.lease.owner or ""
    return lambda: harness.service.leases.hand_to_next_execution(
        task.task_id, 1, owner, lambda n: f"{task.task_id}-{n}"
    )


def child(harness: Harness) -> Act:
    parent = Parent(running(harness), 1)
    return lambda: harness.tasks.submit(harness.behavior, Nothing(), parent=parent)


def second_child(harness: Harness) -> Act:
    parent = Parent(running(harness), 1)
    harness.tasks.submit(harness.singleton, Nothing(), parent=parent)
    named = replace(harness.singleton, identify=lambda _parameters: "two")
    return lambda: harness.tasks.submit(named, Nothing(), parent=parent)


def attach(harness: Harness) -> Act:
    harness.tasks.submit(harness.singleton, Nothing())
    return lambda: harness.tasks.submit(harness.singleton, Nothing())


def poll(harness: Harness, *, ended: bool) -> Act:
    submission = harness.tasks.submit(harness.behavior, Nothing())
    if ended:
        harness.service.operators.cancel(submission.task_id)
    return submission.handle.outcome


def replay(harness: Harness, *, ended: bool) -> Act:
    accepted = harness.acceptance.accept(harness.request(keyed=True))
    if ended:
        harness.service.operators.cancel(accepted.task.task_id)  # type: ignore[union-attr]
        harness.acceptance.accept(harness.request(keyed=True))  # its lifetime begins
    return lambda: harness.acceptance.accept(harness.request(keyed=True))


def attached(harness: Harness) -> Act:
    harness.acceptance.accept(harness.request(keyed=False))
    return lambda: harness.acceptance.accept(harness.request(keyed=True))


def again(harness: Harness) -> Act:
    accepted = harness.acceptance.accept(harness.request(keyed=False))
    harness.service.operators.cancel(accepted.task.task_id)  # type: ignore[union-attr]
    return lambda: harness.acceptance.accept(harness.request(keyed=True, resubmits=True))


def conclude(harness: Harness) -> Act:
    accepted: Any = harness.acceptance.accept(harness.request(keyed=True, synchronous=True))
    outcome = harness.service.operators.cancel(accepted.task.task_id)
    return lambda: harness.acceptance.conclude(accepted, outcome, lambda _task: StoredAnswer(200, "{}"))


def outcome(harness: Harness) -> Act:
    accepted: Any = harness.acceptance.accept(harness.request(keyed=True, synchronous=True))
    return lambda: harness.acceptance.outcome(accepted.task.task_id, accepted.bound_version)


def put_record(harness: Harness) -> Act:
    task = harness.put(Status.SUBMITTED)
    return lambda: harness.records.put(RecordWrite(harness.record(task)))


def reservations(harness: Harness) -> tuple[DynamoDbReservationStore, Reservation]:
    store = reservation_store(harness.store.dynamodb.client)
    return store, reserved()


def reserve(harness: Harness) -> Act:
    store, record = reservations(harness)
    return lambda: store.reserve(record, NOW)


def replace_reservation(harness: Harness) -> Act:
    store, record = reservations(harness)
    store.reserve(record, NOW)
    return lambda: store.replace(finalized(record), record)


def read_reservation(harness: Harness) -> Act:
    store, record = reservations(harness)
    store.reserve(record, NOW)
    return lambda: store.get(record.scope)


def perform(harness: Harness, *, earlier: str | None = None) -> Act:
    """Perform a mutation after an earlier call with the key that ended like `earlier` (tests/contract/mutations)."""
    world = EffectfulCatalog(reservation_store(harness.store.dynamodb.client))
    if earlier is not None:
        world.call(mode=earlier)
    return world.call


def accept_record(harness: Harness) -> Act:
    task = submitted()
    return lambda: harness.records.accept(Create(task), RecordWrite(harness.record(task)))


def remove_expired(harness: Harness) -> Act:
    task = harness.put(Status.SUBMITTED)
    harness.records.put(RecordWrite(harness.record(task).model_copy(update={"expires_at": NOW})))
    return lambda: harness.records.remove_expired(NOW + SECOND, 10)


def of(get_id: Callable[[Harness], str], act: Callable[[Harness, str], object]) -> Callable[[Harness], Act]:
    """Return an operation on an existing task."""

    def ready(harness: Harness) -> Act:
        task_id = get_id(harness)
        harness.clock.advance(SECOND)
        return lambda: act(harness, task_id)

    return ready


def waiting(harness: Harness) -> str:
    return harness.put(Status.SUBMITTED).task_id


def in_a_lane(harness: Harness) -> str:
    return harness.store.apply(Create(t.queued(submitted(), LANE.text, NOW))).task_id


def write_register(harness: Harness) -> Act:
    harness.store.write_register(Register(1))
    return lambda: harness.store.write_register(Register(2, (Recent("task-1", LANE, NOW),)))


def limited_submit(harness: Harness) -> Act:
    change_service(harness.service, policies=replace(harness.service.policies, limits=Caps(everything=100)))
    return lambda: harness.tasks.submit(harness.behavior, Nothing())


OPERATIONS: dict[str, Callable[[Harness], Act]] = {
    "TaskStore.apply(Create)": create,
    "TaskStore.apply(Create) with both labels": lambda harness: (
        lambda: harness.store.apply(Create(submitted(**Labels(TABLE, "c-1").keys())))
    ),
    "TaskStore.apply(Advance)": advance,
    "TaskStore.apply(Advance) to an end": advance_to_the_end,
    "TaskStore.apply(Advance) through another version": advance_through,
    "TaskStore.apply(Revise)": revise,
    "TaskStore.apply(Revise) that moves `due_at`": revise_due,
    "TaskStore.apply(Expect)": expect,
    "TaskStore.apply(Advance) to an end with a callback": announce,
    "TaskStore.apply(Expect) with a callback": announce_late,
    "NotificationStore.notification": lambda harness: owed(
        harness, lambda store, one: store.notification(one.task_id, one.notification_id)
    ),
    "NotificationStore.notifications_of": lambda harness: owed(
        harness, lambda store, one: store.notifications_of(one.task_id)
    ),
    "NotificationStore.notifications, of one": lambda harness: owed(
        harness, lambda store, one: store.notifications(one.state, one.due_at)
    ),
    "NotificationStore.revise_notification": lambda harness: owed(
        harness, lambda store, one: store.revise_notification(one, sent_again(one, NOW + HOUR))
    ),
    "NotificationStore.remove_notification": lambda harness: owed(
        harness, lambda store, one: store.remove_notification(one)
    ),
    "NotificationStore.receivers, of one": lambda harness: known(harness, lambda store, _: store.receivers()),
    "NotificationStore.receiver": lambda harness: known(harness, lambda store, one: store.receiver(one.channel)),
    "NotificationStore.revise_receiver": lambda harness: known(
        harness, lambda store, one: store.revise_receiver(one, after_failure(one, one.channel, SECOND, NOW))
    ),
    "Notifier.take, delivered": deliver,
    "TaskStore.apply, a lost race": lost_race,
    "TaskStore.create_all, two tasks": lambda harness: lambda: harness.store.create_all([submitted(), submitted()]),
    "TaskStore.get_many, of one": of(waiting, lambda harness, task_id: harness.store.get_many([task_id])),
    "TaskStore.get": of(waiting, lambda harness, task_id: harness.store.get(task_id)),
    "TaskStore.get_version": of(waiting, lambda harness, task_id: harness.store.get_version(task_id, 1)),
    "TaskStore.history": of(running, lambda harness, task_id: harness.store.history(task_id)),
    "TaskStore.due": lambda harness: lambda: harness.store.due(NOW),
    "TaskStore.heads": lambda harness: harness.store.heads,
    "TaskStore.received, a full page of today": received,
    "TaskStore.received, of a table": of(
        labelled, lambda harness, _task_id: harness.store.received(replace(LIST, target=TABLE), limit=9)
    ),
    "TaskStore.received, to the end of four empty days": lambda harness: lambda: harness.store.received(LIST),
    "TaskStore.remove": remove,
    "TaskStore.apply(Adopt)": adopt,
    "TaskStore.apply(Adopt) with the head": lambda harness: adopt(harness, family=AdoptedChildren(child_ordinal=1)),
    "TaskStore.children": of(running, lambda harness, task_id: harness.store.children(task_id)),
    "TaskStore.parents": of(running, lambda harness, task_id: harness.store.parents(task_id)),
    "TaskStore.disown, one child": disown,
    "TaskStore.forget, two rows": of(running, lambda harness, task_id: harness.store.forget(task_id, 3)),
    "AdmissionStore.queued_in, one lane": of(
        in_a_lane, lambda harness, _task_id: harness.store.queued_in(NOW, each=9, lanes=1, span=EVERY_LANE)
    ),
    "AdmissionStore.running": of(in_a_lane, lambda harness, _task_id: harness.store.running()),
    "AdmissionStore.register": of(in_a_lane, lambda harness, _task_id: harness.store.register()),
    "AdmissionStore.write_register": write_register,
    "IdempotencyStore.get": lambda harness: lambda: harness.records.get(SCOPE.id),
    "IdempotencyStore.put": put_record,
    "IdempotencyStore.accept": accept_record,
    "IdempotencyStore.without_expiry": lambda harness: harness.records.without_expiry,
    "IdempotencyStore.remove_expired, for one": remove_expired,
    "ReservationStore.get": read_reservation,
    "ReservationStore.reserve": reserve,
    "ReservationStore.replace": replace_reservation,
    "Mutations.perform": perform,
    "Mutations.perform, replayed": lambda harness: perform(harness, earlier="apply"),
    "Mutations.perform, after an unknown outcome": lambda harness: perform(harness, earlier="break"),
    "TaskReads.get": of(waiting, lambda harness, task_id: harness.service.reads.get(task_id)),
    "Leases.acquire": of(waiting, lambda harness, task_id: harness.service.leases.acquire(task_id, "run-1", lasting)),
    "Leases.heartbeat": of(running, lambda harness, task_id: harness.service.leases.heartbeat(task_id, 1, lasting)),
    "Leases.note": of(
        running, lambda harness, task_id: harness.service.leases.note(task_id, 1, details={"files_deleted": 1})
    ),
    "Leases.start": of(held, lambda harness, task_id: harness.service.leases.start(task_id, 1, effects=True)),
    "Leases.succeed": of(running, lambda harness, task_id: harness.service.leases.succeed(task_id, 1, "done")),
    "Leases.end_attempt": end_attempt,
    "OperatorChanges.cancel": of(waiting, lambda harness, task_id: harness.service.operators.cancel(task_id)),
    "OperatorChanges.retry": of(failed_task, lambda harness, task_id: harness.service.operators.retry(task_id)),
    "Dispatching.dispatch": of(waiting, lambda harness, task_id: harness.service.dispatching.dispatch(task_id)),
    "Dispatching.admit": of(in_a_lane, lambda harness, task_id: harness.service.dispatching.admit(task_id)),
    "Dispatching.reconcile": reconcile,
    "Leases.adopt": of(running, lambda harness, task_id: harness.service.leases.adopt(task_id, 1, submitted())),
    "Leases.hand_to_next_execution": hand_on,
    "Dispatching.excuse_refused_start": excuse,
    "Tasks.submit": lambda harness: lambda: harness.tasks.submit(harness.behavior, Nothing()),
    "Tasks.submit_all, two tasks": lambda harness: (
        lambda: harness.tasks.submit_all([Call(harness.behavior, Nothing()), Call(harness.behavior, Nothing())])
    ),
    "Tasks.submit with limits": limited_submit,
    "Tasks.submit, attached": attach,
    "Tasks.submit, a child": child,
    "Tasks.submit, a second child": second_child,
    "Handle.outcome, before the outcome": lambda harness: poll(harness, ended=False),
    "Handle.outcome, after the outcome": lambda harness: poll(harness, ended=True),
    "Acceptance.accept": lambda harness: lambda: harness.acceptance.accept(harness.request(keyed=False)),
    "Acceptance.accept with a key": lambda harness: lambda: harness.acceptance.accept(harness.request(keyed=True)),
    "Acceptance.accept with a key, attached": attached,
    "Acceptance.accept with a key, submitted again": again,
    "Acceptance.accept, replayed while it runs": lambda harness: replay(harness, ended=False),
    "Acceptance.accept, replayed": lambda harness: replay(harness, ended=True),
    "Acceptance.outcome, before it": outcome,
    "Acceptance.conclude": conclude,
}
