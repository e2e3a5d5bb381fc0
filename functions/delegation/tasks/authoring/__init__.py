"""Everything that the author of a behavior needs (docs/workers.md, "Ten minutes to a behavior of your own")."""

from delegation.tasks.authoring.context import AsyncContext, ChildFailed, Context
from delegation.tasks.authoring.decorator import FunctionTask, behavior, retired
from delegation.tasks.errors import RunPostponed
from delegation.tasks.life.declared import Retry
from delegation.tasks.submission.handles import AsyncHandle, Handle
from delegation.tasks.work.behaviors import OnLost
from delegation.tasks.work.submit import Tasks

__all__ = [
    "AsyncContext",
    "AsyncHandle",
    "ChildFailed",
    "Context",
    "FunctionTask",
    "Handle",
    "OnLost",
    "Retry",
    "RunPostponed",
    "Tasks",
    "behavior",
    "retired",
]
