"""The columns of a list of tasks: a table for a terminal, lines with tabs for another program."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import typer

from delegation.cli.screens.layout import Rows
from delegation.cli.screens.watching import plain
from delegation.cli.tasks.source import TaskPage
from delegation.timestamps import isoformat
from delegation.wire.tasks import TaskRecord


def _time(moment: datetime | None) -> str:
    return "" if moment is None else isoformat(moment)


def _files(view: TaskRecord) -> str:
    if view.files_planned is None and not view.files_deleted:
        return ""
    return f"{view.files_deleted}/{'?' if view.files_planned is None else view.files_planned}"


COLUMNS: Final[Mapping[str, Callable[[TaskRecord], str]]] = {
    "id": lambda view: view.task_id,
    "status": lambda view: view.status,
    "type": lambda view: view.task_type,
    "table": lambda view: view.table or "",
    "received": lambda view: _time(view.received_timestamp),
    "changed": lambda view: _time(view.last_status_change_ts),
    "attempt": lambda view: str(view.attempt_count),
    "engine": lambda view: view.engine or "",
    "files": _files,
    "bytes": lambda view: str(view.bytes_deleted),
    "error": lambda view: view.error_code or "",
    "correlation-id": lambda view: view.correlation_id or "",
}
"""The columns by name; values have no unit and no thousands separator, times are in UTC (RFC 3339)."""
DEFAULT: Final = ("id", "status", "type", "table", "changed", "attempt", "files", "error")
UNREADABLE: Final = "UNREADABLE"
"""The status that a list shows for a record that this release cannot read."""


def chosen(text: str | None) -> tuple[str, ...] | None:
    """Return the names of the columns in a text that commas separate; raises BadParameter for one that is none."""
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    wrong = [name for name in names if name not in COLUMNS]
    if wrong:
        raise typer.BadParameter(
            f"{', '.join(name or 'an empty name' for name in wrong)}: no column; there are {', '.join(COLUMNS)}",
            param_hint="--columns",
        )
    return names


def lines(page: TaskPage, names: Sequence[str] | None) -> list[str]:
    """Return a line for each task and each record that cannot be read, with a tab between columns."""
    return ["\t".join(row) for row in _rows(page, names or DEFAULT)]


def table(page: TaskPage, names: Sequence[str]) -> Rows:
    """Return the same as a table, for a terminal."""
    shown = Rows(*names)
    for row in _rows(page, names):
        shown.add(*row)
    return shown


def _rows(page: TaskPage, names: Sequence[str]) -> list[list[str]]:
    rows = [[plain(COLUMNS[name](view)) for name in names] for view in page.tasks]
    for one in page.unreadable:
        cells = {"id": one.task_id, "status": UNREADABLE, "error": one.reason}
        rows.append([plain(cells.get(name, "")) for name in names])
    return rows
