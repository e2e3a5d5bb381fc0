"""Validation of request bodies; no error quotes a value of the request."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from delegation.edge.document import path_of
from delegation.edge.errors import BadRequest
from delegation.misspellings import did_you_mean
from delegation.tasks.submission.form import RequestForm
from delegation.wire.requests import OPERATIONS

_MAX_ERRORS_SHOWN: Final = 20
B = TypeVar("B", bound=BaseModel)


def read_payload(
    document: Mapping[str, Any], forms: Mapping[str, RequestForm], *, identity_only: bool
) -> tuple[RequestForm, Any]:
    """Return the form of a body's operation, and the validated body; raises BadRequest with the JSON path of the first
    error. The returned options have the names of the form's table; raises DelegationError for others. `identity_only`
    accepts a body that only names its object, as the asynchronous endpoint does. A body without a valid operation is
    read by the first form, to find its other errors."""
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
    """Return the parameters of a request; raises BadRequest."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise bad_request(error, model) from None


def _operation_of(document: Mapping[str, Any]) -> str:
    common = document.get("common_payload")
    found = common.get("operation_type") if isinstance(common, Mapping) else None
    return found if isinstance(found, str) else ""


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
    found = [_place_and_reason(each, model) for each in error.errors(include_url=False, include_input=False)]
    (field, reason), *rest = found
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
