"""How tasks are shown: lists that fit 80 columns and use 160, a task's fields in groups, its versions."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from delegation.cli.screens import (
    GAP,
    STYLES,
    LabelledLines,
    Rows,
    WrappedText,
    asker_text,
    duration_text,
    full_text,
    longest_line,
    outcome_text,
    plain,
    size_text,
    status_text,
    summary_text,
    unbroken,
)
from delegation.cli.tasks.source import TaskPage
from delegation.cli.tasks.why import Why
from delegation.timestamps import utc_now
from delegation.wire.tasks import Asker, PublishedSegment, ShownApproval, TaskRecord
from delegation.wiring.types import TYPES

USUAL: Final = next(iter(TYPES))
"""The most common task type; lists omit it."""
_WIDE: Final = 140
"""From this many columns on a task has one line; below it has two."""
_ID: Final = 36
_STATUS: Final = len("ACQUIRING_RESOURCES")
_OTHERS: Final = GAP + _STATUS + GAP + len("1,200,000/1,200,000")
_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Task": (
        *("task_id", "task_type", "policy", "correlation_id", "parent_id", "children"),
        *("requested_by", "cancelled_by", "synchronous"),
    ),
    "Status": (
        *("version", "revision", "cancel_requested", "error_code", "result_summary", "partly_deleted"),
        *("waits", "waiting_plan", "approval"),
    ),
    "Attempt": (
        *("attempt_count", "attempts_excused", "throttled_count", "starts_refused", "dispatch_count"),
        *("engine", "job_run_id", "lease_owner", "plan_segments"),
    ),
    "Progress": ("files_per_second", "progress", "files_failed", "files_absent", "files_kept", "findings"),
    "Times": (
        *("received_timestamp", "created_ts", "next_scheduled_run_ts", "lease_acquired_ts", "lost_not_before"),
        *("recheck_not_before", "first_delete_ts", "progress_ts", "eta_ts", "recurrence_seconds", "recurrence_cron"),
    ),
    "Result": (
        *("purged_identifier", "purged_metadata_location", "result_location"),
        *("pending_result", "details", "result_extended"),
    ),
}
_DRAWN: Final = frozenset(
    {"status", "last_status_change_ts", "files_planned", "files_deleted", "bytes_deleted", "task_payload", "outlook"}
)
"""Fields that are part of a line of their own, or are made from others."""


def task_list(page: TaskPage, width: int) -> RenderableType:
    """Return the tasks of a page: two lines each, or one if the terminal is wide."""
    time_format = "%m-%d %H:%M:%S"  # a list of one day may not be today's
    narrow = Group(*_narrow_lines(page, width, time_format))
    if width < _WIDE:
        return narrow
    names = ("task", "status", "changed", "attempt", "files", "table", "note")
    table = Rows(*names, right={"attempt", "files"}, otherwise=narrow)
    for view in page.tasks:
        table.add(
            view.task_id,
            status_text(view.status),
            _moment(view.last_status_change_ts, time_format),
            str(view.attempt_count),
            files_of(view),
            _subject(view, known=page.is_known(view)),
            _note(view),
        )
    for record in page.unreadable:
        table.add(Text(record.task_id, "dim"), "unreadable", "", "", "", "", Text(record.reason, "yellow"))
    return table


def _narrow_lines(page: TaskPage, width: int, time_format: str) -> Iterator[RenderableType]:
    """Yield two lines for each task; a name or a note that is longer than its column has a line of its own."""
    subjects = [_subject(view, known=page.is_known(view)) for view in page.tasks]
    first = max(_ID, min(max(map(longest_line, subjects), default=0), width - _OTHERS))
    room = width - first - _STATUS - 2 * GAP

    def line(subject_text: Text, status: Text, last: Text) -> Text:
        cells = ((subject_text, first), (status, _STATUS))
        padded = [Text.assemble(cell, " " * (size - cell.cell_len + GAP)) for cell, size in cells]
        made = Text.assemble(*padded, last)
        made.rstrip()
        return unbroken(made)

    yield line(Text("table, task", "bold"), Text("status, since", "bold"), Text("files, note", "bold"))
    for view, subject in zip(page.tasks, subjects, strict=True):
        status, since = status_text(view.status), Text(_moment(view.last_status_change_ts, time_format), "dim")
        files, note, task_id = Text(files_of(view)), _note(view), Text(view.task_id, "dim")
        beside = note if note.cell_len <= room else Text()
        if subject.cell_len <= first:
            yield line(subject, status, files)
            yield line(task_id, since, beside)
        else:
            yield WrappedText(subject)
            yield line(task_id, status, files)
            yield line(Text(), since, beside)
        if beside is not note:
            yield unbroken(Text.assemble("  ", note))
    for record in page.unreadable:
        yield line(Text(record.task_id, "dim"), Text("unreadable"), Text())
        yield unbroken(Text.assemble("  ", (record.reason, "yellow")))


def _subject(view: TaskRecord, *, known: bool) -> Text:
    if not known:
        return Text(f"{view.task_type} (unknown behavior)", style="yellow")
    shown_type = None if view.task_type == USUAL and view.table else view.task_type
    return Text(plain(" ".join(part for part in (view.shown_table, shown_type) if part)))


def _note(view: TaskRecord) -> Text:
    if view.cancel_requested and not view.is_terminal:
        return Text("cancelling", "yellow")
    if view.error_code and not view.succeeded:
        # A table that is not whole needs its owner, whatever the code.
        note = f"{view.error_code}, table incomplete" if view.partly_deleted else view.error_code
        return Text(note, "red" if view.is_terminal else "yellow")
    if view.waiting_plan is not None and view.succeeded:
        return Text("approved" if view.is_approved(utc_now()) else f"waits for approval ({plain(view.waits)})")
    return Text("")


def task_screen(view: TaskRecord) -> RenderableType:
    fields = view.model_dump(mode="json")
    rest = [name for name in fields if name not in _DRAWN and not any(name in names for names in _GROUPS.values())]
    parts: list[RenderableType] = [WrappedText(_headline(view)), *_counts_line(view)]
    asked = [("properties", Text("\n".join(plain(f"{name} = {value}") for name, value in view.properties.items())))]
    for title, names in {**_GROUPS, "Other": tuple(rest)}.items():
        rows = list(_rows(view, fields, names)) + (asked if title == "Task" and view.properties else [])
        if rows:
            parts += [Text(title, style="bold"), LabelledLines(rows, indent=2, label_width=_LABEL)]
    return Group(*parts)


_LABEL: Final = max(len(name) for names in _GROUPS.values() for name in names)


def _headline(view: TaskRecord) -> Text:
    since = view.last_status_change_ts
    what = plain(view.shown_table or view.task_type)
    return Text.assemble(
        (what, "bold"), "  ", status_text(view.status), Text(f" since {full_text(since)}" if since else "", "dim")
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
    """Return a line for each segment of a plan: its place, and as much of its index's hash as people compare."""
    match value:
        case PublishedSegment():
            return _segments([value], None)
        case [*segments]:
            lines = [
                f"{segment.id} (SHA-256 {segment.sha256[:12]}…)"
                for segment in segments
                if isinstance(segment, PublishedSegment)
            ]
            return Text("\n".join(map(plain, lines)))
        case _:
            return Text("")


