"""The `delegation:*` context: missing, invalid and unknown settings are named before synthesis."""

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from pydantic import ValidationError

from delegation.orchestration.steps import HAND_OVER_BEFORE
from delegation.removal.choice import INLINE_MAX_FILES, Size
from delegation.removal.purge.requests import PurgeSettings
from delegation.wiring.operations import purge_behavior
from infra.environment.context import default_context
from infra.environment.functions import FUNCTIONS
from infra.environment.resources import Resources
from infra.settings import Settings
from tests.paths import DOCS
from tests.unit.edge.trust.pki import authority, pem

REAL = {
    "delegation:domain-name": "delegation.acme.io",
    "delegation:token-issuer": "https://login.acme.io",
    "delegation:token-jwks-url": "https://login.acme.io/jwks.json",
    "delegation:polaris-url": "https://polaris.acme.io/api/catalog",
    "delegation:caller-cidrs": "10.1.2.0/24",
}
ALONE = {**default_context(), "delegation:package": "none"}


def test_the_settings_of_cdk_json_are_valid_for_templates_alone() -> None:
    assert Settings.from_context(ALONE).realm == "POLARIS"


@pytest.mark.parametrize("name", ["domain-name", "token-issuer", "token-jwks-url", "polaris-url"])
def test_an_example_of_cdk_json_is_not_deployed(name: str) -> None:
    """The reserved domains of RFC 2606 belong to nobody."""
    assert Settings.from_context({**default_context(), **REAL}).is_deployable
    with pytest.raises(ValidationError, match=f"delegation:{name} still has the example"):
        Settings.from_context(
            {**default_context(), **REAL, f"delegation:{name}": default_context()[f"delegation:{name}"]}
        )


def test_the_package_is_built_before_a_deployment_or_its_absence_is_said() -> None:
    assert Settings.from_context(ALONE | {"delegation:package": None, **REAL}).package == "build/package"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"delegation:realm": None}, "realm"),
        ({"delegation:relam": "POLARIS"}, "relam"),
        ({"delegation:polaris-url": "http://polaris.example.com/api/catalog"}, "polaris_url"),
        ({"delegation:token-public-key": "PEM"}, "token_public_key"),
        ({"delegation:token-jwks-url": None}, "token-jwks-url"),
        ({"delegation:client-crl": "PEM"}, "delegation:client-crl: the revocation list cannot be read"),
        ({"delegation:client-crl": "PEM", "delegation:client-ca": pem(authority())}, "delegation:client-crl"),
        ({"delegation:revocation-lists": "ca.crl"}, "delegation:client-ca lacks the certificate of CN=Example"),
        (
            {"delegation:revocation-lists": "a b", "delegation:client-ca": pem(authority())},
            "delegation:revocation-lists",
        ),
        ({"delegation:revocation-outdated": "ignore"}, "delegation:revocation-outdated"),
        ({"delegation:revocation-max-age-seconds": 0}, "delegation:revocation-max-age-seconds"),
        ({"delegation:client-next-serials": "xyz"}, "client_next_serials"),
        ({"delegation:operator-next-issuer": "a"}, "delegation:operator-next-issuer"),
        ({"delegation:token-binding": "never"}, "delegation:token-binding"),
        ({"delegation:token-scope": "PRINCIPAL_ROLE:ALL"}, "delegation:token-client-id"),
        ({"delegation:token-next-client-id": "b"}, "delegation:token-client-id"),
        ({"delegation:token-next-jwks-url": "https://next.acme.io/jwks"}, "delegation:token-next-issuer"),
        ({"delegation:client-subject": "polaris"}, "client_subject"),
        ({"delegation:client-issuer": "CN=a, O=b,"}, "client_issuer"),
        ({"delegation:client-serials": "0a,xyz"}, "client_serials"),
        ({"delegation:operator-subjects": "CN=a;b"}, "operator_subjects"),
        ({"delegation:behaviors": "acme.behaviors:"}, "behaviors"),
        ({"delegation:emr-release-label": "8.0.0"}, "emr_release_label"),
        ({"delegation:synchronous-budget-seconds": 29}, "synchronous_budget_seconds"),
        ({"delegation:stage": "Prod!"}, "stage"),
        ({"delegation:log-retention-days": 100}, "CloudWatch Logs offers only 1, 3, 5"),
        ({"delegation:alarm-topic-arn": "arn:foo"}, "alarm_topic_arn"),
        ({"delegation:alarm-topic-arn": "arn:aws:sqs:eu-central-1:123456789012:queue"}, "alarm_topic_arn"),
        ({"delegation:reserved-concurrency": "notifier=5"}, "delegation:reserved-concurrency names notifier"),
        ({"delegation:properties": {"delegation.purge.outside": "anywhere"}}, "delegation.purge.outside"),
        ({"delegation:properties": {"delegation.retry.typo": "1"}}, "delegation.retry.typo"),
    ],
)
def test_a_wrong_setting_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.from_context({**ALONE, **change})
    assert named in str(refused.value)


