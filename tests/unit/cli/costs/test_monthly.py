"""A month's cost: what the code counts is what docs/costs.md measured, and the page is made from it."""

import re

from hypothesis import given
from hypothesis import strategies as st

from delegation.cli.costs import commands
from delegation.cli.costs import monthly as counted
from delegation.cli.costs.commands import prices_of
from delegation.cli.costs.monthly import EngineName, MonthlyPrices, NetworkChoice, Workload, monthly, total
from infra.costs_page import PAGE, with_section
from infra.network_settings import NetworkProfile
from infra.operations.alarms import ALARMS, ALWAYS, NOTIFICATION_ALARMS
from tests.paths import DOCS

PRICES = prices_of(None)
COSTS = PAGE.read_text(encoding="utf-8")
works = st.builds(
    Workload, st.integers(0, 10**5), st.integers(0, 10**7), st.sampled_from(EngineName), st.sampled_from(NetworkChoice)
)


def test_the_page_is_made_from_the_code() -> None:
    assert with_section(COSTS, PRICES) == COSTS, "python -m infra.costs_page"


def test_units_of_a_purge_are_the_measured_ones() -> None:
    for engine, place in ((EngineName.INLINE, "Lambda"), (EngineName.SPARK, "Spark job")):
        row = re.search(rf"\| background purge, in a {place} \| \d+ \| (\d+) \| (\d+) \|", COSTS)
        assert row is not None
        assert (int(row[1]), int(row[2])) == (counted.WRITE_UNITS, counted.READ_CALLS[engine])


def test_what_is_there_without_a_purge_is_counted() -> None:
    assert len(ALWAYS) == counted.ALARMS
    assert (len(NOTIFICATION_ALARMS), len(ALARMS) - len(ALWAYS)) == (3, 10), "as the estimate's comment says"
    rows = re.findall(r"^\| `\w+", (DOCS / "metrics.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert abs(len(rows) - counted.METRICS) <= 5, "about as many custom metrics"
    assert {each.value for each in NetworkChoice} == {each.value for each in NetworkProfile}


def test_every_price_counts() -> None:
    whole = sum(total(monthly(Workload(10, 10_000, EngineName.SPARK, each), PRICES)) for each in NetworkChoice)
    for name in MonthlyPrices.model_fields.keys() - {"as_of", "region", "currency", "lambda_gb"}:
        dearer = PRICES.model_copy(update={name: getattr(PRICES, name) * 2})
        more = sum(total(monthly(Workload(10, 10_000, EngineName.SPARK, each), dearer)) for each in NetworkChoice)
        assert more > whole, name


@given(works)
def test_more_tables_or_files_never_cost_less(work: Workload) -> None:
    cost = total(monthly(work, PRICES))
    more = Workload(work.tables + 1, work.files, work.engine, work.network)
    larger = Workload(work.tables, work.files * 2, work.engine, work.network)
    assert cost <= total(monthly(more, PRICES))
    assert cost <= total(monthly(larger, PRICES)) + 1e-9


def test_the_screen_says_what_was_assumed_and_no_use_as_none(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    commands.print_monthly(Workload(100, 10_000), PRICES, as_json=False)
    text = capsys.readouterr().out
    assert "100 tables of 10,000 files each are purged: inline engine, private network." in text
    assert not re.search(r"logs, GB +0 ", text)
    assert [commands.quantity_text(one) for one in (0, 0.0934, 1, 2.5, 12.6, 21_900)] == [
        *("", "0.093", "1", "2.5", "13", "21,900")
    ]
