"""A deployment's notifications in one process: task store, queue, notifier and sweeper, each killed on demand."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from delegation.client.callbacks import CallbackVerifier, EndOfTask
from delegation.notifications.delivery import Delivered, DeliveryOutcome, Notifier, send_due
from delegation.notifications.https import HttpsPost, Post, SigningKeys, tls
from delegation.notifications.queue import Message, Pool, announce, parse
from delegation.storage.memory import Killed
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.model import Task
from delegation.tasks.life.notifications import Notification, NotificationPolicy, NotificationState
from delegation.tasks.life.policy import Lease, Policies, RetryPolicy
from delegation.tasks.stores.base import Create
from delegation.tasks.stores.memory import MemoryNotificationStore, MemoryTaskStore
from tests.kit.tasks.builders import HOUR, MINUTE, Clock, submitted
from tests.kit.tasks.queues import Queue
from tests.kit.tasks.services import task_service
from tests.unit.notifications.receiver import Receiver

KEY = "a key of the receiver, 32 bytes at least"
FAR = timedelta(days=1000)


@dataclass
class Bus:
    """An event bus; `put` counts as a call."""

    site: "NotifyingProcesses"
    events: list[dict[str, object]] = field(default_factory=list)

    def put(self, owed: Notification) -> None:
        self.site.call("before event")
        self.events.append(json.loads(owed.body))
        self.site.call("after event")


class NotifyingProcesses:
    """`kills` are the numbers of the calls at which the process that makes them dies."""

    def __init__(
        self, receiver: Receiver, *, kills: frozenset[int] = frozenset(), policy: NotificationPolicy | None = None
    ) -> None:
        self.receiver = receiver
        self.kills = kills
        self.calls: list[str] = []
        self.clock = Clock()
        self.policy = policy or NotificationPolicy(
            events=True, callbacks={"catalog": receiver.url}, private_addresses=True
        )
        self.store = MemoryTaskStore(self.call)
        self.owed = MemoryNotificationStore(self.store)
        self.messages: list[str] = []
        self.queue_is_down = False
        self.bus = Bus(self)
        self.tasks = task_service(
            self.store,
            Policies(RetryPolicy(), {}, notifications=self.policy),
            Queue(),
            clock=self.clock,
            announce=lambda owed: announce(self, owed),
        )
        self.secret = json.dumps({"catalog": [KEY]})
        self.https: Post = HttpsPost(
            tls(receiver.authorities), loopback=True, resolve=lambda *_: ["127.0.0.1"], total_seconds=0.3
        )
        self.notifier = Notifier(
            self.owed, self.policy, self.post, SigningKeys(lambda: self.secret, clock=self.clock), self.bus, self.clock
        )

    def call(self, point: str) -> None:
        """One call of a store, the queue or the receiver, before or after it has its effect."""
        number = len(self.calls)
        self.calls.append(point)
        if number in self.kills:
            raise Killed(point)

    def depth(self, pool: Pool) -> int:
        return sum(parse(text).apart is (pool is Pool.APART) for text in self.messages)

    def send(self, owed: Notification, *, apart: bool = False) -> None:
        message = Message.of(owed, apart=apart)
        self.call("before send")
        if self.queue_is_down:
            raise StoreUnavailable("the queue did not accept the message")
        self.messages.append(message.text())
        self.call("after send")

    def post(self, url: str, headers: dict[str, str], body: bytes) -> int:
        self.call("before post")
        status = self.https(url, headers, body)
        self.call("after post")
        return status

    def held(self, callback: str | None = "catalog") -> Task:
        """A task that a process holds and that has an end to announce."""
        first = submitted(notify=self.tasks.policies.channels(callback))
        before, self.store.fault = self.store.fault, lambda _point: None
        task = self.store.apply(Create(first))
        task = self.tasks.leases.acquire(task.task_id, "run-1", lambda now: Lease.lasting(FAR, now))
        self.store.fault = before
        return task

    def survives(self, process: Callable[[], object]) -> bool:
        """Run a process; False when it died."""
        try:
            process()
        except (Killed, StoreUnavailable):
            return False
        return True

    def finish(self, task: Task) -> None:
        """End the task; the state machine repeats a step whose process died."""
        while not self.survives(lambda: self.tasks.leases.succeed(task.task_id, task.attempt_count, "deleted 3 files")):
            pass

    def notify(self) -> list[Delivered]:
        """Take each message once; one whose process died is delivered again by SQS."""
        found: list[Delivered] = []
        for body in list(self.messages):
            if self.survives(lambda body=body: found.append(self.notifier.take(parse(body)))):
                self.messages.remove(body)
        return found

    def sweep(self) -> None:
        """A run of the sweeper."""
        self.survives(lambda: send_due(self.owed, self, self.policy, self.clock()))

    def settle(self) -> list[DeliveryOutcome]:
        """Run notifier and sweeper, an hour apart, until nothing is owed or only dead letters are."""
        outcomes: list[DeliveryOutcome] = []
        for _ in range(50):
            outcomes += [one.outcome for one in self.notify()]
            self.clock.advance(HOUR + MINUTE)
            if not self.messages and not self.left(NotificationState.OWED):
                return outcomes
            self.sweep()
        raise AssertionError("notifications are still owed")

    def left(self, state: NotificationState) -> list[Notification]:
        """What the store has, read without a call that counts."""
        return [one for one in self.store.owed.values() if one.state is state]

    def verified(self) -> list[EndOfTask]:
        """What the receiver got, each verified at the time that its signature states."""
        found = []
        for headers, body in self.receiver.received:
            stamp = int(headers["Delegation-Signature"].split(",")[0].removeprefix("t="))
            at = Clock(self.clock.now.fromtimestamp(stamp, self.clock.now.tzinfo))
            found.append(CallbackVerifier([KEY], clock=at).verify(headers, body))
        return found