def _dotted(names: Iterable[str]) -> str:
    return ".".join(f"`{name}`" if "." in name else name for name in names)


def _identifier(value: object, as_json: object) -> Text:
    try:
        names = json.loads(str(value))
    except ValueError:
        return _value(value, as_json)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return _value(value, as_json)
    return Text(plain(_dotted(names)))


def _approval(value: object, _as_json: object) -> Text:
    if not isinstance(value, ShownApproval):
        return Text("")
    plan = f"of {value.plan} (SHA-256 {value.sha256[:12]}…)"
    times = f"by {asker_text(value.by)} at {full_text(value.at)}, until {full_text(value.until)}"
    return Text("\n".join(map(plain, (plan, times, *(f"including {identifier}" for identifier in value.including)))))


def _summary(value: object, _as_json: object) -> Text:
    return Text(summary_text(str(value)))


_SHOWN: Final[Mapping[str, Callable[[object, object], Text]]] = {
    "plan_segments": _segments,
    "waiting_plan": _segments,
    "approval": _approval,
    "purged_identifier": _identifier,
    "result_summary": _summary,
}


def _value(value: object, as_json: object) -> Text:
    match value:
        case datetime():
            return Text(full_text(value))
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
    rows = {
        "status": why.status,
        "attempt": why.attempt,
        "holder": why.holder,
        "progress": why.progress,
        "last error": why.last_error,
        "next": why.next,
        "do": why.advice,
    }
    styles = {"next": "bold", "do": "yellow"}
    fields = LabelledLines((name, Text(value, styles.get(name, ""))) for name, value in rows.items() if value)
    return Group(WrappedText(Text(why.what, "bold")), Text(why.task_id, "dim"), fields)


