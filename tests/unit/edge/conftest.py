"""The API over fake dependencies, with its log and its metrics."""

import io
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import pytest
from aws_lambda_powertools import Logger

from delegation.edge.answers import ApiResponse
from delegation.edge.api.app import create_app
from delegation.edge.api.routes import Dependencies, without_pauses
from delegation.edge.submission import Submission
from delegation.idempotency.mutations import Mutations
from delegation.metrics import MetricLines
from delegation.tasks.errors import TaskNotFound
from delegation.tasks.life import decisions
from delegation.tasks.life.model import Caller, Task
from delegation.tasks.pauses import PauseControl
from delegation.tasks.stores.base import Create, Received, ReceivedPage, Unreadable
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.wiring.types import TYPES
from tests.kit.lakes.lake import filled
from tests.kit.tasks.builders import resubmitted
from tests.kit.worlds.service import World
from tests.unit.edge.gateway import Context, request

NOW = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)
TASK_ID = "0d4c6d3e-8f2a-5c67-9f0e-3f5f0e1d2c3b"


def a_task() -> Task:
    return Task(
        task_id=TASK_ID,
        version=3,
        task_type="TABLE_PURGE",
        task_payload='{"a":"é"}',
        received_timestamp=NOW,
        last_status_change_ts=NOW,
        created_ts=NOW,
        next_scheduled_run_ts=NOW,
        due_at=NOW,
    )


@dataclass
class FakeSubmissions:
    """Records submissions and returns, or raises, `answer`."""

    answer: ApiResponse | Exception = field(
        default_factory=lambda: ApiResponse(202, b'{"status":"QUEUED"}', TASK_ID, "accepted")
    )
    submitted: list[Submission] = field(default_factory=list)
    executed: list[tuple[Submission, datetime, str]] = field(default_factory=list)
    received: list[datetime] = field(default_factory=list)

    def submit(self, submission: Submission) -> ApiResponse:
        self.submitted.append(submission)
        return self._answer()

    def execute(self, submission: Submission, *, received: datetime, deadline: datetime, owner: str) -> ApiResponse:
        self.executed.append((submission, deadline, owner))
        self.received.append(received)
        return self._answer()

    def _answer(self) -> ApiResponse:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    @property
    def calls(self) -> int:
        return len(self.submitted) + len(self.executed)


@dataclass
class FakeTasks:
    """Tasks by id, and the ids that were dispatched."""

    tasks: dict[str, Task] = field(default_factory=lambda: {TASK_ID: a_task()})
    dispatched: list[str] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)
    lists: int = 0

    @property
    def reads(self) -> "FakeTasks":
        """This object is every part of a TaskService."""
        return self

    operators = dispatching = store = reads

    def get(self, task_id: str) -> Task:
        if task_id not in self.tasks:
            raise TaskNotFound(task_id)
        return self.tasks[task_id]

    def children(self, task_id: str) -> tuple[str, ...]:
        return (*self.tasks[task_id].listed_children, "a-child-of-its-own")

    def versions(self, task_id: str, *, after: int = 0, limit: int = 100) -> tuple[Task, ...]:
        head = self.tasks.get(task_id)
        return tuple(head.evolve(version=n) for n in range(after + 1, head.version + 1))[:limit] if head else ()

    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        store = MemoryTaskStore()
        for task in self.tasks.values():
            store.apply(Create(task.evolve(version=1)))
        for task_id in self.unreadable:
            store.make_unreadable(task_id)
        self.lists += 1
        page = store.received(which, before=before, limit=limit)
        shown = (
            (place, one if isinstance(one, Unreadable) else self.tasks[one.task_id]) for place, one in page.entries
        )
        return ReceivedPage(tuple(shown), page.cursor)

    def cancel(self, task_id: str, *, by: Caller | None = None) -> Task:
        task = self.get(task_id)
        if not task.is_terminal:
            self.tasks[task_id] = decisions.cancel(task, NOW, by)
        return self.tasks[task_id]

    def retry(self, task_id: str, *, by: Caller | None = None) -> Task:
        self.tasks[task_id] = resubmitted(self.get(task_id)).evolve(requested_by=by)
        return self.tasks[task_id]

    def dispatch(self, task_id: str, *, task: Task | None = None) -> Task:
        self.dispatched.append(task_id)
        return task or self.get(task_id)


@dataclass
class Api:
    """Calls the API as API Gateway does, and reads its log and its metrics."""

    read_output: Callable[[], str]
    handle: Callable[[dict[str, Any], Any], dict[str, Any]] = field(init=False)
    submissions: FakeSubmissions = field(default_factory=FakeSubmissions)
    tasks: FakeTasks = field(default_factory=FakeTasks)
    log: io.StringIO = field(default_factory=io.StringIO)
    receipts: dict[str, bytes] = field(default_factory=dict)
    checks: dict[str, Callable[[], object]] = field(
        default_factory=lambda: {"task table": lambda: None, "Polaris": lambda: None}
    )
    estimates: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Any] = field(default_factory=dict)
    resent: list[str] = field(default_factory=list)
    tombstones: list[Any] = field(default_factory=list)
    mutations: list[Mutations] = field(default_factory=list)
    pauses: list[PauseControl] = field(default_factory=list)
    output: str = ""

    def send(self, event: dict[str, Any], context: Context | None = None) -> dict[str, Any]:
        return self.handle(event, context or Context())

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> dict[str, Any]:
        return self.send(request(method, path, body, **options))

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.getvalue().splitlines()]

    def metrics(self) -> list[dict[str, Any]]:
        """Return every metrics blob (CloudWatch embedded metric format) printed so far."""
        self.output += self.read_output()
        return [json.loads(line) for line in self.output.splitlines() if line.startswith("{")]


def not_called() -> NoReturn:
    raise AssertionError("no request of these tests has a key")


def dependencies(submissions: Any, tasks: Any, **parts: Any) -> Dependencies:
    """Return what an API needs, of which `parts` replaces some."""
    usual = {
        "realm": "POLARIS",
        "idempotency_lifetime": timedelta(minutes=30),
        "clock": lambda: NOW,
        "receipt": lambda _task: None,
        "checks": {},
        "mutations": not_called,
        "types": TYPES,
    }
    return Dependencies(submissions=submissions, tasks=tasks, **{**usual, **parts})


@pytest.fixture
def world() -> World:
    """A service with the table `orders`."""
    return filled(World(), "orders")


@pytest.fixture
def api(capsys: pytest.CaptureFixture[str]) -> Api:
    made = Api(lambda: capsys.readouterr().out)
    deps = dependencies(
        made.submissions,
        made.tasks,
        receipt=lambda task: made.receipts.get(task.task_id),
        checks=made.checks,
        mutations=lambda: made.mutations[0] if made.mutations else not_called(),
        estimate=lambda task: made.estimates.get(task.task_id),
        waiting=lambda task: made.places.get(task.task_id),
        resend=made.resent.append,
        tombstones=lambda: made.tombstones[0] if made.tombstones else None,
        pauses=lambda: made.pauses[-1] if made.pauses else without_pauses(),
    )
    logger = Logger(service=f"edge-{uuid.uuid4()}", stream=made.log)
    made.handle = create_app(deps, logger=logger, metrics=MetricLines("Delegation", "delegation-api"))
    return made


def header(response: dict[str, Any], name: str) -> str | None:
    """Return the only value of a header of a Lambda's answer."""
    many = {key.lower(): values for key, values in response["multiValueHeaders"].items()}
    values = many.get(name.lower(), [])
    return values[0] if len(values) == 1 else None
