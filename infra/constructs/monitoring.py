"""The alarms, dashboards and saved queries of `infra/operations` on this stack's resources."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from delegation.metrics import Metric
from infra.environment.resources import METRICS_NAMESPACE, metric_dimensions, resource_name
from infra.operations import alarms, boards
from infra.operations.boards import QUERIES, BoardNames
from infra.settings import Settings

_AT_LEAST: Final = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
_AT_MOST: Final = cloudwatch.ComparisonOperator.LESS_THAN_OR_EQUAL_TO_THRESHOLD
MetricOf = Callable[..., cloudwatch.IMetric]
"""Makes a metric of a resource from `period` and `statistic`, as the CDK's own methods of resources do."""


@dataclass(frozen=True)
class FrontNames:
    """The names that CloudWatch has for a load balancer, `app/NAME/ID`, and its target group, `targetgroup/NAME/ID`."""

    balancer: str
    targets: str

    def sources(self) -> dict[alarms.AwsSource, MetricOf]:
        """Return what AWS measures of them.

        Source of names and dimensions: Elastic Load Balancing user guide, "CloudWatch metrics for your Application Load
        Balancer".
        """
        balancer = {"LoadBalancer": self.balancer}
        measured = partial(cloudwatch.Metric, namespace="AWS/ApplicationELB", dimensions_map=balancer)
        both = {**balancer, "TargetGroup": self.targets}
        return {
            alarms.AwsSource.UNHEALTHY_TARGETS: partial(
                measured, metric_name="UnHealthyHostCount", dimensions_map=both
            ),
            alarms.AwsSource.FRONT_ERRORS: partial(measured, metric_name="HTTPCode_ELB_5XX_Count"),
            alarms.AwsSource.TLS_FAILURES: partial(measured, metric_name="ClientTLSNegotiationErrorCount"),
        }


class Monitoring(Construct):
    """`alarms` holds the alarms by name; each describes what happened and names the page that states what to do."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        topic_arn: str,
        sources: Mapping[alarms.AwsSource, MetricOf],
    ) -> None:
        """Every alarm notifies the topic; `sources` makes the metrics of the resources that this deployment has."""
        super().__init__(scope, construct_id)
        rules = [
            *alarms.ALWAYS,
            *(alarms.FRONT_ALARMS if settings.is_private else ()),
            *((alarms.PROBE_FAILED,) if settings.probe_secret_arn is not None else ()),
            *(alarms.NOTIFICATION_ALARMS if settings.notifies else ()),
        ]
        lease = alarms.lease_age(timedelta(minutes=settings.emr_queue_minutes))
        self.alarms: dict[str, cloudwatch.Alarm] = {
            rule.name: build_alarm(self, lease if rule.name == lease.name else rule, settings, topic_arn, sources)
            for rule in rules
        }


def build_alarm(
    scope: Construct,
    rule: alarms.AlarmRule,
    settings: Settings,
    topic_arn: str,
    sources: Mapping[alarms.AwsSource, MetricOf],
) -> cloudwatch.Alarm:
    """Return the alarm of a rule, which notifies a topic."""
    if isinstance(rule.source, Metric):
        measured: MetricOf = partial(
            cloudwatch.Metric,
            namespace=METRICS_NAMESPACE,
            metric_name=rule.source.name,
            dimensions_map=metric_dimensions(settings.stage),
        )
    else:
        measured = sources[rule.source]
    alarm = cloudwatch.Alarm(
        scope,
        rule.name,
        alarm_name=resource_name(settings.stage, rule.name),
        metric=measured(period=Duration.seconds(int(rule.period.total_seconds())), statistic=rule.statistic),
        alarm_description=rule.description(settings.runbook_url),
        threshold=rule.threshold,
        evaluation_periods=rule.periods,
        comparison_operator=_AT_MOST if rule.below else _AT_LEAST,
        treat_missing_data=cloudwatch.TreatMissingData[rule.missing.name],
    )
    alarm.add_alarm_action(actions.SnsAction(sns.Topic.from_topic_arn(scope, f"{rule.name}Topic", topic_arn)))
    return alarm


def failures(machine: sfn.StateMachine, period: Duration, statistic: str) -> cloudwatch.MathExpression:  # noqa: ARG001
    """Return the executions that ended badly: a sum, whatever the statistic."""
    return cloudwatch.MathExpression(
        expression="FILL(failed, 0) + FILL(timedout, 0) + FILL(aborted, 0)",  # a metric without data points is missing
        label="Executions that failed, timed out or were aborted",
        period=period,
        using_metrics={
            "failed": machine.metric_failed(period=period),
            "timedout": machine.metric_timed_out(period=period),
            "aborted": machine.metric_aborted(period=period),
        },
    )


class Dashboards(Construct):
    """Two dashboards, of what users feel and of what resources do, and the saved queries."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: str,
        names: BoardNames,
        log_groups: Sequence[logs.ILogGroup],
    ) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        for name, body in {"users": boards.users(names), "resources": boards.resources(names)}.items():
            cloudwatch.CfnDashboard(
                self,
                name.title(),
                dashboard_name=resource_name(stage, name),
                dashboard_body=stack.to_json_string(body),
            )
        for query in QUERIES:
            logs.CfnQueryDefinition(
                self,
                "Query" + query.name.title().replace(" ", ""),
                name=f"{resource_name(stage, 'queries')}/{query.name}",
                query_string=query.text,
                log_group_names=[group.log_group_name for group in log_groups],
            )
