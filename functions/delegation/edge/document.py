"""Parsing of request bodies as I-JSON (RFC 7493). Bodies are hashed to recognize repeats, so ambiguous JSON is refused:
duplicate members, NaN, Infinity, lone surrogates. Integers stay exact: snapshot ids exceed 2^53."""

import base64
import binascii
import json
import math
import re
from typing import Any, Final, Never

from delegation.edge.errors import InvalidJson, payload_too_large

MAX_BODY_BYTES: Final = 4_000_000
"""AWS Lambda accepts an event of 6 MB, in which the body is an escaped string: JSON can be half as long again there."""
MAX_DEPTH: Final = 128
"""Nested containers: enough for Iceberg schemas (three levels per struct), far below Python's recursion limit."""
MAX_DIGITS: Final = 400
"""Digits of an integer; parsing a longer one takes quadratic time."""

_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_LONGEST_NAME: Final = 64


class Document(dict[str, Any]):
    """A parsed body; its repr shows no member, because bodies carry vended credentials."""

    def __repr__(self) -> str:
        return f"<Document of {len(self)} members>"


def read_body(body: str | None, *, is_base64: bool = False, limit_bytes: int = MAX_BODY_BYTES) -> Document:
    """Return the JSON object in an API Gateway event's body; raises InvalidJson or EdgeError (PAYLOAD_TOO_LARGE)."""
    if body is None or not body.strip():
        raise InvalidJson("is required and must be a JSON object")
    if len(body) > (limit_bytes * 4 // 3 + 4 if is_base64 else limit_bytes):
        raise payload_too_large(limit_bytes)
    try:
        raw = base64.b64decode(body, validate=True) if is_base64 else body.encode()
        text = raw.decode()
    except binascii.Error:
        raise InvalidJson("is not valid base64") from None
    except UnicodeError:
        raise InvalidJson("is not valid UTF-8") from None
    if len(raw) > limit_bytes:
        raise payload_too_large(limit_bytes)
    return _parse(text)


def path_of(location: tuple[str | int, ...]) -> str:
    """Return a JSON path such as `a.b[0]["odd name"]`, with control characters escaped and long names shortened."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif _PLAIN_NAME.fullmatch(step):
            path += f".{step}" if path else step
        else:
            path += f"[{_quoted(step)}]"
    return path


def _parse(text: str) -> Document:
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_float=_float,
            parse_int=_integer,
            parse_constant=_constant,
        )
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        raise InvalidJson(f"is not JSON (line {error.lineno}, column {error.colno})") from None
    if not isinstance(value, dict):
        raise InvalidJson("must be a JSON object")
    _check_tree(value, surrogates=_SURROGATE.search(text) is not None)
    return Document(value)


def _check_tree(document: dict[str, Any], *, surrogates: bool) -> None:
    """Refuse nesting beyond MAX_DEPTH and, if `surrogates`, lone surrogates; iterative, as recursion could overflow."""
    pending: list[tuple[Any, tuple[str | int, ...]]] = [(document, ())]
    while pending:
        value, at = pending.pop()
        if len(at) >= MAX_DEPTH:
            raise _too_deep()
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, item in items:
            if isinstance(item, dict | list):
                pending.append((item, (*at, name)))
            if surrogates and not (_is_unicode(name) and _is_unicode(item)):
                raise InvalidJson("contains half a surrogate pair", field=path_of((*at, name)))


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(members)
    if len(made) != len(members):
        seen: set[str] = set()
        for name, _ in members:
            if name in seen:
                raise InvalidJson(f"an object has the member {_quoted(name)} twice")
            seen.add(name)
    return made


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise InvalidJson(f"contains an integer of more than {MAX_DIGITS} digits")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise InvalidJson("contains a number beyond the range of IEEE 754 doubles")
    return value


def _constant(name: str) -> Never:
    raise InvalidJson(f"contains {name}, which is not JSON")


def _is_unicode(value: object) -> bool:
    if not isinstance(value, str):
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _quoted(name: str) -> str:
    shown = name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "…"
    return json.dumps(shown, ensure_ascii=not shown.isprintable())


def _too_deep() -> InvalidJson:
    return InvalidJson(f"is nested more than {MAX_DEPTH} levels deep")
