"""What the acceptance tests act with: a stack seen from outside, and the tables that it is asked to purge."""

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

import boto3
import httpx
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from delegation.cli.connection import Connection, Stack
from delegation.cli.tasks import versions_of
from delegation.wire.tasks import TaskRecord
from infra.local.aws.server import REGION
from infra.local.demo import tables as demo_tables
from infra.local.demo.tables import NAMESPACE, Bucket, Recipe
from tests.integration.acceptance.secret_search import Found
from tests.integration.local.stack_process import StackProcess, descendants

LIFE = ["SUBMITTED", "ACQUIRING_RESOURCES", "RUNNING", "SUCCESS"]
EXECUTE = "/v1/tasks/execute/synchronous"
SUBMIT = "/v1/tasks"
SMALL = Recipe("small", appends=1, days=1)
WIDE = Recipe("wide", appends=2, days=40)
"""More files than INLINE_MAX_FILES: for Spark."""
INLINE_MAX_FILES = 230
"""Above the 200 files of the table with as many snapshots."""
PATIENCE_SECONDS = 120.0

T = TypeVar("T")


def eventually(look: Callable[[], T | None], *, every_seconds: float = 0.02) -> T:
    """The first answer of `look` that is neither None nor empty; fails when none comes."""
    pause = threading.Event()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (answer := look()):
        assert time.monotonic() < deadline, "nothing came of it"
        pause.wait(every_seconds)
    return answer


@dataclass(frozen=True, slots=True)
class Made:
    """A table as it was before its purge; `loaded` is the catalog's LoadTableResult."""

    name: str
    loaded: dict[str, Any]
    objects: frozenset[str]

    @property
    def location(self) -> str:
        return self.loaded["metadata"]["location"]


