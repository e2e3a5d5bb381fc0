"""Validation of request bodies and idempotency keys; no error quotes a value of the request."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from delegation.edge.document import path_of
from delegation.edge.errors import BadRequest
from delegation.wire.keys import KEY_RULE, is_key
from delegation.wire.requests import TaskPayload

_MAX_ERRORS_SHOWN: Final = 20


def read_payload(document: Mapping[str, Any], *, identity_only: bool) -> TaskPayload:
    """Validate a parsed body; raises BadRequest, which names the first invalid field by its JSON path.

    `identity_only` accepts a table identity without a LoadTableResult, as the asynchronous endpoint does.
    """
    try:
        payload = TaskPayload.model_validate(document)
    except ValidationError as error:
        raise bad_request(error) from None
    parameters = payload.operation_parameters
    missing = parameters.missing()
    bare = len(missing) == 3 and parameters.storage_credentials is None
    if missing and not (bare and identity_only):
        places = [f"operation_parameters.{name}" for name in missing]
        raise BadRequest(places[0], "is required", others=[f"{place}: is required" for place in places[1:]])
    return payload


def read_idempotency_key(values: list[str]) -> str | None:
    """Return the idempotency key, None without the header; raises BadRequest if it is repeated or malformed.

    Blanks around it are no part of it (RFC 9110, Section 5.5).
    """
    if not values:
        return None
    if len(values) > 1:
        raise BadRequest("Idempotency-Key", "must not be repeated")
    key = values[0].strip(" \t")
    if not is_key(key):
        raise BadRequest("Idempotency-Key", f"must be {KEY_RULE}")
    return key


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


def bad_request(error: ValidationError) -> BadRequest:
    """Return the first violation as the error and the next ones as its `others`."""
    found = [_place_and_reason(each) for each in error.errors(include_url=False, include_input=False)]
    (field, reason), *rest = found
    others = [f"{place}: {why}" for place, why in rest[:_MAX_ERRORS_SHOWN]]
    return BadRequest(field, reason, others=others)


def _place_and_reason(error: ErrorDetails) -> tuple[str, str]:
    # pydantic appends "[key]" to the location when a member's name is invalid, not its value.
    at = error["loc"]
    place = path_of(at[:-1] if at and at[-1] == "[key]" else at)
    return place, _REASONS.get(error["type"], "is not valid").format(**error.get("ctx", {}))
