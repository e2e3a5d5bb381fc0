"""The section "A month" of docs/costs.md: `make regenerate` writes it from the price file and the code."""

from pathlib import Path
from typing import Final

from delegation.cli.deployment.costs import (
    HOURS,
    INVOCATIONS,
    METRICS,
    EngineName,
    MonthlyPrices,
    NetworkChoice,
    Workload,
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
{prices.currency} with the prices of {prices.region} of {prices.as_of}, before free tiers, storage and data transfer:

| tables | files of each | engine | private | regional |
|---|---|---|---|---|
{chr(10).join(rows)}

- Most of it is paid without a purge: interface endpoints, the load balancer, metrics and alarms. A purge is at most
  {INVOCATIONS} invocations of functions.
- Each NAT gateway (`--nat-gateways`) adds {prices.nat_gateway_hour * HOURS:.2f} USD, and 0.045 for each GB.
- CloudWatch counts {METRICS} metrics where every purge succeeds, and six more for each error code.
- Not counted: capacity units of the load balancer (0.008 USD an hour each), and a GB in a month of DynamoDB (0.25), S3
  (0.023) and logs (0.03).

### Your region's prices

Copy `functions/delegation/removal/prices.json`, write your region's prices into it, and name it with
`delegation estimate --monthly --prices FILE`. If you package it in place of the original, `delegation estimate TASK_ID`
uses it too. The totals are for arm64 (`--architecture x86_64` for the others). `checked` in the file names the source
of each price.

"""


def with_section(page: str, prices: MonthlyPrices) -> str:
    """Return the page with its section made anew, before the next section."""
    before, _, after = page.partition(END)
    return before.partition(BEGIN)[0] + section(prices) + END + after


def _cost(work: Workload, prices: MonthlyPrices) -> str:
    return f"{total(monthly(work, prices)):,.2f}"


def files() -> dict[Path, str]:
    return {PAGE: with_section(PAGE.read_text(encoding="utf-8"), prices_of(None))}
