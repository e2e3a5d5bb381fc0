"""One task and the steps that run it, with a recording job service and a manual clock."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from delegation.orchestration.failures import Step
from delegation.orchestration.job_runs import ExternalJobRuns, JobRefused, JobRun
from delegation.orchestration.steps import Steps
from delegation.tasks.life.model import Dispatches, Task
from delegation.tasks.stores.base import Create
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.wiring.types import default_properties
from tests.kit.tasks.builders import MINUTE, Clock, submitted
from tests.kit.tasks.queues import Queue
from tests.kit.tasks.services import task_service

TASK_TYPES = frozenset({"TABLE_PURGE"})


@dataclass
class RecordedJobs:
    """A JobService that records its calls; `refuses` makes every start fail."""

    runs: dict[str, JobRun] = field(default_factory=dict)
    started: list[tuple[str, list[str]]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    refuses: bool = False

    def start(
        self, name: str, arguments: Sequence[str], folders: Sequence[str] = (), *, with_jars: bool = False
    ) -> str:
        if self.refuses:
            raise JobRefused("EMR Serverless answered ValidationException to start_job_run")
        self.started.append((name, list(arguments)))
        self.runs.setdefault(name, JobRun(name, name, "SUBMITTED"))
        return name

    def get(self, run_id: str) -> JobRun | None:
        return self.runs.get(run_id)

    def active(self, prefix: str, *, as_of: datetime | None = None) -> Sequence[JobRun]:
        return [run for run in self.runs.values() if run.name.startswith(prefix) and not run.has_ended]

    def cancel(self, run_id: str) -> None:
        self.cancelled.append(run_id)

    def become(self, name: str, state: str) -> None:
        self.runs[name] = JobRun(name, name, state, "the driver was killed" if state == "FAILED" else "")


@dataclass
class FixedEngine:
    """A TaskBehavior that always chooses the same engine."""

    engine: str
    task_types: frozenset[str] = TASK_TYPES
    asked: int = 0

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str | None:
        self.asked += 1
        return self.engine

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        raise NotImplementedError


class Driven:
    """One accepted task, its steps, a queue and a clock; `runs` are those of its external jobs."""

    def __init__(
        self,
        jobs: RecordedJobs | None = None,
        runs: ExternalJobRuns | None = None,
        clock: Clock | None = None,
        **fields: Any,
    ) -> None:
        self.clock = clock or Clock()
        self.queue = Queue()
        self.store = MemoryTaskStore()
        self.jobs = jobs or RecordedJobs()
        self.tasks = task_service(
            self.store,
            default_properties(),
            self.queue,
            clock=self.clock,
            external_jobs=runs or ExternalJobRuns(self.jobs),
        )
        self.steps = Steps(self.tasks, TASK_TYPES, jobs=self.jobs)
        self.task_id = self.store.apply(Create(submitted(**{"dispatches": Dispatches(count=1), **fields}))).task_id
        self.step = Step(self.task_id, 1)

    @property
    def task(self) -> Task:
        return self.tasks.reads.get(self.task_id)

    def acquire(self, n: int = 1) -> dict[str, Any]:
        answer = self.steps.acquire(Step(self.task_id, n), self.clock() + MINUTE)
        self.step = Step.of(answer)
        return answer

    def start(self) -> dict[str, Any]:
        return self.steps.start_job(self.step)

    def beat(self) -> dict[str, Any]:
        answer = self.steps.heartbeat(self.step)
        self.step = Step.of(answer)
        return answer

    def progress(self) -> None:
        self.tasks.leases.note(self.task_id, self.step.attempt, progress_ts=self.clock())
