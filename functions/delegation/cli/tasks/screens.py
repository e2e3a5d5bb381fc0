"""What people see of tasks: lists that fit 80 columns and use 160, a task's fields in groups, its versions."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from delegation.cli.tasks.source import TaskPage
from delegation.cli.tasks.why import Why
from delegation.cli.watching import STYLES, asker_text, duration_text, outcome_text, plain, size_text, status_text
from delegation.wire.tasks import Asker, PublishedSegment, TaskRecord
from delegation.wiring.types import TYPES

USUAL: Final = next(iter(TYPES))
"""The type that most tasks have: lists leave it out."""
_WIDE: Final = 140
"""From so many columns on a task has a line of its own; below it has two."""
_ID: Final = 36
_OTHERS: Final = 2 + len("ACQUIRING_RESOURCES") + 2 + len("1,200,000/1,200,000") + 2
_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Task": (
        *("task_id", "task_type", "correlation_id", "parent_id", "children"),
        *("requested_by", "cancelled_by", "synchronous"),
    ),
    "Status": ("version", "revision", "cancel_requested", "error_code", "result_summary", "partly_deleted"),
    "Attempt": (
        "attempt_count",
        "attempts_excused",
        "throttled_count",
        "starts_refused",
        "dispatch_count",
        "engine",
        "job_run_id",
        "lease_owner",
        "plan_segments",
    ),
    "Progress": ("files_per_second", "progress", "files_failed", "files_absent", "files_kept", "findings"),
    "Times": (
        "received_timestamp",
        "created_ts",
        "next_scheduled_run_ts",
        "lease_acquired_ts",
        "lost_not_before",
        "recheck_not_before",
        "first_delete_ts",
        "progress_ts",
        "eta_ts",
        "recurrence_seconds",
        "recurrence_cron",
    ),
    "Result": (
        "purged_identifier",
        "purged_metadata_location",
        "result_location",
        "pending_result",
        "details",
        "result_extended",
    ),
}
_DRAWN: Final = frozenset(
    {"status", "last_status_change_ts", "files_planned", "files_deleted", "bytes_deleted", "task_payload", "outlook"}
)
"""Fields that are part of a line of their own, or are made from others."""


def task_list(page: TaskPage, width: int) -> RenderableType:
    """Return the tasks of a page: two lines each, or one where the terminal is wide."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    wide = width >= _WIDE
    time_format = "%m-%d %H:%M:%S"  # a list of one day may be of another day than today
    if wide:
        for column in ("task", "status", "changed", "attempt", "files"):
            table.add_column(column, no_wrap=True, justify="right" if column in {"attempt", "files"} else "left")
        table.add_column("table", overflow="fold")
        table.add_column("note", overflow="fold")
    else:
        # A fixed width, because rich crops the last column where another one has a least width.
        table.add_column("table, task", overflow="fold", width=_first_width(page, width))
        table.add_column("status, since", no_wrap=True)
        table.add_column("files, note", overflow="fold")
    for view in page.tasks:
        known = page.is_known(view)
        table.add_row(*(_wide_row if wide else _narrow_row)(view, time_format, known=known))
    for one in page.unreadable:
        cells = ["unreadable", "", "", ""] if wide else ["unreadable"]
        table.add_row(Text(one.task_id, "dim") if wide else _two(Text(one.reason, "yellow"), Text(one.task_id, "dim")),
                      *cells, Text(one.reason, "yellow") if wide else "")  # fmt: skip
    return table


def _first_width(page: TaskPage, width: int) -> int:
    """Return a width for ids and the longest name, as far as the other columns leave it."""
    longest = max((len(view.table or view.task_type) for view in page.tasks), default=0)
    return max(_ID, min(longest, width - _OTHERS))


def _wide_row(view: TaskRecord, time_format: str, *, known: bool) -> list[RenderableType]:
    return [
        view.task_id,
        status_text(view.status),
        _moment(view.last_status_change_ts, time_format),
        str(view.attempt_count),
        files_of(view),
        _subject(view, known=known),
        _note(view),
    ]


