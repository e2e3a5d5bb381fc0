"""The driver and the executors of a Spark job."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

from delegation.identifiers import TableIdentifier
from delegation.polaris.client import PolarisClient
from delegation.polaris.settings import PolarisSettings
from delegation.removal.task_attempt import watched
from delegation.storage.base import PlanStore
from delegation.storage.listing.model import ListableStore
from delegation.storage.s3_plans import S3PlanStore
from delegation.storage.sessions import new_session
from delegation.tasks.life.declared import named
from delegation.tasks.life.model import Task
from delegation.tasks.life.policy import LeasePolicy, Policies, RetryPolicy
from delegation.tasks.pauses import ReadPauses
from delegation.tasks.stores.dynamodb import DynamoDbPauseStore
from delegation.tasks.work.hooks import NoDispatchQueue, TaskHooks
from delegation.tasks.work.service import TaskService
from delegation.timestamps import elapsed, utc_now
from delegation.wiring.settings import PurgeEnvironment, TaskSettings
from delegation.wiring.table_access import vended_store
from delegation.wiring.tasks import task_service, task_table
from delegation.wiring.types import TYPES, operation_of


@functools.cache
def service_polaris() -> PolarisClient:
    """Return the process' client of Polaris. Raises ValidationError."""
    return PolarisSettings.read().client(new_session().client("secretsmanager"))


@functools.cache
def service_plans() -> S3PlanStore:
    """Return the process' plan store. Raises ValidationError."""
    return S3PlanStore(new_session().client("s3"), PurgeEnvironment.read().plan_bucket)


@dataclass(frozen=True, slots=True)
class JobResources:
    """ExecutorResources of a deployed job: executors read the task, only the driver writes it. The driver sends them
    the task table and the lease. That keeps StartJobRun's parameters short: they are one environment variable of a
    Lambda function, whose variables are limited to 4 KB."""

    tasks_table: str
    lease: LeasePolicy

    def store(self, identifier: TableIdentifier) -> ListableStore:
        """Return the store of a table, loaded as the service's principal."""
        return vended_store(service_polaris(), identifier, clock=utc_now)

    def plans(self) -> PlanStore:
        return service_plans()

    def checkpoint(self, task_id: str, attempt: int) -> Callable[[], None]:
        policies = Policies(RetryPolicy(), {}, lease=self.lease)
        store = task_table(self.tasks_table)
        pauses = ReadPauses(DynamoDbPauseStore(store.dynamodb, store.table).read, TYPES, monotonic=elapsed)
        tasks = TaskService(store, policies, NoDispatchQueue(), clock=utc_now, hooks=TaskHooks(pauses=pauses))
        return watched(tasks, task_id, attempt, monotonic=elapsed)


def job_resources() -> JobResources:
    settings = TaskSettings.read()
    return JobResources(settings.tasks_table, settings.policies().lease)


def job_tasks() -> TaskService:
    return task_service(counts=False)  # Complete counts a partly deleted table from the outcome that it reads


def run_attempt(tasks: TaskService, task_id: str, attempt: int) -> Task:
    """Run one attempt with the operation's own engine. Raises LeaseLost if it no longer holds the task."""
    operation = operation_of(tasks.reads.get(task_id))
    behavior, engine = named(operation.behavior)(tasks), named(operation.engine)
    after: Task = behavior.run_job(lambda ctx: engine(ctx, job_resources()), task_id, attempt)
    return after
