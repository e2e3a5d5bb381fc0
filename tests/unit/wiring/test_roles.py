"""An operator's role is assumed for one location, renewed before it expires, and its refusals say what to do."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from delegation.storage.base import ObjectStoreDenied, ObjectStoreUnavailable
from delegation.storage.credentials import S3Settings
from delegation.storage.locations import Root
from delegation.wiring.removals import AssumedRole, session_policy, tags_as

ARN = "arn:aws:iam::123456789012:role/lake"
NOW = datetime(2026, 11, 24, tzinfo=UTC)


class Sts:
    """STS as of a clock; `error` is what it raises."""

    def __init__(self) -> None:
        self.now = NOW
        self.asked: list[dict[str, Any]] = []
        self.error: Exception | None = None

    def assume_role(self, **named: Any) -> dict[str, Any]:
        self.asked.append(named)
        if self.error is not None:
            raise self.error
        number = len(self.asked)
        keys = {"AccessKeyId": f"AKIA{number}", "SecretAccessKey": "secret", "SessionToken": "token"}
        return {"Credentials": {**keys, "Expiration": self.now + timedelta(seconds=named["DurationSeconds"])}}


def role(sts: Sts) -> AssumedRole:
    return AssumedRole(sts, ARN, "s3://lake/wh/t/", lambda: S3Settings(region="us-east-1"), lambda: sts.now)


def test_a_role_is_assumed_once_and_again_before_its_keys_expire() -> None:
    sts = Sts()
    found = role(sts)
    first = found.client()
    sts.now += timedelta(minutes=49)
    assert found.client() is first
    sts.now += timedelta(minutes=2)
    assert found.client() is not first
    assert [one["RoleArn"] for one in sts.asked] == [ARN, ARN]


def test_its_session_may_only_tag_below_the_tables_location() -> None:
    sts = Sts()
    tags_as(sts, ARN, "s3://lake/wh/t/", lambda: S3Settings(region="us-east-1"), lambda: sts.now)
    [asked] = sts.asked
    policy = json.loads(asked["Policy"])
    assert policy == session_policy(ARN, Root.of("s3://lake/wh/t/"))
    [objects, bucket] = policy["Statement"]
    assert objects["Resource"] == "arn:aws:s3:::lake/wh/t/*"
    assert not [one for one in objects["Action"] if one.startswith(("s3:DeleteObject",)) and "Tagging" not in one]
    assert (bucket["Action"], bucket["Resource"]) == ("s3:ListBucket", "arn:aws:s3:::lake")
    assert len(asked["Policy"]) < 2_048


@pytest.mark.parametrize(
    ("prefix", "below"),
    [
        ("a*b", "a${*}b/"),
        ("a?b", "a${?}b/"),
        ("${aws:userid}", "${$}{aws:userid}/"),
        ("wh/é日本", "wh/é日本/"),
        ('a"b\\', 'a"b\\/'),
        ("x" * 999, "x" * 999 + "/"),
        ("x" * 1_001, "x" * 1_000),
        ("wh/" + "日" * 300, "wh/" + "日" * 166),
        ("", ""),
    ],
)
def test_its_session_covers_a_location_of_any_name_and_not_the_bucket(prefix: str, below: str) -> None:
    policy = session_policy(ARN, Root("lake", prefix))
    assert policy["Statement"][0]["Resource"] == f"arn:aws:s3:::lake/{below}*"
    assert len(json.dumps(policy, separators=(",", ":"))) < 2_048


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ClientError({"Error": {"Code": "AccessDenied"}}, "AssumeRole"), ObjectStoreDenied),
        (ClientError({"Error": {"Code": "Throttling"}}, "AssumeRole"), ObjectStoreUnavailable),
        (EndpointConnectionError(endpoint_url="https://sts"), ObjectStoreUnavailable),
    ],
)
def test_a_role_that_cannot_be_assumed_says_why(error: Exception, expected: type[Exception]) -> None:
    sts = Sts()
    sts.error = error
    with pytest.raises(expected, match=ARN):
        role(sts).client()
