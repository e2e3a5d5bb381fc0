"""Index keys: tuples of text as byte strings that sort like the tuples (NoSQL persistence proposal, Object Indexes).

Elements are UTF-8, separated by 00. A byte 00 inside an element is written 01 01 and a byte 01 is written 01 02, so the
separator is below every byte of an element: ("a", "b") < ("a\0",), ("a",) < ("a", ""). UTF-8 sorts like code points.
The keys whose elements start with those of a key follow it without a gap.
"""

from typing import Final, Self

from polaris_persistence.errors import CorruptIndexError

MAX_KEY_BYTES: Final = 8_192
"""The longest encoded key: nine levels of 500 bytes fit, even if every second byte is escaped."""

_SEPARATOR: Final = b"\x00"
_ESCAPE: Final = b"\x01"
_ESCAPED_SEPARATOR: Final = b"\x01\x01"
_ESCAPED_ESCAPE: Final = b"\x01\x02"


class IndexKey(bytes):
    """One encoded key, which compares, sorts and hashes by its bytes."""

    __slots__ = ()

    @classmethod
    def of(cls, *elements: str) -> Self:
        """Return the key of the elements. Raises ValueError for none, a lone surrogate, or more than MAX_KEY_BYTES."""
        if not elements:
            raise ValueError("a key needs at least one element")
        encoded = _SEPARATOR.join([_escaped(element) for element in elements])
        if len(encoded) > MAX_KEY_BYTES:
            raise ValueError(f"the key has {len(encoded)} bytes; at most {MAX_KEY_BYTES} are allowed")
        return cls(encoded)

    def elements(self) -> tuple[str, ...]:
        """Return the elements of the key. Raises CorruptIndexError for bytes that `of` never makes."""
        check_keys(self)
        return tuple(
            part.replace(_ESCAPED_SEPARATOR, _SEPARATOR).replace(_ESCAPED_ESCAPE, _ESCAPE).decode()
            for part in self.split(_SEPARATOR)
        )

    def below(self) -> tuple[bytes, bytes]:
        """Return the first of the keys whose elements start with those of this key, and the bytes after the last."""
        return bytes(self), bytes(self) + _ESCAPE

    def __repr__(self) -> str:
        try:
            return f"IndexKey.of{self.elements()!r}"
        except CorruptIndexError:
            return f"IndexKey({bytes(self)!r})"

    __str__ = __repr__


def check_keys(joined: bytes) -> None:
    """Check one key, or many joined by separators. Raises CorruptIndexError."""
    try:
        joined.decode()
    except UnicodeDecodeError as error:
        raise CorruptIndexError(-1, f"a key is not UTF-8 ({error.reason})") from error
    if _ESCAPE in joined:
        # A letter replaces each escape from left to right, so that the rest of one cannot form another.
        rest = joined.replace(_ESCAPED_SEPARATOR, b"x").replace(_ESCAPED_ESCAPE, b"x")
        if _ESCAPE in rest:
            raise CorruptIndexError(-1, "a key has an invalid escape")


def _escaped(element: str) -> bytes:
    raw = element.encode()
    if _SEPARATOR in raw or _ESCAPE in raw:
        return raw.replace(_ESCAPE, _ESCAPED_ESCAPE).replace(_SEPARATOR, _ESCAPED_SEPARATOR)
    return raw