def _narrow_row(view: TaskRecord, time_format: str, *, known: bool) -> list[RenderableType]:
    since = _moment(view.last_status_change_ts, time_format)
    return [
        _two(_subject(view, known=known), Text(view.task_id, "dim")),
        _two(status_text(view.status), Text(since, "dim")),
        _two(Text(files_of(view)), _note(view)),
    ]


def _subject(view: TaskRecord, *, known: bool) -> Text:
    """Return the table and the type, which is left out where it is the usual one."""
    if not known:
        return Text(f"{view.task_type} (unknown behavior)", style="yellow")
    shown_type = None if view.task_type == USUAL and view.table else view.task_type
    return Text(plain(" ".join(part for part in (view.table, shown_type) if part)))


def _note(view: TaskRecord) -> Text:
    if view.cancel_requested and not view.is_terminal:
        return Text("cancelling", "yellow")
    if view.error_code and not view.succeeded:
        # A table that is not whole needs its owner, whatever the code.
        note = f"{view.error_code}, table not whole" if view.partly_deleted else view.error_code
        return Text(note, "red" if view.is_terminal else "yellow")
    return Text("")


def _two(above: Text, below: Text) -> Text:
    """Return two lines; an empty one is left out only if both are, so that rows stay aligned."""
    return Text.assemble(above, "\n", below) if above or below else Text("")


def task_screen(view: TaskRecord) -> RenderableType:
    """Return every field of a task that is set, in groups, with its status and progress first."""
    fields = view.model_dump(mode="json")
    rest = [name for name in fields if name not in _DRAWN and not any(name in names for names in _GROUPS.values())]
    parts: list[RenderableType] = [_headline(view), *_counts_line(view)]
    asked = [("properties", Text("\n".join(plain(f"{name} = {value}") for name, value in view.properties.items())))]
    for title, names in {**_GROUPS, "Other": tuple(rest)}.items():
        rows = list(_rows(view, fields, names)) + (asked if title == "Task" and view.properties else [])
        if rows:
            grid = Table.grid(padding=(0, 2))
            grid.add_column(no_wrap=True, min_width=_LABEL)
            grid.add_column(overflow="fold")
            for name, value in rows:
                grid.add_row(Text(f"  {name}", style="dim"), value)
            parts += [Text(title, style="bold"), grid]
    return Group(*parts)


_LABEL: Final = 2 + max(len(name) for names in _GROUPS.values() for name in names)


def _headline(view: TaskRecord) -> Text:
    since = view.last_status_change_ts
    what = plain(view.table or view.task_type)
    return Text.assemble(
        (what, "bold"), "  ", status_text(view.status), Text(f" since {_full(since)}" if since else "", "dim")
    )


def _counts_line(view: TaskRecord) -> list[Text]:
    if view.files_planned is None and not view.files_deleted:
        return []
    of = "?" if view.files_planned is None else f"{view.files_planned:,}"
    return [Text(f"{view.files_deleted:,} of {of} files deleted, {size_text(view.bytes_deleted)}")]


def _rows(view: TaskRecord, fields: Mapping[str, Any], names: Iterable[str]) -> Iterator[tuple[str, Text]]:
    for name in names:
        value = getattr(view, name, fields.get(name))
        if value in (None, "", [], {}, (), False) or (value == 0 and name != "attempt_count"):
            continue
        if name == "result_extended" and value == view.result_summary:
            continue
        yield name, _SHOWN.get(name, _value)(value, fields.get(name))


def _segments(value: object, _as_json: object) -> Text:
    """Return a line for each segment of a plan: its place, and its index's hash as far as it is compared by eye."""
    match value:
        case [*segments]:
            lines = [f"{one.id} (SHA-256 {one.sha256[:12]}…)" for one in segments if isinstance(one, PublishedSegment)]
            return Text("\n".join(map(plain, lines)))
        case _:
            return Text("")


def _dotted(names: Iterable[str]) -> str:
    """Return a name as commands take it: a part with a dot is between backquotes."""
    return ".".join(f"`{name}`" if "." in name else name for name in names)