def history_table(versions: Sequence[TaskRecord], width: int = _WIDE) -> RenderableType:
    """Return a task's versions; the outcome is a column if the terminal is wide, else a line below."""
    time_format = time_format_of(versions)
    narrow = Group(*_narrow_history(versions, time_format))
    if width < _WIDE:
        return narrow
    names = ("version", "status", "since", "lasted", "attempt", "files", "note")
    table = Rows(*names, right={"version", "lasted", "attempt"}, otherwise=narrow)
    for view, after in zip(versions, [*versions[1:], None], strict=True):
        _, since, lasted, attempt = _version_cells(view, after, time_format)
        note = Text(outcome_text(view), "dim")
        table.add(str(view.version), status_text(view.status), since, lasted, attempt, files_of(view), note)
    return table


def _narrow_history(versions: Sequence[TaskRecord], time_format: str) -> Iterator[RenderableType]:
    since_width = len(time_format.replace("%m-%d", "00-00").replace("%H:%M:%S", "00:00:00"))
    layout = "{:>7}  {:<19}  {:<" + str(since_width) + "}  {:>10}  {:>7}  {}"
    yield unbroken(Text(layout.format("version", "status", "since", "lasted", "attempt", "files"), "bold"))
    for view, after in zip(versions, [*versions[1:], None], strict=True):
        cells = layout.format(view.version, *_version_cells(view, after, time_format), files_of(view))
        line = Text(cells.rstrip())
        line.stylize(STYLES.get(view.status, ""), 9, 9 + len(view.status))
        yield unbroken(line)
        if note := outcome_text(view):
            yield WrappedText(Text(note, "dim"), indent=9)


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


_OMITTED: Final = frozenset({"format", "request"})
"""Members of which a person needs only the number; `--json` has them."""
_NOTHING: Final[tuple[object, ...]] = (None, "", [], {})

_EXPLAINED: Final = {
    "files_deleted_without_condition": (
        " (the store has no conditional delete, so each file was checked just before its delete)"
    )
}


def receipt_screen(document: Mapping[str, Any]) -> RenderableType:
    return LabelledLines(_receipt_rows(document))


def _receipt_rows(document: Mapping[str, Any]) -> Iterator[tuple[str, str | Text]]:
    for name, value in document.items():
        if name not in _OMITTED and value not in _NOTHING:
            yield name, Text(_receipt_value(name, value), "bold" if name == "status" else "")
    # Only a removal of orphan files lists, and where versions are kept it frees nothing.
    if "files_listed" in document and document.get("files_deleted") and document.get("bytes_freed") is None:
        yield "restore", f"delegation orphans restore {plain(document['task_id'])}"


def _receipt_value(name: str, value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int() if name.startswith("bytes"):
            return f"{size_text(value)} ({value:,})"
        case int():
            return f"{value:,}{_EXPLAINED.get(name, '')}"
        case list():
            return "\n".join(_receipt_value("", item) for item in value)
        case {"catalog": str(catalog), "namespace": [*levels], "name": str(own)}:
            return plain(".".join([catalog, *map(str, levels), own]))
        case {**members}:
            return ", ".join(
                f"{plain(str(key))} {_receipt_value(str(key), member)}"
                for key, member in members.items()
                if member not in _NOTHING
            )
        case str():
            return plain(value)
        case _:
            return json.dumps(value)
