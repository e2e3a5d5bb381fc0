"""State Complete: reads the attempt's outcome, and records one if it has none."""

from delegation.handlers.steps_runtime import step_handler
from delegation.wiring.steps import watching

handler = step_handler(
    "complete", lambda: watching(dispatches=True), lambda steps, step, _deadline: steps.complete(step)
)
