"""A running stack for the acceptance tests, used from outside, and the tables to purge."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

import httpx
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from delegation.cli.connection import Connection, Stack
from delegation.cli.tasks.direct import versions_of
from delegation.wire.tasks import TaskRecord
from infra.local.backends import AwsKeys, client
from infra.local.demo import tables as demo_tables
from infra.local.demo.tables import NAMESPACE, Bucket, Recipe
from tests.integration.acceptance.secret_search import Trace
from tests.integration.local.stack_process import StackProcess, descendants

LIFE = ["SUBMITTED", "ACQUIRING_RESOURCES", "RUNNING", "SUCCESS"]
EXECUTE = "/v1/tasks/execute/synchronous"
SUBMIT = "/v1/tasks"
SMALL = Recipe("small", appends=1, days=1)
WIDE = Recipe("wide", appends=2, days=40)
"""More files than INLINE_MAX_FILES, so that the Spark engine purges it."""
INLINE_MAX_FILES = 230
"""More than the files of the table of many snapshots."""
KEPT = "kept"
"""A namespace whose dropped tables can be restored for an hour."""
TIMEOUT_SECONDS = 120.0
ATTEMPT_SECONDS = 900.0
"""For what waits for an attempt: on a busy machine the first one can be lost, and its lease has to expire."""

KEYS = AwsKeys("test", "test")
T = TypeVar("T")


def eventually(
    read: Callable[[], T | None],
    *,
    every_seconds: float = 0.02,
    timeout_seconds: float = TIMEOUT_SECONDS,
    otherwise: Callable[[], str] = str,
) -> T:
    """Return the first result of `read` that is neither None nor empty; fail after the time-out with `otherwise`."""
    pause = threading.Event()
    deadline = time.monotonic() + timeout_seconds
    while not (answer := read()):
        assert time.monotonic() < deadline, f"no result within {timeout_seconds:.0f} s {otherwise()}"
        pause.wait(every_seconds)
    return answer


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table before its purge; `loaded` is the catalog's LoadTableResult."""

    name: str
    loaded: dict[str, Any]
    objects: frozenset[str]

    @property
    def location(self) -> str:
        return self.loaded["metadata"]["location"]


