"""Some seeds of the simulator; `python -m tests.faults.simulator.simulate --seeds 10000` runs more."""

import contextlib
import os
import subprocess
import sys

import pytest

from tests.effort import THOROUGH, examples
from tests.faults.simulator import simulate
from tests.faults.simulator.ledger import ARROWS
from tests.faults.simulator.stores import PERSISTENCE
from tests.paths import ROOT

MUTATIONS = "answers, drift, fencing, jobs, nonce, once"
SEEDS = examples(48)
"""The first 45 reach everything that a thorough run asserts; `make simulate` runs 500."""


def test_no_seed_violates_an_invariant() -> None:
    """In a thorough run they together reach every transition of the service, and every error code."""
    runs = list(simulate.run_seeds(range(SEEDS), "none", processes=2))
    assert len(runs) == SEEDS
    assert [(run.seed, run.violation) for run in runs if run.violation] == []
    if THOROUGH:
        assert_everything_was_reached(runs)


def test_no_seed_violates_an_invariant_on_the_persistence() -> None:
    """Seed 13 is one that removes tasks."""
    seeds = {*range(examples(8)), 13}
    runs = list(simulate.run_seeds(sorted(seeds), "none", processes=2, store=PERSISTENCE))
    assert [(run.seed, run.violation) for run in runs if run.violation] == []
    assert {what for run in runs for what in run.happened} >= {"removed", "forgotten", "recurred", "answer lost"}


def assert_everything_was_reached(runs: list[simulate.Run]) -> None:
    seen = {arrow for run in runs for arrow in run.arrows}
    # A task goes directly to RUNNING only if its submitter runs it at once.
    direct = {("SUBMITTED", "RUNNING"), ("RETRY_SCHEDULED", "RUNNING")}
    assert seen | direct == {(source, target) for source, targets in ARROWS.items() for target in targets}
    reasons = {error for run in runs for error in run.errors}
    assert reasons >= {"LOST", "CANCELLED", "TRANSIENT", "PERMANENT", "THROTTLED", "HANDED_OVER", "DISPATCH_FAILED"}
    assert reasons >= {
        "DEADLINE_EXCEEDED",
        "EXECUTION_INTERRUPTED",
        "START_REFUSED",
        "JOB_FAILED",
        "CHILDREN_PENDING",
        "CHILD_FAILED",
    }
    happened = {what for run in runs for what in run.happened}
    assert happened == {
        "answered",
        "answer lost",
        "replayed",
        "removed",
        "forgotten",
        "recurred",
        "continued",
        "reunited",
        "passed over",
        "job ended",
        "paused",
    }


# The seed to begin with, so that few are played: when these were chosen, it detected the mutation.
@pytest.mark.parametrize(
    ("mutation", "first"), [("fencing", 24), ("nonce", 0), ("drift", 62), ("jobs", 0), ("answers", 13), ("once", 5)]
)
def test_the_invariants_detect_a_removed_safety_measure(mutation: str, first: int) -> None:
    seeds = [*range(first, simulate.DEFAULT_SEEDS), *range(first)]
    with contextlib.closing(simulate.run_seeds(seeds, mutation, processes=1)) as runs:
        found = next(run for run in runs if run.violation)
    assert simulate.run(found.seed, mutation) == found
    assert simulate.run(found.seed).violation is None


def test_the_invariants_detect_a_persistence_without_nonces() -> None:
    with contextlib.closing(simulate.run_seeds(range(50), "nonce", processes=1, store=PERSISTENCE)) as runs:
        found = next(run for run in runs if run.violation)
    assert simulate.run(found.seed, "nonce", PERSISTENCE) == found
    assert simulate.run(found.seed, store=PERSISTENCE).violation is None


def test_a_seed_replays_exactly() -> None:
    one = simulate.run(7, keep_log=True)
    assert simulate.run(7, keep_log=True) == one
    assert simulate.run(8).digest != one.digest


def test_a_seed_replays_exactly_in_another_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from tests.faults.simulator.simulate import run; print(run(7).digest)"],
        env={**os.environ, "PYTHONHASHSEED": "1234", "PYTHONPATH": f"{ROOT / 'functions'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == simulate.run(7).digest


def first_seed(mutation: str, *, violates: bool) -> int:
    return next(
        seed for seed in range(simulate.DEFAULT_SEEDS) if bool(simulate.run(seed, mutation).violation) == violates
    )


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    caught = first_seed("nonce", violates=True)
    survives = first_seed("drift", violates=False)
    for arguments, status, last in (
        (["--seeds", "4"], 0, "4 seeds, 0 violations"),
        (["--mutation", "nonce"], 0, f"caught at seed {caught}"),
        (["--mutation", "drift", "--first", str(survives), "--seeds", "1"], 1, "drift survived 1 seeds"),
        (["--mutation", "gravity"], 2, f"unknown mutation gravity; choose one of {MUTATIONS}"),
        (["--mutation", "nonce", "--replay", str(caught)], 1, simulate.run(caught, "nonce").violation),
        (["--replay", "0"], 0, "no violation"),
    ):
        assert simulate.main([*arguments, "--processes", "1"]) == status
        assert capsys.readouterr().out.splitlines()[-1] == last
