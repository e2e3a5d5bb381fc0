"""Sweeps beside running commits."""

import pytest

from tests.effort import examples
from tests.persistence.faults.sweep import simulate


@pytest.mark.parametrize("seed", range(examples(3)))
def test_a_sweep_beside_commits_deletes_all_unneeded_objects_and_no_others(seed: int) -> None:
    world = simulate(seed, 1_500)
    assert world.committed > 1_200
    assert world.deleted > 500
    assert world.crashed > 10
    assert world.frozen > 5


YEAR = 365 * 86_400.0


@pytest.mark.parametrize("off", [-YEAR, YEAR], ids=["a year behind", "a year ahead"])
@pytest.mark.parametrize("whose", ["writer", "keeper"])
def test_a_clock_one_year_off_loses_no_object_and_keeps_none(whose: str, off: float) -> None:
    world = simulate(7, 600, **{whose: off})
    assert world.committed > 480
    assert world.deleted > 200
