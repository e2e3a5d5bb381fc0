"""How an entry point gets what it works with: settings in, services out. The only place that makes AWS clients.

Every function here is called once a process. Endpoints and regions come from the standard AWS variables, so nothing
in this package knows where it runs.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import boto3
import httpx
from botocore.config import Config

from delegation.driving.dispatch import Dispatcher, SqsDispatchQueue
from delegation.driving.jobs import EmrServerless, JobConfiguration, JobsOutside
from delegation.driving.steps import SPARK, Steps
from delegation.driving.working import JobEngine
from delegation.edge.submission import Submissions
from delegation.idempotency.dynamodb import DynamoDbIdempotencyStore
from delegation.idempotency.service import Acceptance
from delegation.idempotency.upkeep import RecordUpkeep
from delegation.plugins import Plugins, load
from delegation.polaris.client import PolarisClient
from delegation.polaris.settings import PolarisSettings
from delegation.polaris.transport import Backoff, Transport
from delegation.purge.behavior import KINDS, PurgeBehavior, watched
from delegation.purge.context import PurgeSettings
from delegation.purge.s3 import WHILE_A_CALLER_WAITS, Patience, S3PlanStore
from delegation.purge.workplace import ServiceWorkplace, vended_store
from delegation.settings import (
    IDEMPOTENCY_LIFETIME,
    BehaviorSettings,
    DispatcherSettings,
    IdempotencySettings,
    JobSettings,
    JobsStated,
    JobStartSettings,
    PurgeEnvironment,
    QueueSettings,
    RequestSettings,
    TaskSettings,
)
from delegation.tasks import maintenance
from delegation.tasks.behaviors import Behavior, Behaviors, FunctionBehavior
from delegation.tasks.conditional import ConditionalTable, client_config
from delegation.tasks.dynamodb import DynamoDbTaskStore
from delegation.tasks.maintenance import Maintenance, MaintenanceReport
from delegation.tasks.outside import LeftToSweeper, NothingOutside, Outside
from delegation.tasks.policy import LeasePolicy, Policies, RetryPolicy
from delegation.tasks.runs import elapsed
from delegation.tasks.service import DispatchQueue, NoDispatchQueue, TaskService, new_nonce
from delegation.tasks.worker import Worker, WorkerSettings

BUILT_IN_KINDS: Final = KINDS | {maintenance.KIND}
"""The task types of this release."""
_QUICK: Final = Config(connect_timeout=2, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 3})
"""For calls that answer in milliseconds: what hangs is dropped and tried again."""
_PATIENT: Final = Config(connect_timeout=3, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 4})
_CALLER_WAITS: Final = httpx.Timeout(15, connect=3)
"""For Polaris behind API Gateway's 29 s: one answer may take long, for large metadata does, but not two in a row."""


def utc_now() -> datetime:
    """The wall clock, aware."""
    return datetime.now(UTC)


def aws(service: str, config: Config = _PATIENT) -> Any:
    """A boto3 client by the standard environment."""
    client: Any = boto3.client  # the stubs overload it for literal names only
    return client(service, config=config)


def task_service(queue: DispatchQueue | None = None, outside: Outside = LeftToSweeper()) -> TaskService:  # noqa: B008
    """Tasks over DynamoDB; without a queue, for processes that may not dispatch.

    Who can end job runs says so by `outside`; others leave lost attempts that may have any to the sweeper.
    """
    settings = TaskSettings()
    tasks = _tasks_in(settings.tasks_table, settings.policies(), queue or NoDispatchQueue())
    tasks.outside = outside
    return tasks


def swept_tasks() -> TaskService:
    """Tasks for who presumes them lost: it ends their job runs, if an application is named."""
    outside = JobsOutside(watched_jobs(), rest_seconds=30) if JobsStated().application_id else NothingOutside()
    return task_service(dispatch_queue(), outside)


def _tasks_in(table: str, policies: Policies, queue: DispatchQueue) -> TaskService:
    store = DynamoDbTaskStore(ConditionalTable(aws("dynamodb", client_config())), table)
    return TaskService(store, policies, queue, clock=utc_now)


def plugins(tasks: TaskService) -> Plugins:
    """Behaviors that this deployment adds; the service is told which of their kinds are not retried when lost."""
    added = load(BehaviorSettings().behaviors, tasks, taken=BUILT_IN_KINDS)
    tasks.policies = replace(tasks.policies, fail_when_lost=tasks.policies.fail_when_lost | added.fail_when_lost)
    return added


def known_kinds(tasks: TaskService) -> frozenset[str]:
    """The task types that this deployment knows; what it does not is left to a newer one."""
    return BUILT_IN_KINDS | plugins(tasks).kinds


def dispatch_queue() -> DispatchQueue:
    """The queue of dispatches."""
    return SqsDispatchQueue(aws("sqs", _QUICK), QueueSettings().queue_url)


def dispatcher() -> Dispatcher:
    """What turns messages into executions."""
    return Dispatcher(aws("stepfunctions"), DispatcherSettings().state_machine_arn)


def polaris(transport: Transport | None = None) -> PolarisClient:
    """Polaris as the service's own principal."""
    return PolarisSettings().client(aws("secretsmanager"), clock=utc_now, transport=transport)


def polaris_for_a_caller() -> PolarisClient:
    """The same where a caller waits: a Polaris that hangs has to be told as 502 before the caller's own time is up."""
    return polaris(Transport(httpx.Client(timeout=_CALLER_WAITS), backoff=Backoff(patience_seconds=5)))


