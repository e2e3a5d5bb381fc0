"""What is wrong with a request before any task is touched, split by what the caller can do next.

No text here repeats a value of the request: bodies and headers carry credentials.
"""

from collections.abc import Sequence
from typing import ClassVar

from delegation.errors import DelegationError


class EdgeError(DelegationError):
    """The root of this package's errors."""

    code: ClassVar[str] = "INVALID_REQUEST"


class BadRequest(EdgeError):
    """A field of the request breaks a rule; `field` is its JSON path or header name, `others` what else is wrong."""

    def __init__(self, field: str, reason: str, *, others: Sequence[str] = ()) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason
        self.others = tuple(others)


class InvalidJson(BadRequest):
    """The body is absent, not UTF-8, not JSON, or JSON that implementations read differently (RFC 7493)."""

    code = "INVALID_JSON"

    def __init__(self, reason: str, *, field: str = "body") -> None:
        super().__init__(field, reason)


class PayloadTooLarge(EdgeError):
    """The body exceeds the limit, given in bytes."""

    code = "PAYLOAD_TOO_LARGE"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"body: must not be larger than {limit_bytes} bytes")


class UnsupportedMediaType(EdgeError):
    """The request's Content-Type is absent or not JSON in UTF-8."""

    code = "UNSUPPORTED_MEDIA_TYPE"

    def __init__(self) -> None:
        super().__init__("Content-Type: must be application/json, in UTF-8")


class RealmMismatch(EdgeError):
    """The task names a realm that this deployment does not serve (delegation-service.txt §9.3: one to one)."""

    code = "REALM_MISMATCH"

    def __init__(self) -> None:
        super().__init__("common_payload.realm_identifier: is not the realm that this deployment serves")


class RouteNotFound(EdgeError):
    """There is no resource at this path."""

    code = "NOT_FOUND"

    def __init__(self) -> None:
        super().__init__("there is no such resource; GET /v1/config lists the endpoints")


class MethodNotAllowed(EdgeError):
    """The resource exists, with other methods: `allowed`."""

    code = "METHOD_NOT_ALLOWED"

    def __init__(self, allowed: Sequence[str]) -> None:
        super().__init__(f"the resource takes {', '.join(allowed)} only")
        self.allowed = tuple(allowed)


class CallerUnknown(EdgeError):
    """The authorizer's context is absent: the API was deployed without it, or the function was called past it."""

    code = "UNAUTHORIZED"

    def __init__(self) -> None:
        super().__init__("the request carries no authorized caller")


class Unauthorized(EdgeError):
    """The bearer token is absent or proves nothing; `reason` is for the log, the caller gets 401 and no more.

    Its text is the one word that makes API Gateway answer 401 when a Lambda authorizer raises it (API Gateway developer
    guide, "Lambda authorizer output"); with any other text the answer would be 500.
    """

    code = "UNAUTHORIZED"

    def __init__(self, reason: str) -> None:
        super().__init__("Unauthorized")
        self.reason = reason


class Forbidden(EdgeError):
    """The caller is known and not admitted."""

    code = "FORBIDDEN"


class CertificateRefused(Forbidden):
    """The client certificate is absent, out of date, revoked, or not the pinned one."""

    code = "CERTIFICATE_REFUSED"


class ScopeMissing(Forbidden):
    """The token is good and lacks the required scope."""

    code = "INSUFFICIENT_SCOPE"


class KeysUnavailable(EdgeError):
    """The issuer's JWKS was not to be had, so no token can be judged; the same request may succeed later."""

    code = "TOKEN_KEYS_UNAVAILABLE"
    retryable: ClassVar[bool] = True
