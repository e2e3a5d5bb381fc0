"""The inline engine: plan and purge in this process, for tables small enough for a Lambda."""

from delegation.operations.purge.context import PurgeContext, PurgeResult
from delegation.operations.purge.options import EngineChoice
from delegation.operations.purge.phases import Execution, delete_in_this_process
from delegation.operations.purge.planning.plan import make_plan


class InlineEngine:
    """Everything in one process, with threads."""

    name: EngineChoice = "inline"
    plan = staticmethod(make_plan)
    delete = staticmethod(delete_in_this_process)


def purge_table(ctx: PurgeContext) -> PurgeResult:
    """Purge a table here and now; call it again after any failure and it goes on where it stopped.

    Raises GuardRefused (a guard; nothing was deleted by this call unless a former one had begun), CorruptMetadata,
    CorruptManifestError, ManifestMismatchError, ManifestMissing, PlanTampered, TableGone, FilesNotDeleted (and ...Yet),
    the errors of the object store and of delegation.polaris, and what ends an attempt (AttemptEnded).
    """
    return Execution(ctx, InlineEngine()).run()
