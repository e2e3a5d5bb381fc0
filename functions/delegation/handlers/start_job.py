"""Starts the attempt's Spark job."""

from delegation.handlers.steps_runtime import step_handler
from delegation.wiring import started_jobs, steps

handler = step_handler(
    "start_job", lambda: steps(jobs=started_jobs), lambda steps, step, _deadline: steps.start_job(step)
)
