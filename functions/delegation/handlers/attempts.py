"""The machine's states that run behaviors, whose modules this one loads."""

from delegation.handlers.steps import step_handler
from delegation.orchestration.steps import Steps
from delegation.wiring.steps import steps_with_behaviors
from delegation.wiring.types import load_runners

load_runners()
prepare = step_handler("prepare", steps_with_behaviors, Steps.prepare)
"""State Prepare: chooses the engine by the file counts of the manifest lists."""
run_inline = step_handler("run_inline", steps_with_behaviors, Steps.run_inline)
"""State RunInline: runs the attempt in this invocation."""
