"""Some kill points of every scenario of the crash matrix; `make crash-matrix` runs all."""

import pytest

from delegation.removal.attempt import MemoryAttempt
from tests.faults.crashes import spark_matrix
from tests.faults.crashes.matrix import play
from tests.faults.crashes.scenarios import SCENARIOS, Totals, world
from tests.faults.crashes.spark_matrix import Loss
from tests.kit.lakes.lake import Lake


@pytest.fixture(scope="module")
def lake() -> Lake:
    return world()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_killed_purge_that_runs_again_leaves_nothing_and_raises_nothing(lake: Lake, name: str) -> None:
    totals = play(lake, name, step=7)
    assert totals.problems == []
    assert totals.clean


def test_the_matrix_detects_a_purge_that_loses_its_plan(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryAttempt, "plan", lambda _self: ())
    totals = play(lake, "alone", step=3)
    assert totals.errors_raised
    assert totals.planned_again
    assert not totals.clean


def test_totals_without_a_kill_point_are_no_success() -> None:
    assert not Totals().clean


# `make crash-matrix` ends all of them at every step.
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("loss", "step"), [(Loss.JOB, 400), (Loss.WORKER, 300), (Loss.EXECUTOR, 800)])
def test_a_killed_spark_purge_that_runs_again_leaves_nothing(lake: Lake, loss: Loss, step: int) -> None:
    totals = spark_matrix.play(lake, "alone", loss, step=step)
    assert totals.problems == []
    assert totals.clean
