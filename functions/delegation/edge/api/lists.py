"""`GET /v1/tasks`: the tasks of the deployment, the newest received first."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from delegation.edge.api import paging
from delegation.edge.api.callers import admitted
from delegation.edge.api.endpoints import LIST
from delegation.edge.api.routes import Dependencies, Event, Served
from delegation.edge.errors import BadRequest
from delegation.edge.outlook import outlook_of
from delegation.edge.telemetry import Telemetry
from delegation.tasks.life.model import Status, label_key
from delegation.tasks.life.task_type import TaskTypes
from delegation.tasks.stores.base import Received, ReceivedPage, Unreadable, is_position
from delegation.tasks.work.parts.reads import Selection, page_of
from delegation.wire.responses import render_json
from delegation.wire.tasks import shown

STATUS: Final = "status"
TYPE: Final = "type"
TABLE: Final = "table"
SINCE: Final = "since"
CORRELATION_ID: Final = "correlation_id"
_LARGEST_PAGE: Final = 100
_LONGEST: Final[Mapping[str, int]] = {TYPE: 256, TABLE: 4096, CORRELATION_ID: 1024}
_CLOCKS_DIFFER: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Lists:
    """Lists of tasks; the DelegationErrors that it raises are answered by `problems`."""

    deps: Dependencies
    telemetry: Telemetry

    def tasks(self, event: Event) -> Served:
        """Return a page of tasks; BadRequest names a filter that is not valid."""
        admitted(event, LIST)
        query = event.get("queryStringParameters") or {}
        selection = selected(query, self.deps.clock())
        page = paging.read(event, of=_list_of(query), largest=_LARGEST_PAGE)
        if page.after is not None and not is_position(page.after):
            raise paging.foreign_token()
        found = page_of(self.deps.tasks.reads, selection, before=page.after, size=page.size)
        body = _body(found, self.deps.clock(), self.deps.types)
        cursor = body.pop("cursor")
        self.telemetry.served(LIST.operation, 200)
        return Served(200, render_json({**body, "next_page_token": cursor and page.token(cursor)}), {})


def selected(query: Mapping[str, str], now: datetime) -> Selection:
    """Return the tasks that the filters of a query ask for; raises BadRequest."""
    which = Received(
        until=now + _CLOCKS_DIFFER,
        since=_since(query.get(SINCE)),
        target=_text(query, TABLE),
        correlation_id=_text(query, CORRELATION_ID),
    )
    return Selection(which, _statuses(query.get(STATUS)), _text(query, TYPE))


def _statuses(text: str | None) -> frozenset[Status]:
    if text is None:
        return frozenset()
    words = text.split(",")
    if not set(words) <= set(Status):
        raise BadRequest(f"query {STATUS}", f"must be one or more of {', '.join(Status)}, separated by commas")
    return frozenset(map(Status, words))


def _since(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.upper())
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    expected = "must be a time with an offset from UTC, such as 2026-11-22T08:00:00Z; a + is written %2B"
    raise BadRequest(f"query {SINCE}", expected)


def _text(query: Mapping[str, str], name: str) -> str | None:
    """Return a member, or None if the answer has none or several of the name."""
    text = query.get(name)
    if text is not None and not 1 <= len(text) <= _LONGEST[name]:
        raise BadRequest(f"query {name}", f"must have 1 to {_LONGEST[name]} characters")
    return text


def _list_of(query: Mapping[str, str]) -> str:
    """Return the name of the list with these filters, for its page tokens."""
    filters = [query.get(name) for name in (STATUS, TYPE, TABLE, SINCE, CORRELATION_ID)]
    return f"tasks {label_key(json.dumps(filters))}"


def _body(page: ReceivedPage, now: datetime, types: TaskTypes) -> dict[str, Any]:
    """Return the page's tasks and those that cannot be read, as far as there is room, and the cursor that follows."""
    tasks: list[dict[str, Any]] = []
    unreadable: list[dict[str, str]] = []
    cursor, room, last = page.cursor, paging.Room(), None
    for place, entry in page.entries:
        if isinstance(entry, Unreadable):
            unreadable.append({"task_id": entry.task_id, "reason": entry.reason})
        else:
            record = shown({**entry.public(), "outlook": outlook_of(entry, now, types)})
            if not room.has_room_for(record):
                cursor = last
                break
            tasks.append(record)
        last = place
    return {"tasks": tasks, "unreadable": unreadable, "cursor": cursor}
