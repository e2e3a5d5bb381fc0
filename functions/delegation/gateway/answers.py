"""The gateway's own answers, as Iceberg's clients read them (Iceberg REST Catalog API, ErrorModel)."""

from collections.abc import Mapping
from typing import Any, Final

from delegation.gateway.errors import INTERNAL, GatewayError
from delegation.gateway.messages import CatalogAnswer
from delegation.idempotency.mutations.answer import json_bytes
from polaris_common.errors import DelegationError

_JSON: Final = ("Content-Type", "application/json")
_RETRY: Final = ("Retry-After", "2")
_UNKNOWN: Final = "CommitStateUnknownException"
_BY_CODE: Final[Mapping[str, tuple[int, str]]] = {
    "INVALID_JSON": (400, "BadRequestException"),
    # The proposal's 409 would be a refusal to clients, of what the call that holds the key may have applied.
    "request_in_progress": (504, _UNKNOWN),
    # Idempotency-Key proposal, "Server Behavior": the problem type
    "idempotency_key_conflict": (422, "idempotency_key_conflict"),
    "TOKEN_KEYS_UNAVAILABLE": (503, "ServiceUnavailableException"),
    "STORE_UNAVAILABLE": (503, "ServiceUnavailableException"),
    "OUTCOME_UNKNOWN": (504, _UNKNOWN),
}
"""Status and `type` of other packages' errors by their codes; any other is a 500 without details."""


def error_answer(status: int, kind: str, message: str, *headers: tuple[str, str]) -> CatalogAnswer:
    """Return an error in Iceberg's ErrorModel; `message` states what happened, to what, and what to do."""
    return json_answer(status, {"error": {"message": message, "type": kind, "code": status}}, *headers)


def json_answer(status: int, document: Mapping[str, Any], *headers: tuple[str, str]) -> CatalogAnswer:
    return CatalogAnswer(status, (_JSON, *headers), json_bytes(document))


def answer_of(error: DelegationError, *, is_repeatable: bool = False) -> CatalogAnswer:
    """Return the answer to a failed request, with `Retry-After` if a repeat may help. With `is_repeatable` an earlier
    call with the key may have been applied, so the answer is 504 instead of 503: clients take 503 as "not applied" and
    delete the files of the commit (apache/iceberg issue 15050)."""
    known = (error.status, error.kind) if isinstance(error, GatewayError) else _BY_CODE.get(error.code)
    if known is None:
        message = "the gateway failed unexpectedly; search its log for this request's id"
        return error_answer(500, _UNKNOWN if is_repeatable else INTERNAL, message)
    status, kind = known
    headers = [_RETRY] if status in {409, 429, 503} or error.code == "request_in_progress" else []
    if status == 503 and is_repeatable:
        status, kind = 504, _UNKNOWN
    return error_answer(status, kind, str(error), *headers)
