"""Records the AWS calls of the local stack's functions and Spark jobs: a plugin of botocore's clients.

botocore loads it into each client of a process whose BOTOCORE_EXPERIMENTAL__PLUGINS names it (botocore, `plugin.py`),
and calls `initialize_client_plugin`. It appends one line of JSON for each new call to a file of its process in the
folder RECORDED_CALLS: `[role, service, operation, resource]`. A resource is the setting that names it,
`{DELEGATION_TASKS_TABLE}`, and its index: so the recording contains no name of a single run.

It needs nothing of the test tools, because it runs inside functions.
"""

import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

FOLDER: Final = "RECORDED_CALLS"
PLUGINS: Final = "BOTOCORE_EXPERIMENTAL__PLUGINS"
SPARK_JOB: Final = "spark_job"
_FUNCTION: Final = "AWS_LAMBDA_FUNCTION_NAME"
_OF_ROLES: Final = "env"
"""The provider of the credentials of a role: Lambda and the local stack pass them as variables; those that Polaris
vends for a table's files are given to the client."""
_written: Final[set[str]] = set()
_lock: Final = threading.Lock()

Call = tuple[str, str, str, str]
"""A role, a service and an operation as botocore names them, and a resource."""


def plugin_environment(folder: Path) -> dict[str, str]:
    """Return the variables with which a process and the functions that it starts record into `folder`."""
    return {PLUGINS: f"recorded_calls={__name__}", FOLDER: str(folder)}


def initialize_client_plugin(client: Any) -> None:
    """Have a client record its calls; called by botocore."""
    role = role_of(os.environ)
    folder = os.environ.get(FOLDER)
    if role is None or folder is None:
        return
    service = client.meta.service_model.service_name

    def record(params: Mapping[str, Any], model: Any, **_rest: object) -> None:
        credentials = client._get_credentials()
        if credentials is not None and credentials.method == _OF_ROLES:
            for operation, resource in uses(service, model.name, params, os.environ):
                _write(Path(folder), (role, service, operation, resource))

    client.meta.events.register(f"provide-client-params.{client.meta.service_model.service_id.hyphenize()}", record)


def role_of(environ: Mapping[str, str]) -> str | None:
    """Return the role that a process has: its function's name, or that of Spark jobs; None for other processes."""
    if environ.get(_FUNCTION):
        return environ[_FUNCTION]
    return SPARK_JOB if "SPARK_HOME" in environ and "DELEGATION_PLAN_BUCKET" in environ else None


def uses(
    service: str, operation: str, params: Mapping[str, Any], environ: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the operations of a call and their resources: each item of a DynamoDB transaction is one of its own."""
    match service:
        case "dynamodb":
            yield from _of_tables(operation, params, environ)
        case "s3":
            yield operation, _object(params, environ)
        case "events":
            for entry in params["Entries"]:
                yield operation, _named(entry.get("EventBusName", "default"), environ)
        case "emr-serverless":
            application = _named(params["applicationId"], environ)
            yield operation, f"{application}/jobruns/*" if "jobRunId" in params else application
            if "executionRoleArn" in params:
                yield f"{operation}.PassRole", _named(params["executionRoleArn"], environ)
        case _:
            yield operation, _named(str(params.get(_IDENTITY.get(service, ""), "*")), environ)


def _of_tables(operation: str, params: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if "TransactItems" in params:
        for item in params["TransactItems"]:
            for kind, body in item.items():
                yield f"{operation}.{kind}", _named(body["TableName"], environ)
    elif "RequestItems" in params:
        for table in params["RequestItems"]:
            yield operation, _named(table, environ)
    else:
        index = f"/index/{params['IndexName']}" if "IndexName" in params else ""
        yield operation, _named(params["TableName"], environ) + index


_IDENTITY: Final = {"sqs": "QueueUrl", "stepfunctions": "stateMachineArn", "secretsmanager": "SecretId"}
"""The parameter that names the resource."""


def _object(params: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Return `{SETTING}/*` for an object of a bucket that a setting names, `{SETTING}` for an object or bucket."""
    bucket, key = params["Bucket"], params.get("Key")
    url = f"s3://{bucket}/{key}"
    for name, value in sorted(environ.items()):
        if name.startswith("DELEGATION_") and url in value.split(","):
            return f"{{{name}}}"
    return _named(bucket, environ) + ("" if key is None else "/*")


def _named(value: str, environ: Mapping[str, str]) -> str:
    """Return the setting that has this value, in braces; the value itself if none has."""
    for name, text in sorted(environ.items()):
        if text == value and name.startswith("DELEGATION_"):
            return f"{{{name}}}"
    return value


def _write(folder: Path, call: Call) -> None:
    line = json.dumps(call)
    with _lock:
        if line in _written:
            return
        _written.add(line)
        with (folder / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")
