"""Makes sure that the attempt has an outcome, and reads it."""

from delegation.handlers.steps_runtime import step_handler
from delegation.wiring import steps, watched_jobs

handler = step_handler(
    "complete", lambda: steps(jobs=watched_jobs), lambda steps, step, _deadline: steps.complete(step)
)
