"""The alarms, dashboards and saved queries of `infra/operations` on this stack's resources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from aws_cdk import Duration, Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from delegation.metrics import Metric
from infra.environment.resources import METRICS_NAMESPACE, metric_dimensions, resource_name
from infra.operations import boards
from infra.operations.alarms import (
    ALWAYS,
    FRONT_ALARMS,
    NOTIFICATION_ALARMS,
    PROBE_FAILED,
    AlarmRule,
    AwsSource,
    Missing,
    lease_age,
)
from infra.operations.boards import QUERIES, BoardNames

_AT_LEAST: Final = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
_AT_MOST: Final = cloudwatch.ComparisonOperator.LESS_THAN_OR_EQUAL_TO_THRESHOLD
_MISSING: Final = {
    Missing.WELL: cloudwatch.TreatMissingData.NOT_BREACHING,
    Missing.BAD: cloudwatch.TreatMissingData.BREACHING,
    Missing.AS_BEFORE: cloudwatch.TreatMissingData.IGNORE,
}


@dataclass(frozen=True)
class FrontNames:
    """The names that CloudWatch has for a load balancer, `app/NAME/ID`, and its target group, `targetgroup/NAME/ID`."""

    balancer: str
    targets: str

    def metrics(self, period: Duration, statistic: str) -> Mapping[AwsSource, cloudwatch.IMetric]:
        """Return what AWS measures of them.

        Source of names and dimensions: Elastic Load Balancing user guide, "CloudWatch metrics for your Application Load
        Balancer".
        """
        balancer, both = {"LoadBalancer": self.balancer}, {"LoadBalancer": self.balancer, "TargetGroup": self.targets}

        def metric(name: str, dimensions: Mapping[str, str]) -> cloudwatch.IMetric:
            return cloudwatch.Metric(
                namespace="AWS/ApplicationELB",
                metric_name=name,
                dimensions_map=dict(dimensions),
                period=period,
                statistic=statistic,
            )

        return {
            AwsSource.UNHEALTHY_TARGETS: metric("UnHealthyHostCount", both),
            AwsSource.FRONT_ERRORS: metric("HTTPCode_ELB_5XX_Count", balancer),
            AwsSource.TLS_FAILURES: metric("ClientTLSNegotiationErrorCount", balancer),
        }


@dataclass(frozen=True, kw_only=True)
class WatchedResources:
    """What the alarms watch.

    `notification_dead_letters` only where ends of tasks are notified, `front` where there is a load balancer, and
    the probe's metric where `probes`.
    """

    dispatch_queue: sqs.Queue
    dead_letters: sqs.Queue
    machine: sfn.StateMachine
    sweeper: lambda_.Function
    api: apigateway.RestApi
    notification_dead_letters: sqs.Queue | None = None
    front: FrontNames | None = None
    probes: bool = False

    def metrics(self, period: Duration, statistic: str) -> Mapping[AwsSource, cloudwatch.IMetric]:
        dead, queue = self.dead_letters, self.dispatch_queue
        metrics: dict[AwsSource, cloudwatch.IMetric] = {
            AwsSource.DISPATCH_DEAD_LETTERS: _visible(dead, period, statistic),
            AwsSource.DISPATCH_QUEUE_AGE: queue.metric_approximate_age_of_oldest_message(
                period=period, statistic=statistic
            ),
            AwsSource.EXECUTIONS_FAILED: _failures(self.machine, period),
            AwsSource.SWEEPER_ERRORS: self.sweeper.metric_errors(period=period, statistic=statistic),
            AwsSource.SWEEPER_INVOCATIONS: self.sweeper.metric_invocations(period=period, statistic=statistic),
            AwsSource.API_SERVER_ERRORS: self.api.metric_server_error(period=period, statistic=statistic),
        }
        if self.front is not None:
            metrics.update(self.front.metrics(period, statistic))
        if self.notification_dead_letters is not None:
            metrics[AwsSource.NOTIFICATION_DEAD_LETTERS] = _visible(self.notification_dead_letters, period, statistic)
        return metrics


class Monitoring(Construct):
    """`alarms` holds the alarms by name; each describes what happened and names the page that states what to do."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: str,
        watched: WatchedResources,
        topic_arn: str | None,
        job_queue: timedelta,
        runbook_url: str | None = None,
    ) -> None:
        """Every alarm notifies the topic if one is set; `runbook_url` is the address of the folder docs/runbook.

        `job_queue` is how long a Spark job may wait for its start.
        """
        super().__init__(scope, construct_id)
        self._stage = stage
        self._watched = watched
        self._runbook_url = runbook_url
        self._topic = sns.Topic.from_topic_arn(self, "Topic", topic_arn) if topic_arn else None
        rules = [
            *ALWAYS,
            *(FRONT_ALARMS if watched.front else ()),
            *((PROBE_FAILED,) if watched.probes else ()),
            *(NOTIFICATION_ALARMS if watched.notification_dead_letters else ()),
        ]
        lease = lease_age(job_queue)
        self.alarms: dict[str, cloudwatch.Alarm] = {
            rule.name: self._alarm(lease if rule.name == lease.name else rule) for rule in rules
        }

    def _alarm(self, rule: AlarmRule) -> cloudwatch.Alarm:
        alarm = _alarm(self, rule, self._metric(rule), stage=self._stage, runbook_url=self._runbook_url)
        if self._topic is not None:
            alarm.add_alarm_action(actions.SnsAction(self._topic))
        return alarm

    def _metric(self, rule: AlarmRule) -> cloudwatch.IMetric:
        period = Duration.seconds(int(rule.period.total_seconds()))
        if not isinstance(rule.source, Metric):
            return self._watched.metrics(period, rule.statistic)[rule.source]
        return _own_metric(rule, rule.source, self._stage)