class RunningStack:
    """A running stack; every method uses it from outside."""

    def __init__(self, process: StackProcess, recorded: Path) -> None:
        process.ready()
        self.process = process
        self.stack = Stack.read(process.path)
        self.tasks = Connection(process.path).task_store(None)
        self.bucket = Bucket(self.stack)
        self.catalog = demo_tables.connect(self.stack)
        self.catalog.create_namespace(NAMESPACE)
        self.edge = self.client(self.stack.client_settings().mutual_tls())
        self.edge.headers["Authorization"] = f"Bearer {self.token()}"
        self.seen: list[Trace] = []
        self._recorded = recorded
        self._sent: list[str] = []
        self.killing: Future[Any] = Future()

    def close(self) -> None:
        self.edge.close()

    def client(self, tls: Any) -> httpx.Client:
        """Return a client of the HTTPS front without a token."""
        limits = httpx.Limits(max_connections=64)
        return httpx.Client(base_url=self.stack.edge_url, verify=tls, timeout=60, limits=limits)

    def token(self) -> str:
        """Return an access token for the HTTPS front."""
        form = {
            "grant_type": "client_credentials",
            "client_id": self.stack.client_id,
            "client_secret": self.stack.client_secret.get_secret_value(),
            "scope": self.stack.scope,
        }
        return httpx.post(self.stack.token_url, data=form).raise_for_status().json()["access_token"]

    def aws(self, service: str) -> Any:
        """Return a client of the emulated AWS."""
        return client(service, self.stack.s3_endpoint if service == "s3" else self.stack.aws_endpoint, KEYS)

    # Tables

    def table(self, recipe: Recipe = SMALL, *, name: str | None = None) -> StoredTable:
        """Create a partitioned table with snapshots, a tag and rewritten files."""
        name = name or f"{recipe.name}_{uuid4().hex[:8]}"
        demo_tables.create(
            self.catalog, Recipe(name, recipe.appends, recipe.days, recipe.rows_per_file), lambda _step: None
        )
        return self.current_table(name)

    def table_of_many_snapshots(self, snapshots: int) -> StoredTable:
        """Create a table with that many snapshots, twenty in each commit."""
        name = f"many_{uuid4().hex[:8]}"
        schema = Schema(NestedField(1, "id", LongType(), required=False))
        table = self.catalog.create_table((NAMESPACE, name), schema)
        numbers = iter(range(snapshots))
        for _ in range(snapshots // 20):
            with table.transaction() as transaction:
                for _ in range(20):
                    transaction.append(pa.table({"id": [next(numbers)]}))
        return self.current_table(name)

    def current_table(self, name: str) -> StoredTable:
        """Return the current state of an existing table."""
        loaded = self.load(name)
        return StoredTable(name, loaded, self.bucket.keys(loaded["metadata"]["location"]))

    def load(self, name: str, credential: str | None = None) -> dict[str, Any]:
        """Return the complete LoadTableResult with vended credentials, for the owner or another principal."""
        url = self.stack.polaris_url
        client_id, _, secret = (credential or self.stack.polaris_credential.get_secret_value()).partition(":")
        form = {"client_id": client_id, "client_secret": secret, "scope": self.stack.polaris_scope}
        answer = httpx.post(f"{url}/v1/oauth/tokens", data={"grant_type": "client_credentials", **form})
        headers = {
            "Authorization": f"Bearer {answer.raise_for_status().json()['access_token']}",
            "X-Iceberg-Access-Delegation": "vended-credentials",
        }
        table = f"{url}/v1/{quote(self.stack.warehouse)}/namespaces/{NAMESPACE}/tables/{name}"
        return httpx.get(table, headers=headers, timeout=30).raise_for_status().json()

    def left(self, table: StoredTable) -> frozenset[str]:
        """Return the remaining objects of a table."""
        return self.bucket.keys(table.location)

    # Requests

    def request(self, table: StoredTable, **changes: Any) -> dict[str, Any]:
        """Return the body of a purge request, with the complete LoadTableResult including credentials."""
        asked = datetime.now(UTC).isoformat()
        return {
            "common_payload": {
                "operation_type": "TABLE_PURGE",
                "realm_identifier": self.stack.realm,
                "request_timestamp_utc": asked,
                "polaris_correlation_id": f"acceptance-{table.name}",
            },
            "operation_parameters": {"table_identity": self.identity(table.name), **table.loaded, **changes},
        }

    def identity(self, name: str) -> dict[str, Any]:
        return {"catalog_name": self.stack.warehouse, "namespace_levels": [NAMESPACE], "table_name": name}

    def revended(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request with other vended credentials and another S3 endpoint."""
        fresh = {
            "s3.access-key-id": f"FRESH{uuid4().hex[:15].upper()}",
            "s3.secret-access-key": uuid4().hex + uuid4().hex,
            "s3.session-token": uuid4().hex * 4,
        }
        self._sent += fresh.values()
        parameters = request["operation_parameters"]
        credentials = [{**each, "config": {**each["config"], **fresh}} for each in parameters["storage-credentials"]]
        config = {**parameters["config"], "s3.endpoint": "http://127.0.0.1:1/elsewhere", **fresh}
        return {**request, "operation_parameters": {**parameters, "config": config, "storage-credentials": credentials}}

    def post(self, path: str, document: Mapping[str, Any] | bytes, key: str | None = None) -> httpx.Response:
        """Send one request."""
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        headers = {"Content-Type": "application/json"} | ({} if key is None else {"Idempotency-Key": key})
        return self.edge.post(path, content=content, headers=headers)

    def settled(self, document: Mapping[str, Any], key: str | None = None) -> list[httpx.Response]:
        """Repeat a synchronous request while it is in progress; return all answers."""
        answers = [self.post(EXECUTE, document, key)]
        pause = threading.Event()
        while answers[-1].status_code == 409 and answers[-1].json()["error_code"] == "request_in_progress":
            assert len(answers) < 60
            pause.wait(float(answers[-1].headers["Retry-After"]))
            answers.append(self.post(EXECUTE, document, key))
        return answers

    def task(self, task_id: str) -> dict[str, Any]:
        """Return a task from the API."""
        answer = self.edge.get(f"/v1/tasks/{task_id}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def outcome(self, task_id: str) -> dict[str, Any]:
        """Wait until the task is terminal and return it."""

        def terminal() -> dict[str, Any] | None:
            task = self.task(task_id)
            return task if task["status"] in {"SUCCESS", "FAILURE"} else None

        return eventually(
            terminal, every_seconds=0.2, timeout_seconds=ATTEMPT_SECONDS, otherwise=lambda: self.story(task_id)
        )

    def job_of(self, task_id: str, *words: str) -> str:
        """Wait until a job of any attempt has a process with `words`, and return the job's name."""

        def job() -> str | None:
            name = f"{task_id}-{self.tasks.get(task_id).attempt_count}"
            return name if self.processes(name, *words) else None

        return eventually(job, timeout_seconds=ATTEMPT_SECONDS, otherwise=lambda: self.story(task_id))

    def story(self, task_id: str) -> str:
        """Return what became of a task, for the message of a failed test: its versions, and who works now."""
        versions = [
            f"v{each.version} {each.status} attempt {each.attempt_count} dispatch {each.dispatch_count}"
            f" {each.error_code or ''} {each.error_message or ''}"
            for each in self.history(task_id)
        ]
        return "\n".join([f"task {task_id}", *versions, *self.processes(task_id).values()])

    def history(self, task_id: str) -> list[TaskRecord]:
        """Return every version of a task from the task table."""
        return versions_of(self.tasks, task_id)

    def execution(self, task_id: str, n: int) -> dict[str, Any] | None:
        """Return the execution of the n-th dispatch, None if there is none."""
        states = self.aws("stepfunctions")
        (machine,) = states.list_state_machines()["stateMachines"]
        pages = states.get_paginator("list_executions").paginate(stateMachineArn=machine["stateMachineArn"])
        found = [each for page in pages for each in page["executions"] if each["name"] == f"{task_id}-{n}"]
        return found[0] if found else None

    def states_of(self, execution: Mapping[str, Any]) -> list[str]:
        """Return the states that an execution has entered."""
        pages = self.aws("stepfunctions").get_paginator("get_execution_history")
        events = [each for page in pages.paginate(executionArn=execution["executionArn"]) for each in page["events"]]
        return [each["stateEnteredEventDetails"]["name"] for each in events if "stateEnteredEventDetails" in each]

    # Processes and secrets

    def processes(self, *words: str) -> dict[int, str]:
        """Return pid and command line of the stack's processes with all of `words` in command line or environment."""
        return dict(_processes(self.process.pid, words))

    def variable(self, function: str, name: str) -> str:
        return self.variables(function)[name]

    def variables(self, function: str) -> dict[str, str]:
        """Return the variables of a Lambda function, from one of its workers."""
        (pid, *_) = eventually(lambda: self.processes(f"AWS_LAMBDA_FUNCTION_NAME={function}", "lambdas.worker"))
        variables = (Path("/proc") / str(pid) / "environ").read_text().split("\0")
        return dict(each.split("=", 1) for each in variables if each)

    def secrets(self) -> set[str]:
        """Return all secrets by value: vended and issued ones, those in requests, and the clients' secrets."""
        handed_out = [json.loads(line) for line in self._recorded.read_text().splitlines()]
        clients = (self.stack.client_secret, self.stack.polaris_credential)
        own = [secret.get_secret_value().rpartition(":")[2] for secret in clients]
        return {*handed_out, *self._sent, *own, self.service_credential().partition(":")[2]}

    def service_credential(self) -> str:
        """Return `id:secret` of the service's principal from Secrets Manager."""
        manager = self.aws("secretsmanager")
        (listed,) = manager.list_secrets()["SecretList"]
        held = json.loads(manager.get_secret_value(SecretId=listed["ARN"])["SecretString"])
        return f"{held['client_id']}:{held['client_secret']}"


def _processes(parent: int, words: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    for pid in descendants(parent):
        folder = Path("/proc") / str(pid)
        try:
            command, environment = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if all(word.encode() in command + b"\0" + environment for word in words):
            yield pid, os.fsdecode(command).replace("\0", " ")
