"""The end of every catch-all: gives the attempt back."""

from delegation.handlers.steps_runtime import step_handler
from delegation.wiring import steps

handler = step_handler("make_due", steps, lambda steps, step, _deadline: steps.make_due(step))
