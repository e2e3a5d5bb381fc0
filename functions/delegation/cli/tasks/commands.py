"""`delegation tasks …`: list, count, show, follow, explain, cancel and retry tasks.

They call the service with the operator's identity; with `--direct` they use the task table with AWS credentials.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from delegation.cli.calls import Call, TaskId, argument, command, defaulted, group, optional, switch
from delegation.cli.errors import PARTLY_DONE, CommandError
from delegation.cli.tasks import filters
from polaris_common.errors import counted

if TYPE_CHECKING:
    from delegation.cli.tasks.direct import TaskSource
    from delegation.wire.tasks import TaskRecord

app = group("tasks")
_MOST_CHANGED: Final = 1_000
_CANCELLED: Final = "cancelled"
TaskIds = Annotated[list[str] | None, argument("[TASK_ID]...", "The tasks' ids.")]


@command(app, "list", "direct tasks_table stack", filters=filters.FILTERS)
def list_command(
    call: Call,
    *,
    only_open: bool = switch("--open", "Only tasks that have not ended."),
    sort: filters.Order = defaulted("--sort", "The order; times are newest first.", filters.Order.RECEIVED),
    limit: int = defaulted("--limit", "The number of entries to list.", 50, min=1, max=10_000),
    columns: str | None = optional("--columns", f"The columns: {', '.join(filters.COLUMN_NAMES)}.", "NAME,…"),
    cursor: str | None = optional("--cursor", "Continue an earlier list from its cursor."),
) -> None:
    """List tasks with their status, the newest first."""
    from delegation.cli.tasks.source import chosen  # noqa: PLC0415

    wanted_columns = chosen(columns)
    wanted = filters.filter_of(call.filters, filters.OPEN if only_open else filters.EVERY)
    page = call.tasks().found(wanted, limit=limit, cursor=cursor)
    call.output.tasks(
        replace(page, tasks=filters.in_order(page.tasks, sort)), since=wanted.since, columns=wanted_columns
    )


@command(app, "types", "stack tasks_table")
def types_command(call: Call) -> None:
    """Count the tasks of each type by status."""
    from delegation.cli.tasks.direct import count_types  # noqa: PLC0415 - loads the task store

    call.output.task_types(*count_types(call.connection.task_store(call.tasks_table)))


@command(app, "create-table", "")
def create_table_command(
    call: Call,
    name: str | None = optional("--tasks-table", "The name of the table.", envvar="DELEGATION_TASKS_TABLE"),
) -> None:
    """Create a task table in your AWS environment, for workers without a deployment.

    If DELEGATION_TASK_STORE is persistence, create the two tables that the settings name.
    """
    from delegation.cli.connection import dynamodb_client  # noqa: PLC0415 - `--help` needs no client

    if call.connection.uses_persistence():
        from delegation.wiring.persistent_tasks import create_task_tables  # noqa: PLC0415 - loads boto3

        objects, references = call.connection.persistence_tables()
        new = create_task_tables(dynamodb_client(), objects, references)
        for each in (objects, references):
            call.output.created(each, is_new=each in new)
        return
    if name is None:
        raise typer.BadParameter("name the table", param_hint="--tasks-table")
    from delegation.tasks.stores.dynamodb_reads import create_task_table  # noqa: PLC0415 - loads boto3

    call.output.created(name, is_new=create_task_table(dynamodb_client(), name))


@command(app, "show", "direct tasks_table stack")
def show_command(call: Call, task_id: TaskId) -> None:
    """Show all fields of a task that have a value."""
    call.output.task(call.tasks().get(task_id))


@command(app, "why", "direct tasks_table stack")
def why_command(call: Call, task_id: TaskId) -> None:
    """Explain a task: its attempt, holder, progress and error, and what happens next."""
    from delegation.cli.tasks.screens import why_screen  # noqa: PLC0415 - `--help` needs no rich
    from delegation.cli.tasks.why import explain  # noqa: PLC0415
    from delegation.timestamps import utc_now  # noqa: PLC0415

    tasks = call.tasks()
    task = tasks.get(task_id)
    if task.is_terminal:
        why = explain(task, utc_now(), executed_by=tasks.executed_by(task))
    else:
        why = explain(task, utc_now(), call.pauses().pauses().pauses, tasks.waiting(task))
    call.output.result(why.document(), lambda: why_screen(why))


@command(app, "watch")
def watch_command(
    call: Call,
    task_id: TaskId,
    *,
    interval: float = defaulted("--interval", "Seconds between two polls.", 1.0, min=0.1, max=3600.0),
    timeout: float | None = optional("--timeout", "Stop after N seconds, with exit status 1.", min=0.0),
) -> None:
    """Follow a task until it has an outcome. Exit status 1: FAILURE."""
    from delegation.cli.output import watch  # noqa: PLC0415 - `--help` needs no client

    client = call.connection.operator_client()
    watch(call.output, client, task_id, interval_seconds=interval, timeout_seconds=timeout)


@command(app, "history", "direct tasks_table stack")
def history_command(call: Call, task_id: TaskId) -> None:
    """Show every version of a task: start, duration and why it ended."""
    call.output.history(task_id, call.tasks().versions(task_id))


@command(app, "receipt")
def receipt_command(call: Call, task_id: TaskId) -> None:
    """Show a task's receipt: what it found, deleted and left."""
    from delegation.cli.tasks.screens import receipt_screen  # noqa: PLC0415 - `--help` needs no rich

    document = call.connection.operator_client().receipt(task_id).model_dump(mode="json")
    call.output.result(document, lambda: receipt_screen(document))


