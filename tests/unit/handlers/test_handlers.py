"""Every Lambda entry point on its sample event, wired as deployed, against AWS in moto."""

import importlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from delegation.orchestration.failures import execution_name
from delegation.removal.purge.behavior import PurgeBehavior
from delegation.removal.purge.requests import TablePurge
from delegation.tasks.life import transitions as t
from delegation.tasks.life.lanes import Lane, Traits
from delegation.tasks.life.model import Dispatches, Status, Task
from delegation.tasks.life.policy import Lease
from delegation.tasks.stores.base import Create
from delegation.tasks.work.maintenance import TaskMaintenance
from delegation.tasks.work.service import TaskService
from delegation.wire.requests import TableState
from delegation.wiring import clients, maintenance
from delegation.wiring import deployment as wired_deployment
from delegation.wiring import operations as purges
from delegation.wiring import tasks as wired_tasks
from delegation.wiring.operations import count_held
from infra.environment.functions import EVERY_FUNCTION, FUNCTIONS
from infra.environment.resources import Resources, environment
from polaris_common.errors import DelegationError
from tests.aws import mock_aws
from tests.contract.task_tables import create_task_table
from tests.kit.errors import coded
from tests.kit.lakes.lake import busy_table, identifier
from tests.kit.tasks.builders import HOUR, submitted
from tests.kit.worlds.service import World
from tests.paths import ROOT

EVENTS = ROOT / "events"
TASK_ID = "1a13505e-1ed2-51cb-aa79-d8eedccbc526"
REGION = "us-east-1"
_client = boto3.client
MACHINE = '{"StartAt": "End", "States": {"End": {"Type": "Succeed"}}}'


@dataclass
class Context:
    """The members of a Lambda context that handlers read."""

    function_name: str = "function"
    memory_limit_in_mb: int = 512
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:123456789012:function:function"
    aws_request_id: str = "request-1"
    seconds: float = 60

    def get_remaining_time_in_millis(self) -> int:
        return self.seconds * 1_000


class EmrWithoutRuns:
    """moto's EMR Serverless, whose ListJobRuns fails with the parameter `states`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def list_job_runs(self, **_arguments: Any) -> dict[str, Any]:
        return {"jobRuns": []}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class Deployed:
    """The service's resources in moto, and one table to purge."""

    def __init__(self) -> None:
        self.world = World()
        busy_table(self.world.lake, "orders")
        sqs = boto3.client("sqs", region_name=REGION)
        states = boto3.client("stepfunctions", region_name=REGION)
        emr = boto3.client("emr-serverless", region_name=REGION)
        machine = states.create_state_machine(
            name="purge", definition=MACHINE, roleArn="arn:aws:iam::123456789012:role/x"
        )
        application = emr.create_application(name="spark", releaseLabel="emr-7.13.0", type="SPARK")["applicationId"]
        self.sqs, self.states, self.emr = sqs, states, emr
        self.resources = Resources(
            realm="POLARIS",
            tasks_table=create_task_table(boto3.client("dynamodb", region_name=REGION)),
            idempotency_table="idempotency",
            references_table="references",
            queue_url=sqs.create_queue(QueueName="dispatch")["QueueUrl"],
            state_machine_arn=machine["stateMachineArn"],
            plan_bucket="plans",
            polaris_url="http://127.0.0.1:1",
            polaris_secret_arn="arn:aws:secretsmanager:us-east-1:123456789012:secret:polaris",
            emr_application_id=application,
            emr_job_role_arn="arn:aws:iam::123456789012:role/job",
            emr_entry_point="s3://code/run_task.py",
        )

    def client(self, service: str, **config: Any) -> Any:
        client = _client(service, **config)
        return EmrWithoutRuns(client) if service == "emr-serverless" else client

    def behavior(self, tasks: TaskService, _tables: object) -> PurgeBehavior:
        """The real behavior over the deployed tasks, with the lake in place of Polaris and S3."""
        world, settings = self.world, self.world.behavior.settings
        return PurgeBehavior(
            tasks, world.tables, lambda _identifier: world.objects, world.plans, settings, held=count_held
        )

    def accept(self, tasks: TaskService) -> Task:
        metadata = self.world.lake.metadata("orders")
        purge = TablePurge(
            realm="POLARIS",
            identifier=identifier("orders"),
            table=TableState(
                table_uuid=str(metadata["table-uuid"]),
                metadata_location=self.world.lake.pointers["orders"],
                location=str(metadata["location"]),
                format_version=2,
            ),
            properties={},
        )
        moments = ("received_timestamp", "created_ts", "last_status_change_ts", "next_scheduled_run_ts", "due_at")
        times = dict.fromkeys(moments, tasks.clock())
        payload, once = purge.to_payload(), Dispatches(count=1)
        return tasks.reads.store.apply(Create(submitted(TASK_ID, task_payload=payload, dispatches=once, **times)))


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployed]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        made = Deployed()
        monkeypatch.setattr(purges, "purge_behavior", made.behavior)
        monkeypatch.setattr(purges, "polaris", lambda: None)
        monkeypatch.setattr(clients.boto3, "client", made.client)
        yield made


