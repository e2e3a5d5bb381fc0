"""Selects tasks for a command: filters, and the order of a list."""

import json
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from delegation.wire.tasks import TaskRecord


class StatusName(StrEnum):
    """The statuses of the Delegation Service proposal, Persistence."""

    SUBMITTED = "SUBMITTED"
    ACQUIRING_RESOURCES = "ACQUIRING_RESOURCES"
    RUNNING = "RUNNING"
    RETRY_SCHEDULED = "RETRY_SCHEDULED"
    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"


class Order(StrEnum):
    RECEIVED = "received"
    CHANGED = "changed"
    STATUS = "status"
    TABLE = "table"


COLUMN_NAMES: Final = (
    *("id", "status", "type", "table", "received", "changed"),
    *("attempt", "engine", "files", "bytes", "error", "correlation-id"),
)
"""The columns of `delegation.cli.tasks.source`, which `--help` does not load."""
ENDED: Final = frozenset({StatusName.SUCCESS, StatusName.FAILURE})
EVERY: Final = frozenset(StatusName)
OPEN: Final = EVERY - ENDED

FILTERS: Final[Mapping[str, Any]] = {
    "status": Annotated[
        list[StatusName] | None, typer.Option("--status", help="Only tasks with this status; may be repeated.")
    ],
    "task_type": Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            show_default=False,
            help="Only this task type, or purge, drop, expire, scan, compact or rewrite-manifests; may be repeated.",
        ),
    ],
    "table": Annotated[
        str | None,
        typer.Option(
            "--table",
            metavar="CATALOG.NAMESPACE.TABLE",
            show_default=False,
            help="Only tasks of this Iceberg table.",
        ),
    ],
    "since": Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME|DURATION",
            show_default=False,
            help="Only tasks received since a time (2026-11-20, 2026-11-20T12:00:00Z) or in the last 2h, 7d.",
        ),
    ],
    "correlation_id": Annotated[
        str | None,
        typer.Option("--correlation-id", show_default=False, help="Only tasks with the caller's correlation id."),
    ],
}
"""The options that select tasks, by the names of their values in `filter_of`."""


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Selects tasks for which every condition holds; of several statuses or types any one suffices."""

    statuses: frozenset[str] = EVERY
    task_types: frozenset[str] = frozenset()
    table: str | None = None
    since: datetime | None = None
    correlation_id: str | None = None

    def matches(self, task: "TaskRecord") -> bool:
        return (
            # An unknown status of a later release must not hide a task from a list of all.
            (task.status in self.statuses or self.statuses == EVERY)
            and (not self.task_types or task.task_type in self.task_types)
            and (self.table is None or task.table == self.table)
            and (self.since is None or (task.received_timestamp or datetime.min.replace(tzinfo=UTC)) >= self.since)
            and (self.correlation_id is None or correlation_of(task) == self.correlation_id)
        )


def filter_of(given: Mapping[str, Any], among: AbstractSet[StatusName] = EVERY) -> TaskFilter:
    """Return the filter of the values of FILTERS, among tasks of these statuses. Raises BadParameter."""
    table, since = given.get("table"), given.get("since")
    return TaskFilter(
        statuses=frozenset(given.get("status") or EVERY) & among,
        task_types=frozenset(map(_type_of, given.get("task_type") or ())),
        table=None if table is None else table.replace("`", ""),
        since=None if since is None else parse_since(since, datetime.now(UTC)),
        correlation_id=given.get("correlation_id"),
    )


def _type_of(name: str) -> str:
    """Return the task type that a command of this name submits, otherwise the name."""
    from delegation.wiring.types import OPERATIONS  # noqa: PLC0415 - `--help` needs no task type

    return next((operation.work.name for operation in OPERATIONS if operation.command == name), name)


def parse_since(text: str, now: datetime) -> datetime:
    """Return a time from RFC 3339 text, from a date, or from a duration before now. Raises BadParameter."""
    from delegation.timestamps import parse_duration  # noqa: PLC0415 - `--help` needs no pydantic

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now - parse_duration(text)
        except ValueError:
            message = f"{text!r} is neither a time such as 2026-11-20T12:00:00Z nor a duration such as 2h or 7d"
            raise typer.BadParameter(message, param_hint="--since") from None
    return (moment if moment.tzinfo else moment.astimezone()).astimezone(UTC)


def correlation_of(task: "TaskRecord") -> str | None:
    try:
        payload: object = json.loads(task.task_payload)
    except ValueError:
        return None
    match payload:
        case {"common_payload": {"polaris_correlation_id": str(correlation_id)}}:
            return correlation_id
        case _:
            return None


_OLDEST: Final = datetime.min.replace(tzinfo=UTC)
_SORTED: Final[Mapping[Order, "tuple[Callable[[TaskRecord], Any], bool]"]] = {
    Order.RECEIVED: (lambda task: task.received_timestamp or _OLDEST, True),
    Order.CHANGED: (lambda task: task.last_status_change_ts or _OLDEST, True),
    Order.STATUS: (lambda task: _place(task.status), False),
    Order.TABLE: (lambda task: task.table or task.task_type, False),
}


def in_order(tasks: "Iterable[TaskRecord]", order: Order) -> "list[TaskRecord]":
    """Return tasks newest first, or by status in the order of a task's life, or by table; then newest first."""
    key, is_reversed = _SORTED[order]
    newest = sorted(tasks, key=lambda task: task.received_timestamp or _OLDEST, reverse=True)
    return sorted(newest, key=key, reverse=is_reversed)


def _place(status: str) -> int:
    names = list(StatusName)
    return names.index(StatusName(status)) if status in names else len(names)
