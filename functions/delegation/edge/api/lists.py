"""`GET /v1/tasks`: the tasks of the deployment, newest received first; and pages of any list."""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from delegation.edge.answers import ApiResponse
from delegation.edge.api.endpoints import LIST, admitted
from delegation.edge.api.routes import Dependencies, Event, served
from delegation.edge.errors import BadRequest
from delegation.edge.outlook import outlook_of
from delegation.tasks.life.declared import TaskTypes
from delegation.tasks.life.model import Status, label_key
from delegation.tasks.stores.base import Received, ReceivedPage, Unreadable, is_position
from delegation.tasks.work.reads import Selection, page_of
from delegation.wire.responses import render_json
from delegation.wire.tasks import shown

TOKEN: Final = "page_token"  # noqa: S105 - the name of a parameter
SIZE: Final = "page_size"
MOST_BYTES: Final = 2 * 1024 * 1024
"""Bytes of a page's records: its body, escaped, has to fit a Lambda's answer of 6 MB (AWS Lambda guide, "Quotas")."""
_LONGEST_TOKEN: Final = 2048
_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Page:
    """A requested page: at most `size` entries after the position `after` (None: from the start) of the list `of`."""

    of: str
    size: int
    after: str | None

    def token(self, last: str) -> str:
        """Return the token of the page that follows the entry at the position `last`."""
        document = json.dumps([self.of, last], ensure_ascii=False, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(document).decode().rstrip("=")


def read(event: Mapping[str, Any], *, of: str, largest: int) -> Page:
    """Return the page that a query requests. Raises BadRequest, also for a token of another list."""
    query = event.get("queryStringParameters") or {}
    return Page(of, _size(query.get(SIZE), largest), _position(query.get(TOKEN), of))


class PageBudget:
    """The bytes that a page has left; its first record fits at any size."""

    def __init__(self) -> None:
        self._left: int | None = None

    def has_room_for(self, record: Mapping[str, Any]) -> bool:
        size = len(render_json(record))
        if self._left is not None and size > self._left:
            return False
        self._left = (MOST_BYTES if self._left is None else self._left) - size
        return True


def _size(text: str | None, largest: int) -> int:
    if text is None:
        return largest
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= largest:
        raise BadRequest(f"query {SIZE}", f"must be a number from 1 to {largest}")
    return int(text)


def _position(token: str | None, of: str) -> str | None:
    if not token:
        return None
    try:
        raw = base64.urlsafe_b64decode(token[:_LONGEST_TOKEN] + "=" * (-len(token) % 4))
        content = json.loads(raw)
    except (binascii.Error, ValueError, RecursionError):
        content = None
    match content:
        case [str(listed), str(last)] if listed == of:
            return last
    raise foreign_token()


def number_after(page: Page) -> int:
    """Return the number after which a page starts. Raises BadRequest for a position that is no number."""
    if page.after is None:
        return 0
    if not _NUMBER.fullmatch(page.after):
        raise foreign_token()
    return int(page.after)


def foreign_token() -> BadRequest:
    return BadRequest(f"query {TOKEN}", "must be the next_page_token of the same list with the same filters")


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

    def tasks(self, event: Event) -> ApiResponse:
        """Return a page of tasks. BadRequest names an invalid filter."""
        admitted(event, LIST)
        query = event.get("queryStringParameters") or {}
        selection = selected(query, self.deps.clock())
        page = read(event, of=_list_of(query), largest=_LARGEST_PAGE)
        if page.after is not None and not is_position(page.after):
            raise foreign_token()
        received = page_of(self.deps.tasks.reads, selection, before=page.after, size=page.size)
        body = _body(received, self.deps.clock(), self.deps.types)
        cursor = body.pop("cursor")
        return served({**body, "next_page_token": cursor and page.token(cursor)})


def selected(query: Mapping[str, str], now: datetime) -> Selection:
    """Return the selection by the filters of a query. Raises BadRequest."""
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
    text = query.get(name)
    if text is not None and not 1 <= len(text) <= _LONGEST[name]:
        raise BadRequest(f"query {name}", f"must have 1 to {_LONGEST[name]} characters")
    return text


def _list_of(query: Mapping[str, str]) -> str:
    """Return the name of the list with these filters, for its page tokens."""
    filters = [query.get(name) for name in (STATUS, TYPE, TABLE, SINCE, CORRELATION_ID)]
    return f"tasks {label_key(json.dumps(filters))}"


def _body(page: ReceivedPage, now: datetime, types: TaskTypes) -> dict[str, Any]:
    """Return the page's tasks and the unreadable ones, as far as there is room, and the cursor that follows."""
    tasks: list[dict[str, Any]] = []
    unreadable: list[dict[str, str]] = []
    cursor, room, last = page.cursor, PageBudget(), None
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
