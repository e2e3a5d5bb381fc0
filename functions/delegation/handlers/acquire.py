"""The first state: takes the lease for this execution."""

from delegation.handlers.steps_runtime import step_handler
from delegation.wiring import steps

handler = step_handler("acquire", steps, lambda steps, step, deadline: steps.acquire(step, deadline))
