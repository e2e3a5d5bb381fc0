"""A deployment that delivers to many receivers, good and bad, on virtual time: queues, notifiers and the sweeper."""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta

from delegation.notifications.delivery import Notifier, send_due
from delegation.notifications.https import callback_unreachable
from delegation.notifications.queue import Message, Pool, parse, pool_of
from delegation.tasks.life.model import Status
from delegation.tasks.life.notifications import Notification, NotificationPolicy, callback_name, owed_by
from delegation.tasks.stores.memory import MemoryNotificationStore, MemoryTaskStore
from infra.environment.functions import DISPATCH_MAX_CONCURRENCY, NOTIFICATION_BATCH_SIZE
from tests.kit.tasks.builders import in_status
from tests.unit.notifications.virtual_time import VirtualTime

Behaves = Callable[[float], tuple[float, int]]
"""Returns what a delivery at a time takes, and its status; 0 is no answer."""


class Quiet:
    """An event bus that accepts everything at once."""

    def put(self, owed: Notification) -> None:
        """Accept it."""


class Crowd:
    """`receivers` by their names; `delays` are the seconds from each end to its acceptance, by name."""

    def __init__(self, receivers: Mapping[str, Behaves]) -> None:
        self.time = VirtualTime()
        self.receivers = receivers
        self.policy = NotificationPolicy(
            events=True, callbacks={name: f"https://{name}.example/" for name in receivers}
        )
        tasks = MemoryTaskStore()
        self.tasks = tasks
        self.store = MemoryNotificationStore(tasks)
        self.queues: dict[Pool, deque[str]] = {pool: deque() for pool in Pool}
        self.deepest: dict[Pool, int] = defaultdict(int)
        self.delays: dict[str, list[float]] = defaultdict(list)
        self.calls: dict[str, int] = defaultdict(int)
        self._ended: dict[str, float] = {}
        self._numbers = 0
        self._template = owed_by([in_status(Status.SUCCESS, notify=("event", "callback:x"))])
        self.notifier = Notifier(self.store, self.policy, self.post, lambda _name: (b"k" * 32,), Quiet(), self.time.now)

    def end(self, name: str) -> None:
        """End a task whose request picked this callback, and send its first message."""
        self._numbers += 1
        self.announce(f"callback:{name}", f"00000000-0000-4000-8000-{self._numbers:012}")

    def announce(self, channel: str, key: str) -> None:
        now = self.time.now()
        owed = replace(
            self._template[1],
            notification_id=key,
            task_id=key,
            channel=channel,
            body=key,
            created_ts=now,
            due_at=now + timedelta(minutes=1),
        )
        self.tasks.owed[key, key] = owed
        self._ended[key] = self.time.seconds
        self.send(owed)

    def send(self, owed: Notification, *, apart: bool = False) -> None:
        """See NotificationQueue.send."""
        pool = pool_of(owed, apart=apart)
        self.queues[pool].append(Message.of(owed, apart=apart).text())
        self.deepest[pool] = max(self.deepest[pool], len(self.queues[pool]))

    def depth(self, pool: Pool) -> int:
        """See NotificationQueue.depth."""
        return len(self.queues[pool])

    def post(self, url: str, _headers: Mapping[str, str], body: bytes) -> int:
        name = url.removeprefix("https://").partition(".")[0]
        self.calls[name] += 1
        takes, status = self.receivers[name](self.time.seconds)
        self.time.sleep(min(takes, 10.0))
        if not status or takes >= 10:
            raise callback_unreachable("its receiver did not answer within 10 s")
        if 200 <= status < 300:
            self.delays[name].append(self.time.seconds - self._ended[body.decode()])
        return status

    def run(self, seconds: float) -> None:
        """Run the notifiers of each queue and the sweeper."""
        for pool in Pool:
            for _ in range(DISPATCH_MAX_CONCURRENCY):
                self.time.process(lambda pool=pool: self._invocations(pool))
        self.time.process(self._sweeps)
        self.time.run(seconds)

    def left(self, name: str) -> list[Notification]:
        """What is still owed to a receiver."""
        return [one for one in self.tasks.owed.values() if callback_name(one.channel) == name]

    def _invocations(self, pool: Pool) -> None:
        queue = self.queues[pool]
        while True:
            batch = [queue.popleft() for _ in range(min(NOTIFICATION_BATCH_SIZE, len(queue)))]
            for text in batch:
                self.time.sleep(0.02)
                self.notifier.take(parse(text))
            if not batch:
                self.time.sleep(2)

    def _sweeps(self) -> None:
        while True:
            self.time.sleep(60)
            send_due(self.store, self, self.policy, self.time.now())
