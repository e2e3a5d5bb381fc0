"""The task service over DynamoDB and SQS."""

from typing import Final

from delegation.dynamodb import client_config
from delegation.operations.purge.behavior.details import PurgeDetailRules
from delegation.operations.purge.behavior.kinds import KIND
from delegation.orchestration.dispatch import SqsDispatchQueue
from delegation.tasks.life.policy import Policies
from delegation.tasks.stores.dynamodb import ConditionalTable, DynamoDbTaskStore
from delegation.tasks.work.dispatch_queue import DispatchQueue, NoDispatchQueue
from delegation.tasks.work.external_jobs import ExternalJobs, JobsLeftToSweeper
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.wiring.clients import QUICK, aws
from delegation.wiring.settings import QueueSettings, TaskSettings

DETAILS: Final = {KIND: PurgeDetailRules()}
"""How task types with details carry them into another submission."""


def task_service(queue: DispatchQueue | None = None, *, store: DynamoDbTaskStore | None = None) -> TaskService:
    """Return the task service of a process that only submits tasks or runs purges."""
    settings = TaskSettings.read()
    return tasks_over(store or task_store(settings.tasks_table), settings.policies(), queue, JobsLeftToSweeper())


def task_store(table: str | None = None) -> DynamoDbTaskStore:
    """Return the store of a table, by default the one that the environment names."""
    client = ConditionalTable(aws("dynamodb", client_config()))
    return DynamoDbTaskStore(client, table or TaskSettings.read().tasks_table)


def dispatch_queue() -> DispatchQueue:
    """Return the dispatch queue."""
    return SqsDispatchQueue(aws("sqs", QUICK), QueueSettings.read().queue_url)


def tasks_over(
    store: DynamoDbTaskStore, policies: Policies, queue: DispatchQueue | None, external_jobs: ExternalJobs
) -> TaskService:
    queue = queue or NoDispatchQueue()
    return TaskService(store, policies, queue, clock=utc_now, external_jobs=external_jobs, details=DETAILS)
