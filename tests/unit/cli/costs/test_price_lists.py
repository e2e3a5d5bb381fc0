"""`delegation prices update`: prices from lists of AWS' form, and what a month costs with them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from delegation.cli.costs.commands import BUNDLED, document_of, prices_of
from delegation.cli.costs.price_lists import WANTED, updated
from delegation.cli.errors import CommandError
from tests.kit.errors import coded

FORMER = document_of(BUNDLED)
Usage = tuple[str, dict[str, str], list[str]]


def price_list(offer: str, *usages: Usage, region: str = "eu-central-1", date: str = "2026-11-01") -> dict[str, Any]:
    """A price list as AWS publishes it; of each usage its type, further attributes, and the prices of its tiers.

    With all members that AWS documents (AWS Billing User Guide, "Reading the service price list file for an AWS
    service"), a product that belongs to no region, and traffic to another one.
    """
    further = [("Global-Free", {"location": "Any", "regionCode": ""}, ["0"])]
    further += [("XYZ-Out-Bytes", {"fromRegionCode": region, "regionCode": "sa-east-1"}, ["9"])]
    products, terms = {}, {}
    for number, (usage, attributes, prices) in enumerate((*usages, *further)):
        sku = f"SKU{number}"
        located = {"servicecode": offer, "location": "somewhere", "locationType": "AWS Region", "regionCode": region}
        described = {**located, "usagetype": usage, "operation": "", **attributes}
        products[sku] = {"sku": sku, "productFamily": "API Request", "attributes": described}
        tiers = {
            f"{sku}.TERM.{tier}": {
                "rateCode": f"{sku}.TERM.{tier}",
                "description": f"{price} per unit",
                "beginRange": str(tier),
                "endRange": "Inf",
                "unit": "Requests",
                "pricePerUnit": {"USD": price},
                "appliesTo": [],
            }
            for tier, price in enumerate(prices)
        }
        term = {"offerTermCode": "TERM", "sku": sku, "effectiveDate": f"{date}T00:00:00Z", "priceDimensions": tiers}
        terms[sku] = {f"{sku}.TERM": {**term, "termAttributes": {}}}
    published = {"formatVersion": "v1.0", "disclaimer": "", "offerCode": offer, "version": "20261101100000"}
    published["publicationDate"] = f"{date}T10:00:00Z"
    return {**published, "products": products, "terms": {"OnDemand": terms, "Reserved": {}}, "attributesList": {}}


USAGES = {
    "s3_write_request": "Requests-Tier1",
    "s3_read_request": "Requests-Tier2",
    "s3_gb_month": "TimedStorage-ByteHrs",
    "emr_vcpu_hour": "EMR-SERVERLESS-vCPUHours",
    "emr_gb_hour": "EMR-SERVERLESS-MemoryGBHours",
    "lambda_gb_second": "Lambda-GB-Second",
    "lambda_request": "Request",
    "states_transition": "StateTransition",
    "dynamodb_write_unit": "WriteRequestUnits",
    "dynamodb_read_unit": "ReadRequestUnits",
    "sqs_request": "Requests-RBP",
    "api_request": "ApiGatewayRequest",
    "cloudwatch_metric_month": "CW:MetricMonitorUsage",
    "cloudwatch_alarm_month": "CW:AlarmMonitorUsage",
    "cloudwatch_dashboard_month": "DashboardsUsageHour-Basic",
    "logs_gb": "DataProcessing-Bytes",
    "kms_key_month": "KMS-Keys",
    "secret_month": "AWSSecretsManager-Secrets",
    "vpc_endpoint_hour": "VpcEndpoint-Hours",
    "load_balancer_hour": "LoadBalancerUsage",
    "load_balancer_trust_store_hour": "TS-LoadBalancerUsage",
    "lambda_gb_second_arm": "Lambda-GB-Second-ARM",
    "emr_vcpu_hour_arm": "EMR-SERVERLESS-ARM-vCPUHours",
    "emr_gb_hour_arm": "EMR-SERVERLESS-ARM-MemoryGBHours",
    "kms_request": "KMS-Requests",
    "xray_trace": "XRay-TracesStored",
    "waf_acl_month": "WebACLV2",
    "waf_rule_month": "RuleV2",
}
"""The usage types of AWS' lists, without their region.

Some are in guides: Application Load Balancers ("Billing and usage reports"), Amazon DynamoDB ("Understanding your AWS
billing and usage reports"), Amazon CloudWatch ("Analyzing, optimizing, and reducing costs"). Bills have the others.
"""
OTHERS = {
    "emr_vcpu_hour": "EMR-SERVERLESS-ARM-vCPUHours",
    "emr_gb_hour": "EMR-SERVERLESS-ARM-MemoryGBHours",
    "lambda_gb_second": "Lambda-GB-Second-ARM",
    "lambda_request": "Request-ARM",
    "dynamodb_write_unit": "IA-WriteRequestUnits",
    "dynamodb_read_unit": "IA-ReadRequestUnits",
    "sqs_request": "Requests-FIFO-RBP",
    "api_request": "ApiGatewayHttpRequest",
    "cloudwatch_alarm_month": "CW:HighResAlarmMonitorUsage",
    "logs_gb": "DataProcessingIA-Bytes",
    "kms_key_month": "KMS-Requests",
    "vpc_endpoint_hour": "VpcEndpoint-GWLBE-Hours",
    "load_balancer_hour": "Outposts-LoadBalancerUsage",
}
"""Usage types of the same lists that are something else, and must not be taken for the wanted ones."""
PREFIXES = {"eu-central-1": "EUC1-", "eu-west-1": "EU-", "us-east-1": "", "ap-southeast-2": "APS2-"}


def prefixed(usage: str, region: str) -> str:
    """A usage type as a region's list has it: that of a key begins with the region itself."""
    if usage.startswith("KMS-"):
        return f"{region}-{usage}"
    return usage if usage.startswith("Dashboards") else PREFIXES[region] + usage


def all_lists(region: str = "eu-central-1") -> list[dict[str, Any]]:
    """A list for each price, in which something dearer comes with what is wanted."""
    made = []
    for number, (name, wanted) in enumerate(WANTED.items(), start=1):
        attributes = {"groupDescription": "LoadBalancer hourly usage by Application Load Balancer"}
        if wanted.global_:
            attributes |= {"location": "Any", "regionCode": ""}
        usages = [(prefixed(USAGES[name], region), attributes, [str(number)])]
        if name in OTHERS:
            usages.append((prefixed(OTHERS[name], region), attributes, ["99"]))
        made.append(price_list(wanted.offer, *usages, region=region))
    return made


@pytest.mark.parametrize("region", PREFIXES)
def test_every_price_is_found_by_its_usage_type_and_no_other_is_taken_for_it(region: str) -> None:
    done = updated(FORMER, all_lists(region))
    assert done.kept == ()
    assert {name: done.document[name] for name in WANTED} == {name: n for n, name in enumerate(WANTED, start=1)}
    assert (done.document["region"], done.document["as_of"]) == (region, "2026-11-01")
    assert done.document["emr_job_vcpu"] == FORMER["emr_job_vcpu"]
    assert done.document["checked"].keys() == WANTED.keys()
    assert done.document["checked"]["kms_key_month"] == "AWS price list awskms, 2026-11-01"


def test_of_tiers_and_the_free_tier_the_highest_price_counts_and_other_products_none() -> None:
    listed = price_list(
        "AWSLambda",
        ("EUC1-Lambda-GB-Second", {}, ["0.0000000000", "0.0000166667", "0.0000150000"]),
        ("EUC1-Lambda-GB-Second-ARM", {}, ["9"]),
        ("EUC1-Lambda-Provisioned-GB-Second", {}, ["9"]),
        region=FORMER["region"],
    )
    done = updated(FORMER, [listed])
    assert done.found == ("lambda_gb_second", "lambda_gb_second_arm")
    assert done.document["lambda_gb_second"] == 0.0000166667
    assert done.document["as_of"] == FORMER["as_of"], "a former price remains"
    assert done.document["checked"]["lambda_request"] == FORMER["checked"]["lambda_request"]
    assert done.document["checked"]["lambda_gb_second"] == "AWS price list AWSLambda, 2026-11-01"


def test_what_is_the_same_everywhere_may_be_absent_from_the_lists_of_another_region() -> None:
    regional = [one for one, wanted in zip(all_lists(), WANTED.values(), strict=True) if not wanted.global_]
    done = updated(FORMER, regional)
    assert (done.kept, done.document["region"]) == (("cloudwatch_dashboard_month",), "eu-central-1")


def test_every_price_says_what_it_was_checked_against() -> None:
    assert FORMER["checked"].keys() == WANTED.keys()
    assert [name for name, text in FORMER["checked"].items() if not re.search(r" 20\d\d-\d\d(?:-\d\d)?$", text)] == []


def test_lists_that_do_not_belong_together_are_refused() -> None:
    one, other = (
        price_list("AmazonS3", ("Requests-Tier1", {}, ["1"])),
        price_list("AWSLambda", ("Request", {}, ["1"]), region="us-east-1"),
    )
    with pytest.raises(CommandError, match="one region", check=coded("PRICE_LIST_REFUSED")):
        updated(FORMER, [one, other])
    with pytest.raises(
        CommandError, match=r"eu-central-1 lack .*those of us-east-1", check=coded("PRICE_LIST_REFUSED")
    ):
        updated(FORMER, [one])
    with pytest.raises(CommandError, match="and have none", check=coded("PRICE_LIST_REFUSED")):
        updated(FORMER, [price_list("AWSLambda", ("Lambda-Edge-Request", {}, ["9"]))])
    with pytest.raises(CommandError, match="no price list", check=coded("PRICE_LIST_REFUSED")):
        updated(FORMER, [{"products": {}}])


def test_the_command_writes_a_file_that_the_estimate_reads(run: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    listed = price_list(
        "AWSELB", ("LoadBalancerUsage", {"operation": "LoadBalancing:Application"}, ["1"]), region="us-east-1"
    )
    Path("elb.json").write_text(json.dumps(listed))
    done = run("prices", "update", "elb.json", "--json")
    assert json.loads(done.stdout)["found"] == ["load_balancer_hour"]
    assert prices_of(Path("prices.json")).load_balancer_hour == 1
    month = run("estimate", "--monthly", "--prices", "prices.json", "--tables", "0", "--json")
    hours = next(line for line in json.loads(month.stdout)["lines"] if line["what"] == "hours")
    assert hours["cost"] == 730
    refused = run("prices", "update", "absent.json")
    assert (refused.exit_code, "absent.json cannot be read" in refused.stderr) == (1, True)
    assert run("estimate").exit_code == 2
    Path("poor.json").write_text("{}")
    assert "lacks prices: as_of" in run("estimate", "--monthly", "--prices", "poor.json").stderr
