"""The settings of the network are whole before synthesis: a VPC with subnets, named callers, one certificate."""

from typing import Any

import pytest
from pydantic import ValidationError

from infra.network_settings import CustomerKeyUse, NetworkProfile
from infra.settings import Settings
from tests.infra.test_settings import ALONE, REAL

VPC = {"delegation:vpc-id": "vpc-0a1b", "delegation:subnet-ids": "subnet-0a, subnet-0b"}
AUTHORITY = "arn:aws:acm-pca:eu-central-1:123456789012:certificate-authority/1"
REGIONAL = {"delegation:network": "regional", "delegation:caller-cidrs": None}


def test_the_default_is_private_with_a_created_vpc() -> None:
    settings = Settings.from_context(ALONE)
    assert settings.network is NetworkProfile.PRIVATE
    assert settings.has_vpc
    assert settings.has_spark
    assert settings.creates_endpoints


def test_regional_without_a_vpc_has_no_spark() -> None:
    settings = Settings.from_context(ALONE | REGIONAL)
    assert not settings.has_vpc
    assert not settings.has_spark
    assert Settings.from_context(ALONE | REGIONAL | VPC).has_spark


def test_an_existing_vpc_brings_its_endpoints() -> None:
    assert not Settings.from_context(ALONE | VPC).creates_endpoints
    made = {"delegation:aws-endpoints": "create", "delegation:route-table-ids": "rtb-1"}
    assert Settings.from_context(ALONE | VPC | made).creates_endpoints


def test_the_key_encrypts_what_the_settings_name() -> None:
    settings = Settings.from_context(ALONE | {"delegation:customer-key-for": "queues, logs"})
    assert [use for use in CustomerKeyUse if settings.has_customer_key_for(use)] == ["queues", "logs"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"delegation:network": "public"}, "network"),
        ({"delegation:vpc-id": "vpc-0a1b"}, "delegation:subnet-ids"),
        (VPC | {"delegation:subnet-ids": "subnet-0a"}, "two or more"),
        (VPC | {"delegation:subnet-ids": "subnet-0a,net"}, "subnet_ids"),
        (VPC | {"delegation:aws-endpoints": "create"}, "delegation:route-table-ids"),
        ({"delegation:route-table-ids": "rtb-1"}, "delegation:vpc-id"),
        ({"delegation:vpc-cidr": "10.0.0.0/28"}, "prefix of 16 to 22"),
        ({"delegation:caller-cidrs": None}, "delegation:caller-cidrs"),
        ({"delegation:caller-cidrs": "0.0.0.0/0"}, "0.0.0.0/0 is larger"),
        ({"delegation:caller-cidrs": "10.0.0.1/24"}, "host bits"),
        ({"delegation:caller-security-group-ids": "sg-1"}, "delegation:vpc-id"),
        ({"delegation:functions-in-vpc": "authorizer,nobody"}, "functions_in_vpc"),
        ({"delegation:customer-key-for": "dreams"}, "customer_key_for"),
        ({"delegation:reserved-concurrency": "run_inline=0"}, "run_inline=20"),
        ({"delegation:reserved-concurrency": "nobody=1"}, "run_inline=20"),
        ({"delegation:certificate-arn": "arn:aws:iam::1:x"}, "certificate_arn"),
        (
            {
                "delegation:certificate-arn": "arn:aws:acm:eu-central-1:123456789012:certificate/1",
                "delegation:certificate-authority-arn": AUTHORITY,
            },
            "only one of",
        ),
        (REGIONAL | {"delegation:certificate-authority-arn": AUTHORITY}, "delegation:ownership-certificate-arn"),
        ({"delegation:revocation-versions": "v1"}, "delegation:revocation-versions"),
        ({"delegation:emr-release-label": "emr-7.13.0"}, "emr_release_label"),
        ({"delegation:emr-release-label": "emr-spark-7.0.0"}, "no Python"),
        ({"delegation:emr-max-runs": 0}, "emr_max_runs"),
    ],
)
def test_a_wrong_setting_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.from_context(ALONE | change)
    assert named in str(refused.value)


@pytest.mark.parametrize("host", ["polaris.test", "localhost", "POLARIS.EXAMPLE", "a.example.org", "a.invalid:8181"])
def test_reserved_domains_are_not_deployed(host: str) -> None:
    with pytest.raises(ValidationError, match="delegation:polaris-url still has the example"):
        Settings.from_context(
            ALONE | REAL | {"delegation:package": None, "delegation:polaris-url": f"https://{host}/x"}
        )


@pytest.mark.parametrize("host", ["polaris.acme.io/test", "example.acme.io", "test-example.com"])
def test_domains_that_only_look_reserved_are_deployed(host: str) -> None:
    given = REAL | {"delegation:package": None, "delegation:polaris-url": f"https://{host}"}
    assert Settings.from_context(ALONE | given).is_deployable


def test_the_documentations_addresses_are_not_deployed() -> None:
    with pytest.raises(ValidationError, match="delegation:caller-cidrs still has the example value 192"):
        Settings.from_context(
            ALONE | REAL | {"delegation:package": None, "delegation:caller-cidrs": "10.0.0.0/24,192.0.2.8/32"}
        )


def test_concurrency_is_by_function() -> None:
    settings = Settings.from_context(ALONE | {"delegation:reserved-concurrency": "run_inline=20, prepare=5"})
    assert settings.concurrency == {"run_inline": 20, "prepare": 5}
