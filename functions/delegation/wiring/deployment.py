"""Tasks with the behaviors that this deployment adds to the built-in ones."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from delegation.operations.purge.behavior.kinds import KINDS
from delegation.tasks.stores.dynamodb import DynamoDbTaskStore
from delegation.tasks.work import maintenance
from delegation.tasks.work.behaviors import TaskBehavior
from delegation.tasks.work.dispatch_queue import DispatchQueue
from delegation.tasks.work.external_jobs import ExternalJobs, LeftToSweeper
from delegation.tasks.work.plugins import load
from delegation.tasks.work.service import TaskService
from delegation.wiring.settings import BehaviorSettings, TaskSettings
from delegation.wiring.tasks import task_store, tasks_over

BUILT_IN_KINDS: Final = KINDS | {maintenance.KIND}
"""The task types of this release."""


@dataclass(frozen=True, slots=True)
class DeployedTasks:
    """The tasks of this deployment, its task types, and the behaviors that it adds to the built-in ones.

    A type that is not among `kinds` belongs to a newer deployment and is left to it.
    """

    store: DynamoDbTaskStore
    tasks: TaskService
    kinds: frozenset[str]
    added: tuple[TaskBehavior, ...]


def deployment(
    queue: DispatchQueue | None = None,
    external_jobs: ExternalJobs = LeftToSweeper(),  # noqa: B008 - it holds nothing
    *,
    dispatch_grace: timedelta | None = None,
) -> DeployedTasks:
    """Tasks with what DELEGATION_BEHAVIORS adds; without a queue, for processes that may not dispatch.

    Who can end job runs says so by `external_jobs`; others leave lost attempts that may have any to the sweeper.
    """
    settings = TaskSettings.read()
    policies = settings.policies()
    if dispatch_grace is not None:
        policies = replace(policies, dispatch=replace(policies.dispatch, grace=dispatch_grace))
    store = task_store(settings.tasks_table)
    plain = tasks_over(store, policies, queue, external_jobs)
    plugins = load(BehaviorSettings.read().behaviors, plain, taken=BUILT_IN_KINDS)
    tasks = plain.having(policies=replace(policies, fail_when_lost=plugins.fail_when_lost))
    return DeployedTasks(store, tasks, BUILT_IN_KINDS | plugins.kinds, plugins.behaviors(tasks))
