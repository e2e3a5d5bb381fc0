"""What ran, service by service: read from LocalStack after the purges."""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import httpx
from localstack_client.session import Session

from infra.environment.functions import FUNCTIONS
from tests.localstack.deploy import DeployedStack

if TYPE_CHECKING:
    from tests.localstack.standins import StandIns

INVOKED: Final = (
    "api",
    "authorizer",
    "dispatcher",
    "sweeper",
    "acquire",
    "prepare",
    "run_inline",
    "start_job",
    "complete",
)
"""The functions that the run must have invoked; `heartbeat` depends on how long a job takes, `make_due` on failures."""


_BEGINS: Final = "START RequestId"
_EMPTY_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Ran:
    """One line: a service, what it did, and whether that is what the run needs."""

    service: str
    what: str
    is_enough: bool


@dataclass(frozen=True, slots=True)
class Deployed:
    """The deployed stacks."""

    data: DeployedStack
    network: DeployedStack
    service: DeployedStack

    @property
    def all(self) -> tuple[DeployedStack, ...]:
        return self.data, self.network, self.service

    def function(self, name: str) -> str:
        """Return the name of a deployed function."""
        part = "".join(word.title() for word in name.split("_"))
        return self.service.only("AWS::Lambda::Function", f"Functions{part}Function")

    @property
    def queue(self) -> str:
        """The URL of the dispatch queue."""
        return self.service.only("AWS::SQS::Queue", "DispatchQueue")

    @property
    def machine(self) -> str:
        """The ARN of the state machine."""
        return self.service.only("AWS::StepFunctions::StateMachine")


