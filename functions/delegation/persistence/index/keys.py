"""Keys of an index: tuples of text in one byte string that sorts as the tuples do (proposal, Object Indexes).

Elements stand in UTF-8, separated by 00. A byte 00 inside an element is written 01 01 and a byte 01 is written 01 02,
so the separator is lower than anything an element can hold: ("a", "b") < ("a\\0",), ("a",) < ("a", ""). UTF-8 sorts as
code points do. The keys whose elements begin with those of a key follow it without a gap.
"""

from typing import Final, Self

from delegation.persistence.errors import CorruptIndexError

MAX_KEY_BYTES: Final = 8_192
"""The longest key, encoded: nine levels of 500 bytes each fit, even where every second byte needs the escape."""

_SEPARATOR: Final = b"\x00"
_ESCAPE: Final = b"\x01"
_ESCAPED_SEPARATOR: Final = b"\x01\x01"
_ESCAPED_ESCAPE: Final = b"\x01\x02"


class IndexKey(bytes):
    """One key, encoded; it compares, sorts and hashes as its bytes do."""

    __slots__ = ()

    @classmethod
    def of(cls, *elements: str) -> Self:
        """The key of one element or more, empty ones allowed.

        Raises ValueError for no element, a lone surrogate (not UTF-8), or more than MAX_KEY_BYTES.
        """
        if not elements:
            raise ValueError("a key has at least one element")
        encoded = _SEPARATOR.join([_escaped(element) for element in elements])
        if len(encoded) > MAX_KEY_BYTES:
            raise ValueError(f"a key has at most {MAX_KEY_BYTES} bytes, this one has {len(encoded)}")
        return cls(encoded)

    def elements(self) -> tuple[str, ...]:
        """What the key was made of. Raises CorruptIndexError for bytes that `of` never makes."""
        check_keys(self)
        return tuple(
            part.replace(_ESCAPED_SEPARATOR, _SEPARATOR).replace(_ESCAPED_ESCAPE, _ESCAPE).decode()
            for part in self.split(_SEPARATOR)
        )

    def below(self) -> tuple[bytes, bytes]:
        """Where this key and all whose elements begin with its elements start, and the first bytes after them."""
        return bytes(self), bytes(self) + _ESCAPE

    def __repr__(self) -> str:
        try:
            return f"IndexKey.of{self.elements()!r}"
        except CorruptIndexError:
            return f"IndexKey({bytes(self)!r})"

    __str__ = __repr__


def check_keys(joined: bytes) -> None:
    """Check one key, or many joined by separators in one go. Raises CorruptIndexError."""
    try:
        joined.decode()
    except UnicodeDecodeError as error:
        raise CorruptIndexError(-1, f"a key is not UTF-8 ({error.reason})") from error
    if _ESCAPE in joined:
        # Replaced from left to right and by a letter, so that what is left of an escape is never taken for another.
        rest = joined.replace(_ESCAPED_SEPARATOR, b"x").replace(_ESCAPED_ESCAPE, b"x")
        if _ESCAPE in rest:
            raise CorruptIndexError(-1, "a key has an escape that stands for nothing")


def _escaped(element: str) -> bytes:
    raw = element.encode()
    if _SEPARATOR in raw or _ESCAPE in raw:
        return raw.replace(_ESCAPE, _ESCAPED_ESCAPE).replace(_SEPARATOR, _ESCAPED_SEPARATOR)
    return raw
