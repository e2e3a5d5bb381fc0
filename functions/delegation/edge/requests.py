"""The wire types of delegation-service.txt's appendix; members that are not named here are allowed and dropped.

What a caller sends in `config` and `storage-credentials` is secret: held as SecretStr, shown nowhere, never stored.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from delegation.edge.document import path_of
from delegation.edge.errors import BadRequest
from delegation.wire.requests import TaskPayload

_MAX_ERRORS_SHOWN: Final = 20
_IDEMPOTENCY_KEY: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]{0,254}", re.ASCII)


def read_payload(document: Mapping[str, Any], *, identity_only: bool) -> TaskPayload:
    """Validate a parsed body; BadRequest names the first offending field by its JSON path.

    `identity_only` allows the form without a LoadTableResult, which only the asynchronous endpoint takes.
    """
    try:
        payload = TaskPayload.model_validate(document)
    except ValidationError as error:
        raise _bad_request(error) from None
    parameters = payload.operation_parameters
    missing = parameters.missing()
    bare = len(missing) == 3 and parameters.storage_credentials is None
    if missing and not (bare and identity_only):
        places = [f"operation_parameters.{name}" for name in missing]
        raise BadRequest(places[0], "is required", others=[f"{place}: is required" for place in places[1:]])
    return payload


def read_idempotency_key(values: list[str]) -> str | None:
    """The Idempotency-Key header, None when absent; BadRequest unless it is one value of the proposal's pattern."""
    if not values:
        return None
    if len(values) > 1:
        raise BadRequest("Idempotency-Key", "must not be repeated")
    if not _IDEMPOTENCY_KEY.fullmatch(values[0]):
        raise BadRequest("Idempotency-Key", "must be 1 to 255 characters matching ^[a-zA-Z0-9][a-zA-Z0-9_.-]*$")
    return values[0]


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
"""Our words for pydantic's error types; pydantic's own may quote the input."""


def _bad_request(error: ValidationError) -> BadRequest:
    """The first thing wrong with a request, and the rest beside it, without any value of the request."""
    found = [_place_and_reason(each) for each in error.errors(include_url=False, include_input=False)]
    (field, reason), *rest = found
    others = [f"{place}: {why}" for place, why in rest[:_MAX_ERRORS_SHOWN]]
    return BadRequest(field, reason, others=others)


def _place_and_reason(error: ErrorDetails) -> tuple[str, str]:
    # pydantic marks an error in a member's name, rather than in its value, by a last step of its own.
    at = error["loc"]
    place = path_of(at[:-1] if at and at[-1] == "[key]" else at)
    return place, _REASONS.get(error["type"], "is not valid").format(**error.get("ctx", {}))
