"""`delegation tasks …`: look at tasks, cancel and retry them.

`show` and `watch` ask the service; the others use the task table itself, as the operator.
"""

from pathlib import Path
from typing import Annotated

import typer

from delegation.cli.connection import Connection
from delegation.cli.errors import TaskDidNotSucceed, TaskNotDone, TaskStays
from delegation.cli.options import JsonOption, StackOption, TableOption, TaskId
from delegation.cli.output import Output, TaskPage, open_output
from delegation.client.client import DelegationClient
from delegation.tasks.errors import TaskNotFound
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.policy import Policies, RetryPolicy
from delegation.tasks.stores.base import TaskStore, Unreadable
from delegation.tasks.work.dispatch_queue import NoDispatchQueue
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.wire.tasks import TaskRecord
from delegation.wiring.deployment import BUILT_IN_KINDS
from delegation.wiring.tasks import DETAILS

app = typer.Typer(
    no_args_is_help=True, help="List tasks, look at one, follow it, read its history, cancel it, retry it."
)

_PAGE = 100


@app.command("list")
def list_command(
    ctx: typer.Context,
    *,
    status: Annotated[
        list[Status] | None, typer.Option("--status", help="Only tasks of this status; may be repeated.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most this many tasks.")] = 50,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Go on where an earlier list ended.", show_default=False)
    ] = None,
    stack: StackOption = None,
    table: TableOption = None,
    as_json: JsonOption = False,
) -> None:
    """List tasks, in no particular order, with where each one stands."""
    output = open_output(ctx, as_json=as_json)
    store = Connection(stack).task_store(table)
    output.tasks(collect(store, wanted=frozenset(status or Status), cursor=cursor, limit=limit))


@app.command("show")
def show_command(ctx: typer.Context, task_id: TaskId, stack: StackOption = None, as_json: JsonOption = False) -> None:
    """Show every field of a task as the service tells it."""
    output = open_output(ctx, as_json=as_json)
    output.task(Connection(stack).client().task(task_id))


@app.command("watch")
def watch_command(
    ctx: typer.Context,
    task_id: TaskId,
    *,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, max=3600.0, help="Seconds between two looks.")
    ] = 1.0,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0.0, show_default=False, help="Give up after this many seconds, with status 1."),
    ] = None,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follow a task until it has an outcome; the exit status is 1 if that is FAILURE."""
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
    """Show every version of a task: when it came about, how long it lasted, why it ended."""
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
    """Have a task end as FAILURE (CANCELLED): a waiting one now, one at work at its next checkpoint."""
    output = open_output(ctx, as_json=as_json)
    tasks, task = _changeable(stack, table, task_id)
    if task.is_terminal:
        raise TaskStays(task_id, f"has ended as {task.status}", "There is nothing left to cancel.")
    output.task(TaskRecord.of(tasks.cancel(task_id).public()))


@app.command("retry")
def retry_command(
    ctx: typer.Context,
    task_id: TaskId,
    stack: StackOption = None,
    table: TableOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have a task that is FAILURE tried again, with all its attempts; a purge goes on where it stopped."""
    output = open_output(ctx, as_json=as_json)
    tasks, task = _changeable(stack, table, task_id)
    if task.status is not Status.FAILURE:
        raise TaskStays(task_id, f"is {task.status}", "Only a task that is FAILURE can be retried.")
    output.task(TaskRecord.of(tasks.retry(task_id).public()))


def _changeable(stack: Path | None, table: str | None, task_id: str) -> tuple[TaskService, Task]:
    """A task of a known behavior, and what changes it, without a dispatch queue: the sweeper or a worker finds it.

    Nor with the deployment's policies, for neither cancelling nor retrying asks them anything.
    """
    store, policies = Connection(stack).task_store(table), Policies(RetryPolicy(), {})
    tasks = TaskService(store, policies, NoDispatchQueue(), clock=utc_now, details=DETAILS)
    task = tasks.get(task_id)
    if task.task_type not in BUILT_IN_KINDS:
        raise TaskStays(
            task_id, f"is of the unknown behavior {task.task_type}", "Use the release that the task belongs to."
        )
    return tasks, task


def collect(store: TaskStore, *, wanted: frozenset[Status], cursor: str | None, limit: int) -> TaskPage:
    """Up to `limit` heads of the wanted statuses, reading a page at a time; the cursor is the last one's id.

    What cannot be read may have any status, so it is listed whatever is wanted.
    """
    found: list[TaskRecord] = []
    unreadable: list[Unreadable] = []
    while True:
        page = store.heads(cursor=cursor, limit=_PAGE)
        for entry in page.entries:
            if isinstance(entry, Unreadable):
                unreadable.append(entry)
            elif entry.status in wanted:
                found.append(TaskRecord.of(entry.public()))
            if len(found) + len(unreadable) == limit:
                at_end = page.cursor is None and entry is page.entries[-1]
                return TaskPage(found, None if at_end else entry.task_id, BUILT_IN_KINDS, unreadable)
        cursor = page.cursor
        if cursor is None:
            return TaskPage(found, None, BUILT_IN_KINDS, unreadable)


def versions_of(store: TaskStore, task_id: str) -> list[TaskRecord]:
    """All rows of a task, oldest first; raises TaskNotFound."""
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
    """Show a task until it is terminal; raises TaskDidNotSucceed, and TaskNotDone when the time-out comes first."""
    with output.watching() as show:
        for view in client.follow(task_id, interval_seconds=interval_seconds, timeout_seconds=timeout_seconds):
            show(view)
    if not view.is_terminal:
        raise TaskNotDone(task_id, view.status)
    if not view.succeeded:
        raise TaskDidNotSucceed(task_id, view.error_code, view.result_summary)
    return view
