"""How a command's result is printed, as text for people or as JSON for programs, and what to do about an error."""

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final, TextIO

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from delegation.cli.errors import command_interrupted, task_did_not_succeed, task_not_done
from delegation.cli.screens import Rows, TaskWatch, Whole, plain, size_text, status_text, summary_text
from delegation.cli.tasks.screens import history_table, receipt_screen, task_list, task_screen, why_screen
from delegation.cli.tasks.source import Change, TaskPage, lines, table
from delegation.cli.tasks.why import Why
from delegation.client.client import DelegationClient
from delegation.client.errors import NotAuthenticated, RequestRefused, RequestStillRunning
from delegation.configuration.problems import SettingsInvalid
from delegation.timestamps import isoformat
from delegation.wire.responses import TaskAccepted, TaskSuccessResponse
from delegation.wire.tasks import TaskRecord
from polaris_common.errors import DelegationError, counted

_AGAIN: Final = "Run the command again."
_OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_QUOTED: Final = re.compile(r"`[^`]*`")


def next_step(error: DelegationError, options: Set[str] | None = None) -> str:
    """Return one or two sentences; an error of another package may have its own as `next_step`.

    `options` are those of the command that failed: a sentence about another option is left out.
    """
    own: object = getattr(error, "next_step", None)
    if isinstance(own, str):
        return own
    advice = _advice(error)
    step = advice[0] if options is None else _of_command(advice, options)
    task_id = getattr(error, "delegation_task_id", None)
    return step.replace(" ID`", f" {task_id}`") if task_id else step


def _advice(error: DelegationError) -> tuple[str, ...]:
    """Return the advice of the first of an error's codes that the table has: at a terminal, and to a caller."""
    from delegation.edge.codes import by_code, codes_of_the_command  # noqa: PLC0415 - only failures need it

    table = {**codes_of_the_command(), **by_code()}
    known = next(table[code] for code in _codes(error) if code in table)
    if known.command is None and known.retryable:
        known = table[DelegationError.code]  # the action is a caller's of the API; a person runs the command again
    return tuple(filter(None, (known.command, known.action)))


def _codes(error: DelegationError) -> Iterator[str]:
    """Yield the code that the service answered with if the request has to change, then the error's and its classes'."""
    if isinstance(error, RequestRefused | RequestStillRunning) and not isinstance(error, NotAuthenticated):
        yield from filter(None, [vars(error).get("error_code")])
    yield error.code
    yield from (code for kind in type(error).__mro__ if isinstance(code := vars(kind).get("code"), str))


def _of_command(advice: Iterable[str], options: Set[str]) -> str:
    """Return the sentences of the first advice that a command's user can follow; other commands are in backquotes."""
    for step in advice:
        sentences = re.split(r"(?<=\.) ", step)
        kept = [one for one in sentences if options >= set(_OPTION.findall(_QUOTED.sub("", one)))]
        if kept:
            return " ".join(kept)
    return _AGAIN


_ENTRY_STAYS = "The table's entry stays in the catalog: once the task is SUCCESS, drop it there without purge."
Show = Callable[[TaskRecord], None]


