"""What a first deployment made is removed if it fails, and what holds data outlives a stack that was deployed."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.infra.conftest import SynthesizedStack

HOLDS_DATA: Final = frozenset(
    {"AWS::DynamoDB::Table", "AWS::KMS::Key", "AWS::Logs::LogGroup", "AWS::S3::Bucket", "AWS::SecretsManager::Secret"}
)
OF_THE_ACCOUNT: Final = frozenset({"AWS::ApiGateway::Account", "AWS::IAM::Role"})
"""API Gateway's role for logs, which other stacks of the account use too (docs/deployment.md)."""


@pytest.fixture(scope="module")
def resources(everything: dict[str, SynthesizedStack]) -> list[tuple[str, dict[str, Any]]]:
    return list(_resources(everything))


def _resources(stacks: dict[str, SynthesizedStack]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, stack in stacks.items():
        for logical_id, body in stack.document["Resources"].items():
            yield f"{name} {logical_id}", body


def test_what_holds_data_is_kept_except_on_create(resources: list[tuple[str, dict[str, Any]]]) -> None:
    holding = {name: body for name, body in resources if body["Type"] in HOLDS_DATA}
    assert {body["Type"] for body in holding.values()} == HOLDS_DATA
    policies = {(body["DeletionPolicy"], body["UpdateReplacePolicy"]) for body in holding.values()}
    assert policies == {("RetainExceptOnCreate", "Retain")}


def test_nothing_else_is_left_behind(resources: list[tuple[str, dict[str, Any]]]) -> None:
    kept = [(name, body["Type"]) for name, body in resources if body.get("DeletionPolicy") == "Retain"]
    assert {kind for _name, kind in kept} <= OF_THE_ACCOUNT
    assert len(kept) <= len(OF_THE_ACCOUNT)
