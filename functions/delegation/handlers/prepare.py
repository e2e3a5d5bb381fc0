"""Chooses the engine from the manifest lists' own counts."""

from delegation.handlers.steps_runtime import step_handler
from delegation.wiring import steps

handler = step_handler(
    "prepare", lambda: steps(works=True), lambda steps, step, deadline: steps.prepare(step, deadline)
)
