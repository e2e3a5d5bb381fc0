"""How paths are spelled: what could lead out of the catalog's base is refused, and equal paths get one form.

Servers and proxies disagree about dot segments, empty segments, backslashes, parameters of segments, and how often a
path is decoded (RFC 3986, Sections 3.3, 5.2.4 and 6.2.2). Nothing of the catalog's API needs any of them.
"""

import re
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from delegation.gateway.errors import UnsafeName, UnsafePath

_RAW: Final = re.compile(r"[!-~]*")
"""Visible ASCII."""
_DECODED_AT_MOST: Final = 8
_PARTS: Final = re.compile(rb"/")


def check_target(path: str, query: str) -> None:
    """Raise UnsafePath unless every server reads the path as segments below the base, and as the same ones."""
    if not _RAW.fullmatch(path) or not _RAW.fullmatch(query) or "#" in path + query or "?" in path:
        raise UnsafePath("a character that a request line does not have")
    if ";" in path:
        raise UnsafePath("a parameter of a segment (;)")
    for segment in path.split("/"):
        _check(segment.encode("ascii"), UnsafePath)


def canonical_path(path: str) -> str:
    """Return a path that was checked such that all spellings of its segments are equal."""
    return "/".join(quote(unquote_to_bytes(segment), safe="") for segment in path.split("/"))


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
    return quote(name, safe="")


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
