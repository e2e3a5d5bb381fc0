"""The interface between tasks and the stores that keep them."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final, Protocol

from delegation.tasks.errors import RevisionConflict, StaleTask
from delegation.tasks.life.model import Task, label_key
from delegation.tasks.life.notifications import Notification, owed_by


@dataclass(frozen=True, slots=True)
class Create:
    """Store version 1 of a task and its head unless the task exists."""

    after: Task


@dataclass(frozen=True, slots=True)
class Advance:
    """Move the head from `before` to `after` (one version later) and add its row, in one transaction. `via` are
    versions passed through: RUNNING for an attempt that ended at once, RETRY_SCHEDULED for a lost task acquired at
    once. Each gets its row, so versions have no gaps."""

    before: Task
    after: Task
    via: tuple[Task, ...] = ()

    @property
    def rows(self) -> tuple[Task, ...]:
        """Every new version, ascending."""
        return (*self.via, self.after)

    @property
    def owed(self) -> tuple[Notification, ...]:
        """What the new versions announce; stored in the same transaction."""
        return owed_by(self.rows)


@dataclass(frozen=True, slots=True)
class Revise:
    """Rewrite the head within its version (heartbeat, dispatch, plan, progress); no row is written."""

    before: Task
    after: Task


@dataclass(frozen=True, slots=True)
class Expect:
    """Leave the task unchanged, but require that the head still has this version at any revision. `owed` are
    notifications of that version, stored on this condition."""

    after: Task
    owed: tuple[Notification, ...] = ()


MOST_AT_ONCE: Final = 40
"""The most tasks that one write adopts or creates: two items each, below DynamoDB's limit of 100 actions."""


@dataclass(frozen=True, slots=True)
class Child:
    """A child under its parent: the parent's last attempt that adopted it, and what is needed to create it again."""

    task_id: str
    attempt: int
    task_type: str
    task_payload: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """Record children under their parent, and the parent under each, in one transaction with the parent's head. The
    head is rewritten from `before` to `after` like Revise; if they are equal it must have this version, like Expect. A
    child adopted before gets the new attempt. At most MOST_AT_ONCE with those in `more`."""

    before: Task
    after: Task
    child: Child
    more: tuple[Child, ...] = ()

    @property
    def children(self) -> tuple[Child, ...]:
        return (self.child, *self.more)

    @property
    def only_expects(self) -> bool:
        return self.after is self.before


TaskChange = Create | Advance | Revise | Expect | Adopt
"""Each has the task `after` it: the one that it stores or expects."""


def before_of(change: TaskChange) -> Task:
    """Return the task that a change was decided on; for a Create the one that it stores."""
    return change.after if isinstance(change, Create | Expect) else change.before


def only_expects(change: TaskChange) -> bool:
    """Return whether a change leaves no trace in the head."""
    return isinstance(change, Expect) or (isinstance(change, Adopt) and change.only_expects)


def moved(before: Task, head: Task | None) -> StaleTask | RevisionConflict:
    """Return the refusal of a write that was decided on `before` while `head` is stored."""
    touched_only = head is not None and head.version == before.version
    return (RevisionConflict if touched_only else StaleTask)(before.task_id, head)


def require_unmoved(before: Task, head: Task | None) -> None:
    """Raise StaleTask or RevisionConflict unless the head still has the version and revision of `before`."""
    if head is None or (head.version, head.revision) != (before.version, before.revision):
        raise moved(before, head)


def require_version(task: Task, head: Task | None) -> Task:
    """Return the head for an Expect; raise StaleTask if it has another version."""
    if head is None or head.version != task.version:
        raise StaleTask(task.task_id, head)
    return head


