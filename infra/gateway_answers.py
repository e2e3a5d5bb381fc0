"""The answers of API Gateway itself, in the form of the Delegation Service proposal's ErrorResponse.

CDK deploys them and the local HTTPS front returns them; API Gateway's default would be `{"message": "Unauthorized"}`.
"""

from dataclasses import dataclass
from typing import Final

from delegation.edge.document import MAX_BODY_BYTES
from delegation.edge.errors import payload_too_large
from delegation.wire.responses import ERROR_PAGE


@dataclass(frozen=True, slots=True)
class GatewayAnswer:
    """The answer for one of API Gateway's response types; None keeps the gateway's own status or message."""

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
        """The headers besides Content-Type."""
        headers = {}
        if self.retry_after_seconds is not None:
            headers["Retry-After"] = str(self.retry_after_seconds)
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return headers


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
