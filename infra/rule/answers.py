"""The answers that API Gateway gives in the gateway's stead, as Iceberg's clients read errors.

CDK deploys them and the local stack returns them (Iceberg REST catalog API, schema `IcebergErrorResponse`).
"""

import json
from dataclasses import dataclass
from typing import Final

from delegation.gateway.app import LARGEST_BODY


@dataclass(frozen=True, slots=True)
class CatalogErrorAnswer:
    """The answer for one of API Gateway's response types; without a `message` it is API Gateway's own text."""

    status: int
    type: str
    message: str | None = None
    retry_after_seconds: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers besides Content-Type."""
        return {} if self.retry_after_seconds is None else {"Retry-After": str(self.retry_after_seconds)}

    def body(self, quoted_message: str) -> str:
        """Return the body with the message, which is quoted as JSON already."""
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