@dataclass(frozen=True, slots=True)
class DueEntry:
    """A hint from the due index; only the head is authoritative."""

    task_id: str
    due_at: datetime


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A head that this release cannot read: a newer release wrote it, or it is corrupt."""

    task_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class TaskHeads:
    """Some heads and the cursor that continues after them, None at the end."""

    entries: tuple[Task | Unreadable, ...]
    cursor: str | None

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, Task))

    @property
    def unreadable(self) -> tuple[Unreadable, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, Unreadable))


@dataclass(frozen=True, slots=True)
class Received:
    """Selects tasks: received from `since` to `until`, with this target and this correlation id if given."""

    until: datetime
    since: datetime | None = None
    target: str | None = None
    correlation_id: str | None = None

    def has_labels_of(self, task: Task) -> bool:
        """Return whether a task has the target and the correlation id that are given."""
        target, correlation = label_key(self.target), label_key(self.correlation_id)
        return target in {None, task.target_key} and correlation in {None, task.correlation_key}


_POSITION: Final = re.compile(r"(\d{4}-\d\d-\d\d)(~|T\d\d:\d\d:\d\d\.\d{6}Z/[^/]{1,256})", re.ASCII)


def is_position(text: str) -> bool:
    """Return whether a text can be a position or a cursor of a ReceivedPage, in any store."""
    match = _POSITION.fullmatch(text)
    try:
        return match is not None and bool(date.fromisoformat(match[1]))
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class ReceivedPage:
    """Some heads in a list's order, each with its position; `cursor` continues after them, None at the end. A page may
    have fewer entries than its limit, or none, although others follow."""

    entries: tuple[tuple[str, Task | Unreadable], ...]
    cursor: str | None


class TaskStore(Protocol):
    """Heads, rows and the indexes of all tasks. Every write is atomic, conditional on version and revision, and carries
    a nonce (`after.nonce`): a repeat after an unclear answer is recognized and returns like the first time. All methods
    raise StoreUnavailable if nothing was written, OutcomeUnknown if that is unknown. Those for one task raise
    MalformedRecord if this release cannot read it."""

    def apply(self, change: TaskChange) -> Task:
        """Apply one change and return the current task. Raises TaskExists (Create), StaleTask (other version),
        RevisionConflict (same version, other revision)."""

    def children(self, task_id: str) -> Sequence[Child]:
        """Return the children that a task's attempts adopted, in the order of their ids, read consistently."""

    def parents(self, task_id: str) -> Mapping[str, int]:
        """Return the ids of the tasks that adopted this one, each with the last attempt that did so."""

    def disown(self, task_id: str, up_to_attempt: int) -> int:
        """Delete the records of children that no attempt after `up_to_attempt` adopted, and return how many."""

    def create_all(self, tasks: Sequence[Task]) -> bool:
        """Store at most MOST_AT_ONCE first versions, all or none; return whether they are stored. False means that one
        exists, that nothing was written, or that this is unknown. A Create of each then decides; it returns a task that
        this call stored."""

    def get_many(self, task_ids: Collection[str]) -> Mapping[str, Task]:
        """Return the heads of existing tasks by id, each read consistently."""

    def get(self, task_id: str) -> Task | None:
        """Return the head, read consistently."""

    def get_version(self, task_id: str, version: int) -> Task | None:
        """Return one version's row, read consistently."""

    def history(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        """Return at most `limit` rows of versions greater than `after`, ascending; readable while the task runs."""

    def due(self, now: datetime, *, limit: int = 100, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        """Return entries of the due index at or before `now`, roughly oldest first, of all shards or of these."""

    def remove(self, task: Task) -> bool:
        """Delete a terminal task: children's records, rows oldest first, then the head, on condition that it is still
        `task`. Return whether this call deleted the head; False if there was none. A repeat finishes an interrupted
        removal; a task that changes meanwhile keeps its head and newest rows. Raises StaleTask or RevisionConflict if
        the head is no longer `task`, ValueError if `task` is not terminal."""

    def forget(self, task_id: str, below: int) -> int:
        """Delete the rows of versions below `below`, oldest first, and return how many: a recurring task's history. The
        head and its row always stay. The remaining rows have no gaps even after an interruption; a repeat deletes the
        rest."""

    def heads(self, *, cursor: str | None = None, limit: int = 100) -> TaskHeads:
        """Return a page of all heads in no particular order; an unreadable one is Unreadable in its place."""

    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        """Return at most `limit` tasks, newest received first, after the position or cursor `before`. Tasks received at
        one moment have a fixed order; a resubmitted one moves to the front. A change of the last seconds may be
        missing; an unreadable one is Unreadable in its place."""


def require_terminal(task: Task) -> None:
    """Raise ValueError for a task without an outcome: deleting it would lose accepted work."""
    if not task.is_terminal:
        raise ValueError(f"task {task.task_id} is {task.status}. Only a task that has ended can be removed")
