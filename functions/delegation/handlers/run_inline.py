"""State RunInline: runs the attempt in this invocation."""

from delegation.handlers.steps_runtime import step_handler
from delegation.orchestration.steps import Steps
from delegation.wiring.steps import steps_with_behaviors
from delegation.wiring.types import load_runners

load_runners()
handler = step_handler("run_inline", steps_with_behaviors, Steps.run_inline)