@command(app, "cancel", "yes direct tasks_table stack", filters=filters.FILTERS)
def cancel_command(call: Call, task_ids: TaskIds = None) -> None:
    """Cancel tasks: a waiting task ends as FAILURE (CANCELLED) at once, a running task at its next checkpoint.

    Give ids, or filters for open tasks. Filters never select the service's own maintenance.
    """
    _change(call, task_ids, filters.OPEN, lambda tasks: tasks.cancel, word=_CANCELLED)


@command(
    app,
    "retry",
    "yes direct tasks_table stack",
    filters={name: filter_ for name, filter_ in filters.FILTERS.items() if name != "status"},
)
def retry_command(call: Call, task_ids: TaskIds = None) -> None:
    """Retry failed tasks with new attempts; a purge resumes where it stopped.

    Give ids, or filters for FAILURE tasks.
    """
    _change(call, task_ids, {filters.StatusName.FAILURE}, lambda tasks: tasks.retry, word="retried")


@command(app, "release", "tasks_table stack")
def release_command(
    call: Call,
    task_id: TaskId,
    *,
    force: bool = switch("--force", "Release the lease even if the holder may be alive. End the holder first."),
) -> None:
    """Release the lease of a dead holder, so that the task continues now.

    Uses the task table, with your AWS credentials.
    """
    from delegation.cli.tasks.direct import LeaseRelease  # noqa: PLC0415 - loads the task store
    from delegation.tasks.life.policy import Policies  # noqa: PLC0415
    from delegation.timestamps import utc_now  # noqa: PLC0415
    from delegation.wiring.types import default_properties  # noqa: PLC0415

    policies = Policies.from_properties(default_properties())
    releases = LeaseRelease(call.connection.task_store(call.tasks_table), policies, utc_now)
    call.output.task(releases.release(task_id, by=call.connection.operator(call.tasks_table), force=force))


def _change(
    call: Call,
    task_ids: list[str] | None,
    among: AbstractSet[filters.StatusName],
    change_of: "Callable[[TaskSource], Callable[[str], TaskRecord]]",
    *,
    word: str,
) -> None:
    """Change one task, or several after a confirmation. Raises CommandError if some could not be changed."""
    wanted = filters.filter_of(call.filters, among) if any(call.filters.values()) else None
    if bool(task_ids) == (wanted is not None):
        raise typer.BadParameter("give either ids or filters", param_hint="TASK_ID")
    tasks = call.tasks()
    change = change_of(tasks)
    if task_ids and len(task_ids) == 1:
        call.output.task(change(task_ids[0]))
        return
    if wanted is not None:
        page = tasks.found(wanted, limit=_MOST_CHANGED)
        if word == _CANCELLED:
            from delegation.wiring.types import TYPES  # noqa: PLC0415 - loads the task types

            page = replace(page, tasks=[task for task in page.tasks if task.task_type not in TYPES.own])
        task_ids = [task.task_id for task in page.tasks]
        if not call.yes and task_ids:
            call.output.candidates(page)
    if not task_ids:
        call.output.changed(word, [])
        return
    number = counted(len(task_ids), "task")
    question = f"{number} {'is' if len(task_ids) == 1 else 'are'} about to be {word}. Continue?"
    call.confirm(question, otherwise=f"{number} would be {word}; confirm that with --yes")
    from delegation.cli.tasks.source import change_each  # noqa: PLC0415 - `--help` needs no client

    changes = list(change_each(task_ids, change))
    call.output.changed(word, changes)
    failed = sum(change.error is not None for change in changes)
    if failed:
        raise CommandError(
            f"{failed:,} of {counted(len(changes), 'task')} could not be {word}",
            "The list has the reason for each task. Remove the causes, then run the same command again.",
            code="TASKS_NOT_CHANGED",
            exit_status=PARTLY_DONE,
        )
