"""Makes sure that the attempt has an outcome, and reads it."""

from delegation.handlers.steps_runtime import step_handler
from delegation.wiring.steps import watching

handler = step_handler("complete", watching, lambda steps, step, _deadline: steps.complete(step))
