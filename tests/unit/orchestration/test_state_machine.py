"""The state machine's definition: it handles every answer of the steps, and every failure ends in MakeDue."""

import json
import re
from typing import Any

import pytest

from infra.environment.functions import FUNCTIONS
from tests.paths import ROOT

FILE = ROOT / "functions/delegation/handlers/purge.asl.json"
MACHINE: dict[str, Any] = json.loads(FILE.read_text())
STATES: dict[str, dict[str, Any]] = MACHINE["States"]
TASKS = {name: state for name, state in STATES.items() if state["Type"] == "Task"}
STEPS = (FILE.parents[1] / "orchestration/steps.py").read_text()


def exits(state: dict[str, Any]) -> set[str]:
    targets = {state[key] for key in ("Next", "Default") if key in state}
    targets |= {choice["Next"] for choice in state.get("Choices", [])}
    return targets | {catch["Next"] for catch in state.get("Catch", [])}


def test_every_state_is_reached_and_every_target_exists() -> None:
    reached: set[str] = set()
    waiting = {MACHINE["StartAt"]}
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= exits(STATES[name]) - reached
    assert reached == set(STATES)
    assert {state["Type"] for state in STATES.values() if not exits(state)} == {"Fail", "Succeed"}


@pytest.mark.parametrize("name", sorted(set(TASKS) - {"MakeDue"}))
def test_every_failure_leads_to_make_due(name: str) -> None:
    """With the error, which tells MakeDue whether the invocation may still run."""
    assert TASKS[name]["Catch"] == [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.failed", "Next": "MakeDue"}]


@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_state_times_out_after_its_function(name: str) -> None:
    function = FUNCTIONS[re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()]
    assert TASKS[name]["Resource"] == f"${{{name}FunctionArn}}"
    assert TASKS[name]["TimeoutSeconds"] > function.timeout_seconds


def test_a_killed_inline_run_is_not_retried_within_its_lease() -> None:
    retried = {error for retry in TASKS["RunInline"]["Retry"] for error in retry["ErrorEquals"]}
    assert retried == {"Lambda.TooManyRequestsException"}


def longest_retry(name: str, error: str) -> float:
    """Return the seconds of all pauses before a state that always fails with this error is caught."""
    rule = next(one for one in TASKS[name]["Retry"] if {error, "States.ALL"} & set(one["ErrorEquals"]))
    pauses = (rule["IntervalSeconds"] * rule["BackoffRate"] ** n for n in range(rule["MaxAttempts"]))
    return sum(min(pause, rule["MaxDelaySeconds"]) for pause in pauses)


@pytest.mark.parametrize("name", ["Prepare", "RunInline", "StartJob"])
def test_a_refused_start_is_given_back_well_within_the_lease_of_acquire(name: str) -> None:
    """Otherwise the attempt would be found lost before MakeDue excuses it."""
    assert longest_retry(name, "Lambda.TooManyRequestsException") <= FUNCTIONS["acquire"].timeout_seconds / 3


@pytest.mark.parametrize("name", ["Heartbeat", "Complete", "MakeDue"])
def test_a_refused_end_is_repeated_for_a_long_time(name: str) -> None:
    """A job run continues meanwhile, and an attempt that is not ended counts as lost."""
    assert longest_retry(name, "Lambda.TooManyRequestsException") >= 45 * 60


@pytest.mark.parametrize("name", ["StartJob", "Heartbeat", "Complete"])
def test_a_state_is_retried_while_the_job_service_is_unavailable(name: str) -> None:
    """Each calls EMR; a throttled call must not end the attempt."""
    retried = {error for retry in TASKS[name]["Retry"] for error in retry["ErrorEquals"]}
    assert "JobServiceUnavailable" in retried


def test_every_answer_of_the_steps_has_a_choice() -> None:
    answers = set(re.findall(r'\.to\(\s*"([a-z-]+)"', STEPS)) - {"due"}
    chosen = {choice["StringEquals"] for state in STATES.values() for choice in state.get("Choices", [])}
    assert answers | {"inline", "spark"} == chosen
