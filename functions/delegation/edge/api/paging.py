"""Pages of a list: a size, and an opaque token that continues where the last page ended."""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from delegation.edge.errors import BadRequest
from delegation.wire.responses import render_json

TOKEN: Final = "page_token"  # noqa: S105 - the name of a parameter
SIZE: Final = "page_size"
MOST_BYTES: Final = 2 * 1024 * 1024
"""Bytes of a page's records: its body, escaped, has to fit a Lambda's answer of 6 MB (AWS Lambda guide, "Quotas")."""
_LONGEST_TOKEN: Final = 2048
_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Page:
    """A wanted page: at most `size` entries after the position `after` (None: from the start) of the list `of`."""

    of: str
    size: int
    after: str | None

    def token(self, last: str) -> str:
        """Return the token of the page that follows the entry at the position `last`."""
        document = json.dumps([self.of, last], ensure_ascii=False, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(document).decode().rstrip("=")


def read(event: Mapping[str, Any], *, of: str, largest: int) -> Page:
    """Return the page that a request's query asks for; raises BadRequest, also for a token of another list."""
    query = event.get("queryStringParameters") or {}
    return Page(of, _size(query.get(SIZE), largest), _position(query.get(TOKEN), of))


class Room:
    """The bytes that a page has left; its first record has room whatever its size."""

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
        found = json.loads(raw)
    except (binascii.Error, ValueError, RecursionError):
        found = None
    match found:
        case [str(listed), str(last)] if listed == of:
            return last
    raise foreign_token()


def number_after(page: Page) -> int:
    """Return the number after which a page begins; raises BadRequest for a position that is no number."""
    if page.after is None:
        return 0
    if not _NUMBER.fullmatch(page.after):
        raise foreign_token()
    return int(page.after)


def foreign_token() -> BadRequest:
    return BadRequest(f"query {TOKEN}", "must be the next_page_token of the same list with the same filters")
