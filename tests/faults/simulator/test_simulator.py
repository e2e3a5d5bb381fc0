"""Some seeds of the simulator; `make simulate SEEDS=10000` runs more."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.effort import THOROUGH, examples, sampled
from tests.faults.simulator import persistence
from tests.faults.simulator.ledger import ARROWS
from tests.faults.simulator.simulate import EXPLORER, TasksUnderFaults
from tests.kit.explorer import Explorer, play
from tests.paths import ROOT

SEEDS = 48 if THOROUGH else 6
"""The first 45 reach everything that a thorough run asserts; `make simulate` runs 500."""
ERRORS = frozenset(
    {"LOST", "CANCELLED", "TRANSIENT", "PERMANENT", "THROTTLED", "HANDED_OVER", "DISPATCH_FAILED", "DEADLINE_EXCEEDED"}
    | {"EXECUTION_INTERRUPTED", "START_REFUSED", "JOB_FAILED", "CHILDREN_PENDING", "CHILD_FAILED"}
)
HAPPENED = frozenset(
    {"answered", "answer lost", "replayed", "removed", "forgotten", "recurred", "continued", "reunited", "passed over"}
    | {"job ended", "paused"}
)


def test_no_seed_violates_an_invariant() -> None:
    """In a thorough run they together reach every transition of the service, and every error code."""
    total = EXPLORER.total(range(SEEDS))
    if THOROUGH:
        assert_everything_was_reached(total)


def test_no_seed_violates_an_invariant_on_the_persistence() -> None:
    """Seed 13 is one that removes tasks."""
    total = persistence.EXPLORER.total(sorted({*range(examples(8)), 13}))
    assert total.keys() >= {"removed", "forgotten", "recurred", "answer lost"}


def assert_everything_was_reached(total: Counter[str]) -> None:
    arrows = {f"{source} -> {target}" for source, targets in ARROWS.items() for target in targets}
    # A task goes directly to RUNNING only if its submitter runs it at once.
    direct = {"SUBMITTED -> RUNNING", "RETRY_SCHEDULED -> RUNNING"}
    assert {one for one in total if " -> " in one} | direct == arrows
    assert total.keys() >= ERRORS | HAPPENED
    assert {one for one in total if one.islower()} == HAPPENED


# The seed to begin with, so that few are played: when these were chosen, it detected the mutation.
MUTATIONS = [
    *((EXPLORER, *one) for one in (("fencing", 24), ("nonce", 0), ("drift", 62), ("jobs", 0), ("answers", 13))),
    (EXPLORER, "once", 5),
    (persistence.EXPLORER, "nonce", 0),
]


@pytest.mark.parametrize(
    ("explorer", "mutation", "first"), sampled(MUTATIONS, lambda case: case[1] in {"drift", "jobs", "once"})
)
def test_the_invariants_detect_a_removed_safety_measure(explorer: Explorer, mutation: str, first: int) -> None:
    seed = explorer.first_bad(mutation, range(first, explorer.seeds))
    assert seed is not None
    with explorer.mutations[mutation]():
        again = play(explorer.story, seed)
        assert play(explorer.story, seed) == again
    assert again.wrong is not None
    assert play(explorer.story, seed).wrong is None


def test_a_seed_replays_exactly_in_another_process() -> None:
    program = (
        "from tests.kit.explorer import play; from tests.faults.simulator.simulate import TasksUnderFaults; "
        "print('\\n'.join(play(TasksUnderFaults, 7).told))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "1234", "PYTHONPATH": f"{ROOT / 'functions'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == play(TasksUnderFaults, 7).told != play(TasksUnderFaults, 8).told
