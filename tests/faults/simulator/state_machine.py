"""Simulated Step Functions and Lambda: interprets the state machine's definition over the real steps."""

import json
from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from delegation.orchestration.failures import Step
from delegation.orchestration.steps import Steps
from polaris_common.errors import DelegationError
from tests.faults.simulator.faulty import InvocationDied
from tests.faults.simulator.scheduler import Actor
from tests.paths import ROOT

if TYPE_CHECKING:
    from tests.faults.simulator.deployment import Deployment

FILE = ROOT / "functions/delegation/handlers/purge.asl.json"
MACHINE: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
STATES: dict[str, dict[str, Any]] = MACHINE["States"]
LAMBDA = timedelta(seconds=20)
INLINE = timedelta(seconds=120)
CRASH_ERRORS = ("Lambda.AWSLambdaException", "Lambda.Unknown", "Sandbox.Timedout", "Runtime.ExitError")
LOST_ANSWERS = ("Lambda.AWSLambdaException", "Lambda.SdkClientException", "Lambda.ServiceException", "Lambda.Unknown")
REFUSED = "Lambda.TooManyRequestsException"
STARTS = {"Prepare", "RunInline", "StartJob"}


def execute(deployment: "Deployment", actor: Actor, task_id: str, n: int) -> None:
    """Run one execution; only its actor may be killed before its end."""
    name: str = MACHINE["StartAt"]
    state: dict[str, Any] = {"task_id": task_id, "n": n}
    while True:
        definition = STATES[name]
        match definition["Type"]:
            case "Task":
                following, state = invoke(deployment, actor, name, state)
                if following is None:
                    return
                name = following
            case "Choice":
                name = next(
                    (one["Next"] for one in definition["Choices"] if one["StringEquals"] == state["next"]),
                    definition["Default"],
                )
            case "Wait":
                actor.sleep(pause(definition, state, actor.clock()))
                name = definition["Next"]
            case _:
                return


def pause(definition: dict[str, Any], state: dict[str, Any], now: datetime) -> timedelta:
    if "SecondsPath" in definition:
        return timedelta(seconds=state[definition["SecondsPath"].removeprefix("$.")])
    until = datetime.fromisoformat(state[definition["TimestampPath"].removeprefix("$.")])
    return max(until - now, timedelta(0))


def invoke(
    deployment: "Deployment", actor: Actor, name: str, state: dict[str, Any]
) -> tuple[str | None, dict[str, Any]]:
    """Run a Task state with its Retry and Catch; return the next state, None when the execution fails here."""
    definition = STATES[name]
    tried: Counter[int] = Counter()
    while True:
        answer = attempt(deployment, actor, name, state)
        if not isinstance(answer, str):
            return definition["Next"], answer
        error_name = answer
        deployment.world.note(f"{actor.name} {name}: {error_name}")
        fits = (at for at, one in enumerate(definition.get("Retry", [])) if matches(one, error_name))
        at = next(fits, None)
        if at is None or tried[at] >= definition["Retry"][at]["MaxAttempts"]:
            caught = next((one for one in definition.get("Catch", []) if matches(one, error_name)), None)
            if error_name == REFUSED and name in STARTS:
                deployment.ledger.refused_starts.add((state["task_id"], state["attempt"]))
            return (caught["Next"], {**state, "failed": {"Error": error_name}}) if caught else (None, state)
        actor.sleep(backoff(definition["Retry"][at], tried[at]) * deployment.world.dice.random())
        tried[at] += 1


def attempt(deployment: "Deployment", actor: Actor, name: str, state: dict[str, Any]) -> dict[str, Any] | str:
    """Invoke a function once; return its answer, or the name of the error that the state machine sees.

    Lambda may refuse to start it, and Step Functions may lose the answer while the invocation continues.
    """
    world = deployment.world
    if deployment.refuses_invocations():
        return REFUSED
    if deployment.chaos and world.chance(0.04):
        deployment.ledger.happened.add("answer lost")
        world.spawn("invocation", lambda other: invocation(deployment, other, name, state))
        actor.sleep(world.seconds(0, 60))
        return world.dice.choice(LOST_ANSWERS)
    return invocation(deployment, actor, name, state)


def invocation(deployment: "Deployment", actor: Actor, name: str, state: dict[str, Any]) -> dict[str, Any] | str:
    try:
        return run(deployment, actor, name, state)
    except DelegationError as error:
        return type(error).__name__
    except InvocationDied:
        return str(deployment.world.dice.choice(CRASH_ERRORS))


def matches(rule: dict[str, Any], error_name: str) -> bool:
    return bool({"States.ALL", error_name} & set(rule["ErrorEquals"]))


def backoff(rule: dict[str, Any], tried: int) -> timedelta:
    return timedelta(seconds=min(rule["IntervalSeconds"] * rule["BackoffRate"] ** tried, rule["MaxDelaySeconds"]))


def run(deployment: "Deployment", actor: Actor, name: str, state: dict[str, Any]) -> dict[str, Any]:
    """Run one invocation, which ends at its deadline."""
    lasts = INLINE if name == "RunInline" else LAMBDA
    actor.deadline = deployment.world.now + lasts
    attempt_of = (state["task_id"], state.get("attempt", 0))
    if name == "RunInline":
        deployment.working[attempt_of].append(actor)
    try:
        actor.pause()
        return act(deployment.steps(actor), name, Step.of(state), actor.clock() + lasts)
    finally:
        actor.deadline = None
        if name == "RunInline":
            deployment.working[attempt_of].remove(actor)


def act(steps: Steps, name: str, step: Step, deadline: datetime) -> dict[str, Any]:
    match name:
        case "Acquire":
            return steps.acquire(step, deadline)
        case "Prepare":
            return steps.prepare(step, deadline)
        case "RunInline":
            return steps.run_inline(step, deadline)
        case "StartJob":
            return steps.start_job(step)
        case "Heartbeat":
            return steps.heartbeat(step)
        case "Complete":
            return steps.complete(step)
        case _:
            return steps.make_due(step)
