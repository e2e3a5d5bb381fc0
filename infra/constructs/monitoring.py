"""Alarms on failures that the service cannot correct, and on the parts that correct the others."""

from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.environment import (
    DISPATCH_FAILED_METRIC,
    METRICS_NAMESPACE,
    NOTIFICATIONS_DEAD_METRIC,
    PARTLY_DELETED_METRIC,
    TASKS_FAILED_METRIC,
)
from infra.naming import metric_dimensions, resource_name

_AT_LEAST: Final = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
_FIVE_MINUTES: Final = Duration.minutes(5)


class Monitoring(Construct):
    """`alarms` holds the alarms by name; each describes what to do, and notifies the topic if one is set."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: str,
        dead_letters: sqs.Queue,
        machine: sfn.StateMachine,
        sweeper: lambda_.Function,
        api: apigateway.RestApi,
        topic_arn: str | None,
        notifications: sqs.Queue | None = None,
    ) -> None:
        """`notifications` is the dead-letter queue of notifications, where there are any."""
        super().__init__(scope, construct_id)
        self._stage = stage
        self._topic = sns.Topic.from_topic_arn(self, "Topic", topic_arn) if topic_arn else None
        self.alarms: dict[str, cloudwatch.Alarm] = {}
        self._watch_executions(dead_letters, machine)
        self._watch_sweeper(sweeper)
        self._watch_callers_and_tasks(api)
        if notifications is not None:
            self._watch_notifications(notifications)

    def _watch_executions(self, dead_letters: sqs.Queue, machine: sfn.StateMachine) -> None:
        self._alarm(
            "DeadLetters",
            dead_letters.metric_approximate_number_of_messages_visible(period=_FIVE_MINUTES, statistic="Maximum"),
            "The dispatcher failed five times to start an execution. The sweeper dispatches the task again; "
            "read the message and the dispatcher's log, then empty the queue.",
        )
        self._alarm(
            "ExecutionsFailed",
            _failures(machine),
            "An execution failed, timed out or was aborted. The task's record has the reason: run "
            "`delegation tasks show` with the first part of the execution's name.",
        )

    def _watch_sweeper(self, sweeper: lambda_.Function) -> None:
        self._alarm(
            "SweeperErrors",
            sweeper.metric_errors(period=_FIVE_MINUTES),
            "The sweeper fails, so retries, lost attempts and lost dispatches wait. Read the error in its log.",
            threshold=2,
        )
        self._alarm(
            "SweeperSilent",
            sweeper.metric_invocations(period=_FIVE_MINUTES),
            "The sweeper did not run for five minutes. Check its schedule and Lambda's concurrency.",
            comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            missing=cloudwatch.TreatMissingData.BREACHING,
        )

    def _watch_callers_and_tasks(self, api: apigateway.RestApi) -> None:
        self._alarm(
            "ApiServerErrors",
            api.metric_server_error(period=_FIVE_MINUTES, statistic="Sum"),
            "Callers got 5XX answers: 502 if Polaris or the storage failed, 500 if the service did. Read the API "
            "function's log.",
            threshold=5,
        )
        self._alarm(
            "DispatchFailed",
            self._counted(DISPATCH_FAILED_METRIC),
            "A task was dispatched twenty times and never acquired. It is FAILURE (DISPATCH_FAILED); correct the "
            "cause, then retry it with `delegation tasks retry`.",
        )
        self._alarm(
            "TasksFailed",
            self._counted(TASKS_FAILED_METRIC),
            "A task ended in FAILURE: the work was refused or failed beyond its retries, and the machinery is well. "
            "The log line `task ended: FAILURE` has its table and code; run `delegation tasks list --status FAILURE`, "
            "then `delegation tasks why`. Correct the cause, then `delegation tasks retry`.",
        )
        self._alarm(
            "TablesPartlyDeleted",
            self._counted(PARTLY_DELETED_METRIC),
            "A purge failed after its first delete, so its table is half deleted and cannot be restored. The log line "
            "with the metric has the task's id: read `delegation tasks show`, correct the cause, then finish the purge "
            "with `delegation tasks retry`. Do not drop the table before.",
        )

    def _watch_notifications(self, dead_letters: sqs.Queue) -> None:
        self._alarm(
            "NotificationsDead",
            self._counted(NOTIFICATIONS_DEAD_METRIC),
            "An event or a callback was tried as often as delegation.notifications.max-attempts allows. Read why with "
            "`delegation callbacks list`, correct the cause, then send it again with `delegation callbacks resend`.",
        )
        self._alarm(
            "NotificationDeadLetters",
            dead_letters.metric_approximate_number_of_messages_visible(period=_FIVE_MINUTES, statistic="Maximum"),
            "The notifier failed five times to read or write a notification. The sweeper sends it again; read the "
            "notifier's log, then empty the queue.",
        )

    def _alarm(
        self,
        name: str,
        metric: cloudwatch.IMetric,
        description: str,
        *,
        threshold: float = 1,
        comparison: cloudwatch.ComparisonOperator = _AT_LEAST,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> None:
        alarm = cloudwatch.Alarm(
            self,
            name,
            alarm_name=resource_name(self._stage, name),
            metric=metric,
            alarm_description=description,
            threshold=threshold,
            evaluation_periods=1,
            comparison_operator=comparison,
            treat_missing_data=missing,
        )
        if self._topic is not None:
            alarm.add_alarm_action(actions.SnsAction(self._topic))
        self.alarms[name] = alarm

    def _counted(self, name: str) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=METRICS_NAMESPACE,
            metric_name=name,
            dimensions_map=metric_dimensions(self._stage),
            period=_FIVE_MINUTES,
            statistic="Sum",
        )


def _failures(machine: sfn.StateMachine) -> cloudwatch.MathExpression:
    return cloudwatch.MathExpression(
        expression="FILL(failed, 0) + FILL(timedout, 0) + FILL(aborted, 0)",  # a metric without data points is missing
        label="Executions that ended badly",
        period=_FIVE_MINUTES,
        using_metrics={
            "failed": machine.metric_failed(period=_FIVE_MINUTES),
            "timedout": machine.metric_timed_out(period=_FIVE_MINUTES),
            "aborted": machine.metric_aborted(period=_FIVE_MINUTES),
        },
    )
