"""Every metric of the service with its unit, dimensions and meaning, and the line by which a process prints values. The
code that counts, the alarms and dashboards of `infra`, and docs/metrics.md read this one table. Each metric exists for
`service` alone, whose value has the stage. `by` names further dimensions with a bounded number of values, because each
value is a metric that costs. Nothing that identifies a task, a table or a caller is a dimension."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from pydantic import Field

from delegation.environment import EnvironmentSettings

NAMESPACE: Final = "PolarisDelegation"
SERVICE: Final = "polaris-delegation"
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Unit(StrEnum):
    """The units of CloudWatch that the service uses (Amazon CloudWatch API Reference, MetricDatum)."""

    COUNT = "Count"
    SECONDS = "Seconds"
    BYTES = "Bytes"


class Area(StrEnum):
    """The part of docs/metrics.md that lists a metric."""

    REQUESTS = "Requests"
    ATTEMPTS = "Attempts"
    ENDS = "Ends of tasks"
    BACKLOG = "Backlog and ages"
    MACHINERY = "Service"
    NOTIFICATIONS = "Notifications"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; it exists once more for each dimension in `by`, besides the service."""

    name: str
    unit: Unit
    area: Area
    meaning: str
    by: tuple[str, ...] = ()


def _count(name: str, area: Area, meaning: str, *by: str) -> Metric:
    return Metric(name, Unit.COUNT, area, meaning, by)


def _seconds(name: str, area: Area, meaning: str, *by: str) -> Metric:
    return Metric(name, Unit.SECONDS, area, meaning, by)


_OF_REQUESTS: Final = "operation"
_OF_ENDS: Final = ("kind", "code")

TASKS_ACCEPTED: Final = _count("TasksAccepted", Area.REQUESTS, "Requests that created a task.", _OF_REQUESTS)
REQUESTS_ATTACHED: Final = _count(
    "RequestsAttached", Area.REQUESTS, "Requests that attached to an existing task.", _OF_REQUESTS
)
REQUESTS_REPLAYED: Final = _count(
    "RequestsReplayed", Area.REQUESTS, "Repeated requests that got the stored answer.", _OF_REQUESTS
)
TASKS_COMPLETED: Final = _count(
    "TasksCompleted", Area.REQUESTS, "Synchronous requests that ended in SUCCESS.", _OF_REQUESTS
)
TASKS_FAILED: Final = _count("TasksFailed", Area.REQUESTS, "Synchronous requests that ended in FAILURE.", _OF_REQUESTS)
REQUESTS_SERVED: Final = _count("RequestsServed", Area.REQUESTS, "Reads that were answered.", _OF_REQUESTS)
REQUESTS_REFUSED: Final = _count("RequestsRefused", Area.REQUESTS, "Requests answered with 4XX.", _OF_REQUESTS)
REQUESTS_FAILED: Final = _count("RequestsFailed", Area.REQUESTS, "Requests answered with 5XX.", _OF_REQUESTS)
REQUESTS_IN_PROGRESS: Final = _count(
    "RequestsInProgress", Area.REQUESTS, "Repeated requests whose first call still runs.", _OF_REQUESTS
)
KEY_CONFLICTS: Final = _count(
    "KeyConflicts", Area.REQUESTS, "Requests that reused a key with another body.", _OF_REQUESTS
)
RESUBMITS_REFUSED: Final = _count(
    "ResubmitsRefused", Area.REQUESTS, "Requests repeated too soon after a failure.", _OF_REQUESTS
)

ATTEMPTS_STARTED: Final = _count("AttemptsStarted", Area.ATTEMPTS, "Attempts that began.", "kind")
ATTEMPTS_RETRIED: Final = _count("AttemptsRetried", Area.ATTEMPTS, "Failed attempts that are retried.", "kind")
ATTEMPTS_THROTTLED: Final = _count(
    "AttemptsThrottled", Area.ATTEMPTS, "Attempts that the object store throttled.", "kind"
)
PURGES_HELD: Final = _count(
    "PurgesHeld",
    Area.ATTEMPTS,
    "Purge attempts that ended because another table is unreadable. They are retried.",
)
TASKS_LOST: Final = _count("TasksLost", Area.ATTEMPTS, "Attempts that lost their lease before an outcome.", "kind")