class World:
    """One running stack. Every method acts from outside of it."""

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
        self.seen: list[Found] = []
        self._recorded = recorded
        self._sent: list[str] = []
        self.killing: Future[Any] = Future()

    def close(self) -> None:
        self.edge.close()

    def client(self, tls: Any) -> httpx.Client:
        """A client of the edge without a token."""
        limits = httpx.Limits(max_connections=64)
        return httpx.Client(base_url=self.stack.edge_url, verify=tls, timeout=60, limits=limits)

    def token(self) -> str:
        """An access token for the edge."""
        form = {
            "grant_type": "client_credentials",
            "client_id": self.stack.client_id,
            "client_secret": self.stack.client_secret.get_secret_value(),
            "scope": self.stack.scope,
        }
        return httpx.post(self.stack.token_url, data=form).raise_for_status().json()["access_token"]

    def aws(self, service: str) -> Any:
        """A client of the emulated AWS."""
        return boto3.client(
            service,
            endpoint_url=self.stack.s3_endpoint if service == "s3" else self.stack.aws_endpoint,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    # Tables

    def table(self, recipe: Recipe = SMALL, *, name: str | None = None) -> Made:
        """A partitioned table with snapshots, a tag and rewritten files."""
        name = name or f"{recipe.name}_{uuid4().hex[:8]}"
        demo_tables.create(
            self.catalog, Recipe(name, recipe.appends, recipe.days, recipe.rows_per_file), lambda _step: None
        )
        return self.made(name)

    def table_of_many_snapshots(self, snapshots: int) -> Made:
        """A table appended to that often, twenty times a commit."""
        name = f"many_{uuid4().hex[:8]}"
        schema = Schema(NestedField(1, "id", LongType(), required=False))
        table = self.catalog.create_table((NAMESPACE, name), schema)
        numbers = iter(range(snapshots))
        for _ in range(snapshots // 20):
            with table.transaction() as transaction:
                for _ in range(20):
                    transaction.append(pa.table({"id": [next(numbers)]}))
        return self.made(name)

    def made(self, name: str) -> Made:
        """An existing table as it is now."""
        loaded = self.load(name)
        return Made(name, loaded, self.bucket.keys(loaded["metadata"]["location"]))

    def load(self, name: str, credential: str | None = None) -> dict[str, Any]:
        """The complete LoadTableResult with vended credentials, for its owner or another principal (`id:secret`)."""
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

    def left(self, made: Made) -> frozenset[str]:
        """The objects of a table that are still there."""
        return self.bucket.keys(made.location)

    # Requests

    def request(self, made: Made, **changes: Any) -> dict[str, Any]:
        """The body that purges a table: all that the catalog said of it, credentials included."""
        asked = datetime.now(UTC).isoformat()
        return {
            "common_payload": {
                "operation_type": "TABLE_PURGE",
                "realm_identifier": self.stack.realm,
                "request_timestamp_utc": asked,
                "polaris_correlation_id": f"acceptance-{made.name}",
            },
            "operation_parameters": {"table_identity": self.identity(made.name), **made.loaded, **changes},
        }

    def identity(self, name: str) -> dict[str, Any]:
        return {"catalog_name": self.stack.warehouse, "namespace_levels": [NAMESPACE], "table_name": name}

    def revended(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The same request after the catalog vended other credentials and moved its endpoint."""
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
        """One request."""
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        headers = {"Content-Type": "application/json"} | ({} if key is None else {"Idempotency-Key": key})
        return self.edge.post(path, content=content, headers=headers)

    def settled(self, document: Mapping[str, Any], key: str | None = None) -> list[httpx.Response]:
        """Every answer to a synchronous request that is repeated for as long as it is in progress."""
        answers = [self.post(EXECUTE, document, key)]
        pause = threading.Event()
        while answers[-1].status_code == 409 and answers[-1].json()["error_code"] == "request_in_progress":
            assert len(answers) < 60
            pause.wait(float(answers[-1].headers["Retry-After"]))
            answers.append(self.post(EXECUTE, document, key))
        return answers

    def task(self, task_id: str) -> dict[str, Any]:
        """A task as the service tells it."""
        answer = self.edge.get(f"/v1/tasks/{task_id}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def outcome(self, task_id: str) -> dict[str, Any]:
        """The task once it is terminal."""

        def terminal() -> dict[str, Any] | None:
            task = self.task(task_id)
            return task if task["status"] in {"SUCCESS", "FAILURE"} else None

        return eventually(terminal, every_seconds=0.2)

    def history(self, task_id: str) -> list[TaskRecord]:
        """Every version of a task, as the table has it."""
        return versions_of(self.tasks, task_id)

    def execution(self, task_id: str, n: int) -> dict[str, Any] | None:
        """The execution of a dispatch, None when there is none."""
        states = self.aws("stepfunctions")
        (machine,) = states.list_state_machines()["stateMachines"]
        pages = states.get_paginator("list_executions").paginate(stateMachineArn=machine["stateMachineArn"])
        found = [each for page in pages for each in page["executions"] if each["name"] == f"{task_id}-{n}"]
        return found[0] if found else None

    def states_of(self, execution: Mapping[str, Any]) -> list[str]:
        """The states that an execution has entered."""
        pages = self.aws("stepfunctions").get_paginator("get_execution_history")
        events = [each for page in pages.paginate(executionArn=execution["executionArn"]) for each in page["events"]]
        return [each["stateEnteredEventDetails"]["name"] for each in events if "stateEnteredEventDetails" in each]

    # Processes and secrets

    def processes(self, *words: str) -> dict[int, str]:
        """Processes of the stack, all whose command line or environment holds every one of `words`, with the former."""
        return dict(_processes(self.process.pid, words))

    def variable(self, function: str, name: str) -> str:
        """A variable of a Lambda function, as one of its workers has it."""
        (pid, *_) = eventually(lambda: self.processes(f"AWS_LAMBDA_FUNCTION_NAME={function}", "lambdas.worker"))
        variables = (Path("/proc") / str(pid) / "environ").read_text().split("\0")
        return dict(each.split("=", 1) for each in variables if each)[name]

    def secrets(self) -> set[str]:
        """Everything secret by value: what was vended, issued, sent along, and the clients' own secrets."""
        handed_out = [json.loads(line) for line in self._recorded.read_text().splitlines()]
        clients = (self.stack.client_secret, self.stack.polaris_credential)
        own = [secret.get_secret_value().rpartition(":")[2] for secret in clients]
        return {*handed_out, *self._sent, *own, self.service_credential().partition(":")[2]}

    def service_credential(self) -> str:
        """`id:secret` of the service's own principal, from Secrets Manager."""
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
