"""State Prepare: chooses the engine by the file counts of the manifest lists."""

from delegation.handlers.steps_runtime import step_handler
from delegation.orchestration.steps import Steps
from delegation.wiring.steps import steps_with_behaviors
from delegation.wiring.types import load_runners

load_runners()
handler = step_handler("prepare", steps_with_behaviors, Steps.prepare)
