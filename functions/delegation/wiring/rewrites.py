"""The behaviors of rewrites."""

import threading
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

from delegation.removal.choice import RemovalSettings
from delegation.rewrites.behavior import SHARED, RewriteBehavior, RewriteKind, RewriteSession, SharedWorkerTask
from delegation.rewrites.kinds import Compactions, ManifestsRewrites
from delegation.rewrites.shared_job import RewriteWorkerBehavior
from delegation.rewrites.terms import CompactionLimits, ManifestLimits, tasks_at_once
from delegation.rewrites.worker import SharedSession, SharedWorker, WorkerLimits
from delegation.tasks.work.behaviors import BehaviorWhenNeeded, TaskBehavior
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.worker import WorkerSettings
from delegation.timestamps import utc_now
from delegation.upkeep.execution.permissions import PolicyPermissions
from delegation.upkeep.rules.limits import UpkeepLimits
from delegation.wiring.operations import purge_settings, shared_access
from delegation.wiring.policies import deployed_policies
from delegation.wiring.settings import PurgeEnvironment
from delegation.wiring.table_access import vended_table

_IDLE: Final = timedelta(minutes=3)
"""How long the job of the shared worker waits for another task: less than starting Spark again costs."""
_BUDGET: Final = timedelta(hours=5)
"""Twice as long is less than a job may take (JobConfiguration)."""


def compaction_behavior(tasks: TaskService) -> RewriteBehavior:
    return _behavior(tasks, Compactions(CompactionLimits.from_properties(PurgeEnvironment.read().properties)))


def manifests_behavior(tasks: TaskService) -> RewriteBehavior:
    return _behavior(tasks, ManifestsRewrites(ManifestLimits.from_properties(PurgeEnvironment.read().properties)))


def session_behaviors(tasks: TaskService, session: RewriteSession) -> Iterable[TaskBehavior]:
    """Yield the behaviors of a process with a Spark session. Dry runs need none and are left to others."""
    for made in (compaction_behavior(tasks), manifests_behavior(tasks)):
        behavior = replace(made, session=session)
        yield BehaviorWhenNeeded(frozenset({behavior.kind.work_type.work_task_type}), partial(_same, behavior))


def worker_behavior(tasks: TaskService) -> RewriteWorkerBehavior:
    """Return the behavior of the shared worker, whose job leases what rewrites have left to it."""
    # No execution waits for what the job hands over.
    dispatch = replace(tasks.policies.dispatch, grace=timedelta(0))
    own = tasks.having(policies=replace(tasks.policies, dispatch=dispatch))
    at_once = max(tasks_at_once(PurgeEnvironment.read().properties), 1)

    def worker_of(session: SharedSession, owner: str) -> SharedWorker:
        from delegation.wiring.worker import shared_worker  # noqa: PLC0415 - for the job alone

        limits = WorkerLimits(at_once, idle=_IDLE, budget=_BUDGET)
        settings = WorkerSettings(owner=owner)
        return shared_worker(own, session, settings, limits, threading.Event(), engines=(SHARED,))

    return RewriteWorkerBehavior(tasks=tasks, worker_of=worker_of)


def _same(behavior: RewriteBehavior) -> TaskBehavior:
    return behavior


def _behavior(tasks: TaskService, kind: RewriteKind) -> RewriteBehavior:
    purge, tables = shared_access(tasks)
    properties = PurgeEnvironment.read().properties
    limits = UpkeepLimits.from_properties(properties)
    permissions = PolicyPermissions(deployed_policies(tables.requests), limits)
    return RewriteBehavior(
        tasks=tasks,
        kind=kind,
        requests=tables.requests,
        open_table=lambda identifier: vended_table(tables, identifier, clock=utc_now),
        plans=purge.plans,
        settings=RemovalSettings(has_spark=purge_settings().has_spark),
        permissions=permissions.of_rewrite,
        shared=SharedWorkerTask(tasks) if tasks_at_once(properties) else None,
    )
