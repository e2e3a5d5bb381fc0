"""Errors of a request that never reaches a task. No message quotes the request: it carries credentials."""

from collections.abc import Sequence
from typing import ClassVar

from delegation.errors import DelegationError


class EdgeError(DelegationError):
    """The root of this package's errors."""

    code: ClassVar[str] = "INVALID_REQUEST"


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


class PayloadTooLarge(EdgeError):
    """The body exceeds `limit_bytes`."""

    code = "PAYLOAD_TOO_LARGE"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            f"body: must not be larger than {limit_bytes} bytes; of the table's metadata send only location, "
            "table-uuid and format-version"
        )


class UnsupportedMediaType(EdgeError):
    """The request's Content-Type is absent or not JSON in UTF-8."""

    code = "UNSUPPORTED_MEDIA_TYPE"

    def __init__(self) -> None:
        super().__init__("Content-Type: must be application/json, in UTF-8")


class UnsupportedContentEncoding(EdgeError):
    """The request has a Content-Encoding other than identity: a body that is decoded could have any size."""

    code = "UNSUPPORTED_CONTENT_ENCODING"

    def __init__(self) -> None:
        super().__init__("Content-Encoding: must be absent or identity; send the body without compression")


class RealmMismatch(EdgeError):
    """The request names another realm (Delegation Service proposal, Polaris to Delegation Service Relationship)."""

    code = "REALM_MISMATCH"

    def __init__(self) -> None:
        super().__init__("common_payload.realm_identifier: is not the realm of this deployment")


class RouteNotFound(EdgeError):
    """There is no resource at this path."""

    code = "NOT_FOUND"

    def __init__(self) -> None:
        super().__init__("there is no such resource; GET /v1/config lists the endpoints")


class MethodNotAllowed(EdgeError):
    """The resource does not support the method; `allowed` lists those that it supports."""

    code = "METHOD_NOT_ALLOWED"

    def __init__(self, allowed: Sequence[str]) -> None:
        super().__init__(f"the resource supports only {', '.join(allowed)}")
        self.allowed = tuple(allowed)


class CallerUnknown(EdgeError):
    """The event has no authorizer context: the API was deployed without the authorizer, or it was bypassed."""

    code = "UNAUTHORIZED"

    def __init__(self) -> None:
        super().__init__("the request carries no authorized caller")


class Unauthorized(EdgeError):
    """The bearer token is absent or invalid; `reason` is logged and not sent to the caller.

    API Gateway answers 401 only if a Lambda authorizer's error has exactly this text, and 500 for any other (Amazon API
    Gateway Developer Guide, "Output from an API Gateway Lambda authorizer").
    """

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


class ScopeMissing(Forbidden):
    """The token is valid but lacks the required scope."""

    code = "INSUFFICIENT_SCOPE"


class ClientRefused(Forbidden):
    """The token is valid but belongs to another client than the pinned ones."""

    code = "CLIENT_REFUSED"


class PermissionMissing(Forbidden):
    """The identity of the caller's certificate may not use the operation."""

    code = "PERMISSION_MISSING"

    def __init__(self, permission: str) -> None:
        hint = "; delegation:operators-may-submit allows it to operators" if permission == "submit" else ""
        super().__init__(f"the identity of this certificate may not {permission} tasks{hint}")


class TaskEnded(EdgeError):
    """A task that ended cannot be cancelled."""

    code = "TASK_ENDED"

    def __init__(self, task_id: str, status: str) -> None:
        super().__init__(f"task {task_id} ended as {status}; nothing is left to cancel")
        self.task_id = task_id


class TaskNotFailed(EdgeError):
    """Only a FAILURE can be retried."""

    code = "TASK_NOT_FAILED"

    def __init__(self, task_id: str, status: str) -> None:
        super().__init__(f"task {task_id} is {status}; only a task that is FAILURE can be retried")
        self.task_id = task_id


class ReceiptNotFound(EdgeError):
    """The task has no receipt: its purge has not ended, made no plan, or the receipt's retention ended."""

    code = "RECEIPT_NOT_FOUND"

    def __init__(self, task_id: str) -> None:
        super().__init__(
            f"task {task_id} has no receipt; it is written when the task ends and kept as long as plans are "
            "(delegation:plan-retention-days)"
        )
        self.task_id = task_id


class EstimateNotFound(EdgeError):
    """The task has no plan, from which an estimate is made: it is no purge, is not planned, or the plan was deleted."""

    code = "ESTIMATE_NOT_FOUND"

    def __init__(self, task_id: str) -> None:
        super().__init__(
            f"task {task_id} has no plan to estimate from; wait until it is planned, or send its request to "
            "POST /v1/tasks?dry-run=true and read the estimate of that task"
        )
        self.task_id = task_id


class NoTombstones(EdgeError):
    """The deployment has no gateway, through which tables are dropped, so it has no tombstones."""

    code = "NO_TOMBSTONES"

    def __init__(self) -> None:
        super().__init__("this deployment has no gateway, so it has no tombstones; switch the gateway on and deploy")


class KeysUnavailable(EdgeError):
    """The issuer's key set cannot be fetched, so no token can be verified; the same request may succeed later."""

    code = "TOKEN_KEYS_UNAVAILABLE"
    retryable: ClassVar[bool] = True


class RevocationListUnavailable(EdgeError):
    """A revocation list cannot be fetched or used, so no certificate is admitted; the same may succeed later."""

    code = "REVOCATION_LIST_UNAVAILABLE"
    retryable: ClassVar[bool] = True
