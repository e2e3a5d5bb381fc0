"""A month's cost: what the code counts is what docs/costs.md measured, and the page is made from it."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.cli.deployment import costs as commands
from delegation.cli.deployment import costs as counted
from delegation.cli.deployment.costs import (
    BUNDLED,
    EngineName,
    MonthlyPrices,
    NetworkChoice,
    Workload,
    document_of,
    monthly,
    prices_of,
    total,
)
from delegation.cli.output import Output
from delegation.metrics import METRICS
from infra import settings
from infra.costs_page import PAGE
from infra.network_settings import NetworkProfile
from infra.operations.alarms import ALARMS, ALWAYS, FRONT_ALARMS, NOTIFICATION_ALARMS
from tests.paths import DOCS

PRICES = prices_of(None)
COSTS = PAGE.read_text(encoding="utf-8")
works = st.builds(
    Workload, st.integers(0, 10**5), st.integers(0, 10**7), st.sampled_from(EngineName), st.sampled_from(NetworkChoice)
)


def test_units_of_a_purge_are_the_measured_ones() -> None:
    for engine, place in ((EngineName.INLINE, "Lambda"), (EngineName.SPARK, "Spark job")):
        row = re.search(rf"\| background purge, in a {place} \| \d+ \| (\d+) \| (\d+) \|", COSTS)
        assert row is not None
        assert (int(row[1]), int(row[2])) == (counted.WRITE_UNITS, counted.READ_CALLS[engine])


def test_what_is_there_without_a_purge_is_counted() -> None:
    assert len(ALWAYS) == counted.ALARMS
    assert len(FRONT_ALARMS) == counted.FRONT_ALARMS
    assert (len(NOTIFICATION_ALARMS), len(ALARMS) - len(ALWAYS)) == (3, 10), "as the estimate's comment says"
    alarms = {
        network: next(
            line.quantity
            for line in monthly(Workload(1, 1, EngineName.INLINE, network), PRICES)
            if line.what == "alarms"
        )
        for network in NetworkChoice
    }
    assert alarms[NetworkChoice.PRIVATE] - alarms[NetworkChoice.REGIONAL] == len(FRONT_ALARMS)
    plain = [metric for metric in METRICS.values() if not metric.by]
    by_kind = [metric for metric in METRICS.values() if "kind" in metric.by]
    by_operation = len(METRICS) - len(plain) - len(by_kind)
    assert len(plain) + by_operation + 3 * len(by_kind) == counted.METRICS, "each set of dimensions is one"
    assert sum("code" in metric.by for metric in METRICS.values()) == 6, "as the page says"
    rows = re.findall(r"^\| `\w+", (DOCS / "metrics.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == len(METRICS)
    assert {each.value for each in counted.Architecture} == {each.value for each in settings.Processor}
    assert {each.value for each in NetworkChoice} == {each.value for each in NetworkProfile}


def test_every_price_counts() -> None:
    works = [
        Workload(10, 10_000, EngineName.SPARK, network, processor, 1)
        for network in NetworkChoice
        for processor in counted.Architecture
    ]
    whole = sum(total(monthly(work, PRICES)) for work in works)
    # Only the estimate of a rewrite has the price of stored bytes: the service itself stores next to none.
    for name in MonthlyPrices.model_fields.keys() - {"as_of", "region", "currency", "lambda_gb", "s3_gb_month"}:
        dearer = PRICES.model_copy(update={name: getattr(PRICES, name) * 2})
        more = sum(total(monthly(work, dearer)) for work in works)
        assert more > whole, name


def test_arm_costs_less_and_a_gateway_more() -> None:
    arm, x86 = (total(monthly(Workload(1_000, 100_000, processor=one), PRICES)) for one in counted.Architecture)
    assert arm < x86
    with_nat = total(monthly(Workload(1_000, 100_000, nat_gateways=2), PRICES))
    assert with_nat - arm == pytest.approx(2 * 730 * PRICES.nat_gateway_hour)
    regional = Workload(1, 1, network=NetworkChoice.REGIONAL)
    assert monthly(replace(regional, nat_gateways=2), PRICES) == monthly(regional, PRICES), "it has no VPC"


@given(works)
def test_more_tables_or_files_never_cost_less(work: Workload) -> None:
    cost = total(monthly(work, PRICES))
    more = Workload(work.tables + 1, work.files, work.engine, work.network)
    larger = Workload(work.tables, work.files * 2, work.engine, work.network)
    assert cost <= total(monthly(more, PRICES))
    assert cost <= total(monthly(larger, PRICES)) + 1e-9


def test_the_screen_says_what_was_assumed_and_no_use_as_none(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    work = Workload(100, 10_000)
    Output().show(*commands.monthly_screens(work, PRICES, monthly(work, PRICES)))
    text = capsys.readouterr().out
    assert "100 tables of 10,000 files each are purged: inline engine, private network, arm64." in text
    assert not re.search(r"logs, GB +0 ", text)
    assert [commands.quantity_text(one) for one in (0, 0.0934, 1, 2.5, 12.6, 21_900)] == [
        *("", "0.093", "1", "2.5", "13", "21,900")
    ]


def test_every_price_says_what_it_was_checked_against() -> None:
    found = document_of(BUNDLED)["checked"]
    assert [name for name, text in found.items() if not re.search(r" 20\d\d-\d\d(?:-\d\d)?$", text)] == []


def test_the_estimate_reads_a_price_file_and_names_what_it_lacks(run, tmp_path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({**document_of(BUNDLED), "load_balancer_hour": 1}))
    month = run("estimate", "--monthly", "--prices", str(prices), "--tables", "0", "--json")
    hours = next(line for line in json.loads(month.stdout)["lines"] if line["what"] == "hours")
    assert hours["cost"] == 730
    prices.write_text("{}")
    assert "lacks prices: as_of" in run("estimate", "--monthly", "--prices", str(prices)).stderr
    absent = run("estimate", "--monthly", "--prices", "absent.json")
    assert (absent.exit_code, "absent.json cannot be read" in absent.stderr) == (1, True)
    assert run("estimate").exit_code == 2
