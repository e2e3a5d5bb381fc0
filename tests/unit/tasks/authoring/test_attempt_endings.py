"""One translation from what ends an attempt to what is recorded of it, for every driver."""

import ast
import pickle
from datetime import timedelta
from typing import Any

import pytest

from delegation.errors import RunCancelled, RunHandedOver, RunPaused, RunStopped, RunTimedOut
from delegation.tasks.errors import (
    AwaitedTaskFailed,
    RunPostponed,
    StoreUnavailable,
    TaskError,
)
from delegation.tasks.life.outcomes import ErrorClass
from delegation.tasks.pauses import PAUSED_WAIT
from delegation.tasks.work.attempt_context import AttemptEnding, ending_of
from polaris_common.errors import DelegationError
from tests.kit.sources import modules, tree_of
from tests.paths import ROOT

CODE = ROOT / "functions" / "delegation"
SOON = timedelta(minutes=1)


def never(_error: Exception) -> ErrorClass:
    raise AssertionError("asked of what the work did not raise")


@pytest.mark.parametrize(
    ("error", "code", "kind", "wait"),
    [
        (RunPaused("t", "paused by ops"), "PAUSED", ErrorClass.PAUSED, PAUSED_WAIT),
        (RunHandedOver("t"), "HANDED_OVER", ErrorClass.HANDED_OVER, None),
        (RunPostponed("the export runs", SOON), "POSTPONED", ErrorClass.WAITING, SOON),
        (RunCancelled("t"), "CANCELLED", ErrorClass.PERMANENT, None),
        (RunTimedOut("t", 5), "TIMED_OUT", ErrorClass.TRANSIENT, None),
        (AwaitedTaskFailed("t", "X", "failed"), AwaitedTaskFailed.code, ErrorClass.PERMANENT, None),
        (StoreUnavailable("throttled"), StoreUnavailable.code, ErrorClass.INTERRUPTED, None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_what_ends_an_attempt_is_recorded_as(error: Any, code: str, kind: ErrorClass, wait: timedelta | None) -> None:
    ending = ending_of(error, never)
    assert (ending.error.code, ending.error.kind, ending.wait) == (code, kind, wait)
    assert ending.is_the_drivers is (kind is ErrorClass.INTERRUPTED)


@pytest.mark.parametrize("kind", [ErrorClass.TRANSIENT, ErrorClass.PERMANENT])
def test_what_the_work_raised_is_classified_by_its_behavior(kind: ErrorClass) -> None:
    for error, code in ((ValueError("7"), "UNEXPECTED_ERROR"), (DelegationError("no"), DelegationError.code)):
        ending = ending_of(error, lambda _error: kind)
        assert (ending.error.code, ending.error.kind) == (code, kind)


def test_every_stop_has_an_ending() -> None:
    stops = {one for root in (RunStopped, TaskError) for one in kinds_below(root)}
    for one in stops:
        error = one.__new__(one)
        error.wait = SOON  # type: ignore[attr-defined]
        assert isinstance(ending_of(error, never), AttemptEnding)


def kinds_below(root: type[BaseException]) -> set[type[BaseException]]:
    return {root, *(kind for one in root.__subclasses__() for kind in kinds_below(one))} - {RunStopped}


@pytest.mark.parametrize(
    "error", [RunPaused("t", "paused by ops"), RunHandedOver("t", "why"), RunCancelled("t"), RunTimedOut("t", 5)]
)
def test_a_stop_reaches_the_driver_of_a_job_as_its_executor_raised_it(error: Any) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.task_id) == (type(error), str(error), "t")


def test_one_module_ends_the_attempts_of_purges_drops_and_functions() -> None:
    """Whatever runs work uses `AttemptRunner` or, for what that did not run, `end_attempt`."""
    ending = {
        path.relative_to(CODE).as_posix()
        for folder in ("tasks", "removal", "upkeep", "gateway", "references")
        for path in modules(f"functions/delegation/{folder}")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and node.attr == "end_attempt"
    }
    assert ending == {"tasks/work/attempt_context.py", "tasks/work/writes.py"}
