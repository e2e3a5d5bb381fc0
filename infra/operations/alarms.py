"""Every alarm as data: what it watches, when it is raised, what it means, and its page of the runbook.

`infra/constructs/monitoring.py` makes the alarms; tests trip each of them from the code that it watches.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from delegation import metrics as m
from delegation.metrics import Metric

RUNBOOK: Final = "docs/runbook"
"""The folder of the pages, below the repository or the address that a setting names."""


class Concern(StrEnum):
    """Whose trouble it is: the work was refused or failed, a part of the service is broken, or an operator set it."""

    WORK = "work"
    MACHINE = "machine"
    SETTING = "setting"


class AwsSource(StrEnum):
    """What AWS itself measures, for resources whose names only the stack knows."""

    DISPATCH_DEAD_LETTERS = "visible messages of the dispatch queue's dead-letter queue"
    DISPATCH_QUEUE_AGE = "age of the oldest message of the dispatch queue"
    NOTIFICATION_DEAD_LETTERS = "visible messages of the notification queue's dead-letter queue"
    EXECUTIONS_FAILED = "executions that failed, timed out or were aborted"
    SWEEPER_ERRORS = "errors of the sweeper's function"
    SWEEPER_INVOCATIONS = "invocations of the sweeper's function"
    API_SERVER_ERRORS = "5XX answers of the API"
    GATEWAY_ERRORS = "errors of the gateway's function"
    UNHEALTHY_TARGETS = "targets of the load balancer that fail its health check"
    FRONT_ERRORS = "5XX answers of the load balancer itself"
    TLS_FAILURES = "TLS handshakes with the load balancer that failed"
    ROTATION_ERRORS = "errors of the function that rotates the secret"


class Missing(StrEnum):
    """What a period without a value means (Amazon CloudWatch API Reference, PutMetricAlarm, TreatMissingData)."""

    NOT_BREACHING = "notBreaching"
    BREACHING = "breaching"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class AlarmRule:
    """One alarm: it is raised when `statistic` of a period reaches `threshold` in `periods` periods one after another.

    With `below` it is raised at values up to the threshold. `text` states in plain words what happened.
    """

    name: str
    source: Metric | AwsSource
    text: str
    concern: Concern = Concern.MACHINE
    statistic: str = "Sum"
    threshold: float = 1
    period: timedelta = timedelta(minutes=5)
    periods: int = 1
    below: bool = False
    missing: Missing = Missing.NOT_BREACHING

    @property
    def page(self) -> str:
        """The path of its page, `docs/runbook/dead-letters.md` for `DeadLetters`."""
        return f"{RUNBOOK}/{re.sub(r'(?<!^)(?=[A-Z])', '-', self.name).lower()}.md"

    def description(self, runbook_url: str | None) -> str:
        """Return what the alarm's notification states, with the address of its page."""
        where = self.page if runbook_url is None else f"{runbook_url.rstrip('/')}/{self.page.rpartition('/')[2]}"
        return f"[{self.concern}] {self.text} What to do: {where}"


_QUARTER: Final = timedelta(minutes=15)
_HOUR: Final = 3600
_OF_NEW_CODE: Final = frozenset({"DispatchErrors", "ExecutionsFailed", "SweeperErrors"})
_WORK = Concern.WORK

_LONGEST_RUN: Final = timedelta(hours=12)
"""EMR Serverless ends a job run then: executionTimeoutMinutes of JobConfiguration."""


def lease_age(queue: timedelta) -> AlarmRule:
    """Return the alarm on attempts that outlast a Spark job which waited for its start as long as `queue` allows."""
    threshold = queue + _LONGEST_RUN + timedelta(hours=1)
    return AlarmRule(
        "LeaseAge",
        m.OLDEST_LEASE_SECONDS,
        f"An attempt has lasted {threshold.total_seconds() / _HOUR:g} hours, longer than a Spark job may wait and run.",
        statistic="Maximum",
        threshold=int(threshold.total_seconds()),
    )


