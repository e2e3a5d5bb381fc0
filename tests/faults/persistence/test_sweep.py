"""Sweeps beside running commits, a short run of `python -m tests.faults.persistence.sweep`."""

import pytest

from tests.faults.persistence.sweep import simulate


@pytest.mark.parametrize("seed", range(3))
def test_a_sweep_beside_commits_deletes_all_unneeded_objects_and_no_others(seed: int) -> None:
    world = simulate(seed, 1_500)
    assert world.committed > 1_200
    assert world.deleted > 500
    assert world.crashed > 10
    assert world.frozen > 5
