"""The whole service in one process, with in-memory stores and real tables; sleeping advances the clock."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

from delegation.edge.answers import ApiResponse
from delegation.edge.requests import read_payload
from delegation.edge.submission import Submission, Submissions
from delegation.idempotency.service import Acceptance
from delegation.idempotency.store import IdempotencyStore, MemoryIdempotencyStore
from delegation.identifiers import TableIdentifier
from delegation.orchestration.failures import Step
from delegation.orchestration.steps import Steps
from delegation.orchestration.sweep import sweep
from delegation.polaris.answers import PolarisError
from delegation.polaris.model import GenericTable, LoadedTable
from delegation.removal.neighbourhood import Catalog
from delegation.removal.purge.behavior import PurgeBehavior
from delegation.removal.purge.requests import Limits, PurgeSettings
from delegation.storage.memory import MemoryObjectStore, MemoryPlanStore
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.policy import Lease
from delegation.tasks.options import RequestSources
from delegation.tasks.stores.base import TaskStore
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.work.behaviors import Behaviors, FunctionBehavior, TaskBehavior
from delegation.wiring.types import TYPES, default_properties
from tests.kit.clocks import Clock
from tests.kit.lakes.lake import FAST, Lake, LakeSource
from tests.kit.tasks.queues import Queue
from tests.kit.tasks.services import task_service
from tests.kit.worlds.jobs import JobsHere

REALM = "POLARIS"
LIFETIME = timedelta(minutes=30)


@dataclass
class TablesOfLake:
    """A fake Polaris; a load raises `trouble` if set, and `after_load[n]` is called right after load n."""

    lake: Lake
    trouble: Exception | None = None
    loads: int = 0
    after_load: dict[int, Callable[[], object]] = field(default_factory=dict)

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable:
        self.loads += 1
        if self.trouble is not None:
            raise self.trouble
        table = LakeSource(self.lake, identifier.name).load()
        self.after_load.get(self.loads, lambda: None)()
        return LoadedTable(identifier, table.metadata_location, table.metadata, {}, table.credentials if vend else ())

    def check_catalog(self, catalog: str) -> None:
        """See PolarisClient.check_catalog: this one has the service's storage."""

    def list_tables(self, catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]:
        return (TableIdentifier(catalog, namespace, name) for name in list(self.lake.pointers))

    def list_namespaces(self, catalog: str, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        return iter([] if parent else [("ns",)])

    def generic_tables(
        self, catalog: str, namespace: tuple[str, ...], before: Callable[[], None] = lambda: None
    ) -> Iterator[GenericTable]:
        """See PolarisClient.generic_tables: this one has none."""
        return iter(())


class World:
    """The service without AWS; `drive` runs the executions of all dispatches.

    `beside` are the behaviors that run beside purges, by names that tests give them; `jobs` are its Spark jobs.
    """

    jobs: JobsHere | None = None

    def __init__(
        self,
        *,
        inline_max_files: int = 1_000,
        properties: Mapping[str, str] | None = None,
        stores: tuple[TaskStore, IdempotencyStore] | None = None,
    ) -> None:
        self.clock = Clock()
        self.lake = Lake()
        self.tables = TablesOfLake(self.lake)
        self.queue = Queue()
        kept = MemoryTaskStore()
        self.store: Any = stores[0] if stores else kept
        self.plans = MemoryPlanStore()
        self.objects = MemoryObjectStore(clock=lambda: self.clock().timestamp())
        self.objects.objects = self.lake.objects
        self.tasks = task_service(self.store, default_properties(), self.queue, clock=self.clock, types=TYPES)
        settings = PurgeSettings(
            inline_max_files=inline_max_files, chunk_paths=4, run_records=5, read_threads=1, delete=FAST
        )
        self.behavior = PurgeBehavior(
            self.tasks,
            cast("Catalog", self.tables),
            lambda _identifier: self.objects,
            self.plans,
            settings,
            self.seconds,
            self.sleep,
            Limits.from_properties(properties or {}),
        )
        self.records: Any = stores[1] if stores else MemoryIdempotencyStore(kept)
        self.acceptance = Acceptance(
            self.store, self.records, lifetime=LIFETIME, clock=self.clock, nonce=self.tasks.writes.hooks.nonce
        )
        self.beside: dict[str, TaskBehavior] = {}
        self.unsupported: set[str] = set()
        self.become(self.behavior, properties or {})
        self.calls = 0

    def _check_catalog(self, catalog: str) -> None:
        if catalog in self.unsupported:
            raise PolarisError(f"{catalog}: the catalog is EXTERNAL", status=200, code="CATALOG_UNSUPPORTED")

    def deploy(self, properties: Mapping[str, str] | None = None, /, **beside: TaskBehavior) -> None:
        """Deploy the service with these behaviors beside its purges; one of the same name replaces the former."""
        self.beside |= beside
        self.become(self.behavior, properties)

    def become(self, behavior: PurgeBehavior, properties: Mapping[str, str] | None = None) -> None:
        """Deploy the service with another behavior of purges and, if they are given, other properties."""
        self.behavior = behavior
        if properties is not None:
            self.properties = properties
        self.submissions = Submissions(
            self.tasks,
            self.acceptance,
            lambda _task_type: behavior,
            sources=RequestSources(
                REALM,
                self.properties,
                lambda: self.tasks.policies.notifications.callbacks,
                lambda: behavior.catalog,
                clock=self.clock,
                check_catalog=self._check_catalog,
            ),
            budget=timedelta(seconds=25),
            sleep=self.sleep,
        )
        indexing = behavior.reference_task()
        indexed = [] if indexing is None else [FunctionBehavior(self.tasks, indexing)]
        behaviors = Behaviors([behavior, *self.beside.values(), *indexed])
        self.kinds = behaviors.task_types
        self.steps = Steps(self.tasks, self.kinds, behaviors=behaviors, jobs=self.jobs)

    def seconds(self) -> float:
        return self.clock.now.timestamp()

    def sleep(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    def deadline(self) -> datetime:
        return self.clock() + timedelta(seconds=30)

    def body(self, name: str, **properties: str) -> dict[str, Any]:
        """Return a request body with the LoadTableResult of a table (Delegation Service proposal, Appendix)."""
        metadata = self.lake.metadata(name)
        return {
            "common_payload": {"operation_type": "SYNCHRONOUS_TABLE_PURGE", "realm_identifier": REALM},
            "operation_parameters": {
                "table_identity": {
                    "table_entity_id": f"entity-{name}",
                    "catalog_name": "cat",
                    "namespace_levels": ["ns"],
                    "table_name": name,
                },
                "metadata_location": self.lake.pointers[name],
                "metadata": json.loads(json.dumps(metadata)),
                "config": {"s3.session-token": "vended"},
                "properties": properties,
            },
        }

    def identity(self, name: str, **properties: str) -> dict[str, Any]:
        """Return the body of a request for a purge with a table's identity alone."""
        return self.request("TABLE_PURGE", name, **properties)

    def request(self, operation: str, name: str, **properties: str) -> dict[str, Any]:
        """Return a request body with a table's identity alone (Delegation Service proposal, Persistence)."""
        parameters = {
            "table_identity": {"catalog_name": "cat", "namespace_levels": ["ns"], "table_name": name},
            "properties": properties,
        }
        common = {"operation_type": operation, "realm_identifier": REALM}
        return {"common_payload": common, "operation_parameters": parameters}

    def files(self) -> set[str]:
        return set(self.lake.uris())

    def execute(
        self,
        body: dict[str, Any],
        key: str | None = None,
        caller: str = "polaris",
        *,
        late: timedelta = timedelta(0),
        remaining: timedelta = timedelta(seconds=30),
    ) -> ApiResponse:
        """Execute in an invocation that began `late` after API Gateway got the request, and ends in `remaining`."""
        self.calls += 1
        request = self._submission(body, key, caller, "/v1/tasks/execute/synchronous")
        received = self.clock() - late
        deadline = self.clock() + remaining
        return self.submissions.execute(request, received=received, deadline=deadline, owner=f"api:{self.calls}")

    def submit(self, body: dict[str, Any], key: str | None = None, caller: str = "polaris") -> ApiResponse:
        return self.submissions.submit(self._submission(body, key, caller, "/v1/tasks"))

    def accepted(self, body: dict[str, Any]) -> Task:
        """Submit a request that is answered 202, and return its task."""
        answer = self.submit(body)
        assert answer.status == 202, answer.body
        assert answer.task_id is not None
        return self.tasks.reads.get(answer.task_id)

    def ended(
        self, task: Task, *, code: str | None = None, began: bool = False, details: Mapping[str, Any] | None = None
    ) -> Task:
        """End a new attempt of a task, by default with success; it failed permanently if there is a code."""
        held = self.tasks.leases.acquire(task.task_id, "worker", lambda now: Lease.lasting(timedelta(minutes=5), now))
        self.tasks.leases.start(held.task_id, held.attempt_count, effects=began)
        if code is None:
            return self.tasks.leases.succeed(held.task_id, held.attempt_count, "done", details=details or {})
        error = AttemptError(code, "denied", ErrorClass.PERMANENT)
        return self.tasks.leases.end_attempt(held.task_id, held.attempt_count, error)

    def _submission(self, body: dict[str, Any], key: str | None, caller: str, path: str) -> Submission:
        form, payload = read_payload(body, TYPES.forms_by_operation, identity_only=path == "/v1/tasks")
        return Submission(caller=caller, method="POST", path=path, key=key, document=body, form=form, payload=payload)

    def drive(self) -> None:
        """Run the executions of all dispatches sent so far, including their waits; a held purge is left waiting."""
        while self.queue.sent:
            task_id, n = self.queue.sent.pop(0)
            if n == 0:  # no dispatch: tasks may be admitted
                continue
            state: dict[str, Any] = {"task_id": task_id, "n": n, "next": "acquire"}
            while state["next"] not in {"succeeded", "failed", "stop", "due"}:
                step = Step.of(state)
                match state["next"]:
                    case "acquire":
                        state = self.steps.acquire(step, self.deadline())
                    case "prepare":
                        state = self.steps.prepare(step, self.deadline())
                    case "inline":
                        state = self.steps.run_inline(step, self.clock() + timedelta(minutes=15))
                    case "spark":
                        state = self.run_spark(step)
                    case "complete":
                        state = self.steps.complete(step)
                    case "wait" if self.tasks.reads.get(task_id).error_code == "NEIGHBOUR_UNREADABLE":
                        break
                    case "wait":
                        self.clock.now = max(self.clock.now, datetime.fromisoformat(state["wait_until"]))
                        state["next"] = "acquire"
                    case other:
                        raise AssertionError(other)

    def run_spark(self, step: Step) -> dict[str, Any]:
        """Run the attempt's job, and return the answer of its last heartbeat."""
        assert self.jobs is not None, f"task {step.task_id} needs Spark"
        return self.jobs.run(step, self.tasks, self.steps, self.plans)

    def sweep(self) -> None:
        """Have the sweeper dispatch what is due."""
        for swept in sweep(self.tasks, self.kinds, deadline=self.deadline(), clock=self.clock):
            assert swept.error is None, swept.error

    def later(self, hours: float, times: int = 1) -> None:
        """Let time pass, and run what is due then; so many times."""
        for _ in range(times):
            self.clock.advance(timedelta(hours=hours))
            self.sweep()
            self.drive()

    def history(self, task_id: str) -> list[Task]:
        return list(self.store.history(task_id))

    def statuses(self, task_id: str) -> list[str]:
        return [task.status.value for task in self.history(task_id)]
