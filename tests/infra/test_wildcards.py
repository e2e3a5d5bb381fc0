"""The search for wildcards in templates: statements that it finds, and statements that it does not."""

import json

import pytest

from infra.wildcards import wildcards

KEY = "arn:aws:kms:eu-central-1:123456789012:key/1"


def template(*statements: dict[str, object]) -> dict[str, object]:
    document = {"PolicyDocument": {"Version": "2012-10-17", "Statement": list(statements)}}
    return {"Resources": {"Role": {"Type": "AWS::IAM::Role", "Properties": {"Policies": [document]}}}}


@pytest.mark.parametrize(
    "statement",
    [
        {"Effect": "Allow", "Action": "*", "Resource": "*"},
        {"Effect": "Allow", "Action": "s3:*", "Resource": "*"},
        {"Effect": "Allow", "Action": "s3:Get?bject", "Resource": ["*"]},
        {"Effect": "Allow", "Action": ["s3:GetObject", "dynamodb:*"], "Resource": [KEY, "*"]},
        {"Effect": "Allow", "NotAction": "iam:PassRole", "Resource": "*"},
        {"Effect": "Allow", "Action": "kms:*", "NotResource": KEY},
        {"Effect": "Allow", "Action": "kms:*", "Resource": {"Fn::Join": ["", ["*"]]}},
        {"Effect": "Allow", "Action": {"Fn::Sub": "s3:*"}, "Resource": {"Fn::Sub": "*"}},
        {"Effect": "Allow", "Action": {"Fn::If": ["Open", "s3:*", "s3:GetObject"]}, "Resource": "*"},
        {"Effect": "Allow", "Action": "kms:*", "Resource": "*", "Condition": {"Bool": {"aws:SecureTransport": "true"}}},
    ],
)
def test_a_planted_wildcard_is_found(statement: dict[str, object]) -> None:
    (found,) = wildcards(template({"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}, statement))
    assert found.path == "/Resources/Role/Properties/Policies/0/PolicyDocument/Statement/1"


def test_a_wildcard_in_a_policy_in_json_text_is_found() -> None:
    policy = json.dumps({"Statement": {"Effect": "Allow", "Action": "logs:*", "Resource": "*"}})
    (found,) = wildcards({"Resources": {"Logs": {"Properties": {"PolicyDocument": policy}}}})
    assert found.actions == ("logs:*",)


@pytest.mark.parametrize(
    "statement",
    [
        {"Effect": "Allow", "Action": ["xray:PutTraceSegments"], "Resource": "*"},
        {"Effect": "Allow", "Action": "s3:*", "Resource": KEY},
        {"Effect": "Deny", "Action": "s3:*", "Resource": "*"},
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": {"Fn::Join": ["", [{"Ref": "Bucket"}, "/*"]]}},
    ],
)
def test_statements_with_named_actions_or_resources_are_not_found(statement: dict[str, object]) -> None:
    assert wildcards(template(statement)) == ()