class Evidence:
    """Reads what each service did; `endpoint` is LocalStack's."""

    def __init__(self, session: Session, endpoint: str, deployed: Deployed, stand_ins: "StandIns") -> None:
        self._session = session
        self._endpoint = endpoint
        self._deployed = deployed
        self._stand_ins = stand_ins

    def lines(self) -> list[Ran]:
        """Return a line for each service."""
        return [
            self._cloudformation(),
            self._api_gateway(),
            self._lambda(),
            self._sqs(),
            self._step_functions(),
            self._events(),
            self._dynamodb(),
            self._s3(),
            self._secrets_manager(),
            self._kms(),
            self._logs(),
            self._cloudwatch(),
            self._emr(),
        ]

    def _cloudformation(self) -> Ran:
        each = ", ".join(f"{stack.name} {len(stack.ids)} in {stack.seconds:.0f} s" for stack in self._deployed.all)
        return Ran("CloudFormation", f"created every resource of its templates: {each}", True)

    def _api_gateway(self) -> Ran:
        api = self._deployed.service.only("AWS::ApiGateway::RestApi")
        path = "delegation-service/api/v1/config"
        answer = httpx.get(f"{self._endpoint}/_aws/execute-api/{api}/live/{path}", timeout=60)
        # Without the authorizer's verdict in the event the handler itself refuses.
        what = f"GET {path} reached the api function, which answered {answer.status_code}"
        return Ran("API Gateway", what, "application/json" in answer.headers.get("content-type", ""))

    def _lambda(self) -> Ran:
        counts = {name: self._invocations(name) for name in FUNCTIONS if name != "notifier"}
        text = ", ".join(f"{name} {count}" for name, count in counts.items())
        return Ran("Lambda", f"invocations: {text}", not missing(counts, INVOKED))

    def _sqs(self) -> Ran:
        mapping, dead = self._mapping(), self._deployed.service.only("AWS::SQS::Queue", "DispatchDead")
        deadline = time.monotonic() + _EMPTY_SECONDS
        # The sweeper announces waiting tasks each minute, so that a message may be there for a moment.
        while (waiting := self._messages(self._deployed.queue)) and time.monotonic() < deadline:
            time.sleep(1)
        letters = self._messages(dead)
        what = f"the mapping to the dispatcher is {mapping['State']}; {waiting} messages wait, {letters} dead letters"
        return Ran("SQS", what, mapping["State"] == "Enabled" and waiting == 0 and letters == 0)

    def _messages(self, url: str) -> int:
        name = "ApproximateNumberOfMessages"
        found = self._session.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=[name])
        return int(found["Attributes"][name])

    def _step_functions(self) -> Ran:
        machines = self._session.client("stepfunctions")
        found = machines.list_executions(stateMachineArn=self._deployed.machine)["executions"]
        statuses = Counter(each["status"] for each in found)
        events = sum(
            len(machines.get_execution_history(executionArn=each["executionArn"], maxResults=1000)["events"])
            for each in found
        )
        text = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
        return Ran("Step Functions", f"executions: {text}; {events} events", set(statuses) == {"SUCCEEDED"})

    def _events(self) -> Ran:
        rule = self._session.client("events").describe_rule(Name=self._rule())
        count = self._invocations("sweeper")
        what = f"{rule['ScheduleExpression']} invoked the sweeper {count} times, which dispatched the lost task"
        return Ran("EventBridge", what, rule["State"] == "ENABLED" and count > 0)

    def _dynamodb(self) -> Ran:
        client = self._session.client("dynamodb")
        counts = {
            name: client.scan(TableName=self._deployed.data.only("AWS::DynamoDB::Table", name), Select="COUNT")["Count"]
            for name in ("TablesTasks", "TablesIdempotency", "TablesReferences")
        }
        text = ", ".join(f"{name.removeprefix('Tables').lower()} {count}" for name, count in counts.items())
        return Ran("DynamoDB", f"items: {text}", counts["TablesTasks"] > 0 and counts["TablesIdempotency"] > 0)

    def _s3(self) -> Ran:
        bucket = self._deployed.data.outputs["PlanBucket"]
        found = self._session.client("s3").list_objects_v2(Bucket=bucket).get("Contents", [])
        receipts = [each for each in found if "receipt" in each["Key"]]
        return Ran("S3", f"{len(found)} objects of plans and receipts, {len(receipts)} receipts", len(receipts) >= 3)

    def _secrets_manager(self) -> Ran:
        arn = self._deployed.data.outputs["PolarisSecretArn"]
        found = self._session.client("secretsmanager").describe_secret(SecretId=arn)
        return Ran("Secrets Manager", "functions read Polaris' principal", "LastAccessedDate" in found)

    def _kms(self) -> Ran:
        key = self._deployed.data.only("AWS::KMS::Key")
        found = self._session.client("kms").describe_key(KeyId=key)["KeyMetadata"]
        return Ran("KMS", f"the key of tables, plans and secret is {found['KeyState']}", found["KeyState"] == "Enabled")

    def _logs(self) -> Ran:
        written = [name for name in FUNCTIONS if name != "notifier" and self._streams(name)]
        return Ran("CloudWatch Logs", f"the logs of {len(written)} functions", not {*INVOKED} - {*written})

    def _cloudwatch(self) -> Ran:
        found = self._session.client("cloudwatch").describe_alarms()["MetricAlarms"]
        wanted = [name for name, kind in self._deployed.service.types.items() if kind == "AWS::CloudWatch::Alarm"]
        return Ran("CloudWatch", f"{len(found)} alarms", len(found) >= len(wanted))

    def _emr(self) -> Ran:
        states = Counter(run.state for run in self._stand_ins.jobs.list())
        text = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        return Ran(
            "EMR Serverless", f"(the local stack's, not LocalStack's) job runs: {text}", set(states) == {"SUCCESS"}
        )

    def _mapping(self) -> Mapping[str, Any]:
        uuid = self._deployed.service.only("AWS::Lambda::EventSourceMapping")
        found: Mapping[str, Any] = self._session.client("lambda").get_event_source_mapping(UUID=uuid)
        return found

    def _rule(self) -> str:
        return self._deployed.service.only("AWS::Events::Rule").rpartition("/")[2]

    def _invocations(self, name: str) -> int:
        """Count the lines that begin an invocation in the function's log group.

        LocalStack 4.14 writes to Lambda's default group, whichever the function names ("currently mocked").
        """
        function = self._deployed.function(name)
        logs = self._session.client("logs")
        named = self._session.client("lambda").get_function_configuration(FunctionName=function)["LoggingConfig"]
        count = 0
        for group in {named["LogGroup"], f"/aws/lambda/{function}"}:
            try:
                for page in logs.get_paginator("filter_log_events").paginate(logGroupName=group):
                    count += sum(_BEGINS in event["message"] for event in page["events"])
            except logs.exceptions.ResourceNotFoundException:
                continue
        return count

    def _streams(self, name: str) -> list[Any]:
        logs, group = self._session.client("logs"), f"/aws/lambda/{self._deployed.function(name)}"
        try:
            found: list[Any] = logs.describe_log_streams(logGroupName=group)["logStreams"]
        except logs.exceptions.ResourceNotFoundException:
            return []
        return found


def missing(counts: Mapping[str, int], wanted: Iterable[str]) -> list[str]:
    """Return the functions that were not invoked although they had to be."""
    return [name for name in wanted if not counts.get(name)]


def not_enough(lines: Collection[Ran]) -> list[str]:
    """Return a line for each service that did not do what the run needs."""
    return [f"{line.service}: {line.what}" for line in lines if not line.is_enough]
