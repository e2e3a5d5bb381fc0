"""How a command's result is printed: as text for people or as JSON for programs."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from delegation.cli.problems import next_step
from delegation.cli.watching import TaskWatch, duration_text, size_text, status_text
from delegation.errors import DelegationError
from delegation.operations.purge.behavior.kinds import KIND
from delegation.tasks.stores.base import Unreadable
from delegation.wire.responses import TaskAccepted, TaskSuccessResponse
from delegation.wire.tasks import TaskRecord

_ENTRY_STAYS = "The table's entry stays in the catalog: once the task is SUCCESS, drop it there without purge."
Show = Callable[[TaskRecord], None]


@dataclass(frozen=True, slots=True)
class TaskPage:
    """A page of tasks; `cursor` continues the list and is None at its end.

    `known` are this release's task types, `unreadable` the page's records that this release cannot read.
    """

    tasks: Sequence[TaskRecord]
    cursor: str | None
    known: frozenset[str]
    unreadable: Sequence[Unreadable] = ()

    def is_known(self, task: TaskRecord) -> bool:
        """Return whether this release has the task's behavior; if not, the task belongs to a newer deployment."""
        return task.task_type in self.known


class JsonOutput:
    """Prints one JSON document on one line per command; while watching, one for each change of the task."""

    def accepted(self, accepted: TaskAccepted, *, key: str, dry_run: bool) -> None:  # noqa: ARG002 - for people
        print_json({**accepted.model_dump(mode="json"), "idempotency_key": key})

    def outcome(self, outcome: TaskSuccessResponse, *, key: str) -> None:
        print_json({**outcome.model_dump(mode="json"), "idempotency_key": key})

    def task(self, view: TaskRecord) -> None:
        print_json(view.model_dump(mode="json"))

    def tasks(self, page: TaskPage) -> None:
        shown = [{**view.model_dump(mode="json"), "known_behavior": page.is_known(view)} for view in page.tasks]
        unreadable = [{"task_id": one.task_id, "reason": one.reason} for one in page.unreadable]
        print_json({"tasks": shown, "unreadable": unreadable, "cursor": page.cursor})

    def kinds(self, kinds: Mapping[str, Mapping[str, int]], unreadable: int) -> None:
        print_json({"kinds": {kind: dict(counts) for kind, counts in kinds.items()}, "unreadable": unreadable})

    def created(self, table: str, *, is_new: bool) -> None:
        print_json({"table": table, "created": is_new})

    def history(self, task_id: str, versions: Sequence[TaskRecord]) -> None:
        print_json({"task_id": task_id, "versions": [view.model_dump(mode="json") for view in versions]})

    @contextlib.contextmanager
    def status(self, what: str) -> Iterator[None]:  # noqa: ARG002 - for people
        yield

    @contextlib.contextmanager
    def watching(self) -> Iterator[Show]:
        yield self.task

    def problem(self, error: DelegationError) -> None:
        document = {"error_code": error_code(error), "message": str(error), "next_step": next_step(error)}
        task_id = getattr(error, "delegation_task_id", None) or getattr(error, "task_id", None)
        print_json({**document, **({"task_id": task_id} if task_id else {})}, sys.stderr)


class TextOutput:
    """Prints tables and a live view, in color where the terminal has colors."""

    def __init__(self) -> None:
        self._out = Console(highlight=False, soft_wrap=False)
        self._err = Console(stderr=True, highlight=False)

    def accepted(self, accepted: TaskAccepted, *, key: str, dry_run: bool) -> None:
        task_id = accepted.delegation_task_id
        self._out.print(Text.assemble("Accepted as task ", (task_id, "bold"), f" (idempotency key {key})."))
        self._out.print(f"Follow it: delegation tasks watch {task_id}", style="dim", soft_wrap=True)
        if not dry_run:
            self._out.print(_ENTRY_STAYS, style="dim")

    def outcome(self, outcome: TaskSuccessResponse, *, key: str) -> None:
        result = outcome.execution_result
        counted = f"deleted {result.files_deleted:,} files, {size_text(result.bytes_deleted)}" if result else "done"
        summary = outcome.message or counted
        task_id = (outcome.delegation_task_id, "bold")
        self._out.print(
            Text.assemble(("SUCCESS", "green"), f": {summary}; task ", task_id, f" (idempotency key {key}).")
        )
        if result and result.files_deleted:
            self._out.print(_ENTRY_STAYS, style="dim")

    def task(self, view: TaskRecord) -> None:
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in view.model_dump(mode="json").items():
            if value not in (None, "", [], {}):
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                table.add_row(Text(name, style="dim"), status_text(text) if name == "status" else Text(text))
        self._out.print(table)

    def tasks(self, page: TaskPage) -> None:
        if not page.tasks and not page.unreadable:
            self._out.print("No tasks." if page.cursor is None else "No task on this page.")
        else:
            table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
            for column in ("task", "status", "files", "changed"):
                table.add_column(column, no_wrap=column in {"task", "status"}, overflow="fold")
            time_format = _time_format(page.tasks)
            for view in page.tasks:
                table.add_row(*_task_row(view, time_format, known=page.is_known(view)))
            for one in page.unreadable:
                table.add_row(Text.assemble((one.reason, "yellow"), "\n", (one.task_id, "dim")), "unreadable", "", "")
            self._out.print(table)
        if page.cursor is not None:
            self._out.print(f"Continue with --cursor {page.cursor}", style="dim")

    def kinds(self, kinds: Mapping[str, Mapping[str, int]], unreadable: int) -> None:
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("task type", overflow="fold")
        table.add_column("tasks")
        for kind, counts in kinds.items():
            table.add_row(kind, ", ".join(f"{number:,} {status}" for status, number in counts.items()))
        self._out.print(table if kinds else "No tasks.")
        if unreadable:
            self._out.print(f"{unreadable:,} more records cannot be read by this release.", style="yellow")

    def created(self, table: str, *, is_new: bool) -> None:
        self._out.print(f"Created the table {table}." if is_new else f"The table {table} exists; it was not changed.")

    def history(self, task_id: str, versions: Sequence[TaskRecord]) -> None:
        last = versions[-1]
        day = f", {last.last_status_change_ts.astimezone():%Y-%m-%d}" if last.last_status_change_ts else ""
        self._out.print(Text.assemble("Task ", (task_id, "bold"), f"  {last.table or last.task_type}{day}"))
        self._out.print(history_table(versions))

    @contextlib.contextmanager
    def status(self, what: str) -> Iterator[None]:
        with self._err.status(what):
            yield

    @contextlib.contextmanager
    def watching(self) -> Iterator[Show]:
        watch = TaskWatch()
        if not self._out.is_terminal:
            yield self._line_printer(watch)
            return
        with Live(watch, console=self._out, refresh_per_second=8):
            yield watch.show

    def _line_printer(self, watch: TaskWatch) -> Show:
        """Print a line whenever it differs from the last one; for output that is not a terminal."""
        last = ""

        def show(view: TaskRecord) -> None:
            nonlocal last
            line = watch.line(view)
            if line.plain != last:
                last = line.plain
                self._out.print(line, soft_wrap=True)

        return show

    def problem(self, error: DelegationError) -> None:
        self._err.print(Text.assemble(("Error: ", "bold red"), str(error)), soft_wrap=True)
        self._err.print(Text.assemble(("Next: ", "bold"), next_step(error)), soft_wrap=True)


