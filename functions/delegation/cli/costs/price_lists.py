"""Prices from AWS' bulk price lists (AWS Billing User Guide, "Getting price list files manually").

A list is the JSON of one service and region ("Reading the service price list file for an AWS service"): `products` with
attributes, `terms.OnDemand` with prices in USD.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delegation.cli.errors import CommandError

_REGION: Final = r"(?:(?:EU|[A-Z]{2,4}\d{1,2}|[a-z]{2}(?:-[a-z]+)+-\d)-)?"
"""The region in a usage type: EUC1-, EU- of eu-west-1, eu-central-1- of a key; that of us-east-1 is often left out.

Other capitals with a hyphen are another product: IA-WriteRequestUnits, TS-LoadBalancerUsage.
"""


@dataclass(frozen=True, slots=True)
class PriceQuery:
    """Where a price is: the offer's code, the pattern of the usage type, and of the group or operation if needed.

    One that is `global_` is the same in all regions, so the lists of a region may lack it.
    """

    offer: str
    usage: str
    group: str | None = None
    global_: bool = False

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Return whether a product is the one."""
        text = (
            f"{attributes.get('group', '')} {attributes.get('groupDescription', '')} {attributes.get('operation', '')}"
        )
        return re.fullmatch(_REGION + self.usage, attributes.get("usagetype", "")) is not None and (
            self.group is None or re.search(self.group, text) is not None
        )


WANTED: Final[Mapping[str, PriceQuery]] = {
    "s3_write_request": PriceQuery("AmazonS3", "Requests-Tier1"),
    "s3_read_request": PriceQuery("AmazonS3", "Requests-Tier2"),
    "s3_gb_month": PriceQuery("AmazonS3", "TimedStorage-ByteHrs"),
    "emr_vcpu_hour": PriceQuery("ElasticMapReduce", "EMR-SERVERLESS-vCPUHours"),
    "emr_gb_hour": PriceQuery("ElasticMapReduce", "EMR-SERVERLESS-MemoryGBHours"),
    "lambda_gb_second": PriceQuery("AWSLambda", "Lambda-GB-Second"),
    "lambda_request": PriceQuery("AWSLambda", "Request"),
    "states_transition": PriceQuery("AmazonStates", "StateTransition"),
    "dynamodb_write_unit": PriceQuery("AmazonDynamoDB", "WriteRequestUnits"),
    "dynamodb_read_unit": PriceQuery("AmazonDynamoDB", "ReadRequestUnits"),
    "sqs_request": PriceQuery("AWSQueueService", "Requests-(?:RBP|Tier1)"),
    "api_request": PriceQuery("AmazonApiGateway", "ApiGatewayRequest"),
    "cloudwatch_metric_month": PriceQuery("AmazonCloudWatch", "CW:MetricMonitorUsage"),
    "cloudwatch_alarm_month": PriceQuery("AmazonCloudWatch", "CW:AlarmMonitorUsage"),
    "cloudwatch_dashboard_month": PriceQuery("AmazonCloudWatch", "DashboardsUsageHour(?:-Basic)?", global_=True),
    "logs_gb": PriceQuery("AmazonCloudWatch", "DataProcessing-Bytes"),
    "kms_key_month": PriceQuery("awskms", "KMS-Keys"),
    "secret_month": PriceQuery("AWSSecretsManager", "AWSSecretsManager-Secrets?"),
    "vpc_endpoint_hour": PriceQuery("AmazonVPC", "VpcEndpoint-Hours"),
    "load_balancer_hour": PriceQuery("AWSELB", "LoadBalancerUsage", "(?i)application"),
    "load_balancer_trust_store_hour": PriceQuery("AWSELB", "TS-LoadBalancerUsage"),
    "lambda_gb_second_arm": PriceQuery("AWSLambda", "Lambda-GB-Second-ARM"),
    "emr_vcpu_hour_arm": PriceQuery("ElasticMapReduce", "EMR-SERVERLESS-ARM-vCPUHours"),
    "emr_gb_hour_arm": PriceQuery("ElasticMapReduce", "EMR-SERVERLESS-ARM-MemoryGBHours"),
    "kms_request": PriceQuery("awskms", "KMS-Requests"),
    "xray_trace": PriceQuery("AWSXRay", "XRay-TracesStored"),
    "waf_acl_month": PriceQuery("awswaf", "WebACLV2"),
    "waf_rule_month": PriceQuery("awswaf", "RuleV2"),
}


