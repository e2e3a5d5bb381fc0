"""What API Gateway itself answers, in the shape of every other answer: the proposal's ErrorResponse.

CDK deploys it and the local front answers it; without it a caller would meet `{"message": "Unauthorized"}`.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class GatewayAnswer:
    """What is answered instead of one of API Gateway's response types; status None keeps the gateway's."""

    error_code: str
    status: int | None = None
    message: str | None = None
    retry_after_seconds: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers beside the content type."""
        headers = {}
        if self.retry_after_seconds is not None:
            headers["Retry-After"] = str(self.retry_after_seconds)
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return headers


ANSWERS: Final[dict[str, GatewayAnswer]] = {
    "ACCESS_DENIED": GatewayAnswer("FORBIDDEN", 403),
    "AUTHORIZER_CONFIGURATION_ERROR": GatewayAnswer("INTERNAL_ERROR", 500, "the authorizer failed"),
    "AUTHORIZER_FAILURE": GatewayAnswer("INTERNAL_ERROR", 500, "the authorizer failed"),
    "BAD_REQUEST_BODY": GatewayAnswer("INVALID_REQUEST", 400),
    "BAD_REQUEST_PARAMETERS": GatewayAnswer("INVALID_REQUEST", 400),
    "DEFAULT_4XX": GatewayAnswer("INVALID_REQUEST"),
    "DEFAULT_5XX": GatewayAnswer("INTERNAL_ERROR"),
    "INTEGRATION_FAILURE": GatewayAnswer("INTERNAL_ERROR", 500, "the service did not answer"),
    "INTEGRATION_TIMEOUT": GatewayAnswer("TIMEOUT", 504, "the service did not answer in time", 2),
    "MISSING_AUTHENTICATION_TOKEN": GatewayAnswer("NOT_FOUND", 404, "there is no such route"),
    "REQUEST_TOO_LARGE": GatewayAnswer("REQUEST_TOO_LARGE", 413),
    "RESOURCE_NOT_FOUND": GatewayAnswer("NOT_FOUND", 404),
    "THROTTLED": GatewayAnswer("THROTTLED", 429, "too many requests", 2),
    "UNAUTHORIZED": GatewayAnswer("UNAUTHORIZED", 401, "a valid access token is needed"),
    "UNSUPPORTED_MEDIA_TYPE": GatewayAnswer("UNSUPPORTED_MEDIA_TYPE", 415),
}
"""By API Gateway's response type (its developer guide, "Gateway response types")."""