def entry(name: str, deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Load the handler's module as a new process would, and return what has its `handler`."""
    for variable, value in environment(name, deployed.resources).items():
        monkeypatch.setenv(variable, value)
    module = importlib.reload(importlib.import_module(EVERY_FUNCTION[name].module))
    return module if hasattr(module, "handler") else SimpleNamespace(handler=getattr(module, name))


def invoke(name: str, deployed: Deployed, monkeypatch: pytest.MonkeyPatch, **changed: Any) -> Any:
    """Invoke a function with its sample event, in which fields may be changed; its calls are recorded as its role's."""
    event = json.loads((EVENTS / f"{name}.json").read_text()) | changed
    handler = entry(name, deployed, monkeypatch).handler
    with monkeypatch.context() as inside:
        inside.setenv("AWS_LAMBDA_FUNCTION_NAME", name)
        return handler(event, Context(name, seconds=FUNCTIONS[name].timeout_seconds))


def tasks_of(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> TaskService:
    for variable, value in environment("acquire", deployed.resources).items():
        monkeypatch.setenv(variable, value)
    return wired_tasks.task_service()


def held(deployed: Deployed, monkeypatch: pytest.MonkeyPatch, lease: timedelta = HOUR) -> TaskService:
    tasks = tasks_of(deployed, monkeypatch)
    deployed.accept(tasks)
    owner = execution_name(TASK_ID, 1)
    tasks.leases.acquire(TASK_ID, owner, lambda now: Lease.lasting(lease, now))
    return tasks


def test_every_handler_has_a_sample_event() -> None:
    names = {path.stem.split("-")[0] for path in EVENTS.glob("*.json")}
    assert names == {*EVERY_FUNCTION}


def test_acquire(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tasks_of(deployed, monkeypatch)
    deployed.accept(tasks)
    assert invoke("acquire", deployed, monkeypatch)["next"] == "prepare"
    assert tasks.reads.get(TASK_ID).lease.owner == f"{TASK_ID}-1"


def test_prepare_and_run_inline_purge_the_table(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = held(deployed, monkeypatch)
    assert invoke("prepare", deployed, monkeypatch)["next"] == "inline"
    assert invoke("run_inline", deployed, monkeypatch)["next"] == "complete"
    assert tasks.reads.get(TASK_ID).status is Status.SUCCESS
    assert deployed.world.lake.below("s3://lake/wh/orders") == set()
    assert invoke("complete", deployed, monkeypatch)["next"] == "succeeded"


def test_start_job(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = held(deployed, monkeypatch)
    assert invoke("start_job", deployed, monkeypatch)["next"] == "heartbeat"
    run_id = tasks.reads.get(TASK_ID).job_run_id
    run = deployed.emr.get_job_run(applicationId=deployed.resources["emr_application_id"], jobRunId=run_id)["jobRun"]
    assert run["name"] == f"{TASK_ID}-1"
    assert run["jobDriver"]["sparkSubmit"]["entryPointArguments"] == ["--task-id", TASK_ID, "--attempt", "1"]


def test_heartbeat_and_complete_of_a_job_that_ended_without_an_outcome(deployed, monkeypatch):
    tasks = held(deployed, monkeypatch)
    invoke("start_job", deployed, monkeypatch)
    assert invoke("heartbeat", deployed, monkeypatch)["next"] == "complete"  # moto's jobs are SUCCESS at once
    assert invoke("complete", deployed, monkeypatch)["next"] == "wait"
    assert tasks.reads.get(TASK_ID).error_code == "JOB_FAILED"


def test_dispatcher_starts_an_execution_and_reports_a_malformed_message(deployed, monkeypatch, caplog):
    answer = invoke("dispatcher", deployed, monkeypatch)
    [logged] = [vars(record) for record in caplog.records if record.message == "dispatch failed"]
    assert (logged["message_id"], logged["error_code"]) == (
        answer["batchItemFailures"][0]["itemIdentifier"],
        "MALFORMED_DISPATCH",
    )
    assert answer == {"batchItemFailures": [{"itemIdentifier": "2e1424d4-f796-459a-8184-9c92662be6da"}]}
    found = deployed.states.list_executions(stateMachineArn=deployed.resources["state_machine_arn"])["executions"]
    assert [execution["name"] for execution in found] == [f"{TASK_ID}-1"]
    described = deployed.states.describe_execution(executionArn=found[0]["executionArn"])
    assert json.loads(described["input"]) == {"task_id": TASK_ID, "n": 1}


def test_sweeper_dispatches_due_tasks(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tasks_of(deployed, monkeypatch)
    deployed.accept(tasks)
    assert invoke("sweeper", deployed, monkeypatch) == {"looked": 1, "failed": 0}
    queue_url = deployed.resources["queue_url"]
    messages = deployed.sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10)["Messages"]
    upkeep = maintenance.store_maintenance(wired_deployment.deployment()).task_id(TaskMaintenance())
    sent = [json.loads(message["Body"]) for message in messages]
    assert {(body["task_id"], body["n"]) for body in sent} == {(TASK_ID, 2), (upkeep, 1)}
    assert tasks.reads.get(upkeep).status is Status.SUBMITTED
    little = entry("sweeper", deployed, monkeypatch).handler({}, Context("sweeper", seconds=4))
    assert little["failed"] == 0
    assert tasks.reads.get(upkeep).version == 1


def test_a_waiting_task_is_announced_by_the_sweeper_and_admitted_by_the_dispatcher(deployed, monkeypatch):
    deployed.resources = deployed.resources.replaced(properties={"delegation.limits.all": "5"})
    tasks = tasks_of(deployed, monkeypatch)
    now = tasks.clock()
    waiting = t.queued(submitted(TASK_ID, next_scheduled_run_ts=now), Lane.of("TABLE_PURGE", Traits("sales")).text, now)
    tasks.reads.store.apply(Create(waiting))
    assert invoke("sweeper", deployed, monkeypatch) == {"looked": 0, "failed": 0}
    messages = deployed.sqs.receive_message(QueueUrl=deployed.resources["queue_url"], MaxNumberOfMessages=10)[
        "Messages"
    ]
    announced = next(message["Body"] for message in messages if json.loads(message["Body"])["n"] == 0)
    event = json.loads((EVENTS / "dispatcher.json").read_text())
    event["Records"] = [{**event["Records"][0], "body": announced}]
    assert entry("dispatcher", deployed, monkeypatch).handler(event, Context("dispatcher")) == {"batchItemFailures": []}
    found = deployed.states.list_executions(stateMachineArn=deployed.resources["state_machine_arn"])["executions"]
    started = {execution["name"] for execution in found}
    assert started == {f"{TASK_ID}-1"}
    assert tasks.reads.get(TASK_ID).dispatches.count == 1


def test_sweeper_counts_a_lost_attempt_whose_job_it_cannot_end(deployed, monkeypatch, capsys):
    tasks = held(deployed, monkeypatch, timedelta(microseconds=1))

    def throttled(_client: EmrWithoutRuns, **_arguments: Any) -> dict[str, Any]:
        raise ClientError({"Error": {"Code": "ThrottlingException"}}, "ListJobRuns")

    monkeypatch.setattr(EmrWithoutRuns, "list_job_runs", throttled)
    assert invoke("sweeper", deployed, monkeypatch) == {"looked": 1, "failed": 1}
    assert '"SweepErrors":[1.0]' in capsys.readouterr().out
    assert tasks.reads.get(TASK_ID).is_held


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"api", "authorizer", "dispatcher", "sweeper", "notifier"}))
def test_a_malformed_input_is_refused_naming_the_field(name, deployed, monkeypatch):
    with pytest.raises(DelegationError, match="task_id", check=coded("MALFORMED_STEP")):
        entry(name, deployed, monkeypatch).handler({"task_id": "x", "n": 1}, Context())


def test_make_due(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = held(deployed, monkeypatch)
    assert invoke("make_due", deployed, monkeypatch)["next"] == "due"
    assert tasks.reads.get(TASK_ID).status is Status.RETRY_SCHEDULED