def purge_behavior(tasks: TaskService, tables: PolarisClient, patience: Patience | None = None) -> PurgeBehavior:
    """Purging: table files with vended credentials, plans in the service's bucket with its own role.

    `patience` is had with S3, wherever the files and the plans lie; without it as much as a background run can have.
    """
    settings = PurgeEnvironment()
    return PurgeBehavior(
        tasks=tasks,
        catalog=tables,
        store_of=lambda identifier: vended_store(tables, identifier, clock=utc_now, patience=patience),
        plans=S3PlanStore(aws("s3", patience.config() if patience else _PATIENT), settings.plan_bucket),
        settings=PurgeSettings(inline_max_files=settings.inline_max_files),
        limits=settings.limits(),
    )


@dataclass(frozen=True, slots=True)
class JobWorkplace(ServiceWorkplace):
    """The Workplace of a deployed job's executors: they read the task, and leave writing it to the driver.

    Where tasks are and how long a lease is come from the driver, not from variables: StartJobRun's parameters, which
    hold the variables of driver and executors, are themselves a variable of a Lambda function, which has room for 4 KB.
    """

    tasks_table: str
    lease: LeasePolicy

    def checkpoint(self, task_id: str, attempt: int) -> Callable[[], None]:
        """See Workplace.checkpoint."""
        tasks = _tasks_in(self.tasks_table, Policies(RetryPolicy(), {}, lease=self.lease), NoDispatchQueue())
        return watched(tasks, task_id, attempt, monotonic=elapsed)


def job_workplace() -> JobWorkplace:
    """What the driver of a job gives its executors."""
    settings = TaskSettings()
    return JobWorkplace(settings.tasks_table, settings.policies().lease)


def idempotency_records(tasks: TaskService) -> DynamoDbIdempotencyStore:
    """The records that are accepted in the same transaction as their tasks; TypeError when tasks are elsewhere."""
    if not isinstance(tasks.store, DynamoDbTaskStore):
        raise TypeError("requests are accepted in the same transaction as their tasks: both have to be in DynamoDB")
    return DynamoDbIdempotencyStore(tasks.store, IdempotencySettings().idempotency_table)


def store_maintenance(tasks: TaskService) -> Behavior[Maintenance, MaintenanceReport]:
    """The recurring task that tidies tasks and idempotency records."""

    def records() -> RecordUpkeep:
        return RecordUpkeep(tasks.store, idempotency_records(tasks), lifetime=IDEMPOTENCY_LIFETIME, nonce=new_nonce)

    return maintenance.store_maintenance(tasks, records, lambda: known_kinds(tasks))


def all_behaviors(tasks: TaskService) -> Behaviors:
    """Everything that this deployment can run, for who runs it."""
    maintains = FunctionBehavior(tasks, store_maintenance(tasks))
    return Behaviors([purge_behavior(tasks, polaris()), maintains, *plugins(tasks).behaviors])


def steps(*, dispatches: bool = False, works: bool = False, jobs: Callable[[], EmrServerless] | None = None) -> Steps:
    """The steps of the state machine, with as much around them as the function's variables and role allow."""
    watched = jobs() if jobs else None
    tasks = task_service(dispatch_queue() if dispatches else None, JobsOutside(watched) if watched else LeftToSweeper())
    behaviors = all_behaviors(tasks) if works else None
    kinds = frozenset(behaviors) if behaviors is not None else known_kinds(tasks)
    return Steps(tasks, kinds, behaviors=behaviors, jobs=watched)


def watched_jobs() -> EmrServerless:
    """Job runs to be looked at and cancelled."""
    return EmrServerless(aws("emr-serverless", _QUICK), JobSettings().application_id)


def started_jobs() -> EmrServerless:
    """Job runs to be started."""
    settings = JobStartSettings()
    configuration = JobConfiguration(
        application_id=settings.application_id,
        role_arn=settings.role_arn,
        entry_point=settings.entry_point,
        spark_parameters=settings.spark_parameters,
    )
    return EmrServerless(aws("emr-serverless"), settings.application_id, configuration)


def worker(tasks: TaskService, settings: WorkerSettings, stop: threading.Event) -> Worker:
    """A plain process that runs tasks: Spark jobs on EMR Serverless if an application is named, else all inline.

    What it gives back is due at once: no execution of the state machine waits for a task that a worker held.
    """
    tasks.policies = replace(tasks.policies, dispatch=replace(tasks.policies.dispatch, grace=timedelta(0)))
    jobs = started_jobs() if JobsStated().application_id else None
    tasks.outside = JobsOutside(jobs, rest_seconds=30) if jobs else LeftToSweeper()
    engines = {SPARK: JobEngine(tasks, jobs)} if jobs else {}
    return Worker(tasks, all_behaviors(tasks), settings, stop=stop, engines=engines)


def submissions(tasks: TaskService) -> Submissions:
    """Accepting and running requests."""
    settings = RequestSettings()
    tables = polaris_for_a_caller()
    records = idempotency_records(tasks)
    acceptance = Acceptance(tasks.store, records, lifetime=IDEMPOTENCY_LIFETIME, clock=utc_now, nonce=new_nonce)
    behavior = purge_behavior(tasks, tables, WHILE_A_CALLER_WAITS)
    return Submissions(
        tasks,
        acceptance,
        behavior,
        tables,
        realm=settings.realm,
        budget=timedelta(seconds=settings.synchronous_budget_seconds),
        sleep=time.sleep,
        limits=behavior.limits,
    )
