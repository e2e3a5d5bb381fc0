"""The `delegation:*` context: missing, invalid and unknown settings are named before synthesis."""

from typing import Any

import pytest
from pydantic import ValidationError

from infra.environment import default_context
from infra.settings import Settings


def test_the_settings_of_cdk_json_are_valid() -> None:
    assert Settings.from_context(default_context()).realm == "POLARIS"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"delegation:realm": None}, "realm"),
        ({"delegation:relam": "POLARIS"}, "relam"),
        ({"delegation:polaris-url": "http://polaris.example.com/api/catalog"}, "polaris_url"),
        ({"delegation:token-public-key": "PEM"}, "token-public-key"),
        ({"delegation:token-jwks-url": None}, "token-jwks-url"),
        ({"delegation:client-crl": "PEM"}, "delegation:client-ca"),
        ({"delegation:synchronous-budget-seconds": 29}, "synchronous_budget_seconds"),
        ({"delegation:stage": "Prod!"}, "stage"),
        (
            {"delegation:properties": {"delegation.purge.outside": "anywhere"}},
            "delegation.purge.outside",
        ),
        ({"delegation:properties": {"delegation.retry.typo": "1"}}, "delegation.retry.typo"),
    ],
)
def test_a_wrong_setting_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.from_context({**default_context(), **change})
    assert named in str(refused.value)


def test_settings_from_the_command_line_are_text() -> None:
    given = {"delegation:inline-max-files": "5", "delegation:emr-subnet-ids": "subnet-1, subnet-2"}
    settings = Settings.from_context({**default_context(), **given})
    assert (settings.inline_max_files, settings.emr_subnet_ids) == (5, ("subnet-1", "subnet-2"))


def test_context_keys_without_the_prefix_are_ignored() -> None:
    assert Settings.from_context({**default_context(), "aws:cdk:bundling-stacks": ["**"]})
