"""The permissions of each function as policy statements, with named actions on named resources."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms

from infra.constructs.security.grants import DataGrants, allow, use_through
from infra.constructs.spark import SparkApplication
from infra.environment.functions import EVERY_FUNCTION, GATEWAY, PROBE, ROTATION
from infra.environment.tables import CALLERS_TOMBSTONES, DUE_TOMBSTONES, NEWEST_TOMBSTONES


@dataclass(frozen=True)
class Grants:
    data: DataGrants
    spark: SparkApplication
    queue_arn: str
    state_machine_arn: str
    revocation_list_arns: tuple[str, ...] = ()
    notification_queue_arns: tuple[str, ...] = ()
    """The queues of callbacks, of events and for receivers set apart, where ends of tasks are notified."""
    event_bus_arn: str | None = None
    queue_key: kms.IKey | None = None
    """The customer's key of the queues, where they have one."""
    probe_secret_arns: tuple[str, ...] = ()
    """The secret of the probe, where there is one."""
    quarantine_role_arns: tuple[str, ...] = ()
    """The operator's roles that removals of orphan files may assume to tag files."""

    def to_queue(self, *arns: str) -> list[iam.PolicyStatement]:
        """Allow sending to queues (Amazon SQS developer guide, "Key management")."""
        return [allow(["sqs:SendMessage"], *arns), *self._key_of_queues("Decrypt", "GenerateDataKey")]

    def from_queue(self, *arns: str) -> list[iam.PolicyStatement]:
        """Allow event source mappings to receive from queues."""
        actions = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes"]
        return [allow(actions, *arns), *self._key_of_queues("Decrypt")]

    def _key_of_queues(self, *actions: str) -> list[iam.PolicyStatement]:
        return [] if self.queue_key is None else [use_through(self.queue_key, "sqs", *actions)]


def statements(function_name: str, grants: Grants) -> list[iam.PolicyStatement]:
    """Return the statements of a function's role; raise KeyError for a function without an entry here."""
    own = _BY_FUNCTION[function_name](grants)
    variables = EVERY_FUNCTION[function_name].variables
    if not grants.notification_queue_arns or "notification_queue_url" not in variables:
        return own
    callbacks, events, apart = grants.notification_queue_arns
    if "apart_queue_url" not in variables:
        return [*own, *grants.to_queue(callbacks, events)]
    depth = allow(["sqs:GetQueueAttributes"], callbacks, events, apart)
    return [*own, *grants.to_queue(callbacks, events, apart), depth]


def _api(grants: Grants) -> list[iam.PolicyStatement]:
    data = grants.data
    return [
        *data.tasks("dynamodb:ConditionCheckItem", "dynamodb:Query"),
        *data.lists(),
        data.admission(),
        data.idempotency(),
        *data.plans(),
        *data.polaris(),
        data.references(),
        *data.tombstones(NEWEST_TOMBSTONES),
        *_send(grants),
    ]


def _gateway(grants: Grants) -> list[iam.PolicyStatement]:
    """Allow submitting drops, waiting for them, keys, and what a caller dropped; others run tasks and read plans."""
    data = grants.data
    return [
        *data.tasks("dynamodb:Query"),
        data.idempotency(),
        *data.polaris(),
        *data.tombstones(CALLERS_TOMBSTONES, of_a_table=True),
        *_send(grants),
    ]


def _run_inline(grants: Grants) -> list[iam.PolicyStatement]:
    """Allow a purge, reads of children and of unfinished tasks, and maintenance, which deletes on a condition.

    And assuming the roles that the operator names.
    """
    data, roles = grants.data, grants.quarantine_role_arns
    return [
        *data.purge(),
        *data.tombstones(DUE_TOMBSTONES),
        allow(
            [
                "dynamodb:BatchGetItem",
                "dynamodb:ConditionCheckItem",
                "dynamodb:DeleteItem",
                "dynamodb:Query",
                "dynamodb:Scan",
            ],
            data.tasks_table.table_arn,
        ),
        data.due(),
        data.idempotency(),
        allow(["dynamodb:DeleteItem", "dynamodb:Scan"], data.idempotency_table.table_arn),
        *([allow(["sts:AssumeRole"], *roles)] if roles else []),
    ]


def _notifier(grants: Grants) -> list[iam.PolicyStatement]:
    """Allow what an enabled kind of notification needs: putting events on one bus, reading the keys of callbacks."""
    events = [allow(["events:PutEvents"], grants.event_bus_arn)] if grants.event_bus_arn else []
    return [
        *grants.data.tasks("dynamodb:DeleteItem"),
        *grants.data.callback_keys(),
        *events,
        *grants.from_queue(*grants.notification_queue_arns),
    ]


def _start_job(grants: Grants) -> list[iam.PolicyStatement]:
    spark = grants.spark
    return [
        *grants.data.tasks(),
        allow(["emr-serverless:GetApplication", "emr-serverless:StartJobRun"], spark.application_arn),
        allow(["emr-serverless:ListJobRuns"], *spark.every_application_arn),
        allow(["emr-serverless:GetJobRun", "emr-serverless:CancelJobRun"], *spark.job_runs_arns),
        iam.PolicyStatement(
            actions=["iam:PassRole"],
            resources=[spark.job_role.role_arn],
            conditions={"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}},
        ),
    ]


def _watch_job(grants: Grants) -> list[iam.PolicyStatement]:
    return [allow([f"emr-serverless:{verb}JobRun"], *grants.spark.job_runs_arns) for verb in ("Get", "Cancel")]


def _end_jobs(grants: Grants) -> list[iam.PolicyStatement]:
    """Allow finding and cancelling the job runs of a lost attempt, also those whose ids were not stored."""
    return [allow(["emr-serverless:ListJobRuns"], *grants.spark.every_application_arn), *_watch_job(grants)]


def _send(grants: Grants) -> list[iam.PolicyStatement]:
    return grants.to_queue(grants.queue_arn)


_BY_FUNCTION: Final[dict[str, Callable[[Grants], list[iam.PolicyStatement]]]] = {
    "api": _api,
    "authorizer": lambda grants: (
        [allow(["s3:GetObject"], *grants.revocation_list_arns)] if grants.revocation_list_arns else []
    ),
    "dispatcher": lambda grants: [
        *grants.data.tasks(),
        grants.data.admission(),
        allow(["states:StartExecution"], grants.state_machine_arn),
        *grants.from_queue(grants.queue_arn),
    ],
    "sweeper": lambda grants: [
        *grants.data.tasks(),
        grants.data.due(),
        grants.data.admission(),
        *_send(grants),
        *_end_jobs(grants),
    ],
    "acquire": lambda grants: grants.data.tasks(),
    "prepare": lambda grants: [
        *grants.data.tasks(),
        *grants.data.read_plans(),
        *grants.data.polaris(),
        grants.data.references(),
        *grants.data.tombstones(),
    ],
    "run_inline": _run_inline,
    "start_job": _start_job,
    "heartbeat": lambda grants: [*grants.data.tasks(), *_watch_job(grants), *_send(grants)],
    "complete": lambda grants: [*grants.data.tasks(), *_watch_job(grants), *_send(grants)],
    "make_due": lambda grants: [*grants.data.tasks(), *_end_jobs(grants)],
    "notifier": _notifier,
    GATEWAY.name: _gateway,
    PROBE.name: lambda grants: [allow(["secretsmanager:GetSecretValue"], *grants.probe_secret_arns)],
    ROTATION.name: lambda grants: grants.data.rotate_polaris(),
}
