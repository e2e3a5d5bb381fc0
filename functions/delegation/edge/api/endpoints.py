"""The operations of docs/openapi.yaml: their methods, their paths, and who may call them."""

from dataclasses import dataclass
from typing import Final

from delegation.edge.trust.permissions import Permission


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An operation with its method and path; `permission` is what it needs, None for an open method.

    One after which more may be deleted takes the parameters of `query` alone, and without `has_body` no body; others
    ignore what they do not know.
    """

    operation: str
    method: str
    path: str
    permission: Permission | None = Permission.READ
    query: tuple[str, ...] | None = None
    has_body: bool = True


EXECUTE: Final = Endpoint(
    "executeSynchronousTask", "POST", "/v1/tasks/execute/synchronous", Permission.SUBMIT, query=()
)
SUBMIT: Final = Endpoint("submitTask", "POST", "/v1/tasks", Permission.SUBMIT, query=("dry-run",))
LIST: Final = Endpoint("listTasks", "GET", "/v1/tasks")
STATUS: Final = Endpoint("getTask", "GET", "/v1/tasks/{taskId}")
VERSIONS: Final = Endpoint("listTaskVersions", "GET", "/v1/tasks/{taskId}/versions")
RECEIPT: Final = Endpoint("getTaskReceipt", "GET", "/v1/tasks/{taskId}/receipt")
ESTIMATE: Final = Endpoint("getTaskEstimate", "GET", "/v1/tasks/{taskId}/estimate")
PLACE: Final = Endpoint("getTaskPlace", "GET", "/v1/tasks/{taskId}/place")
CANCEL: Final = Endpoint("cancelTask", "POST", "/v1/tasks/{taskId}/cancel", Permission.MANAGE)
RETRY: Final = Endpoint("retryTask", "POST", "/v1/tasks/{taskId}/retry", Permission.MANAGE, query=())
RESEND: Final = Endpoint("resendNotifications", "POST", "/v1/tasks/{taskId}/notifications/resend", Permission.MANAGE)
APPROVE: Final = Endpoint("approvePlan", "POST", "/v1/tasks/{taskId}/approve", Permission.MANAGE, query=())
TOMBSTONES: Final = Endpoint("listTombstones", "GET", "/v1/tombstones")
TOMBSTONE: Final = Endpoint("getTombstone", "GET", "/v1/tombstones/{tombstoneId}")
RESTORE_TOMBSTONE: Final = Endpoint(
    "restoreTombstone", "POST", "/v1/tombstones/{tombstoneId}/restore", Permission.MANAGE
)
PURGE_TOMBSTONE: Final = Endpoint(
    "purgeTombstone", "POST", "/v1/tombstones/{tombstoneId}/purge", Permission.MANAGE, query=(), has_body=False
)
DISMISS_TOMBSTONE: Final = Endpoint(
    "dismissTombstone", "POST", "/v1/tombstones/{tombstoneId}/dismiss", Permission.MANAGE, query=(), has_body=False
)
PAUSES: Final = Endpoint("listPauses", "GET", "/v1/pause")
PAUSE: Final = Endpoint("pauseTasks", "POST", "/v1/pause", Permission.MANAGE)
RESUME: Final = Endpoint("resumeTasks", "POST", "/v1/resume", Permission.MANAGE, query=())
CONFIG: Final = Endpoint("getConfig", "GET", "/v1/config")
HEALTH: Final = Endpoint("getHealth", "GET", "/v1/health", None)
DESCRIPTION: Final = Endpoint("getDescription", "GET", "/openapi.json", None)
PAGE: Final = Endpoint("getDocumentation", "GET", "/docs", None)
ENDPOINTS: Final = (
    EXECUTE,
    SUBMIT,
    LIST,
    STATUS,
    VERSIONS,
    RECEIPT,
    ESTIMATE,
    PLACE,
    CANCEL,
    RETRY,
    RESEND,
    APPROVE,
    TOMBSTONES,
    TOMBSTONE,
    RESTORE_TOMBSTONE,
    PURGE_TOMBSTONE,
    DISMISS_TOMBSTONE,
    PAUSES,
    PAUSE,
    RESUME,
    CONFIG,
    HEALTH,
    DESCRIPTION,
    PAGE,
)
