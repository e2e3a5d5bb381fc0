"""Renews the lease of a job that moves."""

from delegation.handlers.steps_runtime import step_handler
from delegation.wiring import steps, watched_jobs

handler = step_handler(
    "heartbeat", lambda: steps(dispatches=True, jobs=watched_jobs), lambda steps, step, _deadline: steps.heartbeat(step)
)
