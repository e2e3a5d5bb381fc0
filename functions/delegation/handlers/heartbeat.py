"""State Heartbeat: renews the lease of a job that makes progress."""

from delegation.handlers.steps_runtime import step_handler
from delegation.wiring.steps import watching

handler = step_handler(
    "heartbeat", lambda: watching(dispatches=True), lambda steps, step, _deadline: steps.heartbeat(step)
)
