"""Sweeping during live commits, in short; `python -m tests.faults.persistence.sweep` runs 100,000."""

import pytest

from tests.faults.persistence.sweep import simulate


@pytest.mark.parametrize("seed", range(3))
def test_a_sweep_during_live_commits_deletes_what_nothing_needs_and_nothing_else(seed: int) -> None:
    world = simulate(seed, 1_500)
    assert world.committed > 1_200
    assert world.deleted > 500
    assert world.crashed > 10
    assert world.frozen > 5
