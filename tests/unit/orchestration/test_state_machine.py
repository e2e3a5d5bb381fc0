"""The state machine's file against the steps: every answer has its way on, every failure ends in MakeDue."""

import json
import re
from typing import Any

import pytest

from infra.environment import FUNCTIONS
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


def test_every_end_is_a_fail_or_succeed_state() -> None:
    assert {state["Type"] for state in STATES.values() if not exits(state)} == {"Fail", "Succeed"}


@pytest.mark.parametrize("name", sorted(set(TASKS) - {"MakeDue"}))
def test_whatever_fails_makes_the_task_due_again(name: str) -> None:
    assert TASKS[name]["Catch"] == [{"ErrorEquals": ["States.ALL"], "ResultPath": None, "Next": "MakeDue"}]


@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_state_outlasts_its_function(name: str) -> None:
    function = FUNCTIONS[re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()]
    assert TASKS[name]["Resource"] == f"${{{name}FunctionArn}}"
    assert TASKS[name]["TimeoutSeconds"] > function.timeout_seconds


def test_a_purge_that_was_killed_is_not_started_beside_itself() -> None:
    retried = {error for retry in TASKS["RunInline"]["Retry"] for error in retry["ErrorEquals"]}
    assert retried == {"Lambda.TooManyRequestsException"}


@pytest.mark.parametrize("name", ["StartJob", "Heartbeat", "Complete"])
def test_a_job_service_that_does_not_answer_is_asked_again(name: str) -> None:
    """Each asks EMR; a throttled call must not cost a job, or a synchronous task that is untouched, its attempt."""
    retried = {error for retry in TASKS[name]["Retry"] for error in retry["ErrorEquals"]}
    assert "JobServiceUnavailable" in retried


def test_every_answer_of_the_steps_has_its_way_on() -> None:
    answers = set(re.findall(r'\.to\(\s*"([a-z-]+)"', STEPS)) - {"due"}
    chosen = {choice["StringEquals"] for state in STATES.values() for choice in state.get("Choices", [])}
    assert answers | {"inline", "spark"} == chosen


def test_waits_are_read_from_the_state() -> None:
    waits = [state for state in STATES.values() if state["Type"] == "Wait"]
    assert {key for state in waits for key in state if key.endswith("Path")} == {"TimestampPath", "SecondsPath"}
    assert not any("Seconds" in state or "Timestamp" in state for state in waits)
