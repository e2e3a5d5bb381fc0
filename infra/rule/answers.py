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

CATALOG_ANSWERS: Final[dict[str, CatalogErrorAnswer]] = {
    "ACCESS_DENIED": CatalogErrorAnswer(403, "ForbiddenException"),
    "BAD_REQUEST_BODY": CatalogErrorAnswer(400, "BadRequestException"),
    "BAD_REQUEST_PARAMETERS": CatalogErrorAnswer(400, "BadRequestException"),
    "DEFAULT_4XX": CatalogErrorAnswer(400, "BadRequestException"),
    "DEFAULT_5XX": CatalogErrorAnswer(502, "ServiceFailureException", _FAILED, 2),
    "INTEGRATION_FAILURE": CatalogErrorAnswer(502, "ServiceFailureException", _FAILED, 2),
    "INTEGRATION_TIMEOUT": CatalogErrorAnswer(504, "ServiceFailureException", _UNKNOWN, 2),
    "MISSING_AUTHENTICATION_TOKEN": CatalogErrorAnswer(404, "NotFoundException", "there is no such route"),
    "QUOTA_EXCEEDED": CatalogErrorAnswer(429, "TooManyRequestsException", "too many requests", 60),
    "REQUEST_TOO_LARGE": CatalogErrorAnswer(413, "PayloadTooLargeException", _TOO_LARGE),
    "RESOURCE_NOT_FOUND": CatalogErrorAnswer(404, "NotFoundException"),
    "THROTTLED": CatalogErrorAnswer(429, "TooManyRequestsException", "too many requests", 2),
    "UNSUPPORTED_MEDIA_TYPE": CatalogErrorAnswer(415, "BadRequestException"),
    "WAF_FILTERED": CatalogErrorAnswer(403, "ForbiddenException"),
}
"""The answers by response type (API Gateway developer guide, "Gateway response types"), less those of authorizers."""
