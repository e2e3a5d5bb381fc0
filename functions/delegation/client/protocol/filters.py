"""The filters of `GET /v1/tasks`, as arguments and as a query."""

from collections.abc import Iterable
from datetime import datetime
from typing import TypedDict

from delegation.timestamps import isoformat


class TaskFilters(TypedDict, total=False):
    """Which tasks a list has; a filter that is None or absent does not count.

    `status` is one or several, `type` a task type, `table` a table's dotted name (catalog.namespace.name). `since` is
    when a task was received at the earliest. `page_size` is for a page, from 1 to 100.
    """

    status: str | Iterable[str] | None
    type: str | None
    table: str | None
    since: datetime | None
    correlation_id: str | None
    page_size: int | None


def query_of(filters: TaskFilters) -> dict[str, str]:
    return {name: _text(value) for name, value in filters.items() if value is not None}


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return isoformat(value)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)
