"""Purges a small table in this invocation."""

from delegation.handlers.steps_runtime import step_handler
from delegation.wiring import steps

handler = step_handler(
    "run_inline", lambda: steps(works=True), lambda steps, step, deadline: steps.run_inline(step, deadline)
)
