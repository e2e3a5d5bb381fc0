"""Some kill points of every scenario of the crash matrix; `make crash-matrix` runs all."""

import pytest

from delegation.removal.attempt import MemoryAttempt
from tests.faults.crashes import spark_matrix
from tests.faults.crashes.matrix import play
from tests.faults.crashes.scenarios import SCENARIOS, world
from tests.faults.crashes.spark_matrix import Loss
from tests.kit.lakes.lake import Lake


@pytest.fixture(scope="module")
def lake() -> Lake:
    return world()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_killed_purge_that_runs_again_leaves_nothing_and_raises_nothing(lake: Lake, name: str) -> None:
    tally = play(lake, name, step=7, print_line=[].append)
    assert tally.wrong == []
    assert tally.ends.keys() == {"before", "after"}


def test_the_matrix_detects_a_purge_that_loses_its_plan(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryAttempt, "plan", lambda _self: ())
    wrong = play(lake, "alone", step=3, print_line=[].append).wrong
    assert any("a published plan was made again" in one for one in wrong)
    assert any("the next attempt raised" in one for one in wrong)


# `make crash-matrix` ends all of them at every step.
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("loss", "step"), [(Loss.JOB, 400), (Loss.WORKER, 300), (Loss.EXECUTOR, 800)])
def test_a_killed_spark_purge_that_runs_again_leaves_nothing(lake: Lake, loss: Loss, step: int) -> None:
    tally = spark_matrix.play(lake, "alone", loss, step=step)
    assert tally.wrong == []
    assert tally.ends.total()
