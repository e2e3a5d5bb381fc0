"""Requests and answers of the Iceberg REST API as bytes, the gateway's errors, and its own answers in the form that
Iceberg's clients read (Iceberg REST Catalog API, ErrorModel)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from delegation.idempotency.answers import json_bytes
from delegation.idempotency.reservations import NothingDone
from polaris_common.errors import DelegationError

INTERNAL: Final = "InternalServerError"
_KINDS: Final[Mapping[int, str]] = {
    400: "BadRequestException",
    403: "ForbiddenException",
    404: "NotFoundException",
    409: "ConflictException",
    503: "ServiceUnavailableException",
    504: "CommitStateUnknownException",
}


class GatewayError(DelegationError):
    """An error with the status and `type` of its answer in Iceberg's ErrorModel; most statuses have one type. Clients
    take 500 and 504 after a commit as an unknown outcome and keep its files; after most other statuses they delete
    them."""

    code = "GATEWAY_ERROR"
    status: int = 500
    kind: str = ""

    def __init__(
        self,
        *args: object,
        code: str | None = None,
        status: int | None = None,
        kind: str | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(*args, code=code, retryable=retryable)
        self.status = status or type(self).status
        own = type(self).kind if status is None else ""
        self.kind = kind or own or _KINDS.get(self.status, INTERNAL)


class CatalogUnavailable(GatewayError):
    """The catalog behind the gateway was not reached; nothing was done."""

    code = "CATALOG_UNAVAILABLE"
    status = 503
    retryable = True


class CatalogOutcomeUnknown(GatewayError):
    """The catalog behind the gateway did not answer a request that it may have performed."""

    code = "CATALOG_OUTCOME_UNKNOWN"
    status = 504
    retryable = True


class UnsafePath(GatewayError):
    """Servers read the request's path or query differently, or the path leads out of the base."""

    code = "UNSAFE_PATH"
    status = 400

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the request's path or query has {what}, perhaps percent-encoded. Nothing was done. Correct the path or "
            "query"
        )


class UnsafeName(GatewayError):
    """A name in the request's body cannot be a single segment of a path."""

    code = "UNSAFE_NAME"
    status = 400

    def __init__(self, what: str) -> None:
        super().__init__(
            f"a namespace or name in the request's body has {what}, perhaps percent-encoded, so it cannot be part of a "
            "path. Nothing was done. Use another name"
        )


class NotTheCatalog(GatewayError):
    """The request's path is not below the base path of the catalog."""

    code = "NOT_THE_CATALOG"
    status = 404


def body_too_large(size: int, limit: int) -> GatewayError:
    return GatewayError(
        f"the body has {size} bytes, but requests through the gateway may have at most {limit}. Nothing was done. To "
        "send the request directly to the catalog, leave out the Idempotency-Key header",
        code="BODY_TOO_LARGE",
        status=413,
        kind="BodyTooLargeException",
    )


def body_too_deep() -> GatewayError:
    return GatewayError(
        "the body of the request is nested too deeply. Nothing was done. Send a body that conforms to the Iceberg REST "
        "Catalog API",
        code="BODY_TOO_DEEP",
        status=400,
    )


def compressed_body() -> GatewayError:
    return GatewayError(
        "Content-Encoding: must be absent or identity in a request with an Idempotency-Key. Nothing was done. Send the "
        "body without compression",
        code="COMPRESSED_BODY",
        status=415,
        kind="UnsupportedMediaTypeException",
    )


def key_not_kept(method: str) -> GatewayError:
    return GatewayError(
        f"Idempotency-Key: this {method} takes no key. Nothing was done. Send the request without the key. The gateway "
        "honours keys for mutations of the Iceberg REST Catalog API, but not for Polaris' generic tables, policies, "
        "semantic models and notifications, because it cannot tell whether a call to them was applied",
        code="KEY_NOT_KEPT",
        status=400,
        kind="UnsupportedOperationException",
    )


def request_loops() -> GatewayError:
    return GatewayError(
        "the gateway received a request that it had itself forwarded. Nothing was done. Have the operator set "
        "delegation:gateway-polaris-url to an address of the catalog without the gateway's rule",
        code="REQUEST_LOOPS",
        status=508,
        kind="LoopDetectedException",
    )


