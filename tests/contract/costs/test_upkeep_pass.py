"""What a pass of upkeep costs (docs/costs.md), counted: requests to the catalog, reads, writes and money."""

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest

from delegation.cli.deployment.costs import BUNDLED, document_of
from delegation.upkeep.health.model import ReadState, SnapshotChange
from delegation.upkeep.health.reading import history_in
from delegation.upkeep.health.store import health_item
from polaris_common.dynamodb import to_item
from tests.contract.costs.metering import item_size
from tests.paths import ROOT
from tests.unit.upkeep.execution.catalogs import WEEK, metadata, named
from tests.unit.upkeep.execution.test_bad_tables import Archive, CountingHealths

PAGE = ROOT / "docs" / "costs.md"
PAGE_TABLES = 10_000
UNIT = 1024
HALF_UNIT_FOR = 8 * 1024
"""Bytes that an eventually consistent read has for one unit (Amazon DynamoDB developer guide, read capacity)."""


# More tables than the thousand whose own policies a pass reads.
@pytest.fixture(scope="module", params=[1_250, pytest.param(PAGE_TABLES, marks=pytest.mark.long)], ids="{:,}".format)
def world(request: pytest.FixtureRequest) -> Archive:
    """Tables whose snapshots are young, after passes that have read the policies of all."""
    here, tables = Archive(), request.param
    document = metadata("t", [5.0, 1.0])
    state = ReadState(document["table-uuid"], 1, {}, {1: SnapshotChange(100, 0, 0)}, history_in(document))
    here.write("t", [5.0, 1.0])
    for number in range(tables - 1):
        here.healths.put(replace(here.health("t"), identifier=named(f"t{number}"), revision=0), state)
    for _ in range(tables // 1_000 + 2):
        here.run()
        here.later(minutes=1)
    return here


@dataclass(frozen=True)
class PassCost:
    """What a pass costs over as many tables as the page has."""

    asked: int
    loads: int
    writes: int
    write_units: int
    read_units: int

    @property
    def money(self) -> float:
        prices: Any = document_of(BUNDLED)
        return self.write_units * prices["dynamodb_write_unit"] + self.read_units * prices["dynamodb_read_unit"]


def counted(here: Archive, *, all_written: bool = False) -> PassCost:
    """Make a pass; count requests for policies, loads, writes, and units of the table."""
    assert isinstance(here.healths, CountingHealths)
    for counter in (here.policies.asked, here.loads, here.healths.puts):
        counter.clear()
    here.run()
    sizes = [item_size(to_item(health_item(one))) for one in here.healths.healths("lake")]
    scale = PAGE_TABLES // len(sizes)
    writes = here.healths.puts.total() * (scale if all_written else 1)
    units = writes * math.ceil(max(sizes) / UNIT)
    read = scale * math.ceil(sum(sizes) / HALF_UNIT_FOR)
    return PassCost(here.policies.asked.total(), here.loads.total(), writes, units, read)


def page() -> list[str]:
    return PAGE.read_text().splitlines()


def row(text: str, found: PassCost) -> str:
    return f"| {text} | {found.asked:,} | {found.loads:,} | {found.writes:,} | {found.money:.5f} |"


def test_a_pass_over_tables_that_need_nothing_costs_what_the_page_states(world: Archive) -> None:
    found = counted(world)
    assert (found.loads, found.writes) == (0, 0)
    assert row("no table needs anything", found) in page()
    assert f"an idle catalog costs {96 * found.money:.3f} USD a day" in " ".join(page())


def test_a_pass_after_a_change_of_the_rule_costs_what_the_page_states(world: Archive) -> None:
    changed = {"enable": True, "config": {"max_snapshot_age_days": 8}}
    world.policies.attach(changed, "ns")
    assert row("the namespace's policy changed", counted(world, all_written=True)) in page()
    world.policies.attach(WEEK, "ns")
    world.run()


def test_a_pass_that_starts_runs_costs_what_the_page_states(world: Archive) -> None:
    world.later(hours=1)
    for number in range(16):
        world.write(f"t{number}", [30.0, 20.0, 1.0])
    assert row("16 tables need an expiry", counted(world)) in page()
