"""A small month of upkeep: every table is kept, drops are not slowed, and the budget of a day holds."""

from dataclasses import replace
from datetime import timedelta

import pytest

from delegation.upkeep.schedule import Budget
from tests.unit.upkeep.bad_month import PassedMonth, compare
from tests.unit.upkeep.month import Month, simulate, table_of

SMALL = Month(tables=150, days=8, drops=200, everything=20)


def test_every_table_is_kept_and_none_waits_for_longer_than_a_day_where_there_is_room_for_all() -> None:
    found = simulate(SMALL)
    assert len(found.tables_run) == SMALL.tables
    assert found.longest_need <= timedelta(days=1)
    assert found.most_at_once <= 16
    assert found.micros > 0


@pytest.mark.long
def test_more_runs_at_once_shorten_the_wait_where_tables_are_many_and_the_drops_wait_no_longer() -> None:
    many = replace(SMALL, tables=600, at_once=2)
    found, faster, alone = (simulate(one) for one in (many, replace(many, at_once=8), replace(many, upkeep=False)))
    assert faster.longest_need < found.longest_need / 2
    assert found.drops == faster.drops == alone.drops


def test_a_storm_of_drops_starts_as_fast_beside_upkeep_as_without_it() -> None:
    found, alone = simulate(SMALL), simulate(replace(SMALL, upkeep=False))
    assert len(found.drops) == SMALL.drops
    assert found.drops == alone.drops
    assert alone.runs == 0


def test_a_budget_holds_each_day_and_the_rest_is_done_on_later_days() -> None:
    most = max(simulate(SMALL).most_in_a_day.values())
    found = simulate(replace(SMALL, days=20, budget=Budget(bytes=most // 3)))
    assert max(found.most_in_a_day.values()) <= most // 3
    assert len(found.most_in_a_day) == 20
    assert found.tables_run


def test_the_outcome_is_a_table_for_people() -> None:
    month = replace(SMALL, tables=5, days=2, drops=0)
    text = table_of(month, simulate(month), simulate(replace(month, upkeep=False)), 1.0)
    assert "tables, days" in text
    assert "drops beside upkeep       none" in text


@pytest.mark.long
def test_good_tables_wait_no_longer_beside_bad_ones_of_every_kind() -> None:
    text, is_short = compare(PassedMonth(tables=40, days=3, at_once=1, bad=1, seed=3))
    assert is_short, text
    assert "5xx, damaged, too-large, policies, gone" in text