WORK_ALARMS: Final = (
    AlarmRule(
        "TasksFailed",
        m.TASKS_ENDED_IN_FAILURE,
        "A task ended in FAILURE: the work was refused, or its retries are used up. The service itself works.",
        concern=_WORK,
    ),
    AlarmRule(
        "TablesPartlyDeleted",
        m.TABLES_PARTLY_DELETED,
        "A purge failed after its first delete. The table has lost files and cannot be restored.",
        concern=_WORK,
    ),
    AlarmRule(
        "PurgesHeld",
        m.PURGES_HELD,
        "Purges wait because a table that may share their files cannot be read. "
        "`delegation references blocking CATALOG` names the table.",
        period=timedelta(hours=1),
        concern=_WORK,
    ),
    AlarmRule(
        "TombstonesFailed",
        m.TOMBSTONES_FAILED,
        "The purge of a table dropped through the gateway was refused or failed. The table's files still exist.",
        concern=_WORK,
    ),
    AlarmRule(
        "TombstonesStuck",
        m.TOMBSTONES_STUCK,
        "A table was dropped through the gateway, and three tries in a row could not finish the drop.",
        statistic="Maximum",
        period=_QUARTER,
        concern=_WORK,
    ),
    AlarmRule(
        "PoliciesInvalid",
        m.POLICIES_INVALID,
        "A policy that applies to tables cannot be read or executed. The metric's log line names the policy.",
        statistic="Maximum",
        period=timedelta(hours=1),
        concern=_WORK,
    ),
    AlarmRule(
        "UpkeepBehind",
        m.UPKEEP_WAIT_SECONDS,
        "A table has waited eight days for a run that a policy requires. The metric's log line names the table.",
        statistic="Maximum",
        threshold=8 * 24 * _HOUR,
        period=timedelta(hours=1),
        concern=_WORK,
    ),
)
DISPATCH_ALARMS: Final = (
    AlarmRule(
        "DeadLetters",
        AwsSource.DISPATCH_DEAD_LETTERS,
        "The dispatcher failed five times to start an execution for a message.",
        statistic="Maximum",
    ),
    AlarmRule(
        "DispatchQueueAge",
        AwsSource.DISPATCH_QUEUE_AGE,
        "A dispatch has waited in the queue for ten minutes: the dispatcher receives no messages.",
        statistic="Maximum",
        threshold=600,
    ),
    AlarmRule(
        "DispatchErrors",
        m.DISPATCH_ERRORS,
        "The dispatcher could not start an execution for at least five messages within five minutes.",
        threshold=5,
    ),
    AlarmRule(
        "DispatchesUnanswered",
        m.DISPATCHES_UNANSWERED,
        "Three or more dispatches within five minutes started no attempt. The dispatcher or the state machine may be "
        "down.",
        threshold=3,
    ),
    AlarmRule(
        "DispatchFailed",
        m.DISPATCHES_FAILED,
        "A task ended in FAILURE (DISPATCH_FAILED), because twenty dispatches started no attempt.",
    ),
)
RUN_ALARMS: Final = (
    AlarmRule(
        "ExecutionsFailed",
        AwsSource.EXECUTIONS_FAILED,
        "An execution of the state machine failed, timed out or was aborted. The sweeper starts another execution.",
    ),
    AlarmRule(
        "TasksLost",
        m.TASKS_LOST,
        "At least three attempts within 15 minutes ended without an outcome: their processes died or hung.",
        threshold=3,
        period=_QUARTER,
    ),
    lease_age(timedelta(hours=6)),
    AlarmRule(
        "WorkerErrors",
        m.WORKER_ERRORS,
        "A worker failed at least five times within five minutes to lease or run a task.",
        threshold=5,
    ),
    AlarmRule(
        "ChangesUnreadable",
        m.CHANGES_UNREADABLE,
        "A waiting change to the persistence cannot be decoded. Commits continue without the change.",
    ),
    AlarmRule(
        "Throttled",
        m.ATTEMPTS_THROTTLED,
        "At least ten attempts within 15 minutes ended because S3 throttled their deletes.",
        threshold=10,
        period=_QUARTER,
    ),
)
WAITING_ALARMS: Final = (
    AlarmRule(
        "UnfinishedTasks",
        m.OLDEST_UNFINISHED_SECONDS,
        "A task has been open for 24 hours.",
        statistic="Maximum",
        threshold=24 * _HOUR,
    ),
    AlarmRule(
        "WaitingTasks",
        m.OLDEST_WAITING_SECONDS,
        "A task has waited four hours to start.",
        statistic="Maximum",
        threshold=4 * _HOUR,
    ),
)
PAUSED: Final = AlarmRule(
    "Paused",
    m.PAUSED,
    "Work is paused (`delegation pause`): paused tasks neither start nor fail.",
    concern=Concern.SETTING,
    statistic="Maximum",
)
SWEEPER_ALARMS: Final = (
    AlarmRule(
        "SweeperErrors",
        AwsSource.SWEEPER_ERRORS,
        "The sweeper is failing. Retries, lost attempts and lost dispatches wait.",
        threshold=2,
    ),
    AlarmRule(
        "SweeperSilent",
        AwsSource.SWEEPER_INVOCATIONS,
        "The sweeper has not run for five minutes. Retries, lost attempts and lost dispatches wait.",
        threshold=0,
        below=True,
        missing=Missing.BREACHING,
    ),
    AlarmRule(
        "SweepErrors",
        m.SWEEP_ERRORS,
        "The sweeper failed to handle at least five tasks in each of three five-minute periods.",
        threshold=5,
        periods=3,
    ),
    *WAITING_ALARMS,
    AlarmRule(
        "ItemsSetAside",
        m.ITEMS_SET_ASIDE,
        "Every try to handle a table, task, policy or other record has failed for a day. The log names the record.",
        statistic="Maximum",
        period=timedelta(hours=1),
    ),
    AlarmRule(
        "MaintenanceAge",
        m.MAINTENANCE_AGE_SECONDS,
        "The maintenance has not succeeded in the last 24 hours, so old tasks and keys are not deleted.",
        statistic="Maximum",
        threshold=24 * _HOUR,
    ),
    PAUSED,
)
API_SERVER_ERRORS: Final = AlarmRule(
    "ApiServerErrors",
    AwsSource.API_SERVER_ERRORS,
    "Callers got at least five 5XX answers: 502 if Polaris or the storage failed, 500 if the service failed.",
    threshold=5,
)
FRONT_ALARMS: Final = (
    AlarmRule(
        "TargetsUnhealthy",
        AwsSource.UNHEALTHY_TARGETS,
        "An address of the API's VPC endpoint has failed the load balancer's health check for ten minutes.",
        statistic="Maximum",
        periods=2,
    ),
    AlarmRule(
        "FrontErrors",
        AwsSource.FRONT_ERRORS,
        "The load balancer itself answered at least five requests with 5XX: no target accepted or answered them.",
        threshold=5,
    ),
    AlarmRule(
        "TlsFailures",
        AwsSource.TLS_FAILURES,
        "At least ten TLS handshakes with the load balancer failed within five minutes.",
        threshold=10,
    ),
)
"""Only in the private profile, which has a load balancer."""
PROBE_FAILED: Final = AlarmRule(
    "ProbeFailed",
    m.PROBES_SUCCEEDED,
    "No probe of the service's endpoint has succeeded for five minutes. Callers probably cannot reach the service.",
    threshold=0,
    below=True,
    missing=Missing.BREACHING,
)
"""Only where the settings give the probe a certificate."""
CERTIFICATE_EXPIRES: Final = AlarmRule(
    "CertificateExpires",
    m.CERTIFICATE_DAYS_LEFT,
    "A client certificate of Polaris or of an operator expires within 30 days.",
    statistic="Minimum",
    threshold=30,
    period=timedelta(hours=6),
    below=True,
    missing=Missing.IGNORE,
)
NOTIFICATION_ALARMS: Final = (
    AlarmRule(
        "NotificationsDead",
        m.NOTIFICATIONS_DEAD,
        "All attempts to deliver an event or a callback failed (delegation.notifications.max-attempts).",
    ),
    AlarmRule(
        "NotificationsFailing",
        m.NOTIFICATIONS_FAILED,
        "At least ten deliveries of events and callbacks failed within 15 minutes. The service retries them.",
        threshold=10,
        period=_QUARTER,
    ),
    AlarmRule(
        "NotificationDeadLetters",
        AwsSource.NOTIFICATION_DEAD_LETTERS,
        "The notifier failed five times to read or write a notification.",
        statistic="Maximum",
    ),
)
"""Only where ends of tasks are notified."""
GATEWAY_ERRORS: Final = AlarmRule(
    "GatewayErrors",
    AwsSource.GATEWAY_ERRORS,
    "The gateway failed or timed out. Clients got 502 or 504 for a drop with purge, or for a "
    "mutation with an Idempotency-Key.",
)
KEYS_UNAVAILABLE: Final = AlarmRule(
    "KeysUnavailable",
    m.KEYS_UNAVAILABLE,
    "The gateway's calls to the table of idempotency keys fail. Mutations with an Idempotency-Key get 504.",
)
GATEWAY_ALARMS: Final = (GATEWAY_ERRORS, KEYS_UNAVAILABLE)
"""In the gateway's own stack."""
SECRET_ROTATION: Final = AlarmRule(
    "SecretRotation",
    AwsSource.ROTATION_ERRORS,
    "The service's Polaris secret was not rotated. The stored secret still works.",
)
"""Only where the settings rotate it."""
ROLLBACK_ALARMS: Final = (
    *(API_SERVER_ERRORS, PROBE_FAILED),
    *(rule for rule in FRONT_ALARMS if rule.name == "FrontErrors"),
    *(rule for rule in (*DISPATCH_ALARMS, *RUN_ALARMS, *SWEEPER_ALARMS) if rule.name in _OF_NEW_CODE),
)
"""The alarms that take a gradual deployment back: what new code does wrong within minutes."""
ALWAYS: Final = (
    *(*WORK_ALARMS, *DISPATCH_ALARMS, *RUN_ALARMS, *SWEEPER_ALARMS),
    *(API_SERVER_ERRORS, CERTIFICATE_EXPIRES),
)
ALARMS: Final = (*ALWAYS, *FRONT_ALARMS, PROBE_FAILED, *NOTIFICATION_ALARMS, *GATEWAY_ALARMS, SECRET_ROTATION)
USERS_ALARMS: Final = (
    *(*WORK_ALARMS, API_SERVER_ERRORS, *FRONT_ALARMS, PROBE_FAILED),
    *(*WAITING_ALARMS, PAUSED, *NOTIFICATION_ALARMS),
)
RESOURCES_ALARMS: Final = (
    *(*DISPATCH_ALARMS, *RUN_ALARMS),
    *(rule for rule in SWEEPER_ALARMS if rule not in WAITING_ALARMS),
    *(CERTIFICATE_EXPIRES, SECRET_ROTATION),
)
"""The alarms of each dashboard: those whose graphs it has. Both state that work is paused, which explains either."""
