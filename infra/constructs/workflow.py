"""The Step Functions state machine, with the definition that the local stack executes too."""

from collections.abc import Mapping
from typing import Final

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.constructs.logs import LogKeeping, unique_to_the_stack
from infra.constructs.security.grants import OF_THIS_ACCOUNT, allow, service_role
from infra.constructs.security.nag import acknowledge_finding
from infra.environment.functions import STATE_MACHINE_DEFINITION, placeholder
from infra.environment.resources import resource_name

STEPS: Final = ("acquire", "prepare", "run_inline", "start_job", "heartbeat", "complete", "make_due")
"""The functions that the definition invokes."""
MACHINE: Final = "purge"
"""The machine's fixed name after the stage's, which the dispatcher's variables contain before it is created."""


def state_machine_arn(scope: Construct, stage: str) -> str:
    """Return the ARN of a stage's state machine, which need not exist yet."""
    return Stack.of(scope).format_arn(
        service="states",
        resource="stateMachine",
        resource_name=resource_name(stage, MACHINE),
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )


class Workflow(Construct):
    """A Standard state machine that may invoke only its steps; its log contains events without their data."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: str,
        functions: Mapping[str, lambda_.Function],
        keeping: LogKeeping,
    ) -> None:
        super().__init__(scope, construct_id)
        steps = {name: functions[name] for name in STEPS}
        # With this prefix Step Functions needs no entry of its own in the account's log policy, which has 5,120
        # characters (Step Functions developer guide, "Logging using CloudWatch Logs").
        name = f"/aws/vendedlogs/states/{resource_name(stage, MACHINE)}-{unique_to_the_stack()}"
        self.log = keeping.group(self, name=name)
        self.role = self._build_role(steps)
        self.machine = sfn.StateMachine(
            self,
            "Machine",
            state_machine_name=resource_name(stage, MACHINE),
            state_machine_type=sfn.StateMachineType.STANDARD,
            definition_body=sfn.DefinitionBody.from_string(STATE_MACHINE_DEFINITION.read_text(encoding="utf-8")),
            definition_substitutions={placeholder(name): step.function_arn for name, step in steps.items()},
            role=self.role.without_policy_updates(),
            logs=sfn.LogOptions(destination=self.log, level=sfn.LogLevel.ALL, include_execution_data=False),
            tracing_enabled=True,
        )
        # CDK adds no policies to this role, so it must be complete before Step Functions checks that it can log.
        self.machine.node.add_dependency(self.role)

    def _build_role(self, steps: Mapping[str, lambda_.Function]) -> iam.Role:
        invoking = allow(["lambda:InvokeFunction"], *[step.function_arn for step in steps.values()])
        statements = [invoking, allow(_LOG_DELIVERY, "*"), allow(_TRACING, "*")]
        role = service_role(self, "Role", "states", statements, StringEquals=OF_THIS_ACCOUNT)
        acknowledge_finding(
            role, "IAM5[Resource::*]", "AWS supports only * as the resource of the actions of log delivery and X-Ray."
        )
        return role


_LOG_DELIVERY: Final = (
    "logs:CreateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:DescribeLogGroups",
    "logs:DescribeResourcePolicies",
    "logs:GetLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:UpdateLogDelivery",
)
_TRACING: Final = (
    "xray:GetSamplingRules",
    "xray:GetSamplingTargets",
    "xray:PutTelemetryRecords",
    "xray:PutTraceSegments",
)
