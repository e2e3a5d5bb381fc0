"""The end of every catch-all: gives the attempt back."""

from delegation.handlers.steps_runtime import step_handler
from delegation.wiring import steps, watched_jobs

handler = step_handler(
    "make_due", lambda: steps(jobs=watched_jobs), lambda steps, step, _deadline: steps.make_due(step)
)
