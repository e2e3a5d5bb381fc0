"""Recovers a task table from an earlier copy; it never overwrites what the live table has. It reads the copy with Scans
and writes with conditional puts, so it may be interrupted and repeated."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from delegation.stored_items import Items
from delegation.tasks.errors import MalformedRecord, TaskError
from delegation.tasks.life.model import WAITING, Dispatches, Task
from delegation.tasks.stores import codec
from delegation.tasks.stores.base import Unreadable
from delegation.tasks.stores.dynamodb import ConditionalTable, DynamoDbTaskStore
from polaris_common.dynamodb import from_item, to_item

GAP: Final = 10_000
"""Attempts and dispatches that a recovered task skips. Nothing is known of what happened after the copy: an execution
and a job run are named after these numbers and start once for each name, and a former holder may still work."""


def newest(of_copy: Task, rows: Sequence[Task]) -> Task:
    """Return the newest known version of a task: the copy's, or a row that the live table still has."""
    return max((of_copy, *rows), key=lambda task: task.version)


def recovered(task: Task, nonce: str) -> Task:
    """Return the head to store: a task without an outcome becomes due, under numbers never used before. A held one
    keeps its lease and is found lost after it. Skipped attempts count against no limit."""
    if task.is_terminal:
        return task
    due = task.lease.lost_not_before if task.is_held else task.next_scheduled_run_ts
    return task.evolve(
        attempt_count=task.attempt_count + GAP,
        attempts_excused=task.attempts_excused + GAP,
        dispatches=Dispatches(count=task.dispatches.count + GAP, base=task.dispatches.base + GAP),
        admission=task.admission.evolve(admitted_ts=None) if task.status in WAITING else task.admission,
        due_at=task.due_at or due,
        revision=task.revision + 1,
        nonce=nonce,
    )


_PAGE: Final = 100


def not_paused() -> TaskError:
    return TaskError(
        "the service is not paused, so recovered tasks would run at once. Run `delegation pause --all` first",
        code="NOT_PAUSED",
    )


@dataclass(slots=True)
class RecoveryReport:
    """What was copied and what stayed; `waiting` are the recovered tasks that run after the pause."""

    tasks: int = 0
    rebuilt: int = 0
    kept: int = 0
    versions: int = 0
    links: int = 0
    records: int = 0
    waiting: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Recovery:
    """Copies tasks that another table lacks; with `dry_run` it only counts."""

    copy: DynamoDbTaskStore
    live: DynamoDbTaskStore
    nonce: Callable[[], str]
    dry_run: bool = False

    def run(self) -> RecoveryReport:
        """Copy tasks with their versions, then what belongs to them. Raises the store's errors."""
        report = RecoveryReport()
        cursor: str | None = None
        while True:
            page = self.copy.heads(cursor=cursor, limit=_PAGE)
            for entry in page.entries:
                if isinstance(entry, Unreadable):
                    report.unreadable.append(entry.task_id)
                else:
                    self._task(entry, report)
            cursor = page.cursor
            if cursor is None:
                break
        # Children, parents and notifications of tasks: their keys have a part after the task's id.
        for item in items(self.copy.dynamodb, self.copy.table, "contains(task_id, :slash)", {":slash": "/"}):
            report.links += self._put(item)
        return report

    def _task(self, head: Task, report: RecoveryReport) -> None:
        """Copy one task, the head last: an interrupted copy then has no head and does not pass for a whole task."""
        try:
            live = self.live.get(head.task_id)
            rows = () if live is not None else versions(self.live, head.task_id)
            last = newest(head, rows) if live is None else live
            copied = versions(self.copy, head.task_id) if last.created_ts == head.created_ts else ()
        except MalformedRecord:
            report.unreadable.append(head.task_id)
            return
        for row in copied:
            if row.version <= last.version:
                report.versions += self._put(codec.row_item(row))
        if live is not None:
            report.kept += 1
            return
        after = recovered(last, self.nonce())
        if self._put(codec.head_item(after)):
            report.tasks += 1
            report.rebuilt += last is not head
            if not after.is_terminal:
                report.waiting.append(after.task_id)

    def _put(self, item: Mapping[str, Any]) -> bool:
        return put_if_absent(self.live.dynamodb, self.live.table, "task_id", item, dry_run=self.dry_run)


def versions(store: DynamoDbTaskStore, task_id: str) -> Sequence[Task]:
    """Return all rows of a task; raises MalformedRecord."""
    history: list[Task] = []
    while rows := store.history(task_id, after=history[-1].version if history else 0, limit=_PAGE):
        history += rows
    return history


def recover_records(calls: ConditionalTable, copy: str, live: str, *, dry_run: bool = False) -> int:
    """Copy the idempotency records that a table lost, and return how many; their tasks must be there already."""
    return sum(put_if_absent(calls, live, "scope", item, dry_run=dry_run) for item in items(calls, copy))


def items(
    calls: ConditionalTable, table: str, condition: str | None = None, values: Mapping[str, Any] | None = None
) -> Iterator[dict[str, Any]]:
    scanned = Items(calls, table, (), dict[str, Any], dict[str, Any]).scan(condition, values, ConsistentRead=True)
    return chain.from_iterable(map(from_item, answer["Items"]) for answer in scanned)


def put_if_absent(calls: ConditionalTable, table: str, key: str, item: Mapping[str, Any], *, dry_run: bool) -> bool:
    """Put an item unless its key exists, and return whether it was put; a dry run only reads."""
    if dry_run:
        names = (key, "version") if key == "task_id" else (key,)
        answer = calls.repeatable("get_item", TableName=table, Key=to_item({name: item[name] for name in names}))
        return "Item" not in answer
    refused = calls.conditional(
        "put_item",
        TableName=table,
        Item=to_item(item),
        ConditionExpression="attribute_not_exists(#key)",
        ExpressionAttributeNames={"#key": key},
    )
    return refused is None
