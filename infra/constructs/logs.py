"""Log groups, which outlive the stack, expire, and may be encrypted with the customer's key."""

from dataclasses import dataclass
from typing import Final

from aws_cdk import Aws, Fn, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.settings import LOG_RETENTION_DAYS

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


_OF = logs.RetentionDays
OFFERED: Final = dict(
    zip(
        LOG_RETENTION_DAYS,
        (
            *(_OF.ONE_DAY, _OF.THREE_DAYS, _OF.FIVE_DAYS, _OF.ONE_WEEK, _OF.TWO_WEEKS, _OF.ONE_MONTH, _OF.TWO_MONTHS),
            *(_OF.THREE_MONTHS, _OF.FOUR_MONTHS, _OF.FIVE_MONTHS, _OF.SIX_MONTHS, _OF.ONE_YEAR, _OF.THIRTEEN_MONTHS),
            *(_OF.EIGHTEEN_MONTHS, _OF.TWO_YEARS, _OF.FIVE_YEARS, _OF.TEN_YEARS),
        ),
        strict=True,
    )
)


def retention(days: int) -> logs.RetentionDays:
    """Return the retention of `days` days, which the settings checked; raise KeyError for any other."""
    return OFFERED[days]
