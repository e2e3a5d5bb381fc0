"""State StartJob: starts the attempt's Spark job."""

from delegation.handlers.steps_runtime import step_handler
from delegation.wiring.steps import starting

handler = step_handler("start_job", starting, lambda steps, step, _deadline: steps.start_job(step))
