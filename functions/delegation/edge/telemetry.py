"""One log line and one metric per request, without any body or any header but X-Request-ID. The only metric dimension
besides the service is the operation's name, so the number of metrics is bounded."""

from collections.abc import Mapping
from typing import Any, Final

from aws_lambda_powertools import Logger

from delegation.edge import headers
from delegation.edge.answers import ApiResponse, Problem
from delegation.idempotency.keys import KeyConflict, RequestInProgress, ResubmittedTooSoon
from delegation.metrics import (
    KEY_CONFLICTS,
    REQUESTS_ATTACHED,
    REQUESTS_FAILED,
    REQUESTS_IN_PROGRESS,
    REQUESTS_REFUSED,
    REQUESTS_REPLAYED,
    REQUESTS_SERVED,
    RESUBMITS_REFUSED,
    TASKS_ACCEPTED,
    TASKS_COMPLETED,
    TASKS_FAILED,
    Metric,
    MetricLines,
)
from polaris_common.errors import DelegationError, traceback_of

REQUEST_ID: Final = "X-Request-ID"
_LONGEST_REQUEST_ID: Final = 128
_BY_KIND: Final[Mapping[str, Metric]] = {
    "accepted": TASKS_ACCEPTED,
    "attached": REQUESTS_ATTACHED,
    "replayed": REQUESTS_REPLAYED,
    "completed": TASKS_COMPLETED,
    "failed": TASKS_FAILED,
}
_BY_ERROR: Final[Mapping[type[DelegationError], Metric]] = {
    RequestInProgress: REQUESTS_IN_PROGRESS,
    KeyConflict: KEY_CONFLICTS,
    ResubmittedTooSoon: RESUBMITS_REFUSED,
}


def request_id_of(event: Mapping[str, Any]) -> str:
    """Return the caller's X-Request-ID if it is short printable ASCII, else API Gateway's request id."""
    given = headers.single(event, REQUEST_ID)
    if given and is_request_id(given):
        return given
    return str((event.get("requestContext") or {}).get("requestId") or "unknown")


def is_request_id(text: str) -> bool:
    return len(text) <= _LONGEST_REQUEST_ID and text.isascii() and text.isprintable()


class Telemetry:
    """Logs requests, and counts them in CloudWatch through the embedded metric format."""

    def __init__(self, logger: Logger, metrics: MetricLines) -> None:
        self._logger = logger
        self._metrics = metrics

    def begin(self, request_id: str) -> None:
        """Start a request; its id is the log's correlation id until `correlate` is called."""
        self._logger.set_correlation_id(request_id)

    def correlate(self, correlation_id: str | None) -> None:
        """Log from now on under the payload's `polaris_correlation_id`, if it has one."""
        if correlation_id is not None:
            self._logger.set_correlation_id(correlation_id)

    def answered(self, operation: str, response: ApiResponse) -> None:
        self._count(operation, _BY_KIND.get(response.kind, REQUESTS_SERVED))
        fields = {
            "action": operation,
            "status": response.status,
            "outcome": response.kind,
            "task_id": response.task_id or None,
        }
        self._logger.info("request answered", extra=fields)

    def refused(self, operation: str, problem: Problem, error: DelegationError) -> None:
        failed = problem.status >= 500
        self._count(operation, _BY_ERROR.get(type(error), REQUESTS_FAILED if failed else REQUESTS_REFUSED))
        fields = {
            "action": operation,
            "status": problem.status,
            "outcome": problem.error,
            "error_code": error.code,
            "task_id": getattr(error, "task_id", None),
        }
        if failed and not error.retryable:
            self._logger.error("request failed", extra=fields)
        else:
            self._logger.info("request refused", extra=fields)

    def crashed(self, operation: str, problem: Problem, error: Exception) -> None:
        """Record a request that ended in a bug. Its stack is logged; its text is not, as it may quote the request."""
        self._count(operation, REQUESTS_FAILED)
        fields = {"action": operation, "status": problem.status, "outcome": problem.error, "at": traceback_of(error)}
        self._logger.error("request broke", extra=fields)

    def _count(self, operation: str, metric: Metric) -> None:
        self._metrics.put({metric: 1}, by={"operation": operation})
