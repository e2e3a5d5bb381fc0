"""TaskStore in memory: atomic under threads, able to inject faults. For tests, simulations and laptops."""

import threading
from bisect import insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from operator import itemgetter
from typing import Final

from delegation.tasks.errors import MalformedRecord, TaskExists
from delegation.tasks.life.lanes import Running
from delegation.tasks.life.model import FORMAT, Task
from delegation.tasks.life.notifications import Notification, NotificationState, Receiver
from delegation.tasks.stores import codec
from delegation.tasks.stores.admission import (
    QUEUED,
    LaneRange,
    LanesPage,
    Register,
    page_of,
    place_of,
    running_entry,
)
from delegation.tasks.stores.base import (
    Adopt,
    Advance,
    Child,
    Create,
    DueEntry,
    Expect,
    Received,
    ReceivedPage,
    Revise,
    TaskChange,
    TaskHeads,
    Unreadable,
    require_terminal,
    require_unmoved,
    require_version,
)

Fault = Callable[[str], None]
"""Called with `before NAME` and `after NAME` around every call; its error reaches the caller."""
_OTHER_FORMAT: Final = "format: this release cannot read it"


def no_fault(_point: str) -> None: ...


class MemoryTaskStore:
    """Heads and rows in two dictionaries under one lock; a fault raised `after` a write leaves it applied."""

    def __init__(self, fault: Fault = no_fault) -> None:
        self.fault = fault
        self.lock = threading.RLock()
        self._heads: dict[str, Task] = {}
        self._rows: dict[str, dict[int, Task]] = {}
        self._unreadable: set[str] = set()
        self._children: dict[str, dict[str, Child]] = {}
        self._parents: dict[str, dict[str, int]] = {}
        self._queued: dict[str, list[tuple[str, str]]] = {}
        self._running: dict[str, Running] = {}
        self._register = Register()
        self.owed: dict[tuple[str, str], Notification] = {}
        self.receivers: dict[str, Receiver] = {}

    def make_unreadable(self, task_id: str) -> None:
        """Treat this task from now on as written by a newer release: it stays and cannot be read."""
        with self.lock:
            self._unreadable.add(task_id)

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Hold the lock for a call, after its first fault; a write raises the fault after it itself."""
        self.fault(f"before {name}")
        with self.lock:
            yield

    def apply(self, change: TaskChange) -> Task:
        with self.call("apply"):
            task = self.apply_locked(change)
        self.fault("after apply")
        return task

    def apply_locked(self, change: TaskChange) -> Task:
        """Apply a change under `lock`, so that another store can join the same transaction."""
        self._require_readable(change.after.task_id)
        match change:
            case Create(task):
                return self._create(task)
            case Advance(before, after, via):
                head = self._heads.get(before.task_id)
                is_repeat = head is None or (head.version, head.revision) != (before.version, before.revision)
                task = self._move(before, after, row=True)
                for passed in via:
                    self._rows[task.task_id].setdefault(passed.version, passed.row)
                self._announce(() if is_repeat else change.owed)
                return task
            case Revise(before, after):
                return self._move(before, after, row=False)
            case Expect(task):
                head = require_version(task, self._heads.get(task.task_id))
                self._announce(change.owed)
                return head
            case Adopt(before, after):
                return self._adopt(change, before, after)

    def _announce(self, notifications: Iterable[Notification]) -> None:
        for owed in notifications:
            self.owed[owed.task_id, owed.notification_id] = owed

    def _adopt(self, change: Adopt, before: Task, after: Task) -> Task:
        if change.only_expects:
            head = require_version(before, self._heads.get(before.task_id))
        else:
            head = self._move(before, after, row=False)
        for child in change.children:
            self._children.setdefault(head.task_id, {})[child.task_id] = child
            self._parents.setdefault(child.task_id, {})[head.task_id] = child.attempt
        return head

    def create_all(self, tasks: Sequence[Task]) -> bool:
        with self.call("create_all"):
            if any(task.task_id in self._heads for task in tasks) or len({task.task_id for task in tasks}) < len(tasks):
                return False
            for task in tasks:
                self.apply_locked(Create(task))
        self.fault("after create_all")
        return True

    def get_many(self, task_ids: Collection[str]) -> Mapping[str, Task]:
        with self.call("get_many"):
            for task_id in task_ids:
                self._require_readable(task_id)
            return {task_id: self._heads[task_id] for task_id in task_ids if task_id in self._heads}

    def children(self, task_id: str) -> Sequence[Child]:
        with self.call("children"):
            children = self._children.get(task_id, {})
            return tuple(children[child] for child in sorted(children))

    def parents(self, task_id: str) -> Mapping[str, int]:
        with self.call("parents"):
            return dict(self._parents.get(task_id, {}))

    def disown(self, task_id: str, up_to_attempt: int) -> int:
        with self.call("disown"):
            disowned = self._disown(task_id, up_to_attempt)
        self.fault("after disown")
        return disowned

    def _disown(self, task_id: str, up_to_attempt: int) -> int:
        children = self._children.get(task_id, {})
        old = [child.task_id for child in children.values() if child.attempt <= up_to_attempt]
        for child in old:
            del children[child]
            del self._parents[child][task_id]
        return len(old)

    def _create(self, task: Task) -> Task:
        stored = self._heads.get(task.task_id)
        if stored is not None:
            first = self._rows[task.task_id].get(1)  # None if maintenance removed it
            if first is not None and first.nonce == task.nonce:
                return stored
            raise TaskExists(task.task_id, stored)
        self._put_head(task)
        self._rows[task.task_id] = {task.version: task.row}
        return task

    def _put_head(self, task: Task) -> None:
        """Store a head, and move the task to its present place for admission."""
        former, self._heads[task.task_id] = self._heads.get(task.task_id), task
        if task.admission.lane is None and (former is None or former.admission.lane is None):
            return  # in no lane before or after
        before, place = place_of(former) if former is not None else None, place_of(task)
        if before == place:
            return
        self._running.pop(task.task_id, None)
        if before is not None and before[0] == QUEUED:
            self._lane(before[1]).remove((before[1], task.task_id))
        if place is not None and place[0] == QUEUED:
            insort(self._lane(place[1]), (place[1], task.task_id))
        elif place is not None:
            self._running[task.task_id] = running_entry(task.task_id, place[1])

    def _lane(self, key: str) -> list[tuple[str, str]]:
        return self._queued.setdefault(key.rpartition("/")[0], [])

    def _move(self, before: Task, after: Task, *, row: bool) -> Task:
        head = self._heads.get(before.task_id)
        if head is not None and head.nonce == after.nonce:
            return head
        if head is not None and row and head.version != before.version:
            ours = self._rows[before.task_id].get(after.version)
            if ours is not None and ours.nonce == after.nonce:
                return head
        require_unmoved(before, head)
        self._put_head(after)
        if row:
            self._rows[before.task_id][after.version] = after.row
        return after

    def get(self, task_id: str) -> Task | None:
        with self.call("get"):
            self._require_readable(task_id)
            return self._heads.get(task_id)

    def get_version(self, task_id: str, version: int) -> Task | None:
        with self.call("get_version"):
            self._require_readable(task_id)
            return self._rows.get(task_id, {}).get(version)

    def history(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        with self.call("history"):
            self._require_readable(task_id)
            rows = self._rows.get(task_id, {})
            return tuple(rows[version] for version in sorted(rows) if version > after)[:limit]

    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        with self.call("due"):
            entries = [DueEntry(t.task_id, t.due_at) for t in self._heads.values() if t.due_at and t.due_at <= now]
        if shards is not None:
            entries = [entry for entry in entries if codec.due_bucket(entry.task_id) in shards]
        return sorted(entries, key=lambda entry: (entry.due_at, entry.task_id))[:limit]

    def queued_in(self, now: datetime, *, each: int, lanes: int, span: LaneRange) -> LanesPage:
        with self.call("queued"):
            return page_of(self._queued, now, each=each, most=lanes, span=span)

    def running(self) -> Sequence[Running]:
        with self.call("running"):
            return tuple(self._running.values())

    def register(self) -> Register:
        with self.call("register"):
            return self._register

    def write_register(self, register: Register) -> bool:
        with self.call("write_register"):
            is_next = self._register.revision == register.revision - 1
            if is_next:
                self._register = register
        self.fault("after write_register")
        return is_next

    def remove(self, task: Task) -> bool:
        require_terminal(task)
        with self.call("remove"):
            self._require_readable(task.task_id)
            head = self._heads.get(task.task_id)
            if head is None:
                return False
            require_unmoved(task, head)
            self._disown(task.task_id, task.attempt_count)
            del self._rows[task.task_id]
            del self._heads[task.task_id]
        self.fault("after remove")
        return True

    def forget(self, task_id: str, below: int) -> int:
        with self.call("forget"):
            self._require_readable(task_id)
            head = self._heads.get(task_id)
            rows = self._rows.get(task_id, {})
            old = [version for version in rows if head is not None and version < min(below, head.version)]
            for version in old:
                del rows[version]
        self.fault("after forget")
        return len(old)

    def heads(self, *, cursor: str | None = None, limit: int = 100) -> TaskHeads:
        with self.call("heads"):
            ids = sorted(task_id for task_id in self._heads if cursor is None or task_id > cursor)
            page = tuple(
                Unreadable(task_id, _OTHER_FORMAT) if task_id in self._unreadable else self._heads[task_id]
                for task_id in ids[:limit]
            )
        return TaskHeads(page, page[-1].task_id if len(ids) > limit else None)

    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        with self.call("received"):
            listed = [
                (codec.received_key(task), task)
                for task in self._heads.values()
                if task.received_timestamp <= which.until
                and (which.since is None or task.received_timestamp >= which.since)
                and which.has_labels_of(task)
            ]
            places = sorted((place for place in listed if before is None or place[0] < before), key=itemgetter(0))[::-1]
            page = tuple(
                (key, Unreadable(task.task_id, _OTHER_FORMAT) if task.task_id in self._unreadable else task)
                for key, task in places[:limit]
            )
        return ReceivedPage(page, page[-1][0] if len(places) > limit else None)

    def _require_readable(self, task_id: str) -> None:
        if task_id in self._unreadable:
            head = self._heads.get(task_id)
            stored = {} if head is None else {**codec.head_item(head), "format": FORMAT + 1}
            raise MalformedRecord(f"task {task_id}: {_OTHER_FORMAT}", stored)


class MemoryNotificationStore:
    def __init__(self, tasks: MemoryTaskStore) -> None:
        self._tasks = tasks

    def notification(self, task_id: str, notification_id: str) -> Notification | None:
        with self._tasks.call("notification"):
            return self._tasks.owed.get((task_id, notification_id))

    def notifications_of(self, task_id: str) -> Sequence[Notification]:
        with self._tasks.call("notifications_of"):
            return [self._tasks.owed[key] for key in sorted(self._tasks.owed) if key[0] == task_id]

    def notifications(
        self, state: NotificationState, until: datetime, *, limit: int = 100, parked: str | None = None
    ) -> Sequence[Notification]:
        with self._tasks.call("notifications"):
            of_state = [owed for owed in self._tasks.owed.values() if owed.state is state and owed.due_at <= until]
        due = [owed for owed in of_state if owed.parked_with == parked]
        return sorted(due, key=lambda owed: (owed.due_at, owed.task_id, owed.notification_id))[:limit]

    def revise_notification(self, before: Notification, after: Notification) -> bool:
        key = (before.task_id, before.notification_id)
        with self._tasks.call("revise_notification"):
            present = self._tasks.owed.get(key)
            is_unmoved = present is not None and present.revision == before.revision
            if is_unmoved:
                self._tasks.owed[key] = after
        self._tasks.fault("after revise_notification")
        return is_unmoved

    def remove_notification(self, delivered: Notification) -> None:
        with self._tasks.call("remove_notification"):
            self._tasks.owed.pop((delivered.task_id, delivered.notification_id), None)
        self._tasks.fault("after remove_notification")

    def receivers(self) -> Sequence[Receiver]:
        with self._tasks.call("receivers"):
            return [self._tasks.receivers[channel] for channel in sorted(self._tasks.receivers)]

    def receiver(self, channel: str) -> Receiver | None:
        with self._tasks.call("receiver"):
            return self._tasks.receivers.get(channel)

    def revise_receiver(self, before: Receiver | None, after: Receiver) -> bool:
        with self._tasks.call("revise_receiver"):
            present = self._tasks.receivers.get(after.channel)
            is_unmoved = (present.revision if present else None) == (before.revision if before else None)
            if is_unmoved:
                self._tasks.receivers[after.channel] = after
        self._tasks.fault("after revise_receiver")
        return is_unmoved
