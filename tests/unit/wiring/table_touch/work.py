"""The work of a touch: a function of its parameters, run as that of any declared behavior."""

from pydantic import BaseModel

from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior, FunctionBehavior, TaskBehavior
from delegation.wiring.deployment import DeployedTasks
from tests.unit.wiring.table_touch.task_type import NAME


class Touch(BaseModel):
    """What is touched, and how deep."""

    realm: str
    table: str
    depth: str
    note: str | None = None
    correlation_id: str | None = None


class Touched(BaseModel):
    """What was found."""

    table: str
    levels: int


def touch(wanted: Touch, run: AttemptContext) -> Touched:
    levels = 2 if wanted.depth == "manifests" else 1
    for level in range(levels):
        run.checkpoint()
        run.report(done=level + 1, total=levels, unit="levels", details={"levels_touched": level + 1})
    return Touched(table=wanted.table, levels=levels)


BEHAVIOR = Behavior(NAME, Touch, touch, result=Touched)


def behaviors(deployed: DeployedTasks) -> list[TaskBehavior]:
    return [FunctionBehavior(deployed.tasks, BEHAVIOR)]
