"""`delegation tasks …`: list, count, show, follow, cancel and retry tasks.

`show` and `watch` call the service; the others use the task table with the operator's own AWS credentials.
"""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from delegation.cli.connection import Connection, dynamodb_client
from delegation.cli.errors import TaskDidNotSucceed, TaskNotDone, TaskStays
from delegation.cli.options import JsonOption, StackOption, TableOption, TaskId
from delegation.cli.output import Output, TaskPage, open_output
from delegation.client.client import DelegationClient
from delegation.tasks.errors import TaskNotFound
from delegation.tasks.life.model import TERMINAL, Caller, Status, Task
from delegation.tasks.life.policy import Policies, RetryPolicy
from delegation.tasks.stores.base import TaskStore, Unreadable
from delegation.tasks.stores.table import create_task_table
from delegation.tasks.work.dispatch_queue import NoDispatchQueue
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.wire.tasks import TaskRecord
from delegation.wiring.deployment import BUILT_IN_KINDS
from delegation.wiring.tasks import DETAILS

app = typer.Typer(no_args_is_help=True, help="List, show, follow, cancel and retry the service's tasks.")

_PAGE = 100


@app.command("list")
def list_command(
    ctx: typer.Context,
    *,
    status: Annotated[
        list[Status] | None, typer.Option("--status", help="Only tasks with this status; may be repeated.")
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help="Only tasks of this type; may be repeated.", show_default=False)
    ] = None,
    only_open: Annotated[bool, typer.Option("--open", help="Only tasks that have not ended.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="The largest number of tasks to list.")] = 50,
    cursor: Annotated[
        str | None,
        typer.Option("--cursor", help="Continue an earlier list; it printed the cursor.", show_default=False),
    ] = None,
    stack: StackOption = None,
    table: TableOption = None,
    as_json: JsonOption = False,
) -> None:
    """List tasks with their status, in no particular order."""
    output = open_output(ctx, as_json=as_json)
    store = Connection(stack).task_store(table)
    wanted = frozenset(status or Status) - (TERMINAL if only_open else frozenset())
    output.tasks(collect(store, wanted=wanted, kinds=frozenset(kind or ()), cursor=cursor, limit=limit))


@app.command("kinds")
def kinds_command(
    ctx: typer.Context, stack: StackOption = None, table: TableOption = None, as_json: JsonOption = False
) -> None:
    """Count the tasks of each type by status, for instance before a type is retired."""
    output = open_output(ctx, as_json=as_json)
    output.kinds(*count_kinds(Connection(stack).task_store(table)))


@app.command("create-table")
def create_table_command(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Option("--table", envvar="DELEGATION_TASKS_TABLE", show_default=False, help="The name of the table."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Create a task table in your AWS environment, for workers without a deployment."""
    output = open_output(ctx, as_json=as_json)
    output.created(name, is_new=create_task_table(dynamodb_client(), name))


@app.command("show")
def show_command(ctx: typer.Context, task_id: TaskId, stack: StackOption = None, as_json: JsonOption = False) -> None:
    """Show every field of a task, as the service returns it."""
    output = open_output(ctx, as_json=as_json)
    output.task(Connection(stack).client().task(task_id))


@app.command("watch")
def watch_command(
    ctx: typer.Context,
    task_id: TaskId,
    *,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, max=3600.0, help="Seconds between two polls.")
    ] = 1.0,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", min=0.0, show_default=False, help="Stop watching after this many seconds, with exit status 1."
        ),
    ] = None,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follow a task until it has an outcome; the exit status is 1 if the outcome is FAILURE."""
    output = open_output(ctx, as_json=as_json)
    watch(output, Connection(stack).client(), task_id, interval_seconds=interval, timeout_seconds=timeout)


@app.command("history")
def history_command(
    ctx: typer.Context,
    task_id: TaskId,
    stack: StackOption = None,
    table: TableOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every version of a task: when it began, how long it lasted and why it ended."""
    output = open_output(ctx, as_json=as_json)
    output.history(task_id, versions_of(Connection(stack).task_store(table), task_id))


@app.command("cancel")
def cancel_command(
    ctx: typer.Context,
    task_id: TaskId,
    stack: StackOption = None,
    table: TableOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel a task: a waiting one becomes FAILURE (CANCELLED) now, a running one at its next checkpoint.

    The task's record names the AWS identity of this command (`cancelled_by`).
    """
    output = open_output(ctx, as_json=as_json)
    tasks, task = _changeable(stack, table, task_id)
    if task.is_terminal:
        raise TaskStays(task_id, f"has ended as {task.status}", "There is nothing left to cancel.")
    by = Caller(client_id="aws", subject=Connection(stack).operator(table))
    output.task(TaskRecord.of(tasks.cancel(task_id, by=by).public()))


@app.command("retry")
def retry_command(
    ctx: typer.Context,
    task_id: TaskId,
    stack: StackOption = None,
    table: TableOption = None,
    as_json: JsonOption = False,
) -> None:
    """Retry a failed task with a fresh attempt budget; a purge resumes where it stopped."""
    output = open_output(ctx, as_json=as_json)
    tasks, task = _changeable(stack, table, task_id)
    if task.status is not Status.FAILURE:
        raise TaskStays(task_id, f"is {task.status}", "Only a FAILURE task can be retried.")
    output.task(TaskRecord.of(tasks.retry(task_id).public()))


def _changeable(stack: Path | None, table: str | None, task_id: str) -> tuple[TaskService, Task]:
    """Return a task and the service that may change it, whatever its type: no behavior decides on either change.

    It needs no dispatch queue, because the sweeper or a worker finds the task, and reads no retry policy. Details of a
    type that this release does not have are kept.
    """
    store, policies = Connection(stack).task_store(table), Policies(RetryPolicy(), {})
    tasks = TaskService(store, policies, NoDispatchQueue(), clock=utc_now, details=DETAILS)
    return tasks, tasks.get(task_id)


def count_kinds(store: TaskStore) -> tuple[dict[str, dict[str, int]], int]:
    """Return how many tasks of each type have each status, and how many records cannot be read."""
    counts: dict[str, Counter[str]] = {}
    unreadable, cursor = 0, None
    while True:
        page = store.heads(cursor=cursor, limit=_PAGE)
        unreadable += len(page.unreadable)
        for task in page.tasks:
            counts.setdefault(task.task_type, Counter())[task.status.value] += 1
        cursor = page.cursor
        if cursor is None:
            in_order = {kind: {s.value: counts[kind][s.value] for s in Status} for kind in sorted(counts)}
            return {kind: {s: n for s, n in found.items() if n} for kind, found in in_order.items()}, unreadable


def collect(
    store: TaskStore,
    *,
    wanted: frozenset[Status],
    cursor: str | None,
    limit: int,
    kinds: frozenset[str] = frozenset(),
) -> TaskPage:
    """Return up to `limit` tasks with the wanted statuses, of these types or of all; the cursor is the last one's id.

    A record that cannot be read may have any status and type, so it is always listed.
    """
    found: list[TaskRecord] = []
    unreadable: list[Unreadable] = []
    while True:
        page = store.heads(cursor=cursor, limit=_PAGE)
        for entry in page.entries:
            if isinstance(entry, Unreadable):
                unreadable.append(entry)
            elif entry.status in wanted and (not kinds or entry.task_type in kinds):
                found.append(TaskRecord.of(entry.public()))
            if len(found) + len(unreadable) == limit:
                at_end = page.cursor is None and entry is page.entries[-1]
                return TaskPage(found, None if at_end else entry.task_id, BUILT_IN_KINDS, unreadable)
        cursor = page.cursor
        if cursor is None:
            return TaskPage(found, None, BUILT_IN_KINDS, unreadable)


def versions_of(store: TaskStore, task_id: str) -> list[TaskRecord]:
    """Return all versions of a task, oldest first; raises TaskNotFound."""
    found: list[TaskRecord] = []
    while rows := store.history(task_id, after=found[-1].version if found else 0, limit=_PAGE):
        found += [TaskRecord.of(row.public()) for row in rows]
    if not found:
        raise TaskNotFound(task_id)
    return found


def watch(
    output: Output,
    client: DelegationClient,
    task_id: str,
    *,
    interval_seconds: float = 1.0,
    timeout_seconds: float | None = None,
) -> TaskRecord:
    """Show a task until it is terminal; raises TaskDidNotSucceed, or TaskNotDone after the time-out."""
    with output.watching() as show:
        for view in client.follow(task_id, interval_seconds=interval_seconds, timeout_seconds=timeout_seconds):
            show(view)
    if not view.is_terminal:
        raise TaskNotDone(task_id, view.status)
    if not view.succeeded:
        raise TaskDidNotSucceed(task_id, view.error_code, view.result_summary)
    return view