@dataclass(frozen=True, slots=True)
class Updated:
    """A price file made from lists: its document, the prices that were found, and those that stay as they were."""

    document: dict[str, Any]
    found: tuple[str, ...]
    kept: tuple[str, ...]


def updated(former: Mapping[str, Any], lists: Sequence[Mapping[str, Any]]) -> Updated:
    """Return the former price file with the prices of lists; raises CommandError (PRICE_LIST_REFUSED).

    The date is that of the oldest list, or the former one while a former price remains. `checked` has what each price
    is from.
    """
    regions = {region for each in lists for region in _regions(each)}
    if len(regions) != 1:
        named = ", ".join(sorted(regions)) or "none"
        raise CommandError(
            f"the lists must be of one region, and have {named}",
            "Download each for your region.",
            code="PRICE_LIST_REFUSED",
        )
    [region] = regions
    prices: dict[str, float] = {}
    days: dict[str, str] = {}
    for each in lists:
        found = dict(_prices(each))
        prices |= found
        days |= dict.fromkeys(found, str(each["publicationDate"])[:10])
    kept = tuple(name for name in WANTED if name not in prices)
    missing = [name for name in kept if not WANTED[name].global_]
    if missing and region != former["region"]:
        offers = ", ".join(sorted({WANTED[name].offer for name in missing}))
        raise CommandError(
            f"the lists of {region} lack {', '.join(missing)}, and the former prices are those of {former['region']}",
            f"Give the lists of these services too: {offers}.",
            code="PRICE_LIST_REFUSED",
        )
    sources = {name: f"AWS price list {WANTED[name].offer}, {day}" for name, day in days.items()}
    checked = {name: text for name, text in former.get("checked", {}).items() if name in kept} | sources
    dates = [str(each["publicationDate"])[:10] for each in lists] + ([former["as_of"]] if kept else [])
    document = {**former, **prices, "as_of": min(dates), "region": region, "currency": "USD", "checked": checked}
    return Updated(document, tuple(sorted(prices)), kept)


def _regions(offered: Mapping[str, Any]) -> Iterator[str]:
    """Yield the regions of the products that are wanted; a list also has traffic to others, and what has none."""
    if not {"offerCode", "publicationDate", "products", "terms"} <= offered.keys():
        raise CommandError(
            "a file is no price list of AWS", "Give the index.json of a service and region.", code="PRICE_LIST_REFUSED"
        )
    attributes = [product["attributes"] for product in offered["products"].values()]
    queries = [query for query in WANTED.values() if query.offer == offered["offerCode"]]
    wanted = [each for each in attributes if any(query.matches(each) for query in queries)]
    yield from (each["regionCode"] for each in wanted if each.get("regionCode"))


def _prices(offered: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the prices that a list has; of tiers and of the free tier the highest price counts."""
    on_demand = offered["terms"].get("OnDemand", {})
    for name, wanted in WANTED.items():
        if wanted.offer != offered["offerCode"]:
            continue
        listed = [
            float(dimension["pricePerUnit"]["USD"])
            for sku, product in offered["products"].items()
            if wanted.matches(product["attributes"])
            for term in on_demand.get(sku, {}).values()
            for dimension in term["priceDimensions"].values()
            if "USD" in dimension["pricePerUnit"]
        ]
        if listed:
            yield name, max(listed)
