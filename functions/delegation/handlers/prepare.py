"""Chooses the engine from the manifest lists' own counts."""

from delegation.handlers.steps_runtime import step_handler
from delegation.wiring.work import working

handler = step_handler("prepare", working, lambda steps, step, deadline: steps.prepare(step, deadline))
