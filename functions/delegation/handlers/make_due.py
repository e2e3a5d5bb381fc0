"""State MakeDue: ends the attempt after an error of another state."""

from delegation.handlers.steps_runtime import step_handler
from delegation.wiring.steps import watching

handler = step_handler("make_due", watching, lambda steps, step, _deadline: steps.make_due(step))
