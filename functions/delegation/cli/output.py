"""How a command's result is printed, as text for people or as JSON for programs, and the advice about an error."""

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
from delegation.cli.screens import Rows, TaskWatch, WrappedText, plain, size_text, status_text, summary_text
from delegation.cli.tasks.screens import history_table, task_list, task_screen
from delegation.cli.tasks.source import Change, TaskPage, lines, table
from delegation.client.client import DelegationClient
from delegation.client.errors import NotAuthenticated, RequestRefused, RequestStillRunning
from delegation.configuration import SettingsInvalid
from delegation.timestamps import isoformat
from delegation.wire.responses import TaskAccepted, TaskSuccessResponse
from delegation.wire.tasks import TaskRecord
from polaris_common.errors import DelegationError, counted

Screen = RenderableType | Iterator[RenderableType] | Callable[[], RenderableType]
"""What people see, or what makes it: nothing is made for programs, which get the document."""
_AGAIN: Final = "Run the command again."
_OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_QUOTED: Final = re.compile(r"`[^`]*`")


def next_step(error: DelegationError, options: Set[str] | None = None) -> str:
    """Return one or two sentences of advice, without sentences about options that are not in `options`."""
    own: object = getattr(error, "next_step", None)
    if isinstance(own, str):
        return own
    advice = _advice(error)
    step = advice[0] if options is None else _of_command(advice, options)
    task_id = getattr(error, "delegation_task_id", None)
    return step.replace(" ID`", f" {task_id}`") if task_id else step


def _advice(error: DelegationError) -> tuple[str, ...]:
    """Return the advice of the first of an error's codes in the table: at a terminal, and to a caller."""
    from delegation.edge.codes import by_code, codes_of_the_command  # noqa: PLC0415 - only failures need it

    table = {**codes_of_the_command(), **by_code()}
    known = next(table[code] for code in _codes(error) if code in table)
    if known.command is None and known.retryable:
        known = table[DelegationError.code]  # the action is for a caller of the API; a person runs the command again
    return tuple(filter(None, (known.command, known.action)))


def _codes(error: DelegationError) -> Iterator[str]:
    """Yield the service's code if the request has to change, then the codes of the error and its classes."""
    if isinstance(error, RequestRefused | RequestStillRunning) and not isinstance(error, NotAuthenticated):
        yield from filter(None, [vars(error).get("error_code")])
    yield error.code
    yield from (code for kind in type(error).__mro__ if isinstance(code := vars(kind).get("code"), str))


def _of_command(advice: Iterable[str], options: Set[str]) -> str:
    """Return the sentences of the first advice that a command's user can follow; other commands are in backquotes."""
    for step in advice:
        sentences = re.split(r"(?<=\.) ", step)
        kept = [sentence for sentence in sentences if options >= set(_OPTION.findall(_QUOTED.sub("", sentence)))]
        if kept:
            return " ".join(kept)
    return _AGAIN


_ENTRY_STAYS = "The table stays in the catalog. Once the task is SUCCESS, drop the table there without purge."


