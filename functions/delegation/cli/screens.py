"""The layout of what commands print, and the live view of a task.

Names, ids and addresses are copied, so their words stay whole: print tables and fields with `crop=False`. A text that
is longer than the terminal has a line of its own, which the terminal wraps.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from delegation.wire.tasks import Asker, TaskRecord
from polaris_common.errors import counted

GAP: Final = 2
Cell = str | Text
Value = TypeVar("Value", int, float)


def text_of(cell: Cell) -> Text:
    return cell if isinstance(cell, Text) else Text(cell)


def unbroken(text: Text) -> Text:
    """Return a text that is printed unwrapped in any terminal."""
    made = text.copy()
    made.no_wrap, made.overflow = True, "ignore"
    return made


def longest_word(text: Text) -> int:
    return max((cell_len(word) for word in text.plain.split()), default=0)


def longest_line(text: Text) -> int:
    return max((cell_len(line) for line in text.plain.splitlines()), default=0)


def fitting(natural: Sequence[int], least: Sequence[int], room: int) -> list[int] | None:
    """Return a width for each column within `room`, narrowing the widest first; None if words would be broken."""
    widths = list(natural)
    while (excess := sum(widths) + GAP * (len(widths) - 1) - room) > 0:
        wrappable = [place for place, width in enumerate(widths) if width > least[place]]
        if not wrappable:
            return None
        widest = max(wrappable, key=lambda place: widths[place])
        widths[widest] = max(least[widest], widths[widest] - excess)
    return widths


class WrappedText:
    """A text that is wrapped between words; a line with a word longer than the terminal is printed unwrapped."""

    def __init__(self, text: Cell, *, indent: int = 0) -> None:
        self._text = text_of(text)
        self._indent = indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        margin, room = " " * self._indent, options.max_width - self._indent
        for line in self._text.split("\n"):
            if longest_word(line) > room:
                yield unbroken(Text.assemble(margin, line))
                continue
            for part in line.wrap(console, room):
                part.rstrip()
                yield Text.assemble(margin, part)


class LabelledLines:
    """Labels with their values; a value with a word that does not fit beside its label is below it."""

    def __init__(self, rows: Iterable[tuple[Cell, Cell]], *, indent: int = 0, label_width: int = 0) -> None:
        self._rows = [(text_of(label), text_of(value)) for label, value in rows]
        self._indent = indent
        self._label_width = label_width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width = max((self._label_width, *(label.cell_len for label, _ in self._rows)))
        room = options.max_width - self._indent - width - GAP
        margin = " " * self._indent
        for label, value in self._rows:
            shown = label.copy() if label.style or label.spans else Text(label.plain, "dim")
            if longest_word(value) > room:
                yield Text.assemble(margin, shown)
                for line in value.split("\n"):
                    yield unbroken(Text.assemble(margin, "  ", line))
                continue
            for number, line in enumerate(value.wrap(console, room)):
                line.rstrip()
                first = shown if number == 0 else Text()
                yield Text.assemble(margin, first, " " * (width - first.cell_len + GAP), line)


class Rows:
    """A table without lines. If a word would be broken, `otherwise`, or a block of fields for each row."""

    def __init__(self, *header: str, right: Collection[str] = (), otherwise: RenderableType | None = None) -> None:
        self._header = header
        self._right = right
        self._otherwise = otherwise
        self._rows: list[tuple[Text, ...]] = []

    def add(self, *cells: Cell) -> None:
        self._rows.append(tuple(map(text_of, cells)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        columns = [[Text(name), *column] for name, *column in zip(self._header, *self._rows, strict=True)]
        natural = [max(map(longest_line, column)) for column in columns]
        least = [max(map(longest_word, column)) for column in columns]
        widths = fitting(natural, least, options.max_width)
        if widths is None:
            yield from self._blocks() if self._otherwise is None else (self._otherwise,)
            return
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
        for name, width in zip(self._header, widths, strict=True):
            justify = "right" if name in self._right else "left"
            table.add_column(name, width=width, overflow="fold", justify=justify)  # type: ignore[arg-type]
        for row in self._rows:
            table.add_row(*row)
        yield table

    def _blocks(self) -> Iterator[RenderableType]:
        for row in self._rows:
            first, *rest = row
            yield unbroken(first if first.plain else Text("-"))
            named = zip(self._header[1:], rest, strict=True)
            yield LabelledLines([(name, value) for name, value in named if value.plain], indent=2)


STYLES = {
    "SUBMITTED": "cyan",
    "ACQUIRING_RESOURCES": "magenta",
    "RUNNING": "blue",
    "RETRY_SCHEDULED": "yellow",
    "SUCCESS": "green",
    "FAILURE": "bold red",
}


def status_text(status: str) -> Text:
    """Return a status in its color; an unknown one stays plain."""
    return Text(status, style=STYLES.get(status, ""))


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
"""Control characters, and those that change the direction of text (Unicode Standard Annex #9)."""


def plain(text: str) -> str:
    """Return text without characters that control a terminal: others write a record's texts."""
    return _CONTROL.sub(" ", text)


def outcome_text(view: TaskRecord) -> str:
    """Return a task's error code and summary, empty without any."""
    return ": ".join(part for part in (plain(view.error_code or ""), summary_text(view.result_summary or "")) if part)


def summary_text(summary: str) -> str:
    """Return a summary with its exact bytes and seconds printed like other sizes and durations."""
    text = re.sub(r"\b(\d+) bytes\b", lambda match: size_text(int(match[1])), plain(summary))
    return re.sub(r"(?<=\bin )(\d+\.\d) s\b", lambda match: duration_text(float(match[1])), text)


def asker_text(asker: Asker) -> str:
    """Return a client, and the subject for which it acted if that is different."""
    client, subject = plain(asker.client_id), plain(asker.subject)
    return f"{client} ({subject})" if subject not in {"", client} else client


def local_text(moment: datetime, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return moment.astimezone().strftime(form)


def full_text(moment: datetime) -> str:
    return local_text(moment, "%Y-%m-%d %H:%M:%S %Z")


def size_text(count: int) -> str:
    """Return bytes in binary units: `1.5 MiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def between_text(least: Value, most: Value | None, text: Callable[[Value], str]) -> str:
    """Return a range as one number or two; `most` is None if unknown."""
    if most is None:
        return f"{text(least)} or more"
    shown = text(least), text(most)
    return shown[1] if shown[0] == shown[1] else "–".join(shown)


def duration_text(seconds: float) -> str:
    """Return a duration like `1.2 s`, `3 min 05 s` or `2 h 07 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


class TaskWatch:
    """Draws a task for `tasks watch` from its records, oldest first; versions between two polls are only counted."""

    def __init__(self, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._view: TaskRecord | None = None
        self._versions: dict[int, tuple[str, datetime | None]] = {}

    def show(self, view: TaskRecord) -> None:
        self._view = view
        self._versions.setdefault(view.version, (view.status, view.last_status_change_ts))

    def line(self, view: TaskRecord) -> Text:
        """Return the task on one line, for output that is not a terminal."""
        return Text.assemble(
            self._status_line(view), ": ", self._counts(view), f" ({view.error_code})" if view.error_code else ""
        )

    def __rich__(self) -> RenderableType:
        view = self._view
        if view is None:
            return Text("Waiting for the first answer …", style="dim")
        return Panel(
            Group(self._heading(view), *self._progress(view), self._history()),
            title=Text(plain(view.shown_table or view.task_type), style="bold"),
            title_align="left",
            border_style=STYLES.get(view.status, ""),
            expand=False,
        )

    def _heading(self, view: TaskRecord) -> RenderableType:
        note = outcome_text(view)
        about = [Text(note, style="dim")] if note else []
        return Group(Text(view.task_id, style="dim"), self._status_line(view), *about, *self._next(view))

    def _next(self, view: TaskRecord) -> list[Text]:
        at = view.next_scheduled_run_ts
        if at is None or at <= self._clock():
            return []
        wait = duration_text((at - self._clock()).total_seconds())
        return [Text(f"attempt {view.attempt_count + 1} starts in {wait}", style="yellow")]

    def _status_line(self, view: TaskRecord) -> Text:
        parts = [status_text(view.status), Text(f"version {view.version}"), Text(f"attempt {view.attempt_count}")]
        if view.engine:
            parts.append(Text(f"{view.engine} engine"))
        return Text(" · ").join(parts)

    def _progress(self, view: TaskRecord) -> list[RenderableType]:
        total = view.files_planned
        if not view.attempt_count and total is None:
            return []
        bar = ProgressBar(
            total=float(total) if total else 1.0,
            completed=float(min(view.files_deleted, total)) if total else float(view.succeeded),
            pulse=total is None and not view.is_terminal,
            width=40,
            animation_time=self._clock().timestamp(),
        )
        # Below the bar, so that the counts fit on 80 columns; in a grid, because a bar ends without a newline.
        rows = Table.grid()
        rows.add_row(bar)
        rows.add_row(Text(self._counts(view)))
        return [rows]

    def _counts(self, view: TaskRecord) -> str:
        of = "?" if view.files_planned is None else f"{view.files_planned:,}"
        counts = f"{view.files_deleted:,} of {of} files, {size_text(view.bytes_deleted)}"
        if view.files_failed:
            counts += f", {view.files_failed:,} failed"
        if view.files_per_second and not view.is_terminal:
            counts += f", {view.files_per_second:,} a second"
        if view.eta_ts is not None and not view.is_terminal:
            counts += f", about {duration_text(max(0.0, (view.eta_ts - self._clock()).total_seconds()))} left"
        return counts

    def _history(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        last = 0
        for version, (status, since) in sorted(self._versions.items()):
            if last and version > last + 1:
                table.add_row(
                    Text("…", style="dim"),
                    Text(f"{counted(version - last - 1, 'more version')} between two polls", style="dim"),
                    "",
                )
            at = since.astimezone().strftime("%H:%M:%S") if since else ""
            table.add_row(Text(f"{version}", style="dim"), status_text(status), Text(at, style="dim"))
            last = version
        return table
