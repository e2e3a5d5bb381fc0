"""How paths are spelled: what could lead out of the catalog's base is refused, and equal paths get one form.

Servers and proxies disagree about dot segments, empty segments, backslashes, parameters of segments, and how often a
path is decoded (RFC 3986, Sections 3.3, 5.2.4 and 6.2.2). Nothing of the catalog's API needs any of them.
"""

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
    """Raise UnsafePath unless every server reads the path as segments below the base, and as the same ones."""
    if _PLAIN.fullmatch(path) is None:
        _check_path(path)
    if _QUERY.fullmatch(query) is None:
        raise UnsafePath(_NO_REQUEST_LINE)


def canonical_path(path: str) -> str:
    """Return a path that was checked such that all spellings of its segments are equal."""
    return path if _PLAIN.fullmatch(path) is not None else _respelled(path)


def _check_path(path: str) -> None:
    """Check a path of any form; `_PLAIN` has only such as pass and are canonical, and spares most requests this."""
    if _RAW.fullmatch(path) is None or "#" in path or "?" in path:
        raise UnsafePath(_NO_REQUEST_LINE)
    if ";" in path:
        raise UnsafePath("a parameter of a segment (;)")
    for segment in path.split("/"):
        _check(segment.encode("ascii"), UnsafePath)


def _respelled(path: str) -> str:
    return "/".join(encoded(unquote_to_bytes(segment)) for segment in path.split("/"))


def segment_of(name: str, separator: str | None = None) -> str:
    """Return a name of a body as one segment of a path; raises UnsafeName.

    A level of a namespace contains no `separator`, by which the levels are joined.
    """
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
