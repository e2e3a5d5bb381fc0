"""Pages of a list: a size, and an opaque token that continues where the last page ended."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from delegation.edge.errors import BadRequest

TOKEN: Final = "page_token"  # noqa: S105 - the name of a parameter
SIZE: Final = "page_size"
_LONGEST_TOKEN: Final = 2048


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


def _size(text: str | None, largest: int) -> int:
    if text is None:
        return largest
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= largest:
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


def foreign_token() -> BadRequest:
    """Return the refusal of a token that this list did not have."""
    return BadRequest(f"query {TOKEN}", "must be the next_page_token of the same list with the same filters")
