"""Acknowledges cdk-nag findings, each with the reason why it is no fault here."""

from typing import Any, Final

from aws_cdk import Acknowledgment, Stack, Validations
from constructs import IConstruct

AWS_SOLUTIONS: Final = "AwsSolutions"
SERVERLESS: Final = "Serverless"
"""The packs of rules that synthesis applies."""


def acknowledge(construct: IConstruct, **reasons: str) -> None:
    """Acknowledge AwsSolutions rules on a construct and its children: `acknowledge(bucket, S1="…")`."""
    for rule, reason in reasons.items():
        acknowledge_finding(construct, rule, reason)


def acknowledge_serverless(construct: IConstruct, **reasons: str) -> None:
    """Acknowledge Serverless rules on a construct and its children: `acknowledge_serverless(queue, LambdaDLQ="…")`."""
    for rule, reason in reasons.items():
        acknowledge_finding(construct, rule, reason, pack=SERVERLESS)


def acknowledge_finding(construct: IConstruct, rule: str, reason: str, *, pack: str = AWS_SOLUTIONS) -> None:
    """Acknowledge one finding of a rule that has several, such as `IAM5[Resource::*]`."""
    Validations.of(construct).acknowledge(Acknowledgment(id=f"{pack}-{rule}", reason=reason))


def acknowledge_below(construct: IConstruct, arn: str, suffix: str, reason: str) -> None:
    """Acknowledge statements on everything below one ARN, such as a bucket's objects; the ARN is a CDK token."""
    acknowledge_finding(
        construct, f"IAM5[Resource::{_as_nag_writes(Stack.of(construct).resolve(arn))}{suffix}]", reason
    )


def _as_nag_writes(intrinsic: dict[str, Any]) -> str:
    match intrinsic:
        case {"Fn::ImportValue": str(name)}:
            return name
        case {"Fn::GetAtt": [str(logical_id), str(attribute)]}:
            return f"<{logical_id}.{attribute}>"
        case {"Ref": str(name)}:
            return f"<{name}>"
        case {"Fn::Join": ["", [*parts]]}:
            return "".join(part if isinstance(part, str) else _as_nag_writes(part) for part in parts)
        case _:
            raise ValueError(f"{intrinsic} is neither Fn::GetAtt, Fn::ImportValue, Ref nor Fn::Join")
