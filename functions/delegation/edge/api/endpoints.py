"""The operations of docs/openapi.yaml: their methods, their paths, and who may call them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from delegation.edge import headers
from delegation.edge.errors import BadRequest, EdgeError, permission_missing
from delegation.edge.telemetry import REQUEST_ID, is_request_id
from delegation.edge.trust.permissions import OF_POLARIS, Permission
from delegation.misspellings import did_you_mean
from polaris_common.errors import printable


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An operation with its method and path; `permission` is None for an open method. An endpoint that may cause
    deletes accepts only the parameters of `query`, and without `has_body` no body; others ignore unknown ones."""

    operation: str
    method: str
    path: str
    permission: Permission | None = Permission.READ
    query: tuple[str, ...] | None = None
    has_body: bool = True


_DECLARED: Final[list[Endpoint]] = []


def _endpoint(*about: Any, **settings: Any) -> Endpoint:
    _DECLARED.append(Endpoint(*about, **settings))
    return _DECLARED[-1]


EXECUTE: Final = _endpoint(
    "executeSynchronousTask", "POST", "/v1/tasks/execute/synchronous", Permission.SUBMIT, query=()
)
SUBMIT: Final = _endpoint("submitTask", "POST", "/v1/tasks", Permission.SUBMIT, query=("dry-run",))
LIST: Final = _endpoint("listTasks", "GET", "/v1/tasks")
STATUS: Final = _endpoint("getTask", "GET", "/v1/tasks/{taskId}")
VERSIONS: Final = _endpoint("listTaskVersions", "GET", "/v1/tasks/{taskId}/versions")
RECEIPT: Final = _endpoint("getTaskReceipt", "GET", "/v1/tasks/{taskId}/receipt")
ESTIMATE: Final = _endpoint("getTaskEstimate", "GET", "/v1/tasks/{taskId}/estimate")
PLACE: Final = _endpoint("getTaskPlace", "GET", "/v1/tasks/{taskId}/place")
CANCEL: Final = _endpoint("cancelTask", "POST", "/v1/tasks/{taskId}/cancel", Permission.MANAGE)
RETRY: Final = _endpoint("retryTask", "POST", "/v1/tasks/{taskId}/retry", Permission.MANAGE, query=())
RESEND: Final = _endpoint("resendNotifications", "POST", "/v1/tasks/{taskId}/notifications/resend", Permission.MANAGE)
APPROVE: Final = _endpoint("approvePlan", "POST", "/v1/tasks/{taskId}/approve", Permission.MANAGE, query=())
TOMBSTONES: Final = _endpoint("listTombstones", "GET", "/v1/tombstones")
TOMBSTONE: Final = _endpoint("getTombstone", "GET", "/v1/tombstones/{tombstoneId}")
RESTORE_TOMBSTONE: Final = _endpoint(
    "restoreTombstone", "POST", "/v1/tombstones/{tombstoneId}/restore", Permission.MANAGE
)
PURGE_TOMBSTONE: Final = _endpoint(
    "purgeTombstone", "POST", "/v1/tombstones/{tombstoneId}/purge", Permission.MANAGE, query=(), has_body=False
)
DISMISS_TOMBSTONE: Final = _endpoint(
    "dismissTombstone", "POST", "/v1/tombstones/{tombstoneId}/dismiss", Permission.MANAGE, query=(), has_body=False
)
PAUSES: Final = _endpoint("listPauses", "GET", "/v1/pause")
PAUSE: Final = _endpoint("pauseTasks", "POST", "/v1/pause", Permission.MANAGE)
RESUME: Final = _endpoint("resumeTasks", "POST", "/v1/resume", Permission.MANAGE, query=())
CONFIG: Final = _endpoint("getConfig", "GET", "/v1/config")
HEALTH: Final = _endpoint("getHealth", "GET", "/v1/health", None)
DESCRIPTION: Final = _endpoint("getDescription", "GET", "/openapi.json", None)
PAGE: Final = _endpoint("getDocumentation", "GET", "/docs", None)
ENDPOINTS: Final = tuple(_DECLARED)

_LONGEST_NAME: Final = 64
_NO_BODY: Final = frozenset({"", "{}", "null"})


@dataclass(frozen=True, slots=True)
class Admitted:
    """The token's client and subject, and what the identity of its certificate may do."""

    client_id: str
    subject: str
    permissions: frozenset[Permission]


def admitted(event: Mapping[str, Any], endpoint: Endpoint) -> Admitted:
    """Return the caller of an operation. Raises EdgeError without the authorizer's context, Forbidden, and BadRequest
    for a request id that cannot be logged and for what the operation does not accept."""
    caller = caller_of(event)
    if caller is None:
        raise EdgeError(
            "the API received the request without its authorizer's result. Deploy the Service stack again",
            code="UNAUTHORIZED",
        )
    if endpoint.permission is not None and endpoint.permission not in caller.permissions:
        raise permission_missing(endpoint.permission)
    check_request_id(event)
    if endpoint.query is not None:
        _check_taken(event, endpoint, endpoint.query)
    return caller


def _check_taken(event: Mapping[str, Any], endpoint: Endpoint, known: tuple[str, ...]) -> None:
    """Raise BadRequest for a parameter or a body that the operation would ignore."""
    query = event.get("multiValueQueryStringParameters") or event.get("queryStringParameters") or {}
    for name, values in query.items():
        place = f"query {printable(name, _LONGEST_NAME)}"
        if name not in known:
            raise BadRequest(
                place, f"is not a parameter of {endpoint.method} {endpoint.path}; {did_you_mean(name, known)}"
            )
        if not isinstance(values, str) and len(values) > 1:
            raise BadRequest(place, "must not be repeated")
    if not endpoint.has_body and "".join((event.get("body") or "").split()) not in _NO_BODY:
        raise BadRequest("body", f"must be absent, because {endpoint.method} {endpoint.path} takes no body")


def caller_of(event: Mapping[str, Any]) -> Admitted | None:
    """Return the caller, None without a token."""
    context = (event.get("requestContext") or {}).get("authorizer") or {}
    client = context.get("client_id")
    if not isinstance(client, str) or not client:
        return None
    subject = context.get("subject")
    # During a deployment the authorizer may be of the former release, which admitted only Polaris and named none.
    permissions = context.get("permissions")
    words = permissions.split() if isinstance(permissions, str) else OF_POLARIS
    granted = frozenset(permission for permission in Permission if permission in words)
    return Admitted(client, subject if isinstance(subject, str) else "", granted)


def check_request_id(event: Mapping[str, Any]) -> None:
    """Raise BadRequest for a request id that cannot be logged."""
    if not all(map(is_request_id, headers.values(event, REQUEST_ID))):
        raise BadRequest(REQUEST_ID, "must be at most 128 characters of printable ASCII")
