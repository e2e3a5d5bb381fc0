"""A caller with its own tasks, and a whole Delegation Service that purges real tables; each call may be the last one.

The caller's task store, its requests to the service and its calls to the catalog share one count of calls.
"""

import json
from collections.abc import Iterator
from concurrent.futures import wait
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx

from delegation.client.client import DelegationClient
from delegation.client.delegated_purge import DelegatedPurge
from delegation.edge.answers import problem_of
from delegation.edge.api.routes import record_of
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchTable
from delegation.polaris.model import LoadedTable
from delegation.storage.memory import Faults, Killed
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import TaskStore
from delegation.tasks.submit import Tasks
from delegation.tasks.work.behaviors import Behaviors, FunctionBehavior
from delegation.tasks.work.worker import Worker, WorkerSettings
from delegation.wire.responses import render_json
from polaris_common.errors import DelegationError
from tests.kit.lakes.lake import Lake, identifier
from tests.kit.tasks.services import task_service
from tests.kit.worlds.service import REALM, World
from tests.unit.client.service import BASE, ROOT, SUPPORTED, Tokens

ORDERS = identifier("orders")
STEP = timedelta(minutes=5)


class MortalStore:
    """A task store each of whose calls may be the last one of the process."""

    def __init__(self, site: "CallerProcesses", store: TaskStore) -> None:
        self._site, self._store = site, store

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def called(*args: Any, **options: Any) -> Any:
            with self._site.faults.call(f"store.{name}"):
                return method(*args, **options)

        return called


@dataclass
class CallersCatalog:
    """The catalog as the caller's principal uses it."""

    site: "CallerProcesses"
    drops: list[TableIdentifier] = field(default_factory=list)
    trouble: Exception | None = None

    def load_table(self, table: TableIdentifier, *, vend: bool = True) -> LoadedTable:
        with self.site.faults.call("load"):
            return self.site.world.tables.load_table(table, vend=vend)

    def drop_table(self, table: TableIdentifier, *, purge: bool = False) -> None:
        assert not purge
        with self.site.faults.call("drop"):
            if self.trouble is not None:
                raise self.trouble
            if self.site.world.lake.pointers.pop(table.name, None) is None:
                raise NoSuchTable(f"no table {table}", status=404)
            self.drops.append(table)


class CallerProcesses:
    """The caller's processes over one task store, and the service; nothing waits but the clock moves."""

    def __init__(self, lake: Lake, store: TaskStore, faults: Faults | None = None, *, permitted: bool = True) -> None:
        self.faults = faults or Faults()
        self.world = World()
        self.world.lake.objects.update(lake.objects)
        self.world.lake.pointers.update(lake.pointers)
        self.catalog = CallersCatalog(self)
        self.requests: list[tuple[str, str]] = []
        self.keys: list[str | None] = []
        self.answers: list[httpx.Response | Exception] = []
        mortal: Any = MortalStore(self, store)
        self.service = task_service(mortal, {}, clock=self.world.clock)
        self.tasks = Tasks(self.service)
        http = httpx.Client(transport=httpx.MockTransport(self._handle))
        client = DelegationClient(BASE, Tokens(), http=http, clock=self.world.clock, sleep=self.world.sleep)
        self.purge = DelegatedPurge(
            client, self.catalog, REALM, authorise=lambda _table: permitted, clock=self.world.clock
        )
        self.processes = 0

    def submit(self, **options: Any) -> Any:
        return self.purge.submit(self.tasks, ORDERS, **options)

    def run_once(self) -> Task | None:
        """Run what is due in a new process of the caller."""
        self.processes += 1
        behaviors = Behaviors([FunctionBehavior(self.service, self.purge.behavior(), monotonic=self.world.seconds)])
        settings = WorkerSettings(owner=f"process {self.processes}")
        return Worker(
            self.service, behaviors, settings, monotonic=self.world.seconds, waits=lambda work, _s: bool(wait([work]))
        ).run_once()

    def drive(self, task_id: str, *, service_works: bool = True, steps: int = 60) -> Task:
        """Run both sides until the caller's task has ended, restarting its process when that is killed."""
        for _ in range(steps):
            try:
                self.run_once()
                task = self.service.reads.get(task_id)
                if task.is_terminal:
                    return task
            except Killed:
                self.faults = Faults()
                self.world.clock.advance(timedelta(hours=1))  # the lease of the killed process ends
            if service_works:
                self.world.drive()
            self.world.clock.advance(STEP)
        return self.service.reads.get(task_id)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix(ROOT)
        if path == "/v1/config":
            return httpx.Response(200, json={"properties": SUPPORTED})
        with self.faults.call(f"{request.method} {path}"):
            self.requests.append((request.method, path))
            if path == "/v1/tasks":
                self.keys.append(request.headers.get("Idempotency-Key"))
            if self.answers:
                answer = self.answers.pop(0)
                if isinstance(answer, Exception):
                    raise answer
                return answer
            try:
                return self._answer(request, path)
            except DelegationError as error:
                problem = problem_of(error)
                return httpx.Response(problem.status, content=problem.body, headers=problem.headers)

    def _answer(self, request: httpx.Request, path: str) -> httpx.Response:
        tasks = self.world.tasks
        if (request.method, path) == ("POST", "/v1/tasks"):
            answer = self.world.submit(json.loads(request.content), request.headers.get("Idempotency-Key"))
            return httpx.Response(answer.status, content=answer.body, headers=answer.headers)
        task_id, _, operation = path.removeprefix("/v1/tasks/").partition("/")
        task = tasks.operators.cancel(task_id) if operation == "cancel" else tasks.reads.get(task_id)
        return httpx.Response(200, content=render_json(record_of(tasks.reads, task)))

    def service_tasks(self) -> Iterator[Task]:
        """Yield the service's tasks."""
        return iter(self.world.store.heads(limit=10).tasks)
