"""The API over fake dependencies, with its log and its metrics."""

import io
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aws_lambda_powertools import Logger, Metrics

from delegation.edge.app import create_app
from delegation.edge.routes import Dependencies
from delegation.edge.submission import Submission, SubmissionAnswer
from delegation.tasks.errors import TaskNotFound
from delegation.tasks.life.model import Task
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

    answer: SubmissionAnswer | Exception = field(
        default_factory=lambda: SubmissionAnswer(202, b'{"status":"QUEUED"}', TASK_ID, "accepted")
    )
    submitted: list[Submission] = field(default_factory=list)
    executed: list[tuple[Submission, datetime, str]] = field(default_factory=list)
    received: list[datetime] = field(default_factory=list)

    def submit(self, submission: Submission) -> SubmissionAnswer:
        self.submitted.append(submission)
        return self._answer()

    def execute(
        self, submission: Submission, *, received: datetime, deadline: datetime, owner: str
    ) -> SubmissionAnswer:
        self.executed.append((submission, deadline, owner))
        self.received.append(received)
        return self._answer()

    def _answer(self) -> SubmissionAnswer:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    @property
    def calls(self) -> int:
        return len(self.submitted) + len(self.executed)


@dataclass
class FakeTasks:
    tasks: dict[str, Task] = field(default_factory=lambda: {TASK_ID: a_task()})

    def get(self, task_id: str) -> Task:
        if task_id not in self.tasks:
            raise TaskNotFound(task_id)
        return self.tasks[task_id]

    def children(self, task_id: str) -> tuple[str, ...]:
        return (*self.tasks[task_id].listed_children, "a-child-of-its-own")


@dataclass
class Api:
    """Calls the API as API Gateway does, and reads its log and its metrics."""

    handle: Callable[[dict[str, Any], Any], dict[str, Any]]
    submissions: FakeSubmissions
    log: io.StringIO
    read_output: Callable[[], str]
    output: str = ""
    tasks: FakeTasks = field(default_factory=FakeTasks)

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


@pytest.fixture
def api(capsys: pytest.CaptureFixture[str]) -> Api:
    log, submissions, tasks = io.StringIO(), FakeSubmissions(), FakeTasks()
    deps = Dependencies(
        submissions=submissions,
        tasks=tasks,
        realm="POLARIS",
        idempotency_lifetime=timedelta(minutes=30),
        clock=lambda: NOW,
    )
    logger = Logger(service=f"edge-{uuid.uuid4()}", stream=log)
    metrics = Metrics(namespace="Delegation", service="delegation-api")
    app = create_app(deps, logger=logger, metrics=metrics)
    return Api(app, submissions, log, lambda: capsys.readouterr().out, tasks=tasks)


def header(response: dict[str, Any], name: str) -> str | None:
    """Return the only value of a header of a Lambda's answer."""
    many = {key.lower(): values for key, values in response["multiValueHeaders"].items()}
    values = many.get(name.lower(), [])
    return values[0] if len(values) == 1 else None
