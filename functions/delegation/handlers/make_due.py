"""The end of every catch-all: gives the attempt back."""

from delegation.handlers.steps_runtime import step_handler
from delegation.wiring.steps import watching

handler = step_handler("make_due", watching, lambda steps, step, _deadline: steps.make_due(step))