class JsonOutput:
    """Prints one JSON document on one line per command; while watching, one for each change of the task."""

    def __init__(self, options: Set[str] | None = None) -> None:
        """`options` are the command's, which may be named in what to do next; None: any."""
        self._options = options

    def accepted(
        self,
        accepted: TaskAccepted,
        *,
        key: str,
        dry_run: bool,  # noqa: ARG002 - for people
        shown: Mapping[str, Any] | None = None,
    ) -> None:
        print_json({**accepted.model_dump(mode="json"), "idempotency_key": key, **(shown or {})})

    def outcome(self, outcome: TaskSuccessResponse, *, key: str) -> None:
        print_json({**outcome.model_dump(mode="json"), "idempotency_key": key})

    def task(self, view: TaskRecord) -> None:
        print_json(view.model_dump(mode="json"))

    def tasks(self, page: TaskPage, since: datetime | None = None, columns: Sequence[str] | None = None) -> None:  # noqa: ARG002 - for people
        shown = [{**view.model_dump(mode="json"), "known_behavior": page.is_known(view)} for view in page.tasks]
        unreadable = [{"task_id": one.task_id, "reason": one.reason} for one in page.unreadable]
        document = {"tasks": shown, "unreadable": unreadable, "cursor": page.cursor, "more": page.more}
        print_json({**document, "since": None if since is None else isoformat(since)})

    def candidates(self, page: TaskPage) -> None:
        """Print nothing before the result: the document is one."""

    def why(self, why: Why) -> None:
        print_json(why.document())

    def changed(self, word: str, changes: Sequence[Change]) -> None:
        print_json(
            {word: sum(change.error is None for change in changes), "tasks": [one.document() for one in changes]}
        )

    def task_types(self, found: Mapping[str, Mapping[str, int]], unreadable: int) -> None:
        types = {name: dict(counts) for name, counts in found.items()}
        print_json({"types": types, "unreadable": unreadable})

    def created(self, table: str, *, is_new: bool) -> None:
        print_json({"table": table, "created": is_new})

    def receipt(self, document: Mapping[str, Any]) -> None:
        print_json(document)

    def history(self, task_id: str, versions: Sequence[TaskRecord]) -> None:
        print_json({"task_id": task_id, "versions": [view.model_dump(mode="json") for view in versions]})

    @contextlib.contextmanager
    def status(self, what: str) -> Iterator[None]:  # noqa: ARG002 - for people
        yield

    @contextlib.contextmanager
    def watching(self) -> Iterator[Show]:
        yield self.task

    def say(self, text: str, *, dim: bool = False) -> None:
        """Print nothing: the document is one."""

    def show(self, screen: RenderableType) -> None:
        """Print nothing: the document is one."""

    @property
    def width(self) -> int:
        return 0

    def problem(self, error: DelegationError) -> None:
        document: dict[str, Any] = {
            "error_code": error_code(error),
            "message": str(error),
            "next_step": next_step(error, self._options),
        }
        task_id = getattr(error, "delegation_task_id", None) or getattr(error, "task_id", None)
        if isinstance(error, SettingsInvalid):
            document["problems"] = [asdict(problem) for problem in error.problems]
        print_json({**document, **({"task_id": task_id} if task_id else {})}, sys.stderr)


