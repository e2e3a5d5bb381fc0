"""Deployments that move the traffic of the API's functions step by step, and go back on an alarm."""

from collections.abc import Mapping
from typing import Final

from aws_cdk import Aws
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_codedeploy as codedeploy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.security.nag import acknowledge_finding
from infra.network_settings import GradualDeployment
from infra.operations.alarms import ROLLBACK_ALARMS

_POLICY: Final = "service-role/AWSCodeDeployRoleForLambdaLimited"
ALIAS: Final = "live"
BEHIND_ALIAS: Final = ("api", "authorizer")
"""The functions that callers wait for. All others change at once, in the same update of the stack, so that a rollback
of these takes the whole stack back."""
_SHIFTS: Final = {
    GradualDeployment.CANARY: codedeploy.LambdaDeploymentConfig.CANARY_10_PERCENT_5_MINUTES,
    GradualDeployment.LINEAR: codedeploy.LambdaDeploymentConfig.LINEAR_10_PERCENT_EVERY_1_MINUTE,
    GradualDeployment.ALL_AT_ONCE: codedeploy.LambdaDeploymentConfig.ALL_AT_ONCE,
}


class GradualDeployments(Construct):
    """`aliases` holds the alias of each function of BEHIND_ALIAS by name, of the version that is deployed.

    CloudFormation updates an alias through its deployment group: CodeDeploy moves the calls to the new version while it
    watches the alarms. If one is raised it moves them back and the update fails, so CloudFormation takes back the rest
    of the stack too (AWS CodeDeploy user guide, "Deployments on an AWS Lambda compute platform").
    """

    def __init__(self, scope: Construct, construct_id: str, *, functions: Mapping[str, lambda_.Function]) -> None:
        super().__init__(scope, construct_id)
        self.aliases: Mapping[str, lambda_.Alias] = {
            name: lambda_.Alias(self, f"{name.title()}Alias", alias_name=ALIAS, version=functions[name].current_version)
            for name in BEHIND_ALIAS
        }

    def watch(self, way: GradualDeployment, alarms: Mapping[str, cloudwatch.IAlarm]) -> None:
        """Deploy through the aliases, and go back when one of ROLLBACK_ALARMS that this stack has is raised."""
        watched = [alarms[rule.name] for rule in ROLLBACK_ALARMS if rule.name in alarms]
        application = codedeploy.LambdaApplication(self, "Application")
        role = self._build_role()
        for name, alias in self.aliases.items():
            codedeploy.LambdaDeploymentGroup(
                self,
                f"{name.title()}Group",
                application=application,
                alias=alias,
                role=role,
                deployment_config=_SHIFTS[way],
                alarms=watched,
                auto_rollback=codedeploy.AutoRollbackConfig(
                    failed_deployment=True, stopped_deployment=True, deployment_in_alarm=True
                ),
            )

    def _build_role(self) -> iam.Role:
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                "codedeploy.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}}
            ),
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(_POLICY)],
        )
        reason = "AWS' own policy for CodeDeploy, the limited one: it may shift aliases and read alarms."
        acknowledge_finding(role, f"IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/{_POLICY}]", reason)
        return role
