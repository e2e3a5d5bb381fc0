"""Tasks over DynamoDB, as every kind of process needs them: which store, which queue, which kinds."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from delegation.dynamodb import client_config
from delegation.operations.purge.behavior.details import PurgeDetailRules
from delegation.operations.purge.behavior.kinds import KIND, KINDS
from delegation.orchestration.dispatch import SqsDispatchQueue
from delegation.tasks.life.policy import Policies
from delegation.tasks.stores.dynamodb import ConditionalTable, DynamoDbTaskStore
from delegation.tasks.work import maintenance
from delegation.tasks.work.behaviors import TaskBehavior
from delegation.tasks.work.dispatch_queue import DispatchQueue, NoDispatchQueue
from delegation.tasks.work.external_jobs import ExternalJobs, LeftToSweeper
from delegation.tasks.work.plugins import load
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.wiring.clients import QUICK, aws
from delegation.wiring.settings import BehaviorSettings, QueueSettings, TaskSettings

BUILT_IN_KINDS: Final = KINDS | {maintenance.KIND}
"""The task types of this release."""
DETAILS: Final = {KIND: PurgeDetailRules()}
"""How the kinds that keep details carry them into another submission."""


@dataclass(frozen=True, slots=True)
class Deployment:
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
) -> Deployment:
    """Tasks with what DELEGATION_BEHAVIORS adds; without a queue, for processes that may not dispatch.

    Who can end job runs says so by `external_jobs`; others leave lost attempts that may have any to the sweeper.
    """
    settings = TaskSettings.read()
    policies = settings.policies()
    if dispatch_grace is not None:
        policies = replace(policies, dispatch=replace(policies.dispatch, grace=dispatch_grace))
    store = task_store(settings.tasks_table)
    plain = _service(store, policies, queue, external_jobs)
    plugins = load(BehaviorSettings.read().behaviors, plain, taken=BUILT_IN_KINDS)
    tasks = plain.having(policies=replace(policies, fail_when_lost=plugins.fail_when_lost))
    return Deployment(store, tasks, BUILT_IN_KINDS | plugins.kinds, plugins.behaviors(tasks))


def task_service(queue: DispatchQueue | None = None, *, store: DynamoDbTaskStore | None = None) -> TaskService:
    """Tasks for a process that runs none but purges, or only submits."""
    settings = TaskSettings.read()
    return _service(store or task_store(settings.tasks_table), settings.policies(), queue, LeftToSweeper())


def task_store(table: str | None = None) -> DynamoDbTaskStore:
    """Tasks in a table, by default the one that the environment names."""
    client = ConditionalTable(aws("dynamodb", client_config()))
    return DynamoDbTaskStore(client, table or TaskSettings.read().tasks_table)


def dispatch_queue() -> DispatchQueue:
    """The queue of dispatches."""
    return SqsDispatchQueue(aws("sqs", QUICK), QueueSettings.read().queue_url)


def _service(
    store: DynamoDbTaskStore, policies: Policies, queue: DispatchQueue | None, external_jobs: ExternalJobs
) -> TaskService:
    queue = queue or NoDispatchQueue()
    return TaskService(store, policies, queue, clock=utc_now, external_jobs=external_jobs, details=DETAILS)
