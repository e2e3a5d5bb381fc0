"""`delegation prices update`: prices from lists of AWS' form, and what a month costs with them."""

import json
from pathlib import Path
from typing import Any

import pytest

from delegation.cli.costs.commands import BUNDLED, document_of, prices_of
from delegation.cli.costs.price_lists import WANTED, PriceListRefused, updated

FORMER = document_of(BUNDLED)
Usage = tuple[str, dict[str, str], list[str]]


def price_list(offer: str, *usages: Usage, region: str = "eu-central-1", date: str = "2026-11-01") -> dict[str, Any]:
    """A price list as AWS publishes it; of each usage its type, further attributes, and the prices of its tiers."""
    products, terms = {}, {}
    for number, (usage, attributes, prices) in enumerate(usages):
        sku = f"SKU{number}"
        products[sku] = {"sku": sku, "attributes": {"regionCode": region, "usagetype": usage, **attributes}}
        tiers = {f"{sku}.T.{tier}": {"pricePerUnit": {"USD": price}} for tier, price in enumerate(prices)}
        terms[sku] = {f"{sku}.T": {"priceDimensions": tiers}}
    published = {"offerCode": offer, "publicationDate": f"{date}T10:00:00Z"}
    return {**published, "products": products, "terms": {"OnDemand": terms}}


def all_lists(region: str = "eu-central-1") -> list[dict[str, Any]]:
    usages = {
        "EMR": "EMR-SERVERLESS-vCPU-Hours",
        "emr_gb_hour": "EMR-SERVERLESS-GB-Hours",
        "emr_vcpu_hour": "EMR-SERVERLESS-vCPU-Hours",
        "lambda_request": "Request",
        "sqs_request": "Requests-RBP",
        "cloudwatch_dashboard_month": "DashboardsUsageHour",
        "load_balancer_trust_store_hour": "TrustStore-Hours",
    }
    made = []
    for number, (name, wanted) in enumerate(WANTED.items(), start=1):
        attributes = {"groupDescription": "LoadBalancer hourly usage by Application Load Balancer"}
        usage = (f"EUC1-{usages.get(name, wanted.usage)}", attributes, [str(number)])
        made.append(price_list(wanted.offer, usage, region=region))
    return made


def test_every_price_is_found_by_its_usage_type() -> None:
    done = updated(FORMER, all_lists())
    assert done.kept == ()
    assert {name: done.document[name] for name in WANTED} == {name: n for n, name in enumerate(WANTED, start=1)}
    assert (done.document["region"], done.document["as_of"]) == ("eu-central-1", "2026-11-01")
    assert done.document["emr_job_vcpu"] == FORMER["emr_job_vcpu"]


def test_of_tiers_and_the_free_tier_the_highest_price_counts_and_other_products_none() -> None:
    listed = price_list(
        "AWSLambda",
        ("EUC1-Lambda-GB-Second", {}, ["0.0000000000", "0.0000166667", "0.0000150000"]),
        ("EUC1-Lambda-GB-Second-ARM", {}, ["9"]),
        ("EUC1-Lambda-Provisioned-GB-Second", {}, ["9"]),
        region=FORMER["region"],
    )
    done = updated(FORMER, [listed])
    assert done.found == ("lambda_gb_second",)
    assert done.document["lambda_gb_second"] == 0.0000166667
    assert done.document["as_of"] == FORMER["as_of"], "a former price remains"


def test_lists_that_do_not_belong_together_are_refused() -> None:
    one, other = (
        price_list("AmazonS3", ("Requests-Tier1", {}, ["1"])),
        price_list("AWSLambda", ("Request", {}, ["1"]), region="us-east-1"),
    )
    with pytest.raises(PriceListRefused, match="one region"):
        updated(FORMER, [one, other])
    with pytest.raises(PriceListRefused, match=r"eu-central-1 lack .*those of us-east-1"):
        updated(FORMER, [one])
    with pytest.raises(PriceListRefused, match="no price list"):
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