def test_a_key_of_a_revocation_list_is_in_the_trust_store_bucket() -> None:
    given = {"delegation:client-ca": pem(authority()), "delegation:revocation-lists": "a.crl,s3://pki/b.crl"}
    assert Settings.from_context({**ALONE, **given}).revocation_urls("bucket") == (
        "s3://bucket/a.crl",
        "s3://pki/b.crl",
    )


def test_where_certificates_come_from_is_no_setting_of_this_deployment() -> None:
    """Behind API Gateway's own domain a caller could send the headers of a load balancer itself."""
    with pytest.raises(ValidationError, match="delegation:client-certificate-source is not a setting"):
        Settings.from_context({**ALONE, "delegation:client-certificate-source": "alb"})


def test_settings_from_the_command_line_are_text() -> None:
    given = {"delegation:inline-max-files": "5", "delegation:emr-subnet-ids": "subnet-1, subnet-2"}
    settings = Settings.from_context({**ALONE, **given})
    assert (settings.inline_max_files, settings.emr_subnet_ids) == (5, ("subnet-1", "subnet-2"))


def test_context_keys_without_the_prefix_are_ignored() -> None:
    own = {
        "aws:cdk:bundling-stacks": ["**"],
        "@aws-cdk/core:checkSecretUsage": True,
        "hosted-zone:account=123456789012:domainName=delegation.example.com:region=eu-central-1": {"Id": "Z1"},
        "acme.delegation:owner": "x",
    }
    assert Settings.from_context({**ALONE, **own}) == Settings.from_context(ALONE)


def test_the_limit_of_the_inline_engine_is_set_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "delegation:inline-max-files" not in default_context()
    assert Settings.from_context(ALONE).inline_max_files == INLINE_MAX_FILES
    assert Resources()["inline_max_files"] == PurgeSettings().inline_max_files == INLINE_MAX_FILES
    variables = ("AWS_DEFAULT_REGION", "DELEGATION_PLAN_BUCKET", "DELEGATION_REFERENCES_TABLE")
    for name in variables:
        monkeypatch.setenv(name, "us-east-1")
    monkeypatch.delenv("DELEGATION_INLINE_MAX_FILES", raising=False)
    assert purge_behavior(Mock(), Mock()).settings.inline_max_files == INLINE_MAX_FILES
    monkeypatch.setenv("DELEGATION_INLINE_MAX_FILES", "0")
    assert purge_behavior(Mock(), Mock()).settings.inline_max_files == 0


@pytest.mark.parametrize("page", ["costs.md", "workers.md"])
def test_the_limit_is_the_one_that_the_measured_curve_explains(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert f"{INLINE_MAX_FILES:,}" in text
    assert "| 1,000,000 | inline |" in text or page != "costs.md"


def test_the_largest_inline_purge_fits_a_lambda_at_half_the_rate_of_s3() -> None:
    function, settings = FUNCTIONS["run_inline"], PurgeSettings()
    usual = Size(files=settings.inline_max_files, objects=1_000, bytes=settings.inline_max_files * 200)
    slow = replace(settings, store_keys_per_second=settings.store_keys_per_second / 2)
    assert usual.seconds(slow) < function.timeout_seconds - HAND_OVER_BEFORE.total_seconds()
    assert settings.longest_planning_seconds < (function.timeout_seconds - HAND_OVER_BEFORE.total_seconds()) / 2


def test_the_disk_of_a_lambda_has_room_for_the_longest_paths() -> None:
    """S3's user guide, "Creating object key names": a key has at most 1,024 bytes."""
    longest_row = 1_024 + 100
    assert PurgeSettings().inline_max_files * longest_row < FUNCTIONS["run_inline"].disk_mb * 2**20


def test_counting_ends_long_before_the_function_that_counts() -> None:
    assert PurgeSettings().counting_seconds <= FUNCTIONS["prepare"].timeout_seconds / 3


@pytest.mark.parametrize(
    ("change", "hosts"),
    [
        ({}, ("login.acme.io",)),
        ({"delegation:token-next-jwks-url": "https://next.acme.io/k"}, ("login.acme.io", "next.acme.io")),
        ({"delegation:nat-gateways": 1}, ()),
        ({"delegation:functions-in-vpc": []}, ()),
        ({"delegation:vpc-id": "vpc-0a1b", "delegation:subnet-ids": "subnet-0a,subnet-0b"}, ()),
        ({"delegation:network": "regional"}, ()),
        ({"delegation:token-jwks-url": "https://polaris.acme.io/keys"}, ()),
        ({"delegation:token-jwks-url": "https://keys.acme.internal/keys"}, ()),
        ({"delegation:token-jwks-url": "https://10.1.2.3/keys"}, ()),
    ],
)
def test_an_issuer_that_the_authorizer_cannot_reach_is_found(change: dict[str, Any], hosts: tuple[str, ...]) -> None:
    next_one = {"delegation:token-next-issuer": "https://next.acme.io"} if "token-next" in str(change) else {}
    given = {"delegation:route-table-ids": "rtb-0a"} if "delegation:vpc-id" in change else {}
    assert Settings.from_context({**ALONE, **REAL, **change, **given, **next_one}).unreachable_issuers == hosts
