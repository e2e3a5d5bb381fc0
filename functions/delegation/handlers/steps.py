"""The machine's states that need no behavior: acquiring a lease, a Spark job and its heartbeats, the end."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from delegation.orchestration.failures import Step
from delegation.orchestration.steps import Steps
from delegation.timestamps import utc_now
from delegation.wiring.steps import acquiring, starting, watching

logger: Final = Logger()
StepHandler = Callable[[Mapping[str, Any], LambdaContext], dict[str, Any]]


def step_handler(
    name: str, build: Callable[[], Steps], run: Callable[[Steps, Step, datetime], dict[str, Any]]
) -> StepHandler:
    """Return a Lambda handler that parses the state's input, runs one step and returns the next state's input. `build`
    is called at the first invocation, not at import, so that an error in a setting is logged and retried."""
    built = cache(build)

    def handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
        step = Step.of(event)
        deadline = utc_now() + timedelta(milliseconds=context.get_remaining_time_in_millis())
        answer = run(built(), step, deadline)
        logger.info(
            "step",
            extra={
                "action": name,
                "task_id": step.task_id,
                "dispatch": step.n,
                "attempt": answer["attempt"],
                "next": answer["next"],
                **({"correlation_id": answer["correlation_id"]} if "correlation_id" in answer else {}),
            },
        )
        return answer

    return handler


acquire = step_handler("acquire", acquiring, Steps.acquire)
start_job = step_handler("start_job", starting, lambda steps, step, _deadline: steps.start_job(step))
heartbeat = step_handler(
    "heartbeat", lambda: watching(dispatches=True), lambda steps, step, _deadline: steps.heartbeat(step)
)
"""State Heartbeat: renews the lease of a job that makes progress."""
complete = step_handler(
    "complete", lambda: watching(dispatches=True), lambda steps, step, _deadline: steps.complete(step)
)
"""State Complete: reads the attempt's outcome, and records one if it has none."""
make_due = step_handler("make_due", watching, lambda steps, step, _deadline: steps.make_due(step))
"""State MakeDue: ends the attempt after an error of another state."""
