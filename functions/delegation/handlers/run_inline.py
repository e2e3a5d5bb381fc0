"""State RunInline: runs the attempt in this invocation."""

from delegation.handlers.steps_runtime import step_handler
from delegation.orchestration.steps import Steps
from delegation.wiring.work import steps_with_behaviors

handler = step_handler("run_inline", steps_with_behaviors, Steps.run_inline)
