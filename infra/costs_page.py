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
Costs are in {prices.currency}, at the {prices.region} prices of {prices.as_of}, without free tiers, storage and data
transfer:

| tables purged | files per table | engine | private profile | regional profile |
|---|---|---|---|---|
{chr(10).join(rows)}

- The first row is the fixed cost: interface endpoints, the load balancer, metrics and alarms. A purge adds at most
  {INVOCATIONS} Lambda invocations.
- Each NAT gateway (`--nat-gateways`) adds {prices.nat_gateway_hour * HOURS:.2f} USD, and 0.045 USD per GB.
- CloudWatch bills {METRICS} metrics if every purge succeeds. Each error code adds six metrics.
- Not included are load balancer capacity units (0.008 USD an hour each) and storage. A GB costs 0.25 USD a month in
  DynamoDB, 0.023 USD in S3 and 0.03 USD in logs.

### Your region's prices

Copy `functions/delegation/removal/prices.json` and replace the prices. `checked` names the source of each price. Run
`delegation estimate --monthly --prices FILE`; for x86, add `--architecture x86_64`. For `delegation estimate TASK_ID`,
package your file in place of the original.

"""


def with_section(page: str, prices: MonthlyPrices) -> str:
    """Return the page with its section made anew, before the next section."""
    before, _, after = page.partition(END)
    return before.partition(BEGIN)[0] + section(prices) + END + after


def _cost(work: Workload, prices: MonthlyPrices) -> str:
    return f"{total(monthly(work, prices)):,.2f}"


def files() -> dict[Path, str]:
    return {PAGE: with_section(PAGE.read_text(encoding="utf-8"), prices_of(None))}
