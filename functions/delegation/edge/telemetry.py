"""One log line and one metric per request, whatever comes of it. No body, no header, no value of a request is logged.

Metric dimensions are bounded: the operation's name, never an id.
"""

from collections.abc import Mapping
from typing import Any, Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from delegation.edge import headers
from delegation.edge.problems import Problem, whereabouts
from delegation.edge.submission import SubmissionAnswer
from delegation.errors import DelegationError
from delegation.idempotency.errors import KeyConflict, RequestInProgress

_REQUEST_ID: Final = "X-Request-ID"
_LONGEST_REQUEST_ID: Final = 128
_BY_KIND: Final[Mapping[str, str]] = {
    "accepted": "TasksAccepted",
    "attached": "RequestsAttached",
    "replayed": "RequestsReplayed",
    "completed": "TasksCompleted",
    "failed": "TasksFailed",
}
_BY_ERROR: Final[Mapping[type[DelegationError], str]] = {
    RequestInProgress: "RequestsInProgress",
    KeyConflict: "KeyConflicts",
}
_FAILED: Final = "RequestsFailed"


def request_id_of(event: Mapping[str, Any]) -> str:
    """The caller's X-Request-ID if it can be echoed and logged as it is, else API Gateway's own id."""
    given = headers.single(event, _REQUEST_ID)
    if given and len(given) <= _LONGEST_REQUEST_ID and given.isascii() and given.isprintable():
        return given
    return str((event.get("requestContext") or {}).get("requestId") or "unknown")


class Telemetry:
    """What is told of requests: to the log, and to CloudWatch through the embedded metric format."""

    def __init__(self, logger: Logger, metrics: Metrics) -> None:
        self._logger = logger
        self._metrics = metrics

    def begin(self, request_id: str) -> None:
        """A request came in; until its payload says better, its own id correlates what is logged."""
        self._logger.set_correlation_id(request_id)

    def correlate(self, correlation_id: str | None) -> None:
        """Log under the caller's correlation id from here on (`polaris_correlation_id`)."""
        if correlation_id is not None:
            self._logger.set_correlation_id(correlation_id)

    def answered(self, operation: str, answer: SubmissionAnswer) -> None:
        """A task was accepted, attached to, replayed, completed or failed."""
        self._count(operation, _BY_KIND.get(answer.kind, "RequestsServed"))
        self._log_answer(operation, answer.status, answer.kind, answer.task_id)

    def served(self, operation: str, status: int, *, task_id: str | None = None) -> None:
        """Something was read."""
        self._count(operation, "RequestsServed")
        self._log_answer(operation, status, "served", task_id)

    def refused(self, operation: str, problem: Problem, error: DelegationError) -> None:
        """The request met an error that the service foresees."""
        failed = problem.status >= 500
        self._count(operation, _BY_ERROR.get(type(error), _FAILED if failed else "RequestsRefused"))
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

    def broke(self, operation: str, problem: Problem, error: Exception) -> None:
        """The request met a bug: where is logged, the error's text is not, for it may quote the request."""
        self._count(operation, _FAILED)
        fields = {"action": operation, "status": problem.status, "outcome": problem.error, "at": whereabouts(error)}
        self._logger.error("request broke", extra=fields)

    def _log_answer(self, operation: str, status: int, outcome: str, task_id: str | None) -> None:
        fields = {"action": operation, "status": status, "outcome": outcome, "task_id": task_id}
        self._logger.info("request answered", extra=fields)

    def _count(self, operation: str, name: str) -> None:
        self._metrics.add_dimension("operation", operation)
        self._metrics.add_metric(name, MetricUnit.Count, 1)
        self._metrics.flush_metrics()
        # Flushing leaves everything where it is while metrics are switched off by POWERTOOLS_METRICS_DISABLED.
        self._metrics.clear_metrics()
