"""The state machine as the local stack runs it, and `delegation worker` processes, on one DynamoDB."""

import contextlib
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from delegation.orchestration.dispatch import SqsDispatchQueue
from delegation.tasks.life.policy import Policies
from delegation.tasks.stores.dynamodb import ConditionalTable, DynamoDbTaskStore
from delegation.tasks.work.hooks import NoDispatchQueue
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.wiring.persistent_tasks import create_task_tables, persistent_tasks
from delegation.wiring.tasks import StoredTasks
from infra.environment.functions import DISPATCH_BATCH_SIZE, DISPATCH_MAX_CONCURRENCY, FUNCTIONS
from infra.environment.resources import Resources, environment
from infra.local import resources
from infra.local.aws.server import ACCOUNT, REGION, MotoAws
from infra.local.aws.triggers import Clock, Poller
from infra.local.aws.triggers import Mapping as QueueMapping
from infra.local.backends import AwsKeys, Endpoints
from infra.local.emr.endpoint import EmrServerlessEndpoint
from infra.local.emr.spark_jobs import LocalSparkJobs
from infra.local.lambdas.functions import FunctionSpec, LambdaPool
from infra.local.processes.programs import import_path
from tests.contract.task_tables import dynamodb_client
from tests.drill import observed
from tests.faults.shared.worker_process import WorkerProcess

REQUEST_FUNCTIONS = frozenset({"api", "authorizer"})
"""The functions that serve requests, which a drill does not send."""
STEP_SECONDS = 5
"""The time-out of every function; a stopped execution's attempt is lost ten seconds after the next step's."""
PROPERTIES = {
    "delegation.task.lease.lost-timeout-duration": "6s",
    "delegation.task.lease.clock-drift-duration": "500ms",
    "delegation.dispatch.grace-duration": "2s",
    "delegation.retry.default.max-attempts": "1000",
    "delegation.retry.default.initial-backoff-duration": "100ms",
    "delegation.retry.default.max-backoff-duration": "1s",
}
_NO_SERVER = "http://127.0.0.1:9"
"""An address without a server, for settings that are required but not used."""


@dataclass(frozen=True, slots=True)
class Store:
    """Tasks in a running DynamoDB, and the variables of processes that work on them.

    They are in a task table, or as `kind` persistence in its two tables.
    """

    url: str
    folder: Path
    properties: Mapping[str, str]
    tasks_table: str = field(default_factory=lambda: f"tasks-{uuid.uuid4()}")
    idempotency_table: str = field(default_factory=lambda: f"idempotency-{uuid.uuid4()}")
    references_table: str = field(default_factory=lambda: f"references-{uuid.uuid4()}")
    kind: str = "table"
    objects_table: str = field(default_factory=lambda: f"objects-{uuid.uuid4()}")
    persistence_references: str = field(default_factory=lambda: f"persistence-references-{uuid.uuid4()}")

    @property
    def log(self) -> Path:
        """The file that the runs append to."""
        return self.folder / "observed.jsonl"

    def create_tables(self) -> Self:
        with contextlib.closing(dynamodb_client(self.url)) as client:
            resources.create_tables(client, self.tasks_table, self.idempotency_table, self.references_table)
            if self.kind == "persistence":
                create_task_tables(client, self.objects_table, self.persistence_references)
        return self

    def tasks(self, queue: Any = None) -> TaskService:
        """Return the service of a client, which is this process."""
        policies = Policies.from_properties(self.properties)
        return TaskService(self._tasks(), policies, queue or NoDispatchQueue(), clock=utc_now)

    def described(self, application_id: str = "none") -> Resources:
        """Return the values for the functions' variables."""
        return Resources(
            realm="POLARIS",
            tasks_table=self.tasks_table,
            idempotency_table=self.idempotency_table,
            references_table=self.references_table,
            plan_bucket=resources.PLAN_BUCKET,
            polaris_url=_NO_SERVER,
            polaris_secret_arn="arn:aws:secretsmanager:us-east-1:123456789012:secret:none",
            emr_application_id=application_id,
            emr_job_role_arn="arn:aws:iam::123456789012:role/none",
            emr_entry_point="s3://none/none.py",
            properties=self.properties,
            behaviors="tests.drill.observed:behaviors",
        )

    def variables(self, aws_url: str = _NO_SERVER, **more: str) -> dict[str, str]:
        """Return a worker's variables: those of `run_inline`, addresses and keys."""
        endpoints = Endpoints(aws_url, self.url, aws_url, AwsKeys("local", "local")).environment()
        path = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": import_path(), observed.LOG: str(self.log)}
        found = environment("run_inline", self.described()) | self.chosen()
        if self.kind == "persistence":
            found.pop("DELEGATION_TASKS_TABLE")
            found.pop("DELEGATION_EMR_APPLICATION_ID", None)
        return {**found, **endpoints, **path, **more}

    def chosen(self) -> dict[str, str]:
        """Return the variables that choose the persistence, none for a task table."""
        if self.kind == "table":
            return {}
        return {
            "DELEGATION_TASK_STORE": self.kind,
            "DELEGATION_OBJECTS_TABLE": self.objects_table,
            "DELEGATION_PERSISTENCE_REFERENCES_TABLE": self.persistence_references,
        }

    def _tasks(self) -> StoredTasks:
        if self.kind == "persistence":
            return persistent_tasks(dynamodb_client(self.url), self.objects_table, self.persistence_references)
        return DynamoDbTaskStore(ConditionalTable(dynamodb_client(self.url)), self.tasks_table)

    def worker(self, name: str, *arguments: str, **more: str) -> WorkerProcess:
        """Start a worker process."""
        return WorkerProcess(self.variables(**more), self.folder / f"{name}.log", *arguments)


