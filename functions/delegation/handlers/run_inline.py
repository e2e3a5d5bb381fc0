"""Purges a small table in this invocation."""

from delegation.handlers.steps_runtime import step_handler
from delegation.wiring.work import working

handler = step_handler("run_inline", working, lambda steps, step, deadline: steps.run_inline(step, deadline))
