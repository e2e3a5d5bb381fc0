"""The probe of the front: a function that runs once a minute."""

from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.functions import DeployedFunction, FunctionNetwork
from infra.constructs.logs import LogKeeping
from infra.constructs.security.nag import acknowledge_serverless
from infra.constructs.security.permissions import Grants, statements
from infra.environment.functions import PROBE
from infra.environment.resources import Resources, environment
from infra.package.parts import Processor

_NEXT_RUN: Final = "The next run is a minute later; the alarm ProbeFailed tells of runs that are missing."


class FrontProbeSchedule(Construct):
    """Asks for the health through the front every minute, with the certificate of the settings."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        code: lambda_.Code,
        processor: Processor,
        resources: Resources,
        grants: Grants,
        keeping: LogKeeping,
        network: FunctionNetwork | None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.function = DeployedFunction(
            self,
            "Ask",
            function=PROBE,
            code=code,
            processor=processor,
            variables=environment(PROBE.name, resources),
            allowed=statements(PROBE.name, grants),
            keeping=keeping,
            network=network,
        ).function
        self.function.configure_async_invoke(retry_attempts=0, max_event_age=Duration.minutes(1))
        rule = events.Rule(
            self,
            "EveryMinute",
            schedule=events.Schedule.rate(Duration.minutes(1)),
            targets=[targets.LambdaFunction(self.function, retry_attempts=0, max_event_age=Duration.minutes(1))],
        )
        acknowledge_serverless(self.function, LambdaAsyncFailureDestination=_NEXT_RUN)
        acknowledge_serverless(rule, EventBusDLQ=_NEXT_RUN)
