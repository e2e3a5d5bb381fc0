"""What a pass of upkeep costs (docs/costs.md), counted: requests to the catalog, reads, writes and money."""

import math
from dataclasses import replace
from typing import Any

import pytest

from delegation.cli.deployment.costs import BUNDLED, document_of
from delegation.upkeep.health.model import ReadState, SnapshotChange
from delegation.upkeep.health.reading import history_in
from delegation.upkeep.health.store import _health_item
from polaris_common.dynamodb import to_item
from tests.contract.costs.metering import item_size
from tests.paths import ROOT
from tests.unit.upkeep.execution.catalogs import WEEK, metadata, named
from tests.unit.upkeep.execution.test_bad_tables import Archive, CountingHealths

PAGE = ROOT / "docs" / "costs.md"
TABLES = 10_000
UNIT = 1024
HALF_UNIT_FOR = 8 * 1024
"""Bytes that an eventually consistent read has for one unit (Amazon DynamoDB developer guide, read capacity)."""


@pytest.fixture(scope="module")
def world() -> Archive:
    """Ten thousand tables whose snapshots are young, after passes that have read the policies of all."""
    here = Archive()
    document = metadata("t", [5.0, 1.0])
    state = ReadState(document["table-uuid"], 1, {}, {1: SnapshotChange(100, 0, 0)}, history_in(document))
    here.write("t", [5.0, 1.0])
    for number in range(TABLES - 1):
        here.healths.put(replace(here.health("t"), identifier=named(f"t{number}"), revision=0), state)
    for _ in range(12):
        here.run()
        here.later(minutes=1)
    return here


def counted(here: Archive) -> tuple[int, int, int, float]:
    """Make a pass; return requests for policies, loads, writes, and what reads and writes of the table cost."""
    assert isinstance(here.healths, CountingHealths)
    for counter in (here.policies.asked, here.loads, here.healths.puts):
        counter.clear()
    here.run()
    sizes = [item_size(to_item(_health_item(one))) for one in here.healths.healths("lake")]
    prices: Any = document_of(BUNDLED)
    written = here.healths.puts.total() * math.ceil(max(sizes) / UNIT)
    read = math.ceil(sum(sizes) / HALF_UNIT_FOR)
    money = written * prices["dynamodb_write_unit"] + read * prices["dynamodb_read_unit"]
    return here.policies.asked.total(), here.loads.total(), here.healths.puts.total(), money


def page() -> list[str]:
    return PAGE.read_text().splitlines()


def row(text: str, found: tuple[int, int, int, float]) -> str:
    asked, loads, writes, money = found
    return f"| {text} | {asked:,} | {loads:,} | {writes:,} | {money:.5f} |"


def test_a_pass_over_tables_that_need_nothing_costs_what_the_page_states(world: Archive) -> None:
    found = counted(world)
    assert found[1:3] == (0, 0)
    assert row("no table needs anything", found) in page()
    assert f"96 passes a day over tables that need nothing cost {96 * found[3]:.3f} USD, and write nothing." in page()


def test_a_pass_after_a_change_of_the_rule_costs_what_the_page_states(world: Archive) -> None:
    changed = {"enable": True, "config": {"max_snapshot_age_days": 8}}
    world.policies.attach(changed, "ns")
    assert row("the policy of all has changed", counted(world)) in page()
    world.policies.attach(WEEK, "ns")
    world.run()


def test_a_pass_that_starts_runs_costs_what_the_page_states(world: Archive) -> None:
    world.later(hours=1)
    for number in range(16):
        world.write(f"t{number}", [30.0, 20.0, 1.0])
    assert row("16 tables changed, and their runs start", counted(world)) in page()
