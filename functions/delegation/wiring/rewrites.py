"""The behaviors of rewrites."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from delegation.removal.choice import RemovalSettings
from delegation.rewrites.behavior import RewriteBehavior, RewriteKind, RewriteSession
from delegation.rewrites.kinds import Compactions, ManifestsRewrites
from delegation.rewrites.terms import CompactionLimits, ManifestLimits
from delegation.tasks.work.behaviors import BehaviorWhenNeeded, TaskBehavior
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.upkeep.execution.permissions import PolicyPermissions
from delegation.upkeep.rules.limits import UpkeepLimits
from delegation.wiring.operations import purge_settings, shared_access
from delegation.wiring.policies import deployed_policies
from delegation.wiring.settings import PurgeEnvironment
from delegation.wiring.table_access import vended_table


def compaction_behavior(tasks: TaskService) -> RewriteBehavior:
    return _behavior(tasks, Compactions(CompactionLimits.from_properties(PurgeEnvironment.read().properties)))


def manifests_behavior(tasks: TaskService) -> RewriteBehavior:
    return _behavior(tasks, ManifestsRewrites(ManifestLimits.from_properties(PurgeEnvironment.read().properties)))


def session_behaviors(tasks: TaskService, session: RewriteSession) -> Iterable[TaskBehavior]:
    """Yield the behaviors of a process with a Spark session; dry runs, which need none, are left to others."""
    for made in (compaction_behavior(tasks), manifests_behavior(tasks)):
        behavior = replace(made, session=session)
        yield BehaviorWhenNeeded(frozenset({behavior.kind.work_type.work_task_type}), partial(_same, behavior))


def _same(behavior: RewriteBehavior) -> TaskBehavior:
    return behavior


def _behavior(tasks: TaskService, kind: RewriteKind) -> RewriteBehavior:
    purge, tables = shared_access(tasks)
    limits = UpkeepLimits.from_properties(PurgeEnvironment.read().properties)
    permissions = PolicyPermissions(deployed_policies(tables.requests), limits)
    return RewriteBehavior(
        tasks=tasks,
        kind=kind,
        requests=tables.requests,
        open_table=lambda identifier: vended_table(tables, identifier, clock=utc_now),
        plans=purge.plans,
        settings=RemovalSettings(has_spark=purge_settings().has_spark),
        permissions=permissions.of_rewrite,
    )
