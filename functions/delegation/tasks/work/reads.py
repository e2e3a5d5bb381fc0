"""`TaskReads`: reads tasks, results, parents, children, and pages of lists."""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from delegation.tasks.errors import MalformedRecord, TaskNotFound, waits_for_itself
from delegation.tasks.life.declared import FORGIVEN
from delegation.tasks.life.model import Status, Task
from delegation.tasks.stores.base import Child, DueEntry, Received, ReceivedPage, TaskStore, Unreadable
from polaris_common.errors import DelegationError

MOST_RESULT: Final = 65_536
"""Bytes of a result in the record; a parent has it twice, while it awaits its children and as its outcome. DynamoDB
stores at most 400 KB as one item (its Developer Guide, "Quotas")."""
_KEPT: Final = "object:"
"""Prefix of a pending result that is the key of an object; a JSON result never starts with it."""


class ResultStore(Protocol):
    """The record bucket, like the plan stores of `storage`; its errors are DelegationErrors."""

    def put(self, key: str, data: bytes) -> None: ...

    def get(self, key: str) -> bytes:
        """Return an object; raises an error if there is none."""


def kept_result(results: ResultStore | None, task: Task, result: str) -> str:
    """Return what a record holds of a result until the end: the JSON text, or the key of its object. The object is
    stored first, under a name made of attempt and content, so a repeat stores the same. Raises DelegationError
    (RESULT_TOO_LARGE) without a bucket."""
    data = result.encode()
    if len(data) <= MOST_RESULT:
        return result
    if results is None:
        raise DelegationError(
            f"the result has {len(data):,} bytes, more than the {MOST_RESULT:,} that fit into the task table. Return a "
            "smaller result, or set DELEGATION_PLAN_BUCKET in the process that runs the task. Then retry the task",
            code="RESULT_TOO_LARGE",
            task_id=task.task_id,
        )
    key = f"results/{task.task_id}/{task.attempt_count}-{hashlib.sha256(data).hexdigest()}.json"
    results.put(key, data)
    return _KEPT + key


def result_fields(pending_result: str | None) -> dict[str, str | None]:
    if pending_result is not None and pending_result.startswith(_KEPT):
        return {"result_extended": None, "result_location": pending_result.removeprefix(_KEPT)}
    return {"result_extended": None if pending_result == "null" else pending_result, "result_location": None}


def read_result(results: ResultStore | None, task: Task) -> str | None:
    """Return the JSON text of a task's result, None without one. Raises MalformedRecord if it cannot be the task's."""
    if task.result_location is None:
        return task.result_extended
    if results is None:
        raise MalformedRecord(
            f"task {task.task_id}: the result is in the plan bucket ({task.result_location}). This process does not "
            "know the bucket. Set DELEGATION_PLAN_BUCKET"
        )
    data = results.get(task.result_location)
    if hashlib.sha256(data).hexdigest() not in task.result_location:
        raise MalformedRecord(f"task {task.task_id}: the result {task.result_location} was changed in the bucket")
    return data.decode()


def first_outcome(store: TaskStore, task_id: str, since_version: int, *, head: Task | None = None) -> Task | None:
    """Return the first terminal version of a task from `since_version` on, None if there is none. A task can run again
    after a submission's outcome, so the head alone does not suffice. An unchanged task costs one read, of the head."""
    head = head or store.get(task_id)
    if head is None or not (head.is_terminal or head.version > since_version):
        return None
    after = since_version - 1
    while rows := store.history(task_id, after=after):
        for row in rows:
            if row.is_terminal:
                return row
        after = rows[-1].version
    return None