TASKS_SUCCEEDED: Final = _count("TasksSucceeded", Area.ENDS, "Tasks that ended in SUCCESS.", *_OF_ENDS)
TASKS_ENDED_IN_FAILURE: Final = _count(
    "TasksEndedInFailure", Area.ENDS, "Tasks that ended in FAILURE, except cancelled tasks.", *_OF_ENDS
)
TASKS_CANCELLED: Final = _count("TasksCancelled", Area.ENDS, "Cancelled tasks.", *_OF_ENDS)
TASK_SECONDS: Final = _seconds("TaskSeconds", Area.ENDS, "Time from acceptance to the end of a task.", *_OF_ENDS)
FILES_DELETED: Final = _count("FilesDeleted", Area.ENDS, "Files deleted by tasks that ended.", *_OF_ENDS)
BYTES_DELETED: Final = Metric(
    "BytesDeleted", Unit.BYTES, Area.ENDS, "Size of the files deleted by tasks that ended.", _OF_ENDS
)
TABLES_PARTLY_DELETED: Final = _count("TablesPartlyDeleted", Area.ENDS, "Purges that failed after their first delete.")
TOMBSTONES_FAILED: Final = _count("TombstonesFailed", Area.ENDS, "Dropped tables whose purge was refused or failed.")

TOMBSTONES_STUCK: Final = _count(
    "TombstonesStuck",
    Area.MACHINERY,
    "Dropped tables whose drop failed three times or whose record is unreadable, counted up to 1,000.",
)

ITEMS_SET_ASIDE: Final = _count(
    "ItemsSetAside",
    Area.MACHINERY,
    "Tables, tasks, policies, records or notifications that have failed for a day, counted per pass.",
)

POLICIES_INVALID: Final = _count(
    "PoliciesInvalid",
    Area.MACHINERY,
    "Policies that cannot be executed, and tables whose policies cannot be read, per pass over a catalog.",
)

UPKEEP_WAIT_SECONDS: Final = _seconds(
    "UpkeepWaitSeconds",
    Area.BACKLOG,
    "The longest time that a table has waited for a policy run, per pass over its catalog.",
)

KEYS_UNAVAILABLE: Final = _count(
    "KeysUnavailable",
    Area.MACHINERY,
    "Failed calls of the gateway to the table of idempotency keys.",
)

TASKS_WAITING: Final = _count("AdmissionWaiting", Area.BACKLOG, "Tasks that wait to start, counted up to 100 per lane.")
OLDEST_WAITING_SECONDS: Final = _seconds(
    "OldestWaitingSeconds", Area.BACKLOG, "The longest time that a task has waited to start."
)
OLDEST_UNFINISHED_SECONDS: Final = _seconds(
    "OldestUnfinishedSeconds",
    Area.BACKLOG,
    "Age of the oldest open task, except recurring tasks ([limits](limits.md#times)).",
)
OLDEST_LEASE_SECONDS: Final = _seconds(
    "OldestLeaseSeconds",
    Area.BACKLOG,
    "Age of the oldest running attempt ([limits](limits.md#times)).",
)
MAINTENANCE_AGE_SECONDS: Final = _seconds(
    "MaintenanceAgeSeconds", Area.BACKLOG, "Time since a `STORE_MAINTENANCE` task last succeeded."
)

