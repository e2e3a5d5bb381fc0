"""The section "A month" of docs/costs.md: `make regenerate` writes it from the price file and the code."""

from pathlib import Path
from typing import Final

from delegation.cli.deployment import costs
from infra.environment.context import ROOT

PAGE: Final = ROOT / "docs" / "costs.md"
BEGIN: Final = "## A month\n"
END: Final = "## The reference index\n"
WORKLOADS: Final = (
    costs.Workload(0, 0),
    costs.Workload(100, 10_000),
    costs.Workload(1_000, 100_000),
    costs.Workload(1_000, 100_000, costs.EngineName.SPARK),
    costs.Workload(10_000, 10_000),
    costs.Workload(100, 1_000_000),
    costs.Workload(100, 1_000_000, costs.EngineName.SPARK),
)


def section(prices: costs.MonthlyPrices) -> str:
    """Return the section with the cost of some workloads, in both network profiles."""
    rows = [
        f"| {work.tables:,} | {work.files:,} | {work.engine} | {_cost(work, prices)} | "
        f"{_cost(costs.Workload(work.tables, work.files, work.engine, costs.NetworkChoice.REGIONAL), prices)} |"
        for work in WORKLOADS
    ]
    return f"""{BEGIN}
Costs per month are in {prices.currency}, at the {prices.region} prices of {prices.as_of}, without free tiers, storage
and data transfer:

| tables purged per month | files per table | engine | private profile | regional profile |
|---|---|---|---|---|
{chr(10).join(rows)}

- The first row is the fixed cost: interface endpoints, the load balancer, metrics and alarms.
- Each NAT gateway (`--nat-gateways`) adds {prices.nat_gateway_hour * costs.HOURS:.2f} USD, and 0.045 USD per GB.
- CloudWatch bills {costs.METRICS} metrics if every purge succeeds. Each error code adds six metrics.
- Not included are the gateway, [upkeep](#a-pass-of-upkeep), expiries, compactions (their [dry run](compaction.md)
  states the cost), load balancer capacity units (0.008 USD an hour each) and storage. A GB costs 0.25 USD a month in
  DynamoDB, 0.023 USD in S3 and 0.03 USD in logs.

### Your region's prices

Copy `functions/delegation/removal/prices.json` and replace the prices. `checked` names the source of each price. Run
`delegation estimate --monthly --prices FILE`; for x86, add `--architecture x86_64`. For `delegation estimate TASK_ID`,
package your file in place of the original.

"""


def with_section(page: str, prices: costs.MonthlyPrices) -> str:
    """Return the page with its section made anew, before the next section."""
    before, _, after = page.partition(END)
    return before.partition(BEGIN)[0] + section(prices) + END + after


def _cost(work: costs.Workload, prices: costs.MonthlyPrices) -> str:
    return f"{costs.total(costs.monthly(work, prices)):,.2f}"


def files() -> dict[Path, str]:
    return {PAGE: with_section(PAGE.read_text(encoding="utf-8"), costs.prices_of(None))}
