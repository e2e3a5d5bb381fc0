"""The task types of purges as values (tasks.life.declared), their names and the fields of their records."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from delegation.metrics import BYTES_DELETED, FILES_DELETED
from delegation.removal.details import PlanDetailRules, PlanDetails, task_types_of
from delegation.tasks.life.declared import KeptDetails, TaskType
from delegation.tasks.life.model import Task

if TYPE_CHECKING:
    from delegation.wire.responses import ExecutionResult

TASK_TYPE: Final = "TABLE_PURGE"
"""The stored `task_type`. Requests may also name it SYNCHRONOUS_TABLE_PURGE or DATA_FILE_PURGE."""

PLAN_TASK_TYPE: Final = "TABLE_PURGE_PLAN"
"""A dry run: it makes a plan, deletes nothing, and has an id of its own."""

PREFIX: Final = "delegation.purge."
"""The prefix of the operator's properties of purges."""

TASK_TYPES: Final = frozenset({TASK_TYPE, PLAN_TASK_TYPE})

KEPT_FOLDER: Final = "kept"
"""The folder of the plan bucket that states which plans kept files for a table."""

DROP_TASK_TYPE: Final = "TABLE_DROP_WITH_PURGE"
"""The purge of a tombstone, and then the drop of its entry (`gateway.drop`)."""

UPKEEP_TASK_TYPE: Final = "TOMBSTONE_UPKEEP"
"""The recurring task that finishes or clears what a crash left between two steps of a drop."""

_S3_ALIASES: Final = ("s3a://", "s3n://")

MOST_STATES: Final = 500
"""The newest are kept, to limit a task's record. Iceberg keeps 100 former metadata files by default."""


class PurgeDetails(PlanDetails):
    """The published plan, its progress, and the table and metadata that a finished purge deleted. `purged_states` are
    digests of the purged metadata files. A request that states one of them requests what is already done."""

    purged_identifier: str | None = None
    purged_metadata_location: str | None = None
    purged_states: tuple[str, ...] = ()


def state_of(metadata_location: str) -> str:
    """Return the digest of a metadata file's URI, the same for the schemes s3, s3a and s3n."""
    path = "s3" + metadata_location[3:] if metadata_location.startswith(_S3_ALIASES) else metadata_location
    return hashlib.sha256(path.encode()).hexdigest()[:16]


def states_of(metadata_files: Sequence[str]) -> tuple[str, ...]:
    """Return the digests of the newest MOST_STATES files. Their names begin with a version number."""
    newest = sorted(metadata_files, key=lambda path: path.rpartition("/")[2])[-MOST_STATES:]
    return tuple(state_of(path) for path in newest)


def _execution_result(task: Task) -> "ExecutionResult":
    from delegation.removal.purge.requests import execution_result  # noqa: PLC0415

    return execution_result(task)


_work, _plan = task_types_of(
    PlanDetailRules(lambda: PurgeDetails),
    TASK_TYPE,
    PLAN_TASK_TYPE,
    properties=PREFIX,
    requests="delegation.removal.purge.requests:PURGE_FORM",
    counted={"files_deleted": FILES_DELETED, "bytes_deleted": BYTES_DELETED, "files_kept": None},
)
PURGE: Final = replace(_work, execution_result=_execution_result, folders=(KEPT_FOLDER,))
PURGE_PLAN: Final = replace(_plan, details=KeptDetails())
DROP: Final = replace(_plan, name=DROP_TASK_TYPE, folders=(KEPT_FOLDER,))
TOMBSTONE_UPKEEP: Final = TaskType(name=UPKEEP_TASK_TYPE, is_own=True)
