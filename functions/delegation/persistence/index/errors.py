"""What an index can fail with: bytes that are none, and page tokens that fit no listing."""

from delegation.persistence.errors import CorruptObject, PersistenceError


class CorruptIndexError(CorruptObject):
    """Bytes do not read as an index: `reason` at `offset` of the value, -1 where no single place can be named."""

    code = "CORRUPT_INDEX"

    def __init__(self, offset: int, reason: str) -> None:
        self.offset = offset
        self.reason = reason
        super().__init__(f"corrupt index at byte {offset}: {reason}" if offset >= 0 else f"corrupt index: {reason}")


class InvalidPageToken(PersistenceError):
    """A page token was altered, or belongs to another listing: start the listing again."""

    code = "INVALID_PAGE_TOKEN"
