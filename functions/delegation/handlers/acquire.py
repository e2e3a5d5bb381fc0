"""State Acquire: acquires the lease for this execution."""

from delegation.handlers.steps_runtime import step_handler
from delegation.orchestration.steps import Steps
from delegation.wiring.steps import acquiring

handler = step_handler("acquire", acquiring, Steps.acquire)
