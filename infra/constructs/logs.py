"""Log groups, which outlive the stack, expire, and may be encrypted with the customer's key."""

from dataclasses import dataclass

from aws_cdk import Aws, Fn, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

KEPT = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
"""A resource outlives its stack, but a first deployment that fails leaves nothing behind."""


@dataclass(frozen=True)
class LogKeeping:
    """For how many days logs are kept, and the key that encrypts them if it is not CloudWatch's own."""

    days: int
    key: kms.IKey | None = None

    def group(self, scope: Construct, construct_id: str = "Log", *, name: str | None = None) -> logs.LogGroup:
        """Return a new log group; by default CloudFormation names it after the stack."""
        group = logs.LogGroup(scope, construct_id, log_group_name=name, encryption_key=self.key, removal_policy=KEPT)
        # The CDK takes the names of an enumeration instead.
        group.node.default_child.retention_in_days = self.days
        return group


def unique_to_the_stack() -> str:
    """Return text that no earlier or later stack has, for the name of a log group that outlives its stack."""
    return Fn.select(2, Fn.split("/", Aws.STACK_ID))
