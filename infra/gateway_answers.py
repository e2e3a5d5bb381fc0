"""The answers of API Gateway itself: as the service's errors, and as Iceberg's before the catalog."""

import json
from dataclasses import dataclass
from typing import Final

from delegation.edge.errors import payload_too_large
from delegation.edge.requests import MAX_BODY_BYTES
from delegation.gateway.app import LARGEST_BODY
from delegation.wire.responses import ERROR_PAGE


def _retry(seconds: int | None) -> dict[str, str]:
    return {} if seconds is None else {"Retry-After": str(seconds)}


@dataclass(frozen=True, slots=True)
class GatewayAnswer:
    """The answer for one of API Gateway's response types; None keeps the gateway's own status or message.

    `headers` are those besides Content-Type; `body` gets the message quoted as JSON.
    """

    error_code: str
    status: int | None = None
    message: str | None = None
    retry_after_seconds: int | None = None

    @property
    def type(self) -> str:
        """The code's line on the page of errors, as in the service's own answers."""
        return f"{ERROR_PAGE}#{self.error_code}"

    @property
    def headers(self) -> dict[str, str]:
        return {**_retry(self.retry_after_seconds), **({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})}

    def body(self, quoted_message: str) -> str:
        return f'{{"error_code":"{self.error_code}","message":{quoted_message},"type":"{self.type}"}}'


ANSWERS: Final[dict[str, GatewayAnswer]] = {
    "ACCESS_DENIED": GatewayAnswer("FORBIDDEN", 403),
    "API_CONFIGURATION_ERROR": GatewayAnswer("INTERNAL_ERROR", 500),
    "AUTHORIZER_CONFIGURATION_ERROR": GatewayAnswer("INTERNAL_ERROR", 500, "the authorizer failed"),
    "AUTHORIZER_FAILURE": GatewayAnswer("INTERNAL_ERROR", 500, "the authorizer failed"),
    "BAD_REQUEST_BODY": GatewayAnswer("INVALID_REQUEST", 400),
    "BAD_REQUEST_PARAMETERS": GatewayAnswer("INVALID_REQUEST", 400),
    "DEFAULT_4XX": GatewayAnswer("INVALID_REQUEST"),
    "DEFAULT_5XX": GatewayAnswer("INTERNAL_ERROR", retry_after_seconds=2),
    "EXPIRED_TOKEN": GatewayAnswer("FORBIDDEN", 403),
    "INTEGRATION_FAILURE": GatewayAnswer("INTERNAL_ERROR", 500, "the service did not answer"),
    "INTEGRATION_TIMEOUT": GatewayAnswer("TIMEOUT", 504, "the service did not answer in time", 2),
    "INVALID_API_KEY": GatewayAnswer("FORBIDDEN", 403),
    "INVALID_SIGNATURE": GatewayAnswer("FORBIDDEN", 403),
    "MISSING_AUTHENTICATION_TOKEN": GatewayAnswer("NOT_FOUND", 404, "there is no such route"),
    "QUOTA_EXCEEDED": GatewayAnswer("THROTTLED", 429, "too many requests", 60),
    "REQUEST_TOO_LARGE": GatewayAnswer("PAYLOAD_TOO_LARGE", 413, str(payload_too_large(MAX_BODY_BYTES))),
    "RESOURCE_NOT_FOUND": GatewayAnswer("NOT_FOUND", 404),
    "THROTTLED": GatewayAnswer("THROTTLED", 429, "too many requests", 2),
    "UNAUTHORIZED": GatewayAnswer("UNAUTHORIZED", 401, "a valid access token is needed"),
    "UNSUPPORTED_MEDIA_TYPE": GatewayAnswer("UNSUPPORTED_MEDIA_TYPE", 415),
    "WAF_FILTERED": GatewayAnswer("FORBIDDEN", 403),
}
"""The answers by response type, all that there are (API Gateway developer guide, "Gateway response types")."""


@dataclass(frozen=True, slots=True)
class CatalogErrorAnswer:
    """The answer for one of API Gateway's response types; without a `message` it is API Gateway's own text."""

    status: int
    type: str
    message: str | None = None
    retry_after_seconds: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        return _retry(self.retry_after_seconds)

    def body(self, quoted_message: str) -> str:
        return f'{{"error":{{"message":{quoted_message},"type":"{self.type}","code":{self.status}}}}}'

    def text(self) -> str:
        """Return the body; without a message of its own it has the type as message."""
        return self.body(json.dumps(self.message or self.type))


_UNKNOWN: Final = (
    "the gateway did not answer in time, and the catalog may have performed the request: repeat it with the same "
    "Idempotency-Key"
)
_FAILED: Final = (
    "the gateway failed, and the catalog may have performed the request: repeat it with the same Idempotency-Key; its "
    "log has the reason"
)
_TOO_LARGE: Final = (
    f"the gateway takes requests of up to {LARGEST_BODY / 1e6:.1f} MB: send this one without Idempotency-Key, so that "
    "it goes to the catalog itself, or split it"
)
_STATE_UNKNOWN: Final = "CommitStateUnknownException"
_REFUSED: Final = CatalogErrorAnswer(500, _STATE_UNKNOWN)
"""For what API Gateway refuses, with its own text: the request may be the repeat of one that was applied.

Clients take 400, 401, 403 and 404 for "not applied" (delegation.gateway.keys.calls).
"""

CATALOG_ANSWERS: Final[dict[str, CatalogErrorAnswer]] = {
    "ACCESS_DENIED": _REFUSED,
    "BAD_REQUEST_BODY": _REFUSED,
    "BAD_REQUEST_PARAMETERS": _REFUSED,
    "DEFAULT_4XX": _REFUSED,
    "DEFAULT_5XX": CatalogErrorAnswer(502, _STATE_UNKNOWN, _FAILED, 2),
    "INTEGRATION_FAILURE": CatalogErrorAnswer(502, _STATE_UNKNOWN, _FAILED, 2),
    "INTEGRATION_TIMEOUT": CatalogErrorAnswer(504, _STATE_UNKNOWN, _UNKNOWN, 2),
    "MISSING_AUTHENTICATION_TOKEN": _REFUSED,
    "QUOTA_EXCEEDED": CatalogErrorAnswer(429, "TooManyRequestsException", "too many requests", 60),
    "REQUEST_TOO_LARGE": CatalogErrorAnswer(413, "PayloadTooLargeException", _TOO_LARGE),
    "RESOURCE_NOT_FOUND": _REFUSED,
    "THROTTLED": CatalogErrorAnswer(429, "TooManyRequestsException", "too many requests", 2),
    "UNSUPPORTED_MEDIA_TYPE": CatalogErrorAnswer(415, "BadRequestException"),
    "WAF_FILTERED": _REFUSED,
}
"""The answers by response type (API Gateway developer guide, "Gateway response types"), less those of authorizers."""
