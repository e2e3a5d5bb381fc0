"""The inline engine plans and deletes in this process, for tables small enough for a Lambda."""

from delegation.operations.purge.context import PurgeContext, PurgeResult
from delegation.operations.purge.phases import Execution
from delegation.operations.purge.planning.plan import make_plan
from delegation.worksets.engines.choice import EngineChoice
from delegation.worksets.engines.deleting import delete_in_this_process


class InlineEngine:
    """Plans and deletes with threads of one process."""

    name: EngineChoice = "inline"
    plan = staticmethod(make_plan)
    delete = staticmethod(delete_in_this_process)


def purge_table(ctx: PurgeContext) -> PurgeResult:
    """Purge a table in this process; a call after a failure resumes where it stopped.

    Raises GuardRefused (before the first delete, except PlanOutdated), IcebergError, WorksetError, PurgeError,
    RunStopped, and the errors of the object store and of delegation.polaris.
    """
    return Execution(ctx, InlineEngine()).run()
