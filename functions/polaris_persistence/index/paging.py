"""Listing in pages that all read one commit (NoSQL persistence proposal, Paging Support).

A token holds the commit's id, the last key, and a checksum over both and the listing's bounds. The next page is read
from the index of that commit, not of the current head.
"""

import base64
import binascii
import zlib
from dataclasses import dataclass
from itertools import islice
from typing import Final, Self

from polaris_persistence.backends.base import MAX_ID
from polaris_persistence.errors import CorruptIndexError, invalid_page_token
from polaris_persistence.index.index import Index
from polaris_persistence.index.keys import IndexKey, check_keys
from polaris_persistence.objects.objects import ObjectRef

_FORM: Final = 1
_SHORTEST: Final = 1 + 8 + 4


@dataclass(frozen=True, slots=True)
class Listing:
    """The bounds of a listing, as in Index.items."""

    prefix: IndexKey | None = None
    start: IndexKey | None = None
    end: IndexKey | None = None

    def checksum(self, content: bytes) -> bytes:
        """Return a checksum of `content` and this listing, against mistakes: a token grants no access."""
        for bound in (self.prefix, self.start, self.end):
            content += b"\x00" if bound is None else b"\x01" + len(bound).to_bytes(4) + bound
        return zlib.crc32(content).to_bytes(4)


@dataclass(frozen=True, slots=True)
class PageToken:
    """The position after `last` in the index of commit `commit_id`."""

    commit_id: int
    last: IndexKey

    def encode(self, listing: Listing) -> str:
        content = bytes((_FORM,)) + self.commit_id.to_bytes(8) + self.last
        return base64.urlsafe_b64encode(content + listing.checksum(content)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str, listing: Listing) -> Self:
        """Return the token of a text. Raises PersistenceError (INVALID_PAGE_TOKEN), also for another listing's."""
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise invalid_page_token("the page token is not base64. Start the listing again") from error
        content, checksum = data[:-4], data[-4:]
        if len(data) < _SHORTEST or content[0] != _FORM or listing.checksum(content) != checksum:
            raise invalid_page_token(
                "the page token was altered or belongs to another listing. Start the listing again"
            )
        commit_id = int.from_bytes(content[1:9])
        try:
            check_keys(content[9:])
        except CorruptIndexError as error:
            raise invalid_page_token("the page token holds no valid key. Start the listing again") from error
        if commit_id > MAX_ID:
            raise invalid_page_token("the page token holds no valid commit id. Start the listing again")
        return cls(commit_id, IndexKey(content[9:]))


@dataclass(frozen=True, slots=True)
class IndexPage:
    """Some entries, and the token of the next page, None at the end."""

    entries: tuple[tuple[IndexKey, ObjectRef], ...]
    next_token: str | None


def read_page(
    index: Index, commit_id: int, listing: Listing, *, limit: int, after: PageToken | None = None
) -> IndexPage:
    """Return a page of entries. Raises PersistenceError (INVALID_PAGE_TOKEN); ValueError for a limit below 1."""
    if limit < 1:
        raise ValueError(f"the limit of a page must be at least 1, not {limit}")
    start = listing.start
    if after is not None:
        if after.commit_id != commit_id:
            raise invalid_page_token("the page token belongs to another commit. Start the listing again")
        # The lowest of all keys above `last`.
        following = IndexKey(after.last + b"\x00")
        start = following if start is None else max(start, following)
    found = tuple(islice(index.items(start, listing.end, listing.prefix), limit + 1))
    if len(found) <= limit:
        return IndexPage(found, None)
    return IndexPage(found[:limit], PageToken(commit_id, found[limit - 1][0]).encode(listing))
