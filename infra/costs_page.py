"""The section "A month" of docs/costs.md: `python -m infra.costs_page` writes it from the price file and the code."""

from typing import Final

from delegation.cli.costs.commands import prices_of
from delegation.cli.costs.monthly import EngineName, MonthlyPrices, NetworkChoice, Workload, monthly, total
from infra.environment.context import ROOT

PAGE: Final = ROOT / "docs" / "costs.md"
BEGIN: Final = "## A month\n"
END: Final = "## Operations\n"
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
The prices are those of the services' public pages at that date. They are to be refreshed from AWS' price lists, which
anyone may download (AWS Billing User Guide, "Getting price list files manually"):

    delegation prices update --to functions/delegation/operations/purge/prices.json AmazonS3.json AWSLambda.json …

What the given lists lack stays as it was, and the command names it; the price file has the date of its oldest price.
Written into the package, it is also what `delegation estimate TASK_ID` uses; `--prices FILE` names another one.

"""


def with_section(page: str, prices: MonthlyPrices) -> str:
    """Return the page with its section made anew, before the operations."""
    before, _, after = page.partition(END)
    return before.partition(BEGIN)[0] + section(prices) + END + after


def _cost(work: Workload, prices: MonthlyPrices) -> str:
    return f"{total(monthly(work, prices)):,.2f}"


def main() -> None:
    """Write the section."""
    PAGE.write_text(with_section(PAGE.read_text(encoding="utf-8"), prices_of(None)), encoding="utf-8")


if __name__ == "__main__":
    main()
