"""The local stack with proxies between its parts, which throttle, refuse and cut; and its deployment."""

import contextlib
import json
import os
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from pydantic import SecretStr

from delegation.tasks.stores.dynamodb import ConditionalTable, DynamoDbTaskStore
from delegation.tasks.work.hooks import NoDispatchQueue
from delegation.tasks.work.service import TaskService
from delegation.timestamps import utc_now
from delegation.wiring.types import policies_of
from infra.environment.context import default_properties
from infra.environment.functions import deployed_functions
from infra.environment.resources import PROPERTIES_VARIABLE
from infra.local import resources
from infra.local.aws.dynamodb import DynamoDbLocal
from infra.local.aws.server import REGION
from infra.local.backends import AwsKeys, client
from infra.local.catalog.access import LocalPrincipal
from infra.local.catalog.layout import ALLOW_OVERLAP, ALLOW_UNSTRUCTURED
from infra.local.catalog.privileges import OWNER, SERVICE
from infra.local.catalog.server import BASE_PATH, LocalCatalog
from infra.local.lambdas.functions import LocalFunction
from infra.local.options import StackOptions
from infra.local.processes.programs import import_path
from infra.local.s3.front import S3Front
from infra.local.s3.requests import VendedKeys
from infra.local.supervisor import LocalStack
from tests.chaos import plants
from tests.chaos.proxies import SLOW_DOWN, THROUGHPUT_EXCEEDED, Relay, ThrottlingProxy
from tests.chaos.store import ChaosStore
from tests.chaos.tables import INLINE_MAX_FILES, WAREHOUSE
from tests.contract.task_tables import dynamodb_client
from tests.faults.shared.worker_process import WorkerProcess

PROPERTIES: Final = {
    "delegation.task.lease.lost-timeout-duration": "1m",
    "delegation.task.lease.clock-drift-duration": "1s",
    "delegation.dispatch.grace-duration": "4s",
    "delegation.purge.reference-refresh-interval": "1m",
    **{
        f"delegation.retry.{kind}.{name}": value
        for kind in ("default", "TABLE_PURGE")
        for name, value in (
            ("max-attempts", "1000"),
            ("initial-backoff-duration", "500ms"),
            ("max-backoff-duration", "4s"),
        )
    },
}
"""Quick recoveries, frequent refreshes, and more attempts than a run has time for: no task fails for their number."""
TIMEOUTS: Final = {"run_inline": 40}
STEP_SECONDS: Final = 30
"""The time-out of the other functions behind the queue: an attempt of a stopped execution is lost not much later."""
REQUEST_FUNCTIONS: Final = frozenset({"api", "authorizer"})
RELEASE: Final = "CHAOS_RELEASE"
"""The variable of a function's release: "1", and "2" after the deployment."""
_DEPLOYED: Final = {"delegation.retry.default.max-backoff-duration": "3s"}
"""The property that the deployment changes."""
_KEYS: Final = AwsKeys("local", "local")


