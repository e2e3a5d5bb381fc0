"""Where the commands get tasks from (service or task table), changes of several, and the columns of a list."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

import typer

from delegation.cli.errors import task_stays, task_unknown
from delegation.cli.screens import Rows, plain
from delegation.cli.tasks.filters import EVERY, TaskFilter
from delegation.client.client import DelegationClient
from delegation.client.errors import Conflict, NotFound
from delegation.tasks.stores.admission import QueuePlace
from delegation.tasks.stores.base import Unreadable
from delegation.timestamps import isoformat
from delegation.wire.responses import Receipt
from delegation.wire.tasks import TaskRecord, UnreadableTask
from polaris_common.errors import DelegationError

T = TypeVar("T")
ENDED_ADVICE = "There is nothing left to cancel."
RETRY_ADVICE = "Only a FAILURE task can be retried."
_LARGEST_PAGE: Final = 100
_INCOMPLETE: Final = "INCOMPLETE"
"""The status of a receipt whose plan has files left: its task was cancelled, or files could not be deleted."""


def executed_elsewhere(task: TaskRecord, receipt: Receipt) -> str | None:
    """Return the id of another task that executed a task's plan to its end, by the receipt beside the plan."""
    return None if receipt.task_id == task.task_id or receipt.status == _INCOMPLETE else receipt.task_id


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Some of the wanted tasks; `cursor` continues the list, `known` is None if the service knows the task types."""

    tasks: Sequence[TaskRecord]
    more: bool = False
    cursor: str | None = None
    known: frozenset[str] | None = None
    unreadable: Sequence[Unreadable | UnreadableTask] = ()

    def is_known(self, task: TaskRecord) -> bool:
        """Return whether this release has the task's behavior; if not, the task belongs to a newer deployment."""
        return self.known is None or task.task_type in self.known


@dataclass(frozen=True, slots=True)
class ApiTasks:
    """The tasks of the service. Raises CommandError, and the errors of the service."""

    client: DelegationClient

    def found(self, wanted: TaskFilter, *, limit: int, cursor: str | None = None) -> TaskPage:
        """Return whole pages of the service, each no longer than the remaining number, so that no task is lost."""
        statuses = None if wanted.statuses == EVERY else sorted(wanted.statuses)
        (task_type,) = wanted.task_types if len(wanted.task_types) == 1 else (None,)
        tasks: list[TaskRecord] = []
        unreadable: list[UnreadableTask] = []
        while True:
            page = self.client.list_page(
                token=cursor,
                status=statuses,
                type=task_type,
                table=wanted.table,
                since=wanted.since,
                correlation_id=wanted.correlation_id,
                page_size=min(limit - len(tasks) - len(unreadable), _LARGEST_PAGE),
            )
            # The service filters by one type, so several are filtered here.
            tasks += [task for task in page.tasks if not wanted.task_types or task.task_type in wanted.task_types]
            unreadable += page.unreadable
            cursor = page.next_page_token
            if cursor is None or len(tasks) + len(unreadable) >= limit:
                return TaskPage(tasks, cursor is not None, cursor, unreadable=unreadable)

    def get(self, task_id: str) -> TaskRecord:
        return _answered(self.client.get, task_id)

    def waiting(self, task: TaskRecord) -> QueuePlace | None:
        """Return what a task waits for, None if it waits for no place."""
        following = None if task.outlook is None else task.outlook.next_attempt
        if following is None or not following.awaits_admission:
            return None
        try:
            place = self.client.place(task.task_id)
        except NotFound:
            return None
        return None if place.lane is None else QueuePlace(place.lane, place.place, place.reasons)

    def executed_by(self, task: TaskRecord) -> str | None:
        """Return the id of another task that executed the plan which waits with a task, by the plan's receipt."""
        if task.outlook is None or task.outlook.next_step is None:
            return None
        try:
            return executed_elsewhere(task, self.client.receipt(task.task_id))
        except NotFound:
            return None

    def versions(self, task_id: str) -> list[TaskRecord]:
        versions = _answered(lambda known: list(self.client.versions(known)), task_id)
        if not versions:
            raise task_unknown(task_id)
        return versions

    def cancel(self, task_id: str) -> TaskRecord:
        return _answered(self.client.cancel, task_id, ENDED_ADVICE)

    def retry(self, task_id: str) -> TaskRecord:
        return _answered(self.client.retry, task_id, RETRY_ADVICE)


def _answered(call: Callable[[str], T], task_id: str, advice: str = "") -> T:
    try:
        return call(task_id)
    except NotFound as error:
        raise task_unknown(task_id) from error
    except Conflict as error:
        raise task_stays(task_id, f"stays as it is: {error.message}", advice) from error


@dataclass(frozen=True, slots=True)
class Change:
    """The result of changing one task: its status afterwards, or the error."""

    task_id: str
    status: str | None = None
    error: DelegationError | None = None

    def document(self) -> Mapping[str, Any]:
        if self.error is None:
            return {"task_id": self.task_id, "status": self.status}
        code = getattr(self.error, "error_code", None) or self.error.code
        return {"task_id": self.task_id, "error_code": code, "message": str(self.error)}


def change_each(task_ids: Iterable[str], change: Callable[[str], TaskRecord]) -> Iterator[Change]:
    """Change each task; a task that cannot be changed does not stop the others."""
    for task_id in task_ids:
        try:
            yield Change(task_id, change(task_id).status)
        except DelegationError as error:
            yield Change(task_id, error=error)


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
"""The status that a list shows for an unreadable record."""


def chosen(text: str | None) -> tuple[str, ...] | None:
    """Return the columns named in a text, separated by commas. Raises BadParameter for an unknown one."""
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    wrong = [name for name in names if name not in COLUMNS]
    if wrong:
        raise typer.BadParameter(
            f"{', '.join(name or 'an empty name' for name in wrong)}: unknown column; the columns are "
            f"{', '.join(COLUMNS)}",
            param_hint="--columns",
        )
    return names


def lines(page: TaskPage, names: Sequence[str] | None) -> list[str]:
    """Return a line for each task and each unreadable record, with a tab between columns."""
    return ["\t".join(row) for row in _rows(page, names or DEFAULT)]


def table(page: TaskPage, names: Sequence[str]) -> Rows:
    shown = Rows(*names)
    for row in _rows(page, names):
        shown.add(*row)
    return shown


def _rows(page: TaskPage, names: Sequence[str]) -> list[list[str]]:
    rows = [[plain(COLUMNS[name](view)) for name in names] for view in page.tasks]
    for record in page.unreadable:
        cells = {"id": record.task_id, "status": UNREADABLE, "error": record.reason}
        rows.append([plain(cells.get(name, "")) for name in names])
    return rows
