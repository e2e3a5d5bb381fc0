"""What a Spark job works with: its driver and its executors."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

from delegation.identifiers import TableIdentifier
from delegation.operations.purge.behavior.run import PurgeBehavior
from delegation.operations.purge.behavior.task_attempt import watched
from delegation.polaris.client import PolarisClient
from delegation.polaris.settings import PolarisSettings
from delegation.storage.base import ObjectStore, PlanStore
from delegation.storage.s3_plans import S3PlanStore
from delegation.storage.sessions import new_session
from delegation.tasks.life.policy import LeasePolicy, Policies, RetryPolicy
from delegation.tasks.work.attempt_context import elapsed
from delegation.tasks.work.dispatch_queue import NoDispatchQueue
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.wiring.purge import polaris, purge_behavior, vended_store
from delegation.wiring.settings import PurgeEnvironment, TaskSettings
from delegation.wiring.tasks import task_service, task_store


@functools.cache
def service_polaris() -> PolarisClient:
    """One client per process, with settings and secret of the environment; raises pydantic's ValidationError."""
    return PolarisSettings.read().client(new_session().client("secretsmanager"))


@functools.cache
def service_plans() -> S3PlanStore:
    """The plan bucket named by the environment; raises pydantic's ValidationError."""
    return S3PlanStore(new_session().client("s3"), PurgeEnvironment.read().plan_bucket)


@dataclass(frozen=True, slots=True)
class JobResources:
    """ExecutorResources of a deployed job: executors read the task, and leave writing it to the driver.

    Where tasks are and how long a lease is come from the driver, not from variables: StartJobRun's parameters, which
    hold the variables of driver and executors, are themselves a variable of a Lambda function, which has room for 4 KB.
    """

    tasks_table: str
    lease: LeasePolicy

    def store(self, identifier: TableIdentifier) -> ObjectStore:
        """See ExecutorResources.store; the table is loaded as the service's own principal."""
        return vended_store(service_polaris(), identifier, clock=utc_now)

    def plans(self) -> PlanStore:
        """See ExecutorResources.plans."""
        return service_plans()

    def checkpoint(self, task_id: str, attempt: int) -> Callable[[], None]:
        """See ExecutorResources.checkpoint."""
        policies = Policies(RetryPolicy(), {}, lease=self.lease)
        tasks = TaskService(task_store(self.tasks_table), policies, NoDispatchQueue(), clock=utc_now)
        return watched(tasks, task_id, attempt, monotonic=elapsed)


def job_resources() -> JobResources:
    """What the driver of a job gives its executors."""
    settings = TaskSettings.read()
    return JobResources(settings.tasks_table, settings.policies().lease)


def job_behavior() -> PurgeBehavior:
    """What the driver of a job runs."""
    return purge_behavior(task_service(), polaris())
