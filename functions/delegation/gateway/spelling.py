"""How paths are spelled: paths that could leave the catalog's base are refused, equal ones get one form. Servers and
proxies disagree about dot segments, empty segments, backslashes, parameters of segments, and repeated decoding (RFC
3986, 3.3, 5.2.4, 6.2.2); the catalog's API needs none of them."""

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from delegation.gateway.errors import UnsafeName, UnsafePath
from delegation.identifiers import encoded

_RAW: Final = re.compile(r"[!-~]*")
"""Visible ASCII."""
_QUERY: Final = re.compile(r"[!-\"$-~]*")
"""The same without `#`, which ends a query."""
_SEGMENT: Final = (
    r"(?!\.{1,2}(?:/|\Z))"
    r"(?:[A-Za-z0-9_.~-]++|%(?:0[1-9A-F]|1[0-9A-F]|2[0-46-9A-C]|3[A-F]|40|5[BDE]|60|7[BCDF]|[89A-F][0-9A-F]))++"
)
"""A segment in its canonical form without `%2F`, `%5C`, `%00` and `%25`, in which no decoding finds anything else."""
_PLAIN: Final = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*+")
_NO_REQUEST_LINE: Final = "a character that a request line does not have"
_DECODED_AT_MOST: Final = 8
_PARTS: Final = re.compile(rb"/")


def check_target(path: str, query: str) -> None:
    """Raise UnsafePath unless all servers read the path as the same segments below the base."""
    if _PLAIN.fullmatch(path) is None:
        _check_path(path)
    if _QUERY.fullmatch(query) is None:
        raise UnsafePath(_NO_REQUEST_LINE)


def canonical_path(path: str) -> str:
    """Return a checked path in the form that all its spellings share."""
    return path if _PLAIN.fullmatch(path) is not None else _respelled(path)


def _check_path(path: str) -> None:
    """Check a path of any form; `_PLAIN` passes most requests without it."""
    if _RAW.fullmatch(path) is None or "#" in path or "?" in path:
        raise UnsafePath(_NO_REQUEST_LINE)
    if ";" in path:
        raise UnsafePath("a parameter of a segment (;)")
    for segment in path.split("/"):
        _check(segment.encode("ascii"), UnsafePath)


def _respelled(path: str) -> str:
    return "/".join(encoded(unquote_to_bytes(segment)) for segment in path.split("/"))


def segment_of(name: str, separator: str | None = None) -> str:
    """Return a name of a body as one path segment. Raises UnsafeName, also if a level contains `separator`."""
    if separator is not None and (separator in name or "\x1f" in name):
        raise UnsafeName("the separator of namespaces")
    try:
        _check(name.encode(), UnsafeName)
    except UnicodeEncodeError:
        raise UnsafeName("a character that is none") from None
    return encoded(name)


def _check(segment: bytes, error: "type[UnsafePath | UnsafeName]") -> None:
    """Raise the error for an empty segment, a dot segment, a backslash, or one of these encoded, however often."""
    for _ in range(_DECODED_AT_MOST):
        parts = _PARTS.split(segment)
        if b"" in parts:
            raise error("an empty segment")
        if b"." in parts or b".." in parts:
            raise error("a dot segment")
        if b"\\" in segment or b"\0" in segment:
            raise error("a backslash or a null character")
        decoded = unquote_to_bytes(segment)
        if decoded == segment:
            return
        segment = decoded
    raise error("an escape of an escape")