def _identifier(value: object, as_json: object) -> Text:
    """Return the dotted name of a JSON array of names."""
    try:
        names = json.loads(str(value))
    except ValueError:
        return _value(value, as_json)
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        return _value(value, as_json)
    return Text(plain(_dotted(names)))


_SHOWN: Final[Mapping[str, Callable[[object, object], Text]]] = {
    "plan_segments": _segments,
    "purged_identifier": _identifier,
}


def _value(value: object, as_json: object) -> Text:
    match value:
        case datetime():
            return Text(_full(value))
        case Asker():
            return Text(asker_text(value))
        case str():
            return Text("\n".join(map(plain, value.splitlines())))
        case True:
            return Text("yes")
        case int():
            return Text(f"{value:,}")
        case _:
            return Text(json.dumps(as_json, ensure_ascii=False))


def why_screen(why: Why) -> RenderableType:
    """Return the explanation of a task, a line for each question."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    rows = {
        "status": why.status,
        "attempt": why.attempt,
        "holder": why.holder,
        "progress": why.progress,
        "last error": why.last_error,
        "next": why.next,
        "do": why.advice,
    }
    for name, value in rows.items():
        if value:
            style = "bold" if name == "next" else "yellow" if name == "do" else ""
            grid.add_row(Text(name, style="dim"), Text(value, style=style))
    return Group(Text(why.what, "bold"), Text(why.task_id, "dim"), grid)


def history_table(versions: Sequence[TaskRecord], width: int = _WIDE) -> Table:
    """Return a table of a task's versions: when each began, how long it lasted, its attempt, files and outcome.

    The outcome is a column of its own where the terminal is wide, and else a line below.
    """
    wide = width >= _WIDE
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("version", justify="right")
    time_format = time_format_of(versions)
    since_width = len(time_format.replace("%m-%d", "00-00").replace("%H:%M:%S", "00:00:00"))
    layout = "{:<19}  {:<" + str(since_width) + "}  {:>10}  {:>7}"
    if wide:
        table.add_column(layout.format("status", "since", "lasted", "attempt"), no_wrap=True)
        table.add_column("files", no_wrap=True)
        table.add_column("note", overflow="fold")
    else:
        table.add_column(layout.format("status", "since", "lasted", "attempt") + "  files", overflow="fold")
    for view, after in zip(versions, [*versions[1:], None], strict=True):
        line = Text(layout.format(*_version_cells(view, after, time_format)))
        line.stylize(STYLES.get(view.status, ""), 0, len(view.status))
        note = Text(outcome_text(view), "dim")
        if wide:
            table.add_row(str(view.version), line, files_of(view), note)
        else:
            line.append("  " + files_of(view) if files_of(view) else "")
            table.add_row(str(view.version), Text.assemble(line, "\n", note) if note else line)
    return table


def _version_cells(view: TaskRecord, after: TaskRecord | None, time_format: str) -> tuple[str, str, str, str]:
    since, until = view.last_status_change_ts, after.last_status_change_ts if after else None
    lasted = duration_text((until - since).total_seconds()) if since and until else ""
    return view.status, _moment(since, time_format), lasted, str(view.attempt_count)


def time_format_of(views: Sequence[TaskRecord]) -> str:
    """Return a format with the date only if the tasks changed on several days, so that rows fit on 80 columns."""
    days = {view.last_status_change_ts.astimezone().date() for view in views if view.last_status_change_ts}
    return "%H:%M:%S" if len(days) == 1 else "%m-%d %H:%M:%S"


def files_of(view: TaskRecord) -> str:
    """Return deleted and planned files, empty for a task without any."""
    if view.files_planned is None and not view.files_deleted:
        return ""
    return f"{view.files_deleted:,}/{'?' if view.files_planned is None else f'{view.files_planned:,}'}"


def _moment(moment: datetime | None, time_format: str) -> str:
    return moment.astimezone().strftime(time_format) if moment else ""


def _full(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S %Z}"
