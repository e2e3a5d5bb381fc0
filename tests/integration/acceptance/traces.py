"""Reads everything that a stack stores or logs: stores, queues, histories, job runs, logs, command lines."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra.local.backends import AwsKeys, client
from tests.integration.acceptance.secret_search import Trace
from tests.integration.acceptance.world import KEYS, RunningStack

# Excluded because they contain secrets by design: stack.json and the private keys of the certificates.
_EXCLUDED = ("stack.json", "pki")


def traces(world: RunningStack) -> Iterator[Trace]:
    """Yield all traces; `place` begins with the kind of store."""
    yield from _tables(world)
    yield from _buckets(world.aws("s3"))
    yield from _executions(world.aws("stepfunctions"))
    yield from _queues(world.aws("sqs"))
    yield from _job_runs(world)
    yield from stored_files(world.process.state_dir)
    yield Trace("output of the stack", world.process.output.encode())
    yield from world.seen
    for pid, line in world.processes().items():
        yield Trace(f"command line of process {pid}", line.encode())


def _as_json(value: Any) -> bytes:
    return json.dumps(value, default=_text, ensure_ascii=False).encode()


def _text(value: Any) -> str:
    raw = getattr(value, "value", value)
    return raw.decode("latin-1") if isinstance(raw, bytes) else str(raw)


def _tables(world: RunningStack) -> Iterator[Trace]:
    dynamodb = client("dynamodb", world.stack.dynamodb_endpoint, AwsKeys("operator", "operator"))
    for page in dynamodb.get_paginator("list_tables").paginate():
        for table in page["TableNames"]:
            for rows in dynamodb.get_paginator("scan").paginate(TableName=table):
                for row in rows["Items"]:
                    yield Trace(f"table {table}", _as_json(row))


def _buckets(s3: Any) -> Iterator[Trace]:
    for bucket in (each["Name"] for each in s3.list_buckets()["Buckets"]):
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            for item in page.get("Contents", ()):
                held = s3.get_object(Bucket=bucket, Key=item["Key"])
                yield Trace(f"object s3://{bucket}/{item['Key']}", held["Body"].read())
                yield Trace(f"attributes of s3://{bucket}/{item['Key']}", _as_json(held["Metadata"]))


def _executions(states: Any) -> Iterator[Trace]:
    for machine in states.list_state_machines()["stateMachines"]:
        arn = machine["stateMachineArn"]
        yield Trace(f"state machine {arn}", _as_json(states.describe_state_machine(stateMachineArn=arn)))
        for page in states.get_paginator("list_executions").paginate(stateMachineArn=arn):
            for execution in page["executions"]:
                which = {"executionArn": execution["executionArn"]}
                yield Trace(f"execution {execution['name']}", _as_json(states.describe_execution(**which)))
                for events in states.get_paginator("get_execution_history").paginate(**which):
                    yield Trace(f"history of {execution['name']}", _as_json(events["events"]))


def _queues(sqs: Any) -> Iterator[Trace]:
    for url in sqs.list_queues()["QueueUrls"]:
        yield Trace(f"queue {url}", _as_json(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])))
        # Until only messages that another receiver has are left.
        while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                yield Trace(f"message in {url}", _as_json(message))


def _job_runs(world: RunningStack) -> Iterator[Trace]:
    """Yield the job runs of the endpoint that the functions call."""
    emr = client("emr-serverless", world.variable("start_job", "AWS_ENDPOINT_URL_EMR_SERVERLESS"), KEYS)
    application = world.variable("start_job", "DELEGATION_EMR_APPLICATION_ID")
    for page in emr.get_paginator("list_job_runs").paginate(applicationId=application):
        for run in page["jobRuns"]:
            yield Trace(
                f"job run {run['name']}", _as_json(emr.get_job_run(applicationId=application, jobRunId=run["id"]))
            )


def stored_files(folder: Path) -> Iterator[Trace]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and name.parts[0] not in _EXCLUDED:
            yield Trace(f"file {name}", path.read_bytes())