TASKS_SWEPT: Final = _count("TasksSwept", Area.MACHINERY, "Due tasks that the sweeper checked.")
SWEEP_ERRORS: Final = _count(
    "SweepErrors", Area.MACHINERY, "Due tasks that the sweeper could not handle. The next sweep tries again."
)
TASKS_REDISPATCHED: Final = _count("TasksRedispatched", Area.MACHINERY, "Dispatches that the sweeper sent.")
DISPATCHES_UNANSWERED: Final = _count(
    "DispatchesUnanswered",
    Area.MACHINERY,
    "Dispatches that started no attempt in time (`delegation.dispatch.grace-duration`).",
)
DISPATCHES_FAILED: Final = _count(
    "DispatchFailed", Area.MACHINERY, "Tasks that failed because no dispatch started an attempt."
)
DISPATCH_ERRORS: Final = _count(
    "DispatchErrors", Area.MACHINERY, "Queue messages whose execution failed to start. SQS delivers them again."
)
WORKER_ERRORS: Final = _count("WorkerErrors", Area.MACHINERY, "Failures of a worker to lease or run a task.")
CHANGES_UNREADABLE: Final = _count(
    "ChangesUnreadable",
    Area.MACHINERY,
    "Waiting changes to the persistence that cannot be decoded, counted once per process.",
)
CERTIFICATE_DAYS_LEFT: Final = _count(
    "CertificateDaysLeft",
    Area.MACHINERY,
    "Days until a client certificate expires.",
)
PROBES_SUCCEEDED: Final = _count(
    "ProbesSucceeded",
    Area.MACHINERY,
    "1 for a successful probe of the service's endpoint, else 0, every minute.",
)
PAUSED: Final = _count("Paused", Area.MACHINERY, "1 per sweep while work is paused (`delegation pause`).")

NOTIFICATION_MESSAGES: Final = _count(
    "NotificationMessages", Area.NOTIFICATIONS, "Queue messages that the notifier received."
)
NOTIFICATIONS_DELIVERED: Final = _count("NotificationsDelivered", Area.NOTIFICATIONS, "Delivered events and callbacks.")
NOTIFICATIONS_FAILED: Final = _count(
    "NotificationsFailed", Area.NOTIFICATIONS, "Failed deliveries that will be retried."
)
NOTIFICATIONS_DEAD: Final = _count(
    "NotificationsDead", Area.NOTIFICATIONS, "Events and callbacks whose deliveries all failed."
)

METRICS: Final[Mapping[str, Metric]] = {
    metric.name: metric for metric in tuple(globals().values()) if isinstance(metric, Metric)
}


class MetricsSettings(EnvironmentSettings):
    """Where CloudWatch finds the metrics; a process without the functions' variables uses the same names."""

    namespace: str = Field(NAMESPACE, alias="POWERTOOLS_METRICS_NAMESPACE", min_length=1, max_length=256)
    service: str = Field(SERVICE, alias="POWERTOOLS_SERVICE_NAME", min_length=1)


@dataclass(frozen=True, slots=True)
class MetricLines:
    """Prints values as JSON lines, which CloudWatch reads as metrics if the output is a log of it. Source: Amazon
    CloudWatch User Guide, "Specification: Embedded metric format"."""

    namespace: str
    service: str

    @classmethod
    def of_environment(cls) -> "MetricLines":
        settings = MetricsSettings.read()
        return cls(settings.namespace, settings.service)

    def put(self, values: Mapping[Metric, float], *, by: Mapping[str, str] = _NOTHING, **fields: Any) -> None:
        """Print one line of metrics with the same `by`; `fields` are text for readers of the log and no dimensions.
        Raises ValueError for a dimension that a metric does not have. Powertools is imported here, because most
        processes print metrics rarely."""
        from aws_lambda_powertools.metrics import EphemeralMetrics  # noqa: PLC0415

        if not values:
            return
        lines = EphemeralMetrics(namespace=self.namespace, service=self.service)
        for metric, value in values.items():
            if not set(by) <= set(metric.by):
                raise ValueError(f"{metric.name} has the dimensions {metric.by}, not {', '.join(by)}")
            lines.add_metric(metric.name, metric.unit.value, value)
        if by:
            lines.add_dimensions(service=self.service, **by)
        for name, text in fields.items():
            lines.add_metadata(name, text)
        lines.flush_metrics()