class Output:
    """Prints a result as text, or as JSON on a line; `options` are the command's, which advice may name (None: any)."""

    def __init__(self, options: Set[str] | None = None, *, as_json: bool = False) -> None:
        self._options = options
        self.as_json = as_json
        self._out = Console(highlight=False)
        self._err = Console(stderr=True, highlight=False)

    def result(self, document: Mapping[str, Any], *screens: Screen) -> None:
        """Print the document as JSON, or the screens as text."""
        if self.as_json:
            print_json(document)
        else:
            self.show(*screens)

    def show(self, *screens: Screen) -> None:
        """Print only text, nothing as JSON: the output is a single document."""
        for given in () if self.as_json else screens:
            made = given() if callable(given) else given
            for screen in made if isinstance(made, Iterator) else (made,):
                self._out.print(WrappedText(screen) if isinstance(screen, str) else screen, crop=False)

    def say(self, text: str | Text, *, dim: bool = False) -> None:
        """Print a line that the terminal wraps, nothing as JSON."""
        if not self.as_json:
            self._out.print(Text(text, "dim" if dim else "") if isinstance(text, str) else text, soft_wrap=True)

    @property
    def width(self) -> int:
        return self._out.width

    def accepted(
        self, accepted: TaskAccepted, *, key: str, dry_run: bool, shown: Mapping[str, Any] | None = None
    ) -> None:
        """Print that a task is accepted; `shown` is for programs, people see it before."""
        task_id = accepted.delegation_task_id
        self.result(
            {**accepted.model_dump(mode="json"), "idempotency_key": key, **(shown or {})},
            Text.assemble("Accepted as task ", (task_id, "bold"), f" (idempotency key {key})."),
        )
        self.say(f"Follow the task: delegation tasks watch {task_id}", dim=True)
        if not dry_run:
            self.show(WrappedText(Text(_ENTRY_STAYS, "dim")))

    def outcome(self, outcome: TaskSuccessResponse, *, key: str) -> None:
        result = outcome.execution_result
        what = (
            f"deleted {counted(result.files_deleted, 'file')}, {size_text(result.bytes_deleted)}" if result else "done"
        )
        task_id = (outcome.delegation_task_id, "bold")
        summary = f": {outcome.message or what}; task "
        self.result(
            {**outcome.model_dump(mode="json"), "idempotency_key": key},
            Text.assemble(("SUCCESS", "green"), summary, task_id, f" (idempotency key {key})."),
        )
        if result and result.files_deleted:
            self.show(WrappedText(Text(_ENTRY_STAYS, "dim")))

    def task(self, view: TaskRecord) -> None:
        self.result(view.model_dump(mode="json"), lambda: task_screen(view))

    def tasks(self, page: TaskPage, since: datetime | None = None, columns: Sequence[str] | None = None) -> None:
        """Show a list; if piped, one line for each task, and nothing else on stdout."""
        if self.as_json:
            shown = [{**view.model_dump(mode="json"), "known_behavior": page.is_known(view)} for view in page.tasks]
            unreadable = [{"task_id": record.task_id, "reason": record.reason} for record in page.unreadable]
            document = {"tasks": shown, "unreadable": unreadable, "cursor": page.cursor, "more": page.more}
            print_json({**document, "since": None if since is None else isoformat(since)})
            return
        is_read_by_people = self._out.is_terminal
        notes = self._out if is_read_by_people else self._err
        if not (page.tasks or page.unreadable):
            notes.print("No tasks." if not page.more else "No task on this page.")
        elif not is_read_by_people:
            sys.stdout.writelines(f"{line}\n" for line in lines(page, columns))
        else:
            self.show(task_list(page, self.width) if columns is None else table(page, columns))
        if page.cursor is not None:
            # A cursor belongs to its filters, and `2h` would be another time in the next call.
            options = f"--cursor {page.cursor}" + ("" if since is None else f" --since {isoformat(since)}")
            notes.print(f"Continue with {options}", style="dim", soft_wrap=True)

    def candidates(self, page: TaskPage) -> None:
        """Show on stderr which tasks a change by filter covers."""
        if self.as_json:
            return
        self._err.print(task_list(page, self._err.width), crop=False)
        if page.more:
            self._err.print(f"There are more tasks; the first {len(page.tasks):,} are shown.", style="yellow")

    def changed(self, word: str, changes: Sequence[Change]) -> None:
        done = sum(change.error is None for change in changes)
        if self.as_json:
            print_json({word: done, "tasks": [change.document() for change in changes]})
            return
        for change in changes:
            state = Text(str(change.error), "red") if change.error else status_text(change.status or "")
            self._out.print(Text.assemble(change.task_id, "  ", state), soft_wrap=True)
        self.show(f"{done:,} of {counted(len(changes), 'task')} {word}.")

    def task_types(self, types: Mapping[str, Mapping[str, int]], unreadable: int) -> None:
        rows = Rows("task type", "tasks")
        for name, counts in types.items():
            rows.add(name, ", ".join(f"{number:,} {status}" for status, number in counts.items()))
        self.result({"types": types, "unreadable": unreadable}, rows if types else "No tasks.")
        if unreadable:
            self.show(Text(f"{counted(unreadable, 'more record')} cannot be read by this release.", "yellow"))

    def created(self, table: str, *, is_new: bool) -> None:
        text = f"Created the table {table}." if is_new else f"The table {table} exists; it was not changed."
        self.result({"table": table, "created": is_new}, text)

    def history(self, task_id: str, versions: Sequence[TaskRecord]) -> None:
        def screens() -> Iterator[RenderableType]:
            last = versions[-1]
            day = f", {last.last_status_change_ts.astimezone():%Y-%m-%d}" if last.last_status_change_ts else ""
            yield Text.assemble("Task ", (task_id, "bold"), f"  {plain(last.shown_table or last.task_type)}{day}")
            yield history_table(versions, self.width)

        self.result({"task_id": task_id, "versions": [view.model_dump(mode="json") for view in versions]}, screens())

    @contextlib.contextmanager
    def status(self, what: str) -> Iterator[None]:
        with contextlib.nullcontext() if self.as_json else self._err.status(what):
            yield

    @contextlib.contextmanager
    def watching(self) -> Iterator[Callable[[TaskRecord], None]]:
        watch = TaskWatch()
        if self.as_json:
            yield self.task
        elif not self._out.is_terminal:
            yield self._line_printer(watch)
        else:
            with Live(watch, console=self._out, refresh_per_second=8):
                yield watch.show

    def _line_printer(self, watch: TaskWatch) -> Callable[[TaskRecord], None]:
        """Print a line whenever it differs from the last one, for output that is not a terminal."""
        last = ""

        def show(view: TaskRecord) -> None:
            nonlocal last
            line = watch.line(view)
            if line.plain != last:
                last = line.plain
                self._out.print(line, soft_wrap=True)
                if view.is_terminal and view.result_summary:
                    self.say(summary_text(view.result_summary))

        return show

    def problem(self, error: DelegationError) -> None:
        step = next_step(error, self._options)
        if self.as_json:
            document: dict[str, Any] = {"error_code": error_code(error), "message": str(error), "next_step": step}
            if isinstance(error, SettingsInvalid):
                document["problems"] = [asdict(problem) for problem in error.problems]
            if task_id := getattr(error, "delegation_task_id", None) or getattr(error, "task_id", None):
                document["task_id"] = task_id
            print_json(document, sys.stderr)
            return
        text = Text.assemble(("Error: ", "bold red"), str(error))
        # A terminal would break words; the next step is one line, so that its commands can be copied.
        if self._err.is_terminal:
            self._err.print(WrappedText(text), crop=False)
        else:
            self._err.print(text, soft_wrap=True)
        self._err.print(Text.assemble(("Next: ", "bold"), step), soft_wrap=True)


def print_json(document: Mapping[str, Any], stream: TextIO | None = None) -> None:
    stream = stream or sys.stdout
    stream.write(json.dumps(document, ensure_ascii=False) + "\n")
    stream.flush()


def error_code(error: DelegationError) -> str:
    """Return the machine-readable code: the service's, else the error class's."""
    returned: object = getattr(error, "error_code", None)
    return returned if isinstance(returned, str) else error.code


def open_output(ctx: typer.Context, *, as_json: bool) -> Output:
    """Choose the output of a command, for its result and for the errors that follow."""
    options = {name for parameter in ctx.command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    output = Output(options, as_json=as_json)
    ctx.find_root().obj = output
    return output


def output_of(ctx: typer.Context) -> Output:
    """Return the output that the command chose; text if it failed before."""
    chosen = ctx.find_root().obj
    return chosen if isinstance(chosen, Output) else Output()


def watch(
    output: Output,
    client: DelegationClient,
    task_id: str,
    *,
    interval_seconds: float = 1.0,
    timeout_seconds: float | None = None,
) -> TaskRecord:
    """Show a task until it is terminal. Raises CommandError after the time-out, Ctrl-C, or a failure."""
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