class TextOutput:
    """Prints tables and a live view, in color where the terminal has colors."""

    def __init__(self, options: Set[str] | None = None) -> None:
        self._options = options
        self._out = Console(highlight=False, soft_wrap=False)
        self._err = Console(stderr=True, highlight=False)

    def accepted(
        self,
        accepted: TaskAccepted,
        *,
        key: str,
        dry_run: bool,
        shown: Mapping[str, Any] | None = None,  # noqa: ARG002 - for programs; people see it before
    ) -> None:
        task_id = accepted.delegation_task_id
        self._out.print(Text.assemble("Accepted as task ", (task_id, "bold"), f" (idempotency key {key})."))
        self._out.print(f"Follow it: delegation tasks watch {task_id}", style="dim", soft_wrap=True)
        if not dry_run:
            self._out.print(_ENTRY_STAYS, style="dim")

    def outcome(self, outcome: TaskSuccessResponse, *, key: str) -> None:
        result = outcome.execution_result
        what = (
            f"deleted {counted(result.files_deleted, 'file')}, {size_text(result.bytes_deleted)}" if result else "done"
        )
        summary = outcome.message or what
        task_id = (outcome.delegation_task_id, "bold")
        self._out.print(
            Text.assemble(("SUCCESS", "green"), f": {summary}; task ", task_id, f" (idempotency key {key}).")
        )
        if result and result.files_deleted:
            self._out.print(_ENTRY_STAYS, style="dim")

    def task(self, view: TaskRecord) -> None:
        self._out.print(task_screen(view), crop=False)

    def tasks(self, page: TaskPage, since: datetime | None = None, columns: Sequence[str] | None = None) -> None:
        """Show a list; another program gets a line for each task, and nothing else on stdout."""
        is_read_by_people = self._out.is_terminal
        notes = self._out if is_read_by_people else self._err
        if not (page.tasks or page.unreadable):
            notes.print("No tasks." if not page.more else "No task on this page.")
        elif not is_read_by_people:
            sys.stdout.writelines(f"{line}\n" for line in lines(page, columns))
        else:
            self._out.print(task_list(page, self._out.width) if columns is None else table(page, columns), crop=False)
        if page.cursor is not None:
            # A cursor belongs to the filters, and `2h` is another time in the next call.
            options = f"--cursor {page.cursor}" + ("" if since is None else f" --since {isoformat(since)}")
            notes.print(f"Continue with {options}", style="dim", soft_wrap=True)

    def candidates(self, page: TaskPage) -> None:
        """Show to stderr what a change by filter is about."""
        self._err.print(task_list(page, self._err.width), crop=False)
        if page.more:
            self._err.print(f"There are more; these {len(page.tasks):,} come first.", style="yellow")

    def why(self, why: Why) -> None:
        self._out.print(why_screen(why), crop=False)

    def changed(self, word: str, changes: Sequence[Change]) -> None:
        for change in changes:
            state = Text(str(change.error), "red") if change.error else status_text(change.status or "")
            self._out.print(Text.assemble(change.task_id, "  ", state), soft_wrap=True)
        done = sum(change.error is None for change in changes)
        self._out.print(f"{done:,} of {counted(len(changes), 'task')} {word}.")

    def task_types(self, found: Mapping[str, Mapping[str, int]], unreadable: int) -> None:
        shown = Rows("task type", "tasks")
        for name, counts in found.items():
            shown.add(name, ", ".join(f"{number:,} {status}" for status, number in counts.items()))
        self._out.print(shown if found else "No tasks.", crop=False)
        if unreadable:
            self._out.print(f"{counted(unreadable, 'more record')} cannot be read by this release.", style="yellow")

    def created(self, table: str, *, is_new: bool) -> None:
        self._out.print(f"Created the table {table}." if is_new else f"The table {table} exists; it was not changed.")

    def receipt(self, document: Mapping[str, Any]) -> None:
        self._out.print(receipt_screen(document), crop=False)

    def history(self, task_id: str, versions: Sequence[TaskRecord]) -> None:
        last = versions[-1]
        day = f", {last.last_status_change_ts.astimezone():%Y-%m-%d}" if last.last_status_change_ts else ""
        what = plain(last.shown_table or last.task_type)
        self._out.print(Text.assemble("Task ", (task_id, "bold"), f"  {what}{day}"))
        self._out.print(history_table(versions, self._out.width), crop=False)

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
                if view.is_terminal and view.result_summary:
                    self._out.print(Text(summary_text(view.result_summary)), soft_wrap=True)

        return show

    def say(self, text: str, *, dim: bool = False) -> None:
        """Print a line."""
        self._out.print(Text(text, "dim" if dim else ""), soft_wrap=True)

    def show(self, screen: RenderableType) -> None:
        self._out.print(screen, crop=False)

    @property
    def width(self) -> int:
        """The number of columns."""
        return self._out.width

    def problem(self, error: DelegationError) -> None:
        text = Text.assemble(("Error: ", "bold red"), str(error))
        # A terminal would break words; the next step is one line, so that its commands can be copied.
        if self._err.is_terminal:
            self._err.print(Whole(text), crop=False)
        else:
            self._err.print(text, soft_wrap=True)
        self._err.print(Text.assemble(("Next: ", "bold"), next_step(error, self._options)), soft_wrap=True)


Output = JsonOutput | TextOutput


def print_json(document: Mapping[str, Any], stream: TextIO | None = None) -> None:
    stream = stream or sys.stdout
    stream.write(json.dumps(document, ensure_ascii=False) + "\n")
    stream.flush()


def error_code(error: DelegationError) -> str:
    """Return the machine-readable code: the one that the service returned, else the error class's."""
    returned: object = getattr(error, "error_code", None)
    return returned if isinstance(returned, str) else error.code


def open_output(ctx: typer.Context, *, as_json: bool) -> Output:
    """Choose the output of a command, for its result and for the errors that follow."""
    options = {name for parameter in ctx.command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    output: Output = JsonOutput(options) if as_json else TextOutput(options)
    ctx.find_root().obj = output
    return output


def output_of(ctx: typer.Context) -> Output:
    """Return the output that the command chose; text if it failed before."""
    chosen = ctx.find_root().obj
    return chosen if isinstance(chosen, Output) else TextOutput()


def watch(
    output: Output,
    client: DelegationClient,
    task_id: str,
    *,
    interval_seconds: float = 1.0,
    timeout_seconds: float | None = None,
) -> TaskRecord:
    """Show a task until it is terminal.

    Raises CommandError after the time-out, or CommandError (INTERRUPTED) after Ctrl-C.
    """
    try:
        with output.watching() as show:
            for view in client.follow(task_id, interval_seconds=interval_seconds, timeout_seconds=timeout_seconds):
                show(view)
    except KeyboardInterrupt:
        raise command_interrupted(task_id) from None
    if not view.is_terminal:
        raise task_not_done(task_id, view.status)
    if not view.succeeded:
        raise task_did_not_succeed(task_id, view.error_code, view.result_summary and summary_text(view.result_summary))
    return view
