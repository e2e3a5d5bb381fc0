"""Request bodies: parsed as I-JSON (RFC 7493), and validated; no error quotes a value of the request. Bodies are hashed
to recognize repeats, so ambiguous JSON is refused: duplicate members, NaN, Infinity, lone surrogates. Integers stay
exact: snapshot ids exceed 2^53."""

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Never, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from delegation.edge.errors import BadRequest, InvalidJson, payload_too_large
from delegation.misspellings import did_you_mean
from delegation.tasks.options import RequestForm
from delegation.wire.requests import OPERATIONS

MAX_BODY_BYTES: Final = 4_000_000
"""AWS Lambda accepts an event of 6 MB. The body in it is an escaped string, which lengthens JSON by up to half."""
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
    """Return the JSON object in an API Gateway event's body. Raises InvalidJson or EdgeError (PAYLOAD_TOO_LARGE)."""
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


_MAX_ERRORS_SHOWN: Final = 20
B = TypeVar("B", bound=BaseModel)


def read_payload(
    document: Mapping[str, Any], forms: Mapping[str, RequestForm], *, identity_only: bool
) -> tuple[RequestForm, Any]:
    """Return the form of a body's operation, and the validated body. The returned options have the names of the form's
    table. `identity_only` accepts a body that only names its object, as the asynchronous endpoint does. A body without
    a valid operation is read by the first form, to find its other errors. Raises BadRequest with the JSON path of the
    first error, DelegationError for unknown options."""
    form = forms.get(_operation_of(document)) or next(iter(forms.values()))
    try:
        body = form.body.model_validate(document, context={OPERATIONS: tuple(forms)})
    except ValidationError as error:
        raise bad_request(error, form.body) from None
    places = body.missing(identity_only=identity_only)
    if places:
        raise BadRequest(places[0], "is required", others=[f"{place}: is required" for place in places[1:]])
    parameters = body.operation_parameters
    named = parameters.model_copy(update={"properties": form.options.canonical(parameters.properties)})
    return form, body.model_copy(update={"operation_parameters": named})


def read_model(document: Mapping[str, Any], model: type[B]) -> B:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise bad_request(error, model) from None


def _operation_of(document: Mapping[str, Any]) -> str:
    common = document.get("common_payload")
    operation = common.get("operation_type") if isinstance(common, Mapping) else None
    return operation if isinstance(operation, str) else ""


_REASONS: Final[Mapping[str, str]] = {
    "missing": "is required",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
    "mapping_type": "must be an object",
    "tuple_type": "must be an array",
    "string_too_short": "must not be empty",
    "string_too_long": "must not be longer than {max_length} characters",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must hold at least {min_length}",
    "too_long": "must hold at most {max_length}",
    "refused": "{reason}",
}
"""Messages by pydantic's error type; pydantic's own may quote the input."""


def bad_request(error: ValidationError, model: Any) -> BadRequest:
    """Return the first violation of a `model` as the error and the next ones as its `others`."""
    violations = [_place_and_reason(each, model) for each in error.errors(include_url=False, include_input=False)]
    (field, reason), *rest = violations
    others = [f"{place}: {why}" for place, why in rest[:_MAX_ERRORS_SHOWN]]
    return BadRequest(field, reason, others=others)


def _place_and_reason(error: ErrorDetails, model: Any) -> tuple[str, str]:
    # pydantic appends "[key]" to the location when a member's name is invalid, not its value.
    at = error["loc"]
    place = path_of(at[:-1] if at and at[-1] == "[key]" else at)
    if error["type"] == "extra_forbidden":
        return place, f"is not a member of this request; {did_you_mean(str(at[-1]), _members(model, at[:-1]))}"
    return place, _REASONS.get(error["type"], "is not valid").format(**error.get("ctx", {}))


def _members(model: Any, at: Sequence[int | str]) -> list[str]:
    for step in at:
        field = getattr(model, "model_fields", {}).get(str(step))
        model = field and field.annotation
    return [field.alias or name for name, field in getattr(model, "model_fields", {}).items()]
