"""Log groups, which outlive the stack, expire, and may be encrypted with the customer's key."""

from dataclasses import dataclass
from typing import Final

from aws_cdk import Aws, Fn, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

KEPT = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
"""A resource outlives its stack, but a first deployment that fails leaves nothing behind."""


@dataclass(frozen=True)
class LogKeeping:
    """How long logs are kept, and the key that encrypts them if it is not CloudWatch's own."""

    retention: logs.RetentionDays
    key: kms.IKey | None = None

    def group(self, scope: Construct, construct_id: str = "Log", *, name: str | None = None) -> logs.LogGroup:
        """Return a new log group; by default CloudFormation names it after the stack."""
        return logs.LogGroup(
            scope,
            construct_id,
            log_group_name=name,
            retention=self.retention,
            encryption_key=self.key,
            removal_policy=KEPT,
        )


def unique_to_the_stack() -> str:
    """Return text that no earlier or later stack has, for the name of a log group that outlives its stack."""
    return Fn.select(2, Fn.split("/", Aws.STACK_ID))


OFFERED: Final = {
    1: logs.RetentionDays.ONE_DAY,
    3: logs.RetentionDays.THREE_DAYS,
    5: logs.RetentionDays.FIVE_DAYS,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    60: logs.RetentionDays.TWO_MONTHS,
    90: logs.RetentionDays.THREE_MONTHS,
    120: logs.RetentionDays.FOUR_MONTHS,
    150: logs.RetentionDays.FIVE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
    400: logs.RetentionDays.THIRTEEN_MONTHS,
    545: logs.RetentionDays.EIGHTEEN_MONTHS,
    731: logs.RetentionDays.TWO_YEARS,
    1827: logs.RetentionDays.FIVE_YEARS,
    3653: logs.RetentionDays.TEN_YEARS,
}


def retention(days: int) -> logs.RetentionDays:
    """Return the retention of `days` days, which the settings checked; raise KeyError for any other."""
    return OFFERED[days]
