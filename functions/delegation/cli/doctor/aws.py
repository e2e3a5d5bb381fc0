"""The parts of a deployment that are checked with the operator's own AWS credentials: tables, queue, bucket."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
)

from delegation.cli.doctor.checks import CheckResult, failed, not_checked, passed
from delegation.tasks.stores.dynamodb_reads import DUE_INDEX
from polaris_common.errors import counted

_ABSENT: Final = frozenset(
    {
        "ResourceNotFoundException",
        "AWS.SimpleQueueService.NonExistentQueue",
        "QueueDoesNotExist",
        "NoSuchBucket",
        "404",
        "NotFound",
        "NotFoundException",
        "InvalidVpcEndpointId.NotFound",
    }
)
_DENIED: Final = frozenset({"AccessDeniedException", "AccessDenied", "403", "Forbidden", "UnauthorizedOperation"})
_TASK_KEY: Final = ["task_id", "version"]


@dataclass(frozen=True, slots=True)
class DeploymentNames:
    """The names of a deployment's parts; None for one that is not set."""

    tasks_table: str | None = None
    idempotency_table: str | None = None
    references_table: str | None = None
    queue_url: str | None = None
    plan_bucket: str | None = None


@dataclass(frozen=True, slots=True)
class AwsCheck:
    """Checks the named parts; `client` returns a boto3 client of a service."""

    named: DeploymentNames
    client: Callable[[str], Any]

    def findings(self) -> Iterator[CheckResult]:
        """Yield a finding for each part."""
        named = self.named
        yield self._checked("tasks_table", named.tasks_table, self._task_table)
        yield self._checked("idempotency_table", named.idempotency_table, self._table)
        yield self._checked("references_table", named.references_table, self._table)
        yield self._checked("queue_url", named.queue_url, self._queue)
        yield self._checked("plan_bucket", named.plan_bucket, self._bucket)

    def _checked(self, setting: str, value: str | None, check: Callable[[str, str], CheckResult]) -> CheckResult:
        name = setting.removesuffix("_url").replace("_", " ")
        if value is None:
            return not_checked(name, f"{setting} (DELEGATION_{setting.upper()}) is not set")
        try:
            return check(name, value)
        except (BotoCoreError, ClientError) as error:
            return aws_failure(name, value, error)

    def _table(self, name: str, table: str) -> CheckResult:
        description = self.client("dynamodb").describe_table(TableName=table)["Table"]
        return self._state(name, table, description)

    def _task_table(self, name: str, table: str) -> CheckResult:
        description = self.client("dynamodb").describe_table(TableName=table)["Table"]
        keys = [key["AttributeName"] for key in description["KeySchema"]]
        if keys != _TASK_KEY:
            fix = "Name the task table in tasks_table (DELEGATION_TASKS_TABLE)."
            return failed(name, f"{table} has the key {', '.join(keys)}, so it is not the task table", fix)
        if not any(index["IndexName"] == DUE_INDEX for index in description.get("GlobalSecondaryIndexes", ())):
            fix = "Deploy the Data stack again, or make a table with `delegation tasks create-table`."
            return failed(name, f"{table} lacks the index {DUE_INDEX}, so nothing finds what is to be run", fix)
        return self._state(name, table, description)

    def _state(self, name: str, table: str, description: Mapping[str, Any]) -> CheckResult:
        status = description["TableStatus"]
        if status not in {"ACTIVE", "UPDATING"}:
            return failed(name, f"{table} is {status}", "Wait until it is ACTIVE; look at it in the AWS console.")
        return passed(name, f"{table} is {status}")

    def _queue(self, name: str, url: str) -> CheckResult:
        wanted = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "RedrivePolicy"]
        sqs = self.client("sqs")
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=wanted)["Attributes"]
        waiting, held = (int(found.get(each, 0)) for each in wanted[:2])
        text = f"{url.rsplit('/', 1)[-1]}: {counted(waiting, 'message')} waiting, {held} being dispatched"
        if "RedrivePolicy" not in found:
            return failed(name, f"{text}; it has no dead-letter queue", "Deploy the Service stack again.")
        return passed(name, text)

    def _bucket(self, name: str, bucket: str) -> CheckResult:
        self.client("s3").head_bucket(Bucket=bucket)
        return passed(name, f"{bucket} exists")


def asked(name: str, value: str, check: Callable[[str], CheckResult]) -> CheckResult:
    """Return what a check found of a part, or what AWS' error means for it."""
    try:
        return check(value)
    except (BotoCoreError, ClientError) as error:
        return aws_failure(name, value, error)


def aws_failure(name: str, value: str, error: Exception) -> CheckResult:
    """Return what an error of AWS means for a part."""
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return failed(name, "there are no AWS credentials", "Sign in as for the AWS CLI, for example `aws sso login`.")
    if isinstance(error, NoRegionError):
        return failed(name, "no AWS region is set", "Set AWS_REGION to the deployment's region.")
    if isinstance(error, EndpointConnectionError):
        return failed(name, f"AWS cannot be reached: {error}", "Check the network, AWS_REGION and AWS_ENDPOINT_URL.")
    if not isinstance(error, ClientError):
        return failed(name, f"AWS did not answer: {type(error).__name__}", "Try again in a moment.")
    code = str(error.response.get("Error", {}).get("Code", ""))
    if code in _ABSENT:
        fix = "Correct the name, the region or the account; the outputs of the stacks have the names."
        return failed(name, f"{value} does not exist ({code})", fix)
    if code in _DENIED:
        return failed(name, f"you may not look at {value} ({code})", "Use a role that may describe the deployment.")
    return failed(name, f"AWS refused to show {value} ({code})", "Renew your AWS credentials, then try again.")
