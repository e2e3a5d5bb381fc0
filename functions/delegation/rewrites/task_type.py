"""The task types of rewrites as values (tasks.life.declared), and their names."""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from delegation.removal.details import table_labels, table_traits
from delegation.tasks.life.declared import TaskType
from delegation.tasks.life.lanes import Traits
from delegation.tasks.life.model import Task

COMPACTION_TASK_TYPE: Final = "TABLE_COMPACTION"
"""The stored `task_type` of a compaction of data files."""

COMPACTION_PLAN_TASK_TYPE: Final = "TABLE_COMPACTION_PLAN"
"""A dry run: it estimates, changes nothing, and has an id of its own."""

MANIFESTS_TASK_TYPE: Final = "TABLE_REWRITE_MANIFESTS"
"""The stored `task_type` of a rewrite of manifests."""

MANIFESTS_PLAN_TASK_TYPE: Final = "TABLE_REWRITE_MANIFESTS_PLAN"
"""A dry run: it estimates, changes nothing, and has an id of its own."""

COMPACTION_PREFIX: Final = "delegation.compaction."
"""The prefix of the operator's properties of compactions."""

MANIFESTS_PREFIX: Final = "delegation.rewrite-manifests."
"""The prefix of the operator's properties of rewrites of manifests."""

WORKER_PREFIX: Final = "delegation.rewrite-worker."
"""The prefix of the operator's properties of the shared worker."""

UPKEEP: Final = Traits(priority=1)
"""What admission knows of every rewrite: no drop waits for upkeep, as none waits for an expiry."""

RECEIPT: Final = "receipt"
"""The detail with the receipt's key in the plan bucket."""
FIRST_ATTEMPT: Final = "first_attempt"
"""The detail with the first attempt of the current submission that may commit."""
LOSSES: Final = "losses"
"""The detail that counts attempts in a row that started in a Spark session and did not end normally."""
NO_SPARK: Final = "no_spark"
"""The detail that counts attempts that needed Spark and started in a process without it."""
FINDINGS: Final = "findings"
"""The detail with a success's findings: that its policy was withdrawn."""
_OF_ONE_RUN: Final = frozenset(
    {
        "next_engine",
        FINDINGS,
        FIRST_ATTEMPT,
        LOSSES,
        NO_SPARK,
        RECEIPT,
        "snapshot_ids",
        "files_rewritten",
        "files_added",
        "bytes_rewritten",
        "bytes_added",
        "deletes_folded",
        "manifests_before",
        "manifests_after",
        "groups_done",
        "groups_put_off",
    }
)


class RewriteDetails:
    """DetailRules of rewrites: an attempt's commits stay, and each run decides again what is left to do."""

    def resumes(self, task: Task) -> bool:  # noqa: ARG002
        return False

    def restarted(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: value for name, value in details.items() if name not in _OF_ONE_RUN}


def _receipt_key(task: Task) -> str | None:
    key = task.details.get(RECEIPT)
    return key if isinstance(key, str) else None


COMPACTION_PLAN: Final = TaskType(
    name=COMPACTION_PLAN_TASK_TYPE,
    labels=table_labels,
    traits=partial(table_traits, known=UPKEEP),
    details=RewriteDetails(),
    counted={"files_rewritten": None, "files_added": None, "bytes_rewritten": None, "deletes_folded": None},
    receipt_key=_receipt_key,
    needs_jars=True,
)
COMPACTION: Final = replace(
    COMPACTION_PLAN,
    name=COMPACTION_TASK_TYPE,
    retry={"max-attempts": "10", "initial-backoff-duration": "1m"},
    properties=COMPACTION_PREFIX,
    requests="delegation.rewrites.requests:COMPACTION_FORM",
)
_OF_MANIFESTS: Final = {"manifests_before": None, "manifests_after": None}
MANIFESTS_PLAN: Final = replace(COMPACTION_PLAN, name=MANIFESTS_PLAN_TASK_TYPE, counted=_OF_MANIFESTS)
MANIFESTS: Final = replace(
    COMPACTION,
    name=MANIFESTS_TASK_TYPE,
    counted=_OF_MANIFESTS,
    properties=MANIFESTS_PREFIX,
    requests="delegation.rewrites.requests:MANIFESTS_FORM",
)
WORKER_TASK_TYPE: Final = "REWRITE_WORKER"
"""The stored `task_type` of the shared worker, which rewrites many tables in one Spark job."""
WORKER_ID: Final = str(uuid.uuid5(uuid.NAMESPACE_URL, f"polaris-task:{WORKER_TASK_TYPE}"))
ANY_TASK: Final = "????????-????-????-????-????????????"
"""The ids of tasks as a pattern of IAM: the worker writes the receipts and results of all rewrites."""
WORKER: Final = TaskType(
    name=WORKER_TASK_TYPE,
    retry={"max-attempts": "10", "initial-backoff-duration": "1m"},
    is_housekeeping=True,
    is_own=True,
    properties=WORKER_PREFIX,
    folders=(ANY_TASK, f"results/{ANY_TASK}"),
    needs_jars=True,
)
