"""The section "A month" of docs/costs.md: `make regenerate` writes it from the price file and the code."""

from pathlib import Path
from textwrap import fill
from typing import Any, Final

from delegation.cli.deployment.costs import (
    BUNDLED,
    HOURS,
    INVOCATIONS,
    METRICS,
    EngineName,
    MonthlyPrices,
    NetworkChoice,
    Workload,
    document_of,
    monthly,
    prices_of,
    total,
)
from infra.environment.context import ROOT

PAGE: Final = ROOT / "docs" / "costs.md"
BEGIN: Final = "## A month\n"
END: Final = "## The reference index\n"
WORKLOADS: Final = (
    Workload(0, 0),
    Workload(100, 10_000),
    Workload(1_000, 100_000),
    Workload(1_000, 100_000, EngineName.SPARK),
    Workload(10_000, 10_000),
    Workload(100, 1_000_000),
    Workload(100, 1_000_000, EngineName.SPARK),
)


def section(prices: MonthlyPrices) -> str:
    """Return the section with the cost of some workloads, in both network profiles."""
    rows = [
        f"| {work.tables:,} | {work.files:,} | {work.engine} | {_cost(work, prices)} | "
        f"{_cost(Workload(work.tables, work.files, work.engine, NetworkChoice.REGIONAL), prices)} |"
        for work in WORKLOADS
    ]
    return f"""{BEGIN}
`delegation estimate --monthly --tables N --files N` itemises a month: Lambda, Step Functions, DynamoDB, SQS, S3, EMR
Serverless, CloudWatch, and what each network profile has, whether tables are purged or not. Some totals in
{prices.currency}, with the prices of {prices.region} of {prices.as_of}, before free tiers, storage and data transfer:

| tables | files of each | engine | private | regional |
|---|---|---|---|---|
{chr(10).join(rows)}

Most of a month is what runs without a purge: interface endpoints, the load balancer, metrics and alarms. DELETE
requests are free, but both engines delete with DeleteObjects, a POST for up to 1,000 keys, which is counted as one.
One purge is {INVOCATIONS} invocations of functions at most: three requests and their authorizers, the dispatcher, four
steps. Each NAT gateway (`--nat-gateways`) adds {prices.nat_gateway_hour * HOURS:.2f} USD, and 0.045 for each GB through
it. CloudWatch counts each set of dimensions as a metric: {METRICS} where every purge succeeds, six more for each error
code. KMS is counted as if every object of a plan needed a request of its own.
Not counted are a load balancer's capacity units (0.008 USD for one in an hour) and storage: of DynamoDB 0.25 USD for
a GB in a month, of S3 0.023, of logs 0.03 (AWS' lists of us-east-1, 2026).

### Your region's prices

The totals are those of the default deployment, on arm64; `--architecture x86_64` has the others. For another region
copy `functions/delegation/removal/prices.json` and write that region's prices into the copy, from the pages of AWS or
its price lists (AWS Billing User Guide, "Getting price list files"). `delegation estimate --monthly --prices FILE`
uses it. Written over the original and packaged, it is also what `delegation estimate TASK_ID` uses.

### What the prices were checked against

The prices were compared with AWS' price lists of us-east-1 as public projects recorded them, and with pages of AWS.
None differed. `checked` in the price file names list and date for each. Not compared with AWS' lists:
{_not_compared(document_of(BUNDLED))}.

"""


def with_section(page: str, prices: MonthlyPrices) -> str:
    """Return the page with its section made anew, before the next section."""
    before, _, after = page.partition(END)
    return before.partition(BEGIN)[0] + section(prices) + END + after


def _not_compared(stored: dict[str, Any]) -> str:
    """Return the prices that could not be compared with a list of AWS."""
    names = [f"`{name}`" for name, source in stored["checked"].items() if source.startswith("not against AWS")]
    return fill(", ".join(names), 112)


def _cost(work: Workload, prices: MonthlyPrices) -> str:
    return f"{total(monthly(work, prices)):,.2f}"


def files() -> dict[Path, str]:
    return {PAGE: with_section(PAGE.read_text(encoding="utf-8"), prices_of(None))}
