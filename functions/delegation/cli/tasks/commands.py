"""`delegation tasks …`: list, count, show, follow, explain, cancel and retry tasks.

They call the service with the operator's identity; with `--direct` they use the task table with AWS credentials.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from delegation.cli.errors import PARTLY_DONE, CommandError
from delegation.cli.misuse import WordGroup
from delegation.cli.options import (
    DirectOption,
    JsonOption,
    StackOption,
    TaskId,
    TasksTableOption,
    YesOption,
    at_a_terminal,
)
from delegation.cli.tasks.filters import (
    COLUMN_NAMES,
    OPEN,
    CorrelationOption,
    Order,
    SinceOption,
    StatusName,
    StatusOption,
    TableFilter,
    TaskFilter,
    TypeOption,
    given_filter,
    in_order,
    make_filter,
)
from polaris_common.errors import counted

if TYPE_CHECKING:
    from delegation.cli.output import Output
    from delegation.cli.tasks.source import TaskSource
    from delegation.wire.tasks import TaskRecord

app = typer.Typer(
    cls=WordGroup,
    no_args_is_help=True,
    help="List, show, follow, explain, cancel and retry the service's tasks.",
)
_MOST_CHANGED: Final = 1_000
_CANCELLED: Final = "cancelled"
TaskIds = Annotated[
    list[str] | None, typer.Argument(metavar="[TASK_ID]...", help="The tasks' ids.", show_default=False)
]


@app.command("list")
def list_command(
    ctx: typer.Context,
    *,
    status: StatusOption = None,
    task_type: TypeOption = None,
    only_open: Annotated[bool, typer.Option("--open", help="Only tasks that have not ended.")] = False,
    table: TableFilter = None,
    since: SinceOption = None,
    correlation_id: CorrelationOption = None,
    sort: Annotated[Order, typer.Option("--sort", help="What the list is sorted by; times are newest first.")] = (
        Order.RECEIVED
    ),
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="The largest number of tasks to list.")] = 50,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns", metavar="NAME,…", show_default=False, help=f"Which columns: {', '.join(COLUMN_NAMES)}."
        ),
    ] = None,
    cursor: Annotated[
        str | None,
        typer.Option("--cursor", help="Continue an earlier list; it printed the cursor.", show_default=False),
    ] = None,
    direct: DirectOption = False,
    tasks_table: TasksTableOption = None,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """List tasks with their status, the newest first; piped, a line for each with its id first."""
    from delegation.cli.tasks import opening  # noqa: PLC0415 - `--help` needs no client
    from delegation.cli.tasks.source import chosen  # noqa: PLC0415

    output = opening.open_output(ctx, as_json=as_json)
    wanted_columns = chosen(columns)
    wanted = make_filter(
        status=status, task_type=task_type, table=table, since=since, correlation_id=correlation_id, only_open=only_open
    )
    page = opening.open_tasks(ctx, stack, direct=direct, table=tasks_table).found(wanted, limit=limit, cursor=cursor)
    output.tasks(page.sorted_by(lambda tasks: in_order(tasks, sort)), since=wanted.since, columns=wanted_columns)


@app.command("kinds", hidden=True)
@app.command("types")
def types_command(
    ctx: typer.Context, stack: StackOption = None, tasks_table: TasksTableOption = None, as_json: JsonOption = False
) -> None:
    """Count the tasks of each type by status, for instance before a type is retired; reads the task table."""
    from delegation.cli.tasks import opening  # noqa: PLC0415 - `--help` needs no client
    from delegation.cli.tasks.direct import count_types  # noqa: PLC0415 - loads the task store

    output = opening.open_output(ctx, as_json=as_json)
    output.task_types(*count_types(opening.Connection.of(ctx, stack).task_store(tasks_table)))


@app.command("create-table")
def create_table_command(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Option(
            "--tasks-table", envvar="DELEGATION_TASKS_TABLE", show_default=False, help="The name of the table."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a task table in your AWS environment, for workers without a deployment.

    If DELEGATION_TASK_STORE is persistence, create the two tables of the settings instead.
    """
    from delegation.cli.tasks import opening  # noqa: PLC0415 - `--help` needs no client

    output = opening.open_output(ctx, as_json=as_json)
    connection = opening.Connection.of(ctx, None)
    if connection.uses_persistence():
        from delegation.wiring.persistent_tasks import create_task_tables  # noqa: PLC0415 - loads boto3

        objects, references = connection.persistence_tables()
        new = create_task_tables(opening.dynamodb_client(), objects, references)
        for each in (objects, references):
            output.created(each, is_new=each in new)
        return
    if name is None:
        raise typer.BadParameter("name the table", param_hint="--tasks-table")
    from delegation.tasks.stores.table import create_task_table  # noqa: PLC0415 - loads boto3

    output.created(name, is_new=create_task_table(opening.dynamodb_client(), name))