class StateMachine:
    """Queue, dispatcher, state machine and sweeper, which run tasks besides the workers; one per process."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as cleanup:
            lambdas = LambdaPool(log_folder=self.store.folder / "functions", region=REGION, account=ACCOUNT)
            self.aws = MotoAws(lambdas).start()
            cleanup.callback(self.aws.stop)
            self.sqs, self.states = self.aws.client("sqs"), self.aws.client("stepfunctions")
            self.queue = resources.create_queue(self.sqs)
            arns = {name: lambdas.arn(name) for name in FUNCTIONS}
            self.arn = resources.create_state_machine(self.states, arns, account=ACCOUNT)
            jobs = LocalSparkJobs(log_folder=self.store.folder / "emr", environment={}, download=_nothing_to_download)
            emr = EmrServerlessEndpoint(jobs, region=REGION, account=ACCOUNT).start()
            cleanup.callback(emr.stop)
            self._deploy(lambdas, emr)
            cleanup.callback(lambdas.stop)
            mapping = QueueMapping(
                self.queue.url,
                self.queue.arn,
                REGION,
                batch_size=DISPATCH_BATCH_SIZE,
                maximum_concurrency=DISPATCH_MAX_CONCURRENCY,
            )
            poller = Poller(self.sqs, mapping, lambdas.function("dispatcher"))
            clock = Clock(lambdas.function("sweeper"), interval_seconds=1, region=REGION, account=ACCOUNT)
            cleanup.callback(poller.stop)
            cleanup.callback(clock.stop)
            cleanup.callback(lambdas.stop)
            poller.start()
            clock.start()
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def tasks(self) -> TaskService:
        """Return the service of a client that dispatches to the state machine."""
        return self.store.tasks(SqsDispatchQueue(self.sqs, self.queue.url))

    def running(self) -> list[str]:
        """Return the ARNs of running executions."""
        pages = self.states.get_paginator("list_executions").paginate(stateMachineArn=self.arn, statusFilter="RUNNING")
        return [each["executionArn"] for page in pages for each in page["executions"]]

    def _deploy(self, lambdas: LambdaPool, emr: EmrServerlessEndpoint) -> None:
        described = self.store.described(emr.application_id)
        addresses = {
            "DELEGATION_QUEUE_URL": self.queue.url,
            "DELEGATION_STATE_MACHINE_ARN": self.arn,
            "AWS_ENDPOINT_URL_EMR_SERVERLESS": emr.url,
        }
        for name, function in FUNCTIONS.items():
            if name in REQUEST_FUNCTIONS:
                continue
            variables = {
                **self.store.variables(self.aws.url),
                **environment(name, described),
                **self.store.chosen(),
                **addresses,
            }
            lambdas.add(
                FunctionSpec(
                    name=name,
                    handler=function.handler,
                    timeout_seconds=STEP_SECONDS,
                    memory_mb=function.memory_mb,
                    environment=variables,
                    concurrency=function.reserved_concurrency or 4,
                )
            )


def _nothing_to_download(_bucket: str, _key: str, _target: Path) -> None:
    raise AssertionError("no task of the drill has a job")