def purge_not_offered() -> GatewayError:
    return GatewayError(
        "purgeRequested: this gateway does not purge tables. Nothing was dropped. Drop the table without purge, or "
        "have the operator set delegation:gateway-purge-requests to drop",
        code="PURGE_NOT_OFFERED",
        status=400,
        kind="UnsupportedOperationException",
    )


class CatalogNotReached(GatewayError, NothingDone):
    """The mutation did not reach the catalog, and no call with its key can have had an effect. After 429 clients
    repeat, and none takes the commit as lost; after 503 Iceberg Java up to 1.10 does."""

    code = "CATALOG_NOT_REACHED"
    status = 429
    kind = "TooManyRequestsException"
    retryable = True


class OutOfTime(GatewayError):
    """The time of a request with a key ended before the outcome of its key's calls was known."""

    code = "OUT_OF_TIME"
    status = 504
    retryable = True

    def __init__(self) -> None:
        super().__init__(
            "the request timed out before the outcome of a call with this Idempotency-Key was known. Repeat the "
            "request with the same key"
        )


class MutationNotVerified(GatewayError):
    """Nothing proves what a call with the key did; nothing more was done, and the key is kept. `is_refused`: the
    catalog does not let the caller read the proof."""

    code = "MUTATION_NOT_VERIFIED"
    status = 500
    kind = "CommitStateUnknownException"
    retryable = True

    def __init__(self, message: str, *, is_refused: bool = False) -> None:
        super().__init__(message)
        self.is_refused = is_refused


class CatalogAnswerTooLarge(GatewayError):
    """The catalog's answer is larger than the API in front of the gateway can carry."""

    code = "ANSWER_TOO_LARGE"
    status = 500
    kind = "CommitStateUnknownException"

    def __init__(self, status: int, size: int, limit: int) -> None:
        super().__init__(
            f"the catalog answered {status} with {size} bytes, but answers through the gateway may have at most "
            f"{limit}. Load the table to see its state, and request compressed answers (Accept-Encoding: gzip)"
        )


Headers = tuple[tuple[str, str], ...]
"""Names and values in the order received; a name may occur more than once, in any case."""


@dataclass(frozen=True, slots=True)
class CatalogRequest:
    """A request to the catalog. `path` is percent-encoded as received, relative to the catalog's base, without a
    leading slash: `v1/…`. `query` is raw, without its question mark."""

    method: str
    path: str
    query: str = ""
    headers: Headers = field(default=(), repr=False)
    body: bytes = field(default=b"", repr=False)

    def header(self, name: str) -> str | None:
        return _first(self.headers, name)


@dataclass(frozen=True, slots=True)
class CatalogAnswer:
    status: int
    headers: Headers = field(default=(), repr=False)
    body: bytes = field(default=b"", repr=False)

    def header(self, name: str) -> str | None:
        return _first(self.headers, name)

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def document(self) -> dict[str, Any] | None:
        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return document if isinstance(document, dict) else None


def _first(headers: Headers, name: str) -> str | None:
    wanted = name.lower()
    for known, value in headers:
        if known.lower() == wanted:
            return value
    return None


class Upstream(Protocol):
    """Sends a request to the catalog at an address that bypasses the gateway's rule."""

    def send(self, request: CatalogRequest, *, timeout: float) -> CatalogAnswer:
        """Send once, without hop-by-hop headers (RFC 9110, 7.6.1), and return the answer unchanged. `timeout` is in
        seconds. Raises CatalogUnavailable if nothing was sent, CatalogOutcomeUnknown if it may have been."""


_JSON: Final = ("Content-Type", "application/json")
_RETRY: Final = ("Retry-After", "2")
_UNKNOWN: Final = "CommitStateUnknownException"
_BY_CODE: Final[Mapping[str, tuple[int, str]]] = {
    "INVALID_JSON": (400, "BadRequestException"),
    # The proposal's 409 would tell clients that nothing was applied, but the call that holds the key may apply it.
    "request_in_progress": (504, _UNKNOWN),
    # Idempotency-Key proposal, "Server Behavior": the problem type
    "idempotency_key_conflict": (422, "idempotency_key_conflict"),
    "TOKEN_KEYS_UNAVAILABLE": (503, "ServiceUnavailableException"),
    "STORE_UNAVAILABLE": (503, "ServiceUnavailableException"),
    "OUTCOME_UNKNOWN": (504, _UNKNOWN),
}
"""Status and `type` of other packages' errors by code; any other is a 500 without details."""


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