class WholeSystem:
    """All parts in this process and its children; leaving it ends them."""

    def __init__(self, folder: Path, seed: int, *, workers: int, planted: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.workers: list[WorkerProcess] = []
        self._number = 0 if planted else workers
        self._names = iter(range(1_000_000))
        self._planted = planted
        self._seed = seed
        self._release = "1"
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as cleanup:
            self._start(cleanup)
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def _start(self, cleanup: contextlib.ExitStack) -> None:
        dynamodb = DynamoDbLocal(log=self.folder / "dynamodb.log")
        cleanup.callback(dynamodb.stop)
        dynamodb.start()
        self.store = store = ChaosStore(log=self.folder / "store.log")
        cleanup.callback(store.stop)
        store.start()
        self.dynamodb = self._proxy(dynamodb.url, THROUGHPUT_EXCEEDED, "dynamodb", cleanup)
        self.s3 = self._proxy(store.url, SLOW_DOWN, "s3", cleanup)
        self.admin = client("s3", store.url, _KEYS)
        resources.create_buckets(self.admin, urlsplit(WAREHOUSE).netloc)
        vended = VendedKeys()
        front = S3Front(self.s3.url, vended).start()
        cleanup.callback(front.stop)
        owner, service = _principals(self._seed)
        catalog = _catalog(store.url, front.url, vended, owner, service).start()
        cleanup.callback(catalog.stop)
        self.polaris = _relay(catalog.url, cleanup)
        self.stack = LocalStack(
            StackOptions(
                state_dir=self.folder / "state",
                polaris_url=f"http://{self.polaris.address}{BASE_PATH}",
                polaris_client_id=owner.client_id,
                polaris_client_secret=owner.client_secret,
                polaris_service_client_id=service.client_id,
                polaris_service_client_secret=service.client_secret,
                s3_endpoint=front.url,
                dynamodb_endpoint=self.dynamodb.url,
                inline_max_files=INLINE_MAX_FILES,
                sweep_seconds=2,
                properties=PROPERTIES,
            )
        )
        cleanup.callback(self.stack.stop)
        self.stack.start()
        described = json.loads(self.stack.path.read_text(encoding="utf-8"))
        self.front = _relay(described["edge_url"], cleanup)
        self.edge_url = f"https://{self.front.address}{urlsplit(described['edge_url']).path}"
        self.states = client("stepfunctions", described["aws_endpoint"], _KEYS)
        self.tasks = _tasks(dynamodb.url)
        self._install()
        cleanup.callback(self._end_workers)
        self.workers += [self._worker() for _ in range(self._number)]

    def _proxy(self, url: str, refused: Any, name: str, cleanup: contextlib.ExitStack) -> ThrottlingProxy:
        proxy = ThrottlingProxy(url, refused, random.Random(f"{name} {self._seed}")).start()
        cleanup.callback(proxy.stop)
        return proxy

    # Functions and workers

    def functions(self) -> Mapping[str, LocalFunction]:
        """Return the deployed functions by name."""
        names = deployed_functions({**default_properties(), **PROPERTIES})
        return {name: self.stack.lambdas.function(name) for name in names}

    def deploy(self) -> None:
        """Deploy every function anew, with a changed property; workers end after their task and start anew."""
        self._release = "2"
        for function in self.functions().values():
            variables = dict(function.spec.environment)
            if PROPERTIES_VARIABLE in variables:
                changed = {**json.loads(variables[PROPERTIES_VARIABLE]), **_DEPLOYED}
                variables[PROPERTIES_VARIABLE] = json.dumps(changed)
            function.update(replace(function.spec, environment={**variables, RELEASE: self._release}))
        for at, worker in enumerate(self.workers):
            worker.signal(15)
            self.workers[at] = self._worker()
            worker.wait()

    def replace_worker(self, at: int) -> None:
        """Kill a worker and start another."""
        self.workers[at].kill()
        self.workers[at] = self._worker()

    def executions(self) -> list[str]:
        """Return the ARNs of the running executions."""
        (machine,) = self.states.list_state_machines()["stateMachines"]
        pages = self.states.get_paginator("list_executions").paginate(
            stateMachineArn=machine["stateMachineArn"], statusFilter="RUNNING"
        )
        return [each["executionArn"] for page in pages for each in page["executions"]]

    def _install(self) -> None:
        """Give the functions behind the queue short time-outs, and all the planted faults."""
        for name, function in self.functions().items():
            spec = function.spec
            seconds = spec.timeout_seconds if name in REQUEST_FUNCTIONS else TIMEOUTS.get(name, STEP_SECONDS)
            spec = replace(spec, timeout_seconds=seconds, environment={**spec.environment, RELEASE: self._release})
            if self._planted:
                own = {**spec.environment, plants.VARIABLE: ",".join(self._planted)}
                spec = replace(spec, handler=plants.handler_of(name), environment=own)
            function.update(spec)
        for name in ("authorizer", "api", "dispatcher", "acquire", "prepare", "run_inline"):
            self.functions()[name].warm()

    def _worker(self) -> WorkerProcess:
        function = self.functions()["run_inline"].spec.environment
        path = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": import_path()}
        log = self.folder / f"worker-{next(self._names)}.log"
        return WorkerProcess({**function, **path, RELEASE: self._release}, log)

    def _end_workers(self) -> None:
        for worker in self.workers:
            worker.kill()


def _principals(seed: int) -> tuple[LocalPrincipal, LocalPrincipal]:
    owner = LocalPrincipal("owner", "owner", SecretStr(f"owner-{seed}"), OWNER)
    return owner, LocalPrincipal("delegation", "delegation", SecretStr(f"service-{seed}"), SERVICE)


def _catalog(aws: str, front: str, vended: VendedKeys, owner: LocalPrincipal, service: LocalPrincipal) -> LocalCatalog:
    return LocalCatalog(
        name="lake",
        location=WAREHOUSE,
        s3=client("s3", aws, _KEYS),
        sts=client("sts", aws, _KEYS),
        keys=vended,
        s3_endpoint=front,
        region=REGION,
        principals=[owner, service],
        root=SecretStr("root"),
        properties={ALLOW_OVERLAP: "true", ALLOW_UNSTRUCTURED: "true"},
    )


def _relay(url: str, cleanup: contextlib.ExitStack) -> Relay:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    relay = Relay((parts.hostname, parts.port)).start()
    cleanup.callback(relay.stop)
    return relay


def _tasks(dynamodb: str) -> TaskService:
    """Return the task table as it is, without the proxy."""
    own = dynamodb_client(dynamodb)
    store = DynamoDbTaskStore(ConditionalTable(own), resources.TASKS_TABLE)
    return TaskService(store, policies_of(PROPERTIES), NoDispatchQueue(), clock=utc_now)
