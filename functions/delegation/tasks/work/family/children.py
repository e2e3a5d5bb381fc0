"""Parents and their children, read from the store: which children a parent awaits, and which parents await a child."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from delegation.tasks.errors import WaitsForItself
from delegation.tasks.life.declared.recurrence import FORGIVEN
from delegation.tasks.life.model import Caller, Status, Task
from delegation.tasks.stores.base import Child


class FamilyReads(Protocol):
    """What families read of tasks; implemented by FamilyChanges."""

    def find(self, task_id: str) -> Task | None:
        """Return the task as it is now, None when there is none."""

    def find_many(self, task_ids: Collection[str]) -> Mapping[str, Task]:
        """Return those of these tasks that exist, by their ids, as they are now."""

    def adopted_by(self, task_id: str) -> tuple[Child, ...]:
        """Return all children that attempts of a task adopted."""

    def adopters_of(self, task_id: str) -> Mapping[str, int]:
        """Return the tasks that adopted this one, and the attempt of each that did so last."""


class FamilyTasks(FamilyReads, Protocol):
    """What a parent that awaits its children does with tasks; implemented by TaskService."""

    def create_child(self, parent: Task, child: Child) -> Task:
        """Create a child that was adopted and is absent, or return the existing one."""

    def cancel(self, task_id: str, *, by: Caller | None = None) -> Task:
        """Fail a waiting task, or request a held one or a parent to stop."""


@dataclass(frozen=True, slots=True)
class Family:
    """The children that a parent awaits: how many there are and failed, and those that have not ended.

    `own_ancestors` have not ended either, and never will, for they await the parent.
    """

    total: int
    failed: int
    open: tuple[Task, ...]
    own_ancestors: tuple[Task, ...]


def children_of(tasks: FamilyReads, parent: Task) -> tuple[Child, ...]:
    """Return the children of a task's present submission; those that an older release listed have attempt 0."""
    if not parent.children:
        return ()
    listed = tuple(Child(one, 0, "", "") for one in parent.listed_children)
    since = parent.attempts_before or 0
    return (*listed, *(child for child in tasks.adopted_by(parent.task_id) if child.attempt > since))


def awaited(tasks: FamilyTasks, parent: Task) -> Family:
    """Return the children that a held parent awaits, after creating and cancelling those that have to be.

    An absent child that the attempt adopted whose work made the result is created again; one that only an earlier
    attempt adopted is ignored, for the later one did without it. A cancelled parent cancels its children, and awaits
    none that another parent awaits.
    """
    children = children_of(tasks, parent)
    present = tasks.find_many([child.task_id for child in children])
    found = [(child, present.get(child.task_id)) for child in children]
    heads = [head for _, head in found if head is not None]
    if _has_result(parent):
        lost = [child for child, head in found if head is None and child.attempt == parent.result_attempt]
        heads += [tasks.create_child(parent, child) for child in lost]
    open_ = [head for head in heads if not head.is_terminal]
    if parent.cancel_requested:
        open_ = [head for head in open_ if not _is_awaited_by_others(tasks, head, parent)]
        for head in open_:
            tasks.cancel(head.task_id, by=parent.cancelled_by)
    forgiven = parent.details.get(FORGIVEN) or ()
    failed = sum(head.status is Status.FAILURE and head.task_id not in forgiven for head in heads)
    circular = _ancestors_among(tasks, parent, open_)
    return Family(len(children), failed, tuple(head for head in open_ if head not in circular), circular)


def refuse_circles(tasks: FamilyReads, parent: Task, child_ids: Sequence[str]) -> None:
    """Raise WaitsForItself if a child is the parent itself or awaits it, over any number of generations."""
    if parent.task_id in child_ids:
        raise WaitsForItself(parent.task_id, parent.task_id)
    children = list(tasks.find_many(child_ids).values())
    for child in _ancestors_among(tasks, parent, children):
        raise WaitsForItself(parent.task_id, child.task_id)


def awaiting(tasks: FamilyReads, child: Task) -> Iterator[Task]:
    """Yield the tasks that have not ended and await a child."""
    adopters = tasks.adopters_of(child.task_id)
    for parent_id in sorted({*adopters, *([child.parent_id] if child.parent_id else [])}):
        parent = tasks.find(parent_id)
        if parent is None or parent.is_terminal:
            continue
        if child.task_id in parent.listed_children or adopters.get(parent_id, 0) > (parent.attempts_before or 0):
            yield parent


def _has_result(parent: Task) -> bool:
    made = parent.pending_result is not None and parent.result_attempt is not None
    return made and not parent.cancel_requested


def _is_awaited_by_others(tasks: FamilyReads, child: Task, parent: Task) -> bool:
    others = (one for one in awaiting(tasks, child) if one.task_id != parent.task_id)
    return any(not one.cancel_requested for one in others)


def _ancestors_among(tasks: FamilyReads, parent: Task, children: list[Task]) -> tuple[Task, ...]:
    """Return the children that await the parent; only a live one with children can."""
    suspects = {child.task_id: child for child in children if child.children and not child.is_terminal}
    reached, seen = [parent], {parent.task_id}
    found: list[Task] = []
    while reached and suspects:
        for ancestor in awaiting(tasks, reached.pop()):
            if ancestor.task_id in suspects:
                found.append(suspects.pop(ancestor.task_id))
            if ancestor.task_id not in seen:
                seen.add(ancestor.task_id)
                reached.append(ancestor)
    return tuple(found)
