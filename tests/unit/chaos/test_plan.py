"""The faults of a chaos run, and its tables, follow from its seed and its length alone."""

from collections import Counter

import pytest

from tests.chaos.load import FEWEST_TABLES, TABLES_IN_A_NAMESPACE, Make, load
from tests.chaos.plan import PARTS, Kind, planned


@pytest.mark.parametrize("minutes", [2, 5, 30])
def test_the_same_seed_and_length_give_the_same_run_and_another_seed_another(minutes):
    assert planned(7, minutes) == planned(7, minutes) != planned(8, minutes)
    assert load(7, minutes, 50) == load(7, minutes, 50) != load(8, minutes, 50)


@pytest.mark.parametrize("minutes", [2, 5, 30])
@pytest.mark.parametrize("seed", range(5))
def test_every_run_has_all_faults_in_order_and_they_end_within_it(minutes, seed):
    faults = planned(seed, minutes)
    kinds = Counter(each.kind for each in faults)
    assert [each.at for each in faults] == sorted(each.at for each in faults)
    assert all(0 <= each.at <= each.until <= minutes * 60 for each in faults)
    assert kinds[Kind.PAUSE] == kinds[Kind.DEPLOY] == kinds[Kind.POLARIS_DOWN] == 1
    assert kinds[Kind.THROTTLE_S3] == kinds[Kind.THROTTLE_DYNAMODB] >= 2
    assert {each.part for each in faults if each.kind is Kind.KILL} == set(PARTS)


@pytest.mark.parametrize("tables", [FEWEST_TABLES, 40, 200])
def test_a_load_has_every_make_of_table_in_small_namespaces(tables):
    asked = load(1, 2, tables)
    assert {each.make for each in asked} == set(Make)
    assert len({each.name for each in asked}) == tables
    assert max(Counter(each.namespace for each in asked).values()) <= TABLES_IN_A_NAMESPACE
    assert all(each.at <= 2 * 60 * 0.8 for each in asked)