def _alarm(
    scope: Construct, rule: AlarmRule, metric: cloudwatch.IMetric, *, stage: str, runbook_url: str | None
) -> cloudwatch.Alarm:
    return cloudwatch.Alarm(
        scope,
        rule.name,
        alarm_name=resource_name(stage, rule.name),
        metric=metric,
        alarm_description=rule.description(runbook_url),
        threshold=rule.threshold,
        evaluation_periods=rule.periods,
        comparison_operator=_AT_MOST if rule.below else _AT_LEAST,
        treat_missing_data=_MISSING[rule.missing],
    )


def _own_metric(rule: AlarmRule, metric: Metric, stage: str) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=METRICS_NAMESPACE,
        metric_name=metric.name,
        dimensions_map=metric_dimensions(stage),
        period=Duration.seconds(int(rule.period.total_seconds())),
        statistic=rule.statistic,
    )


def _visible(queue: sqs.Queue, period: Duration, statistic: str) -> cloudwatch.IMetric:
    return queue.metric_approximate_number_of_messages_visible(period=period, statistic=statistic)


def _failures(machine: sfn.StateMachine, period: Duration) -> cloudwatch.MathExpression:
    return cloudwatch.MathExpression(
        expression="FILL(failed, 0) + FILL(timedout, 0) + FILL(aborted, 0)",  # a metric without data points is missing
        label="Executions that ended badly",
        period=period,
        using_metrics={
            "failed": machine.metric_failed(period=period),
            "timedout": machine.metric_timed_out(period=period),
            "aborted": machine.metric_aborted(period=period),
        },
    )


def watch_errors(
    scope: Construct,
    rule: AlarmRule,
    function: lambda_.IFunction,
    *,
    stage: str,
    topic_arn: str,
    runbook_url: str | None,
) -> cloudwatch.Alarm:
    """Raise an alarm for a function that only some deployments have; it notifies a topic.

    The rule's own metric counts, or for a source of AWS the function's errors.
    """
    metric: cloudwatch.IMetric = function.metric_errors(period=Duration.minutes(5), statistic=rule.statistic)
    if isinstance(rule.source, Metric):
        metric = _own_metric(rule, rule.source, stage)
    alarm = _alarm(scope, rule, metric, stage=stage, runbook_url=runbook_url)
    alarm.add_alarm_action(actions.SnsAction(sns.Topic.from_topic_arn(scope, f"{rule.name}Topic", topic_arn)))
    return alarm


class Dashboards(Construct):
    """`users` shows what users feel, `resources` what resources do; `queries` are the saved ones by name."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: str,
        names: BoardNames,
        log_groups: Sequence[logs.ILogGroup],
    ) -> None:
        """`log_groups` are those that the queries search."""
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        self.users = self._board("Users", resource_name(stage, "users"), stack.to_json_string(boards.users(names)))
        self.resources = self._board(
            "Resources", resource_name(stage, "resources"), stack.to_json_string(boards.resources(names))
        )
        self.queries: Mapping[str, logs.CfnQueryDefinition] = {
            query.name: logs.CfnQueryDefinition(
                self,
                "Query" + query.name.title().replace(" ", ""),
                name=f"{resource_name(stage, 'queries')}/{query.name}",
                query_string=query.text,
                log_group_names=[group.log_group_name for group in log_groups],
            )
            for query in QUERIES
        }

    def _board(self, construct_id: str, name: str, body: str) -> cloudwatch.CfnDashboard:
        return cloudwatch.CfnDashboard(self, construct_id, dashboard_name=name, dashboard_body=body)