Output = JsonOutput | TextOutput


def print_json(document: Mapping[str, Any], stream: TextIO | None = None) -> None:
    """Write a document on one line, by default to stdout."""
    stream = stream or sys.stdout
    stream.write(json.dumps(document, ensure_ascii=False) + "\n")
    stream.flush()


def error_code(error: DelegationError) -> str:
    """Return the machine-readable code: the one that the service returned, else the error class's."""
    returned: object = getattr(error, "error_code", None)
    return returned if isinstance(returned, str) else error.code


def history_table(versions: Sequence[TaskRecord]) -> Table:
    """Return a table of a task's versions: when each began, how long it lasted, its attempt, files and outcome."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("version", justify="right")
    for column in ("status", "since", "lasted", "attempt", "files", "note"):
        table.add_column(column, overflow="fold", no_wrap=column in {"status", "since", "lasted"})
    time_format = _time_format(versions)
    for view, after in zip(versions, [*versions[1:], None], strict=True):
        table.add_row(*_version_row(view, after, time_format))
    return table


def _version_row(view: TaskRecord, after: TaskRecord | None, time_format: str) -> list[RenderableType]:
    since, until = view.last_status_change_ts, after.last_status_change_ts if after else None
    return [
        str(view.version),
        status_text(view.status),
        since.astimezone().strftime(time_format) if since else "",
        duration_text((until - since).total_seconds()) if since and until else "",
        str(view.attempt_count),
        _files(view),
        Text(": ".join(part for part in (view.error_code, view.result_summary) if part)),
    ]


def _task_row(view: TaskRecord, time_format: str, *, known: bool) -> list[RenderableType]:
    """Return a task's row, with the table's name above the id so that the id fits on 80 columns."""
    if known:
        what = Text(" ".join(part for part in (view.table, None if view.task_type == KIND else view.task_type) if part))
    else:
        what = Text(f"{view.task_type} (unknown behavior)", style="yellow")
    changed = view.last_status_change_ts
    return [
        Text.assemble(what, "\n" if what else "", (view.task_id, "dim")),
        status_text(view.status),
        _files(view),
        changed.astimezone().strftime(time_format) if changed else "",
    ]


def _time_format(views: Sequence[TaskRecord]) -> str:
    """Return a format with the date only if the tasks changed on several days, so that rows fit on 80 columns."""
    days = {view.last_status_change_ts.astimezone().date() for view in views if view.last_status_change_ts}
    return "%H:%M:%S" if len(days) == 1 else "%m-%d %H:%M:%S"


def _files(view: TaskRecord) -> str:
    if view.files_planned is None and not view.files_deleted:
        return ""
    return f"{view.files_deleted:,}/{'?' if view.files_planned is None else f'{view.files_planned:,}'}"


def open_output(ctx: typer.Context, *, as_json: bool) -> Output:
    """Choose the output of a command, for its result and for the errors that follow."""
    output: Output = JsonOutput() if as_json else TextOutput()
    ctx.find_root().obj = output
    return output


def output_of(ctx: typer.Context) -> Output:
    """Return the output that the command chose; text if it failed before."""
    chosen = ctx.find_root().obj
    return chosen if isinstance(chosen, Output) else TextOutput()
