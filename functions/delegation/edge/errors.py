"""Errors of a request that never reaches a task. No message quotes the request: it carries credentials."""

from collections.abc import Sequence

from polaris_common.errors import DelegationError


class EdgeError(DelegationError):
    code = "INVALID_REQUEST"


class BadRequest(EdgeError):
    """A field of the request is invalid; `field` is its JSON path or header name, `others` lists further violations."""

    def __init__(self, field: str, reason: str, *, others: Sequence[str] = ()) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason
        self.others = tuple(others)


class InvalidJson(BadRequest):
    """The body is absent, not UTF-8, not JSON, or JSON that parsers read differently (RFC 7493)."""

    code = "INVALID_JSON"

    def __init__(self, reason: str, *, field: str = "body") -> None:
        super().__init__(field, reason)


def payload_too_large(limit_bytes: int) -> EdgeError:
    return EdgeError(
        f"body: must not be larger than {limit_bytes} bytes. Of the table's metadata, send only location, table-uuid "
        "and format-version",
        code="PAYLOAD_TOO_LARGE",
    )


def unsupported_media_type() -> EdgeError:
    return EdgeError("Content-Type: must be application/json, in UTF-8", code="UNSUPPORTED_MEDIA_TYPE")


def route_not_found() -> EdgeError:
    return EdgeError("there is no such resource. GET /v1/config lists the endpoints", code="NOT_FOUND")


class MethodNotAllowed(EdgeError):
    """The resource does not support the method; `allowed` lists the supported ones."""

    code = "METHOD_NOT_ALLOWED"

    def __init__(self, allowed: Sequence[str]) -> None:
        super().__init__(f"the resource supports only {', '.join(allowed)}")
        self.allowed = tuple(allowed)


class Unauthorized(EdgeError):
    """The bearer token is absent or invalid; `reason` is logged and not sent to the caller. API Gateway answers 401
    only if a Lambda authorizer's error has exactly this text, otherwise 500 (Amazon API Gateway Developer Guide,
    "Output from an API Gateway Lambda authorizer")."""

    code = "UNAUTHORIZED"

    def __init__(self, reason: str) -> None:
        super().__init__("Unauthorized")
        self.reason = reason


class Forbidden(EdgeError):
    """The caller is authenticated but not authorized."""

    code = "FORBIDDEN"


class CertificateRefused(Forbidden):
    """The client certificate is absent, expired, not yet valid, revoked, or not the pinned one."""

    code = "CERTIFICATE_REFUSED"


def permission_missing(permission: str) -> Forbidden:
    allowed = {
        "submit": "To let operators do so, set delegation:operators-may-submit",
        "manage": "To let Polaris do so, set delegation:polaris-may-manage",
    }
    hint = f". {allowed[permission]}" if permission in allowed else ""
    return Forbidden(f"the identity with this certificate may not {permission} tasks{hint}", code="PERMISSION_MISSING")


class KeysUnavailable(EdgeError):
    """The issuer's key set cannot be fetched, so no token can be verified; the same request may succeed later."""

    code = "TOKEN_KEYS_UNAVAILABLE"
    retryable = True


class RevocationListUnavailable(EdgeError):
    """A revocation list cannot be fetched or used, so no certificate is admitted; a later request may succeed."""

    code = "REVOCATION_LIST_UNAVAILABLE"
    retryable = True
