"""Retiring a task type while tasks of it are left."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from delegation.tasks.life.transitions import RETIRED
from delegation.tasks.work.behaviors import Behavior, Run
from polaris_common.errors import DelegationError


class AnyParameters(BaseModel):
    """The parameters of a retired task type, whatever they are."""

    model_config = ConfigDict(extra="allow")


def retired(task_type: str, reason: str) -> Behavior[Any, Any]:
    """Return the behavior that ends what is left of a task type when it is due, as FAILURE with this reason."""

    def work(_parameters: AnyParameters, _run: Run) -> None:
        raise DelegationError(f"the task type {task_type} was retired: {reason}", code=RETIRED)

    return Behavior(task_type, AnyParameters, work)
