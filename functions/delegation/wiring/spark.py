"""The driver and the executors of a Spark job."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delegation.identifiers import TableIdentifier
from delegation.polaris.client import PolarisClient
from delegation.polaris.settings import PolarisSettings
from delegation.removal.expiry.task_type import TASK_TYPES as EXPIRIES
from delegation.removal.orphans.task_type import TASK_TYPES as REMOVALS
from delegation.removal.purge.behavior import PurgeBehavior, PurgeFunction
from delegation.removal.purge.task_type import DROP_TASK_TYPE
from delegation.removal.task_attempt import watched
from delegation.storage.base import PlanStore
from delegation.storage.listing.model import ListableStore
from delegation.storage.s3_plans import S3PlanStore
from delegation.storage.sessions import new_session
from delegation.tasks.life.model import Task
from delegation.tasks.life.policy import LeasePolicy, Policies, RetryPolicy
from delegation.tasks.pauses import ReadPauses
from delegation.tasks.stores.dynamodb import DynamoDbPauseStore
from delegation.tasks.work.hooks import NoDispatchQueue, TaskHooks
from delegation.tasks.work.service import TaskService
from delegation.timestamps import elapsed, utc_now
from delegation.wiring.operations import polaris, purge_behavior, vended_store
from delegation.wiring.settings import PurgeEnvironment, TaskSettings
from delegation.wiring.tasks import task_service, task_table
from delegation.wiring.types import TYPES

if TYPE_CHECKING:
    from delegation.gateway.drop.behavior import DropBehavior
    from delegation.removal.expiry.behavior import ExpiryBehavior
    from delegation.removal.expiry.context import ExpiryContext, ExpiryResult
    from delegation.removal.orphans.behavior import OrphansBehavior
    from delegation.removal.orphans.context import OrphanContext, OrphanResult


@functools.cache
def service_polaris() -> PolarisClient:
    """Return the process's client of Polaris; raises pydantic's ValidationError for its settings."""
    return PolarisSettings.read().client(new_session().client("secretsmanager"))


@functools.cache
def service_plans() -> S3PlanStore:
    """Return the process's plan store; raises pydantic's ValidationError for its settings."""
    return S3PlanStore(new_session().client("s3"), PurgeEnvironment.read().plan_bucket)


@dataclass(frozen=True, slots=True)
class JobResources:
    """ExecutorResources of a deployed job: executors read the task, only the driver writes it. The driver sends the
    task table and the lease, to keep StartJobRun's parameters short: they are one environment variable of a Lambda
    function, whose variables are limited to 4 KB."""

    tasks_table: str
    lease: LeasePolicy

    def store(self, identifier: TableIdentifier) -> ListableStore:
        """Return the store of a table, which is loaded as the service's principal."""
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
    """Return the resources that the driver sends to its executors."""
    settings = TaskSettings.read()
    return JobResources(settings.tasks_table, settings.policies().lease)


@dataclass(frozen=True, slots=True)
class JobBehaviors:
    """Runs what a job was started for: a purge, or by `others` the work of another task type. Each has what makes its
    behavior, and what runs it with Spark, None for the engine of purges."""

    tasks: TaskService
    purges: PurgeBehavior
    others: Mapping[str, tuple[Callable[[], Any], Callable[[Any], Any] | None]]

    def run_job(self, engine: PurgeFunction, task_id: str, attempt: int) -> Task:
        """Run a purge or drop with `engine`, any other task with its own; see PurgeBehavior.run_job."""
        task_type = self.tasks.reads.get(task_id).task_type
        made, own = self.others.get(task_type, (lambda: self.purges, None))
        after: Task = made().run_job(own or engine, task_id, attempt)
        return after


def job_behavior() -> JobBehaviors:
    tasks = task_service(counts=False)  # Complete reports a half deleted table of a job, from the outcome that it reads
    purges = purge_behavior(tasks, polaris())

    def drops() -> "DropBehavior":
        from delegation.wiring.drops import drop_behavior  # noqa: PLC0415 - only where there is a gateway

        return drop_behavior(tasks, purges)

    def expiries() -> "ExpiryBehavior":
        from delegation.wiring.removals import expiry_behavior  # noqa: PLC0415 - most jobs run none

        return expiry_behavior(tasks)

    def removals() -> "OrphansBehavior":
        from delegation.wiring.removals import orphans_behavior  # noqa: PLC0415 - most jobs run none

        return orphans_behavior(tasks)

    others: dict[str, Any] = {DROP_TASK_TYPE: (drops, None)}
    others |= dict.fromkeys(EXPIRIES, (expiries, expire)) | dict.fromkeys(REMOVALS, (removals, remove))
    return JobBehaviors(tasks, purges, others)


def expire(ctx: "ExpiryContext") -> "ExpiryResult":
    from delegation.removal.expiry.spark import expire_in_session  # noqa: PLC0415 - it needs pyspark

    return expire_in_session(ctx, job_resources())


def remove(ctx: "OrphanContext") -> "OrphanResult":
    from delegation.removal.orphans.spark import remove_in_session  # noqa: PLC0415 - it needs pyspark

    return remove_in_session(ctx, job_resources())
