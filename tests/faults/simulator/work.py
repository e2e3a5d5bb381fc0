"""The simulated work: a purge that deletes, parents with children, and jobs that run, hang and are killed."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from delegation.errors import RunCancelled, RunHandedOver
from delegation.orchestration.job_runs import JobRefused, JobRun, JobServiceUnavailable
from delegation.removal.attempt import PlanSegment
from delegation.removal.details import published
from delegation.tasks.errors import DeadlineExceeded, LeaseLost, TaskError
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.transitions import CANCELLED, HANDED_OVER, held_by
from delegation.tasks.submit import Parent, Tasks
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior, OnLost
from delegation.tasks.work.service import TaskService
from polaris_common.errors import DelegationError
from tests.faults.simulator.faulty import Faulty
from tests.faults.simulator.scheduler import START, Actor

if TYPE_CHECKING:
    from tests.faults.simulator.deployment import Deployment

PURGE: Final = "TABLE_PURGE"
FAMILY: Final = "FAMILY"
CHILD: Final = "CHILD"
ONCE: Final = "ONCE"
STOPPED = AttemptError(CANCELLED, "stopped on request", ErrorClass.PERMANENT)
TIME_IS_UP = AttemptError(HANDED_OVER, "time is up", ErrorClass.HANDED_OVER)


class Purge:
    """TaskBehavior that deletes in small steps; each attempt fails, hangs or succeeds at random."""

    task_types = frozenset({PURGE})

    def __init__(self, deployment: "Deployment", actor: Actor, service: TaskService) -> None:
        self.deployment = deployment
        self.actor = actor
        self.service = service
        self.dice = deployment.world.dice

    def prepare(self, task: Task) -> str | None:
        if self._fails(task, 0.05):
            return None
        return self.dice.choice(("inline", "inline", "spark"))

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        run = AttemptContext(self.service, task, hand_over_at=hand_over_at, monotonic=self.deployment.monotonic)
        try:
            self._work(task, run, keeps_lease=hand_over_at is None and task.lease.owner == self.actor.name)
        except LeaseLost:
            self.deployment.world.note(f"{self.actor.name} lost attempt {task.attempt_count} of {task.task_id}")
        except RunCancelled:
            self._end_attempt(task, STOPPED)
        except RunHandedOver:
            self._end_attempt(task, TIME_IS_UP)
        except DeadlineExceeded as error:
            self._end_attempt(task, AttemptError(error.code, str(error), ErrorClass.PERMANENT))
        finally:
            self.actor.spared = False
        return self.service.reads.get(task.task_id)

    def _work(self, task: Task, run: AttemptContext, *, keeps_lease: bool) -> None:
        task_id, attempt = task.task_id, task.attempt_count
        run.checkpoint()
        segment = PlanSegment(id=f"{attempt}", sha256="00")

        def publish(task: Task, _now: datetime) -> Task:
            return published(task, attempt, segment, seen=0, files_planned=1)

        run.write(lambda: self.service.writes.change(task_id, publish))
        if self._fails(task, 0.1):
            return
        run.write(lambda: self.service.leases.start(task_id, attempt, effects=True))
        # The process may fail to renew its lease while its work continues, in many short steps.
        unrenewed = keeps_lease and self.deployment.chaos and self.deployment.world.chance(0.4)
        self.actor.spared = unrenewed
        for _ in range(1 if unrenewed else self.dice.choice((1, 2, 3, 8))):
            for _ in range(150 if unrenewed else self.dice.randrange(1, 8)):
                self.actor.sleep(self.deployment.world.seconds(0.2, 0.8 if unrenewed else 4))
                run.checkpoint()
                self.deployment.ledger.delete(task_id, attempt, self.actor.name)
            run.note_progress({"files_deleted": 1}, eta=None)
            if keeps_lease:
                run.write(lambda: self.service.leases.heartbeat(task_id, attempt, self.deployment.lasting))
        if not self._fails(task, 0.2):
            self.service.leases.succeed(task_id, attempt, f"attempt {attempt}")

    def _fails(self, task: Task, probability: float) -> bool:
        """Return whether the attempt ends with an error here."""
        if not self.deployment.world.chance(probability):
            return False
        kind = self.dice.choice((ErrorClass.TRANSIENT, ErrorClass.THROTTLED, ErrorClass.PERMANENT))
        kind = self.dice.choice((kind, ErrorClass.TRANSIENT, ErrorClass.HANDED_OVER))
        self._end_attempt(task, AttemptError(kind.name, "it failed", kind))
        return True

    def _end_attempt(self, task: Task, error: AttemptError) -> None:
        try:
            self.service.leases.end_attempt(task.task_id, task.attempt_count, error)
        except LeaseLost:
            return


class Size(BaseModel):
    """The number of children; the id is made from `name`, so that a seed replays exactly."""

    name: str
    children: int = 0


class ChildBroke(DelegationError):
    """The work of a child failed."""

    code = "CHILD_BROKE"


def child(deployment: "Deployment", actor: Actor) -> Behavior[Size, BaseModel]:
    def work(_parameters: Size, run: AttemptContext) -> None:
        for _ in range(deployment.world.dice.randrange(1, 4)):
            actor.sleep(deployment.world.seconds(0.2, 10))
            run.checkpoint()
            deployment.ledger.works(run.task.task_id, run.task.attempt_count, actor.name)
        if deployment.world.chance(0.1):
            raise ChildBroke("it failed")

    return Behavior(CHILD, Size, work, identify=lambda parameters: parameters.name)


def once(deployment: "Deployment", actor: Actor) -> Behavior[Size, BaseModel]:
    """Return the behavior of work that never runs twice."""

    def work(_parameters: Size, run: AttemptContext) -> None:
        deployment.ledger.begins(run.task)
        for _ in range(deployment.world.dice.randrange(1, 6)):
            actor.sleep(deployment.world.seconds(0.2, 5))
            run.checkpoint()
            deployment.ledger.works(run.task.task_id, run.task.attempt_count, actor.name)

    return Behavior(ONCE, Size, work, identify=lambda parameters: parameters.name, on_lost=OnLost.FAIL)


def family(deployment: "Deployment", actor: Actor, service: TaskService) -> Behavior[Size, BaseModel]:
    """Return the behavior of a parent, which submits its children and ends after them."""

    def work(parameters: Size, run: AttemptContext) -> None:
        parent = Parent(run.task.task_id, run.task.attempt_count)
        for n in range(parameters.children):
            run.checkpoint()
            name = f"{parameters.name}/{run.task.version}/{n}"
            Tasks(service).submit(child(deployment, actor), Size(name=name), parent=parent)

    return Behavior(FAMILY, Size, work, identify=lambda parameters: parameters.name)


@dataclass
class Job:
    """One job run; an actor once it has started."""

    name: str
    state: str = "SUBMITTED"
    actor: Actor | None = None
    started_at: datetime | None = None
    late: bool = False
    """Started when its attempt had ended or was about to: StartJob cancels it, or it stops at its first checkpoint."""

    @property
    def is_active(self) -> bool:
        return self.state in {"SUBMITTED", "RUNNING"}


class SimulatedJobs(Faulty):
    """JobService of one process: runs start late, hang or crash; calls fail before or after they are applied."""

    def start(self, name: str, arguments: object, folders: object = (), *, with_jars: bool = False) -> str:
        def begin() -> str:
            if name not in self.deployment.jobs:
                self.deployment.jobs[name] = Job(name, late=self.deployment.has_ended(name))
                self.deployment.known_from[name] = self.deployment.world.now + self.deployment.world.seconds(0, 10)
                work = lambda actor: run_job(self.deployment, actor, name)  # noqa: E731
                self.deployment.world.spawn("job", work, after=self.deployment.world.seconds(1, 40))
            return name

        return self._called(begin)

    def get(self, run_id: str) -> JobRun | None:
        job = self._called(lambda: self.deployment.jobs.get(run_id))
        if self.deployment.chaos and self.deployment.world.chance(0.03):
            raise JobRefused("the job service refused to show the run")
        if self.deployment.chaos and self.deployment.world.now < self.deployment.known_from.get(run_id, START):
            return None
        return job and JobRun(job.name, job.name, job.state, started_at=job.started_at)

    def active(self, prefix: str, *, as_of: datetime | None = None) -> list[JobRun]:
        found = self._called(lambda: [job for job in self.deployment.jobs.values() if job.name.startswith(prefix)])
        runs = [JobRun(job.name, job.name, job.state) for job in found]
        return [run for run in runs if not run.has_ended]

    def cancel(self, run_id: str) -> None:
        def end() -> None:
            job = self.deployment.jobs[run_id]
            if job.state == "SUBMITTED":
                job.state = "CANCELLED"
            elif job.state == "RUNNING":
                job.state = "CANCELLING"
                self.deployment.world.spawn(
                    "cancel", lambda _actor: stop(job), after=self.deployment.world.seconds(1, 30)
                )

        self._called(end)

    def _called(self, act: Callable[[], Any]) -> Any:
        self.point()
        if self.deployment.chaos and self.deployment.world.chance(0.03):
            raise JobServiceUnavailable("the job service did not answer")
        answer = act()
        if self.deployment.chaos and self.deployment.world.chance(0.02):
            raise JobServiceUnavailable("the answer of the job service was lost")
        self.point()
        return answer


def stop(job: Job) -> None:
    if job.actor is not None and not job.actor.done:
        job.actor.kill()
    job.state = "CANCELLED"


def run_job(deployment: "Deployment", actor: Actor, name: str) -> None:
    """Run a job: the driver's process, whose lease an execution or a worker renews while it makes progress."""
    job = deployment.jobs[name]
    if job.state != "SUBMITTED":
        return
    job.state, job.actor, job.started_at = "RUNNING", actor, deployment.world.now
    ended = "FAILED"
    try:
        task_id, _, attempt = name.rpartition("-")
        service = deployment.service(actor)
        if deployment.chaos and deployment.world.chance(0.1):
            deployment.world.note(f"{actor.name} hangs")
            actor.sleep(timedelta(hours=6))
        try:
            task = held_by(service.reads.get(task_id), int(attempt))
            Purge(deployment, actor, service).run(task, hand_over_at=None)
            ended = "SUCCESS"
        except TaskError as error:
            deployment.world.note(f"{actor.name} fails: {error.code}")
    finally:
        if job.state == "RUNNING":
            job.state = ended


def monotonic_of(now: datetime) -> float:
    """Return the seconds of a monotonic clock that all processes share."""
    return (now - START).total_seconds()