@dataclass(frozen=True, slots=True)
class TaskReads:
    """Reads the tasks of a store, and results from wherever they are kept. Raises what the store raises."""

    store: TaskStore
    results: ResultStore | None = None

    def get(self, task_id: str) -> Task:
        task = self.store.get(task_id)
        if task is None:
            raise TaskNotFound(task_id)
        return task

    def find(self, task_id: str) -> Task | None:
        return self.store.get(task_id)

    def find_many(self, task_ids: Collection[str]) -> Mapping[str, Task]:
        """Return the heads of existing tasks by id, read in batches."""
        return self.store.get_many(task_ids) if task_ids else {}

    def versions(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        """Return versions of a task after `after`, oldest first; none without such a task."""
        return self.store.history(task_id, after=after, limit=limit)

    def outcome(self, task_id: str, since_version: int, *, head: Task | None = None) -> Task | None:
        """Return the first terminal version from `since_version` on, None while there is none; `head` saves a read."""
        return first_outcome(self.store, task_id, since_version, head=head)

    def with_result(self, outcome: Task) -> Task:
        """Return an outcome with its result in `result_extended`, from wherever it is kept. Raises MalformedRecord."""
        return outcome.evolve(result_extended=read_result(self.results, outcome))

    def due(self, now: datetime, *, limit: int, shards: Collection[str] | None = None) -> Sequence[DueEntry]:
        """Return due tasks, oldest first, of these shards of the index or of all."""
        return self.store.due(now, limit=limit, shards=shards)

    def children_of(self, parent: Task) -> tuple[Child, ...]:
        """Return the children of a task's present submission; those that an older release listed have attempt 0."""
        if not parent.family.children:
            return ()
        listed = tuple(Child(child_id, 0, "", "") for child_id in parent.listed_children)
        since = parent.family.attempts_before or 0
        return (*listed, *(child for child in self.store.children(parent.task_id) if child.attempt > since))

    def children(self, task_id: str) -> tuple[str, ...]:
        """Return the ids of a task's children; a task that is submitted again starts without any."""
        task = self.find(task_id)
        return () if task is None else tuple(child.task_id for child in self.children_of(task))


@dataclass(frozen=True, slots=True)
class Family:
    """The children that a parent awaits: their number, their failures, and the open ones. `own_ancestors` never end,
    because they await the parent."""

    total: int
    failed: int
    open: tuple[Task, ...]
    own_ancestors: tuple[Task, ...]


def awaited(
    tasks: TaskReads,
    parent: Task,
    *,
    create: Callable[[Task, Child], Task],
    cancel: Callable[[Task], object],
) -> Family:
    """Return the children that a held parent awaits, after creating and cancelling children as needed. An absent child
    of the attempt that made the result is created again; one that only an earlier attempt adopted is ignored, as the
    later one did not need it. A cancelled parent cancels its children, and awaits none that another parent awaits."""
    children = tasks.children_of(parent)
    present = tasks.find_many([child.task_id for child in children])
    heads_of_children = [(child, present.get(child.task_id)) for child in children]
    heads = [head for _, head in heads_of_children if head is not None]
    if parent.pending_result is not None and parent.result_attempt is not None and not parent.cancel_requested:
        lost = [child for child, head in heads_of_children if head is None and child.attempt == parent.result_attempt]
        heads += [create(parent, child) for child in lost]
    open_ = [head for head in heads if not head.is_terminal]
    if parent.cancel_requested:
        open_ = [head for head in open_ if not _is_awaited_by_others(tasks, head, parent)]
        for head in open_:
            cancel(head)
    forgiven = parent.details.get(FORGIVEN) or ()
    failed = sum(head.status is Status.FAILURE and head.task_id not in forgiven for head in heads)
    circular = _ancestors_among(tasks, parent, open_)
    return Family(len(children), failed, tuple(head for head in open_ if head not in circular), circular)


def refuse_circles(tasks: TaskReads, parent: Task, child_ids: Sequence[str]) -> None:
    """Raise DelegationError (WAITS_FOR_ITSELF) if a child is the parent, or awaits it directly or through others."""
    if parent.task_id in child_ids:
        raise waits_for_itself(parent.task_id, parent.task_id)
    children = list(tasks.find_many(child_ids).values())
    for child in _ancestors_among(tasks, parent, children):
        raise waits_for_itself(parent.task_id, child.task_id)


def awaiting(tasks: TaskReads, child: Task) -> Iterator[Task]:
    adopters = tasks.store.parents(child.task_id)
    for parent_id in sorted({*adopters, *([child.parent_id] if child.parent_id else [])}):
        parent = tasks.find(parent_id)
        if parent is None or parent.is_terminal:
            continue
        if child.task_id in parent.listed_children or adopters.get(parent_id, 0) > (parent.family.attempts_before or 0):
            yield parent


def _is_awaited_by_others(tasks: TaskReads, child: Task, parent: Task) -> bool:
    return any(other.task_id != parent.task_id and not other.cancel_requested for other in awaiting(tasks, child))


def _ancestors_among(tasks: TaskReads, parent: Task, children: list[Task]) -> tuple[Task, ...]:
    """Return the children that await the parent; only a live one with children can."""
    suspects = {child.task_id: child for child in children if child.family.children and not child.is_terminal}
    reached, seen = [parent], {parent.task_id}
    ancestors: list[Task] = []
    while reached and suspects:
        for ancestor in awaiting(tasks, reached.pop()):
            if ancestor.task_id in suspects:
                ancestors.append(suspects.pop(ancestor.task_id))
            if ancestor.task_id not in seen:
                seen.add(ancestor.task_id)
                reached.append(ancestor)
    return tuple(ancestors)


MOST_READS: Final = 10
"""The most reads of the store for one page; a page may then have too few tasks although others follow."""
AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class Selection:
    """What a list selects: tasks of the store's list, of these statuses and of this type, if given."""

    which: Received
    statuses: frozenset[Status] = frozenset()
    task_type: str | None = None

    def has(self, entry: Task | Unreadable) -> bool:
        """Return whether the list has an entry. An unreadable one is in every list, because it may belong there."""
        if isinstance(entry, Unreadable):
            return True
        has_status = not self.statuses or entry.status in self.statuses
        return has_status and self.task_type in {None, entry.task_type}


def page_of(tasks: TaskReads, selection: Selection, *, before: str | None, size: int) -> ReceivedPage:
    """Return at most `size` entries after the position `before`; fewer, or none, if MOST_READS find no more."""
    selected: list[tuple[str, Task | Unreadable]] = []
    is_filtered = bool(selection.statuses) or selection.task_type is not None
    for _ in range(MOST_READS):
        limit = AT_ONCE if is_filtered else size - len(selected)
        page = tasks.store.received(selection.which, before=before, limit=limit)
        selected += [entry for entry in page.entries if selection.has(entry[1])]
        before = page.cursor
        if len(selected) > size or (len(selected) == size and before is not None):
            return ReceivedPage(tuple(selected[:size]), selected[size - 1][0])
        if before is None:
            break
    return ReceivedPage(tuple(selected), before)