@app.command("show")
def show_command(
    ctx: typer.Context,
    task_id: TaskId,
    *,
    direct: DirectOption = False,
    tasks_table: TasksTableOption = None,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every field of a task that is set; with --json the whole record."""
    from delegation.cli.tasks import opening  # noqa: PLC0415 - `--help` needs no client

    output = opening.open_output(ctx, as_json=as_json)
    output.task(opening.open_tasks(ctx, stack, direct=direct, table=tasks_table).get(task_id))


@app.command("why")
def why_command(
    ctx: typer.Context,
    task_id: TaskId,
    *,
    direct: DirectOption = False,
    tasks_table: TasksTableOption = None,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain a task: its attempt, who holds it, its last progress and error, what happens next and when."""
    from delegation.cli.tasks import opening  # noqa: PLC0415 - `--help` needs no client

    output = opening.open_output(ctx, as_json=as_json)
    tasks = opening.open_tasks(ctx, stack, direct=direct, table=tasks_table)
    task = tasks.get(task_id)
    if task.is_terminal:
        output.why(opening.explain(task, opening.utc_now(), executed_by=tasks.executed_by(task)))
        return
    pauses = opening.known_pauses(ctx, stack, direct, tasks_table)
    output.why(opening.explain(task, opening.utc_now(), pauses, tasks.waiting(task)))


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
    from delegation.cli.tasks import opening  # noqa: PLC0415 - `--help` needs no client

    output = opening.open_output(ctx, as_json=as_json)
    client = opening.Connection.of(ctx, stack).operator_client()
    opening.watch(output, client, task_id, interval_seconds=interval, timeout_seconds=timeout)


@app.command("history")
def history_command(
    ctx: typer.Context,
    task_id: TaskId,
    *,
    direct: DirectOption = False,
    tasks_table: TasksTableOption = None,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every version of a task: when it began, how long it lasted and why it ended."""
    from delegation.cli.tasks import opening  # noqa: PLC0415 - `--help` needs no client

    output = opening.open_output(ctx, as_json=as_json)
    output.history(task_id, opening.open_tasks(ctx, stack, direct=direct, table=tasks_table).versions(task_id))


@app.command("receipt")
def receipt_command(
    ctx: typer.Context, task_id: TaskId, *, stack: StackOption = None, as_json: JsonOption = False
) -> None:
    """Show the receipt of a task that ended: what it found, what it deleted and what stayed.

    Members without a value are left out; --json has all.
    """
    from delegation.cli.tasks import opening  # noqa: PLC0415 - `--help` needs no client

    output = opening.open_output(ctx, as_json=as_json)
    output.receipt(opening.Connection.of(ctx, stack).operator_client().receipt(task_id).model_dump(mode="json"))


@app.command("cancel")
def cancel_command(
    ctx: typer.Context,
    task_ids: TaskIds = None,
    *,
    status: StatusOption = None,
    task_type: TypeOption = None,
    table: TableFilter = None,
    since: SinceOption = None,
    correlation_id: CorrelationOption = None,
    yes: YesOption = False,
    direct: DirectOption = False,
    tasks_table: TasksTableOption = None,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel tasks: a waiting one becomes FAILURE (CANCELLED) now, a running one at its next checkpoint.

    Give ids, or filters that choose among the tasks that have not ended; filters
    never choose the service's own maintenance. The record of each task names who
    cancelled it (`cancelled_by`).
    """
    from delegation.cli.tasks import opening  # noqa: PLC0415 - `--help` needs no client

    output = opening.open_output(ctx, as_json=as_json)
    wanted = given_filter(
        OPEN, status=status, task_type=task_type, table=table, since=since, correlation_id=correlation_id
    )
    tasks = opening.open_tasks(ctx, stack, direct=direct, table=tasks_table)
    _change(output, tasks, task_ids, wanted, tasks.cancel, word=_CANCELLED, yes=yes)


@app.command("retry")
def retry_command(
    ctx: typer.Context,
    task_ids: TaskIds = None,
    *,
    task_type: TypeOption = None,
    table: TableFilter = None,
    since: SinceOption = None,
    correlation_id: CorrelationOption = None,
    yes: YesOption = False,
    direct: DirectOption = False,
    tasks_table: TasksTableOption = None,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Retry failed tasks with a fresh attempt budget; a purge resumes where it stopped.

    Give ids, or filters that choose among the FAILURE tasks.
    """
    from delegation.cli.tasks import opening  # noqa: PLC0415 - `--help` needs no client

    output = opening.open_output(ctx, as_json=as_json)
    failed = {StatusName.FAILURE}
    wanted = given_filter(failed, task_type=task_type, table=table, since=since, correlation_id=correlation_id)
    tasks = opening.open_tasks(ctx, stack, direct=direct, table=tasks_table)
    _change(output, tasks, task_ids, wanted, tasks.retry, word="retried", yes=yes)


@app.command("release")
def release_command(
    ctx: typer.Context,
    task_id: TaskId,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Also if nothing proves that the holder is dead; end it first.")
    ] = False,
    tasks_table: TasksTableOption = None,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Release the lease of a dead holder, so that the task continues now and not at the end of the lease.

    It works in the task table, with your AWS credentials.
    """
    from delegation.cli.tasks import opening  # noqa: PLC0415 - `--help` needs no client
    from delegation.cli.tasks.direct import LeaseRelease  # noqa: PLC0415 - loads the task store
    from delegation.tasks.life.policy import Policies  # noqa: PLC0415
    from delegation.wiring.types import default_properties  # noqa: PLC0415

    output = opening.open_output(ctx, as_json=as_json)
    connection = opening.Connection.of(ctx, stack)
    policies = Policies.from_properties(default_properties())
    releases = LeaseRelease(connection.task_store(tasks_table), policies, opening.utc_now)
    output.task(releases.release(task_id, by=connection.operator(tasks_table), force=force))


def _change(
    output: "Output",
    tasks: "TaskSource",
    task_ids: list[str] | None,
    wanted: TaskFilter | None,
    change: "Callable[[str], TaskRecord]",
    *,
    word: str,
    yes: bool,
) -> None:
    """Change one task, or several after a confirmation; raises CommandError if some could not be changed."""
    if bool(task_ids) == (wanted is not None):
        raise typer.BadParameter("give either ids or filters, not both and not none", param_hint="TASK_ID")
    if task_ids and len(task_ids) == 1:
        output.task(change(task_ids[0]))
        return
    if wanted is not None:
        page = tasks.found(wanted, limit=_MOST_CHANGED)
        if word == _CANCELLED:
            from delegation.cli.tasks.own import SERVICES_OWN  # noqa: PLC0415 - loads the task types

            page = replace(page, tasks=[task for task in page.tasks if task.task_type not in SERVICES_OWN])
        task_ids = [task.task_id for task in page.tasks]
        if not yes and task_ids:
            output.candidates(page)
    if not task_ids:
        output.changed(word, [])
        return
    _confirm(len(task_ids), word, yes=yes)
    from delegation.cli.tasks import opening  # noqa: PLC0415 - `--help` needs no client

    changes = list(opening.change_each(task_ids, change))
    output.changed(word, changes)
    failed = sum(one.error is not None for one in changes)
    if failed:
        raise CommandError(
            f"{failed:,} of {counted(len(changes), 'task')} could not be {word}; the others were",
            "The list has the reason of each; run the same command again for what may pass.",
            code="TASKS_NOT_CHANGED",
            exit_status=PARTLY_DONE,
        )


def _confirm(number: int, word: str, *, yes: bool) -> None:
    if yes:
        return
    if not at_a_terminal():
        raise typer.BadParameter(
            f"{counted(number, 'task')} would be {word}; confirm that with --yes", param_hint="--yes"
        )
    typer.confirm(
        f"{counted(number, 'task')} {'is' if number == 1 else 'are'} about to be {word}. Continue?",
        abort=True,
        err=True,
    )
