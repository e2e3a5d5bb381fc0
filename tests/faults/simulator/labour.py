"""The work of the simulation: a purge that deletes, parents with children, and jobs that run, hang and get killed."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from delegation.errors import DelegationError
from delegation.operations.purge.behavior.details import published
from delegation.orchestration.job_runs import JobRun, JobServiceUnavailable
from delegation.tasks.errors import LeaseLost, RunCancelled, RunHandedOver, TaskError
from delegation.tasks.life.lease import Lease
from delegation.tasks.life.model import Task
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.transitions import CANCELLED, HANDED_OVER, held_by
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior, Run
from delegation.tasks.work.service import TaskService
from delegation.tasks.work.submit import Parent, Tasks
from delegation.worksets.attempt import PlanSegment
from tests.faults.simulator.faulty import Faulty
from tests.faults.simulator.scheduler import START, Actor

if TYPE_CHECKING:
    from tests.faults.simulator.house import House

PURGE: Final = "TABLE_PURGE"
FAMILY: Final = "FAMILY"
CHILD: Final = "CHILD"
STOPPED = AttemptError(CANCELLED, "stopped on request", ErrorClass.PERMANENT)
OVER = AttemptError(HANDED_OVER, "time is up", ErrorClass.HANDED_OVER)


class Purge:
    """TaskBehavior that deletes piece by piece; each attempt errs, hangs or succeeds as the dice say."""

    kinds = frozenset({PURGE})

    def __init__(self, house: "House", actor: Actor, service: TaskService) -> None:
        self.house = house
        self.actor = actor
        self.service = service
        self.dice = house.world.dice

    def prepare(self, task: Task) -> str | None:
        if self._errs(task, 0.05):
            return None
        return self.dice.choice(("inline", "inline", "spark"))

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        run = AttemptContext(self.service, task, hand_over_at=hand_over_at, monotonic=self.house.monotonic)
        try:
            self._work(task, run, keeps_lease=hand_over_at is None and task.lease_owner == self.actor.name)
        except LeaseLost:
            self.house.world.note(f"{self.actor.name} lost attempt {task.attempt_count} of {task.task_id}")
        except RunCancelled:
            self._give_back(task, STOPPED)
        except RunHandedOver:
            self._give_back(task, OVER)
        finally:
            self.actor.spared = False
        return self.service.get(task.task_id)

    def _work(self, task: Task, run: AttemptContext, *, keeps_lease: bool) -> None:
        task_id, attempt = task.task_id, task.attempt_count
        run.checkpoint()
        segment = PlanSegment(id=f"{attempt}", sha256="00")

        def publish(task: Task, _now: datetime) -> Task:
            return published(task, attempt, segment, seen=0, files_planned=1)

        run.write(lambda: self.service.change(task_id, publish))
        if self._errs(task, 0.1):
            return
        run.write(lambda: self.service.start(task_id, attempt, effects=True))
        # Whoever keeps the lease may hang while the work goes on unharmed, piece by quick piece.
        forsaken = keeps_lease and self.house.chaos and self.house.world.chance(0.4)
        self.actor.spared = forsaken
        for _ in range(1 if forsaken else self.dice.choice((1, 2, 3, 8))):
            for _ in range(150 if forsaken else self.dice.randrange(1, 8)):
                self.actor.sleep(self.house.world.seconds(0.2, 0.8 if forsaken else 4))
                run.checkpoint()
                self.house.ledger.delete(task_id, attempt, self.actor.name)
            run.report(files_deleted=1)
            if keeps_lease:
                run.write(lambda: self.service.heartbeat(task_id, attempt, self.house.lasting))
        if not self._errs(task, 0.2):
            self.service.succeed(task_id, attempt, f"attempt {attempt}")

    def _errs(self, task: Task, probability: float) -> bool:
        """Whether the attempt ends in an error here."""
        if not self.house.world.chance(probability):
            return False
        kind = self.dice.choice((ErrorClass.TRANSIENT, ErrorClass.THROTTLED, ErrorClass.PERMANENT))
        kind = self.dice.choice((kind, ErrorClass.TRANSIENT, ErrorClass.HANDED_OVER))
        self._give_back(task, AttemptError(kind.name, "it broke", kind))
        return True

    def _give_back(self, task: Task, error: AttemptError) -> None:
        try:
            self.service.give_back(task.task_id, task.attempt_count, error)
        except LeaseLost:
            return


class Size(BaseModel):
    """How many children; `name` makes the id, so that a seed replays exactly."""

    name: str
    children: int = 0


class ChildBroke(DelegationError):
    """The work of a child failed for good."""

    code = "CHILD_BROKE"


def child(house: "House", actor: Actor) -> Behavior[Size, BaseModel]:
    def work(_parameters: Size, run: Run) -> None:
        for _ in range(house.world.dice.randrange(1, 4)):
            actor.sleep(house.world.seconds(0.2, 10))
            run.checkpoint()
            house.ledger.works(run.task.task_id, run.task.attempt_count, actor.name)
        if house.world.chance(0.1):
            raise ChildBroke("it broke")

    return Behavior(CHILD, Size, work, identify=lambda parameters: parameters.name)


def family(house: "House", actor: Actor, service: TaskService) -> Behavior[Size, BaseModel]:
    """A parent: it submits its children and ends after them."""

    def work(parameters: Size, run: Run) -> None:
        parent = Parent(run.task.task_id, run.task.attempt_count)
        for n in range(parameters.children):
            run.checkpoint()
            name = f"{parameters.name}/{run.task.version}/{n}"
            Tasks(service).submit(child(house, actor), Size(name=name), parent=parent)

    return Behavior(FAMILY, Size, work, identify=lambda parameters: parameters.name)


@dataclass
class Job:
    """One job run: an actor from the moment it starts."""

    name: str
    state: str = "SUBMITTED"
    actor: Actor | None = None
    started_at: datetime | None = None
    late: bool = False
    """Started when its attempt was over, or about to be: its starter ends it, or it stops at its first look."""

    @property
    def goes_on(self) -> bool:
        return self.state in {"SUBMITTED", "RUNNING"}


class SimulatedJobs(Faulty):
    """JobService as one process sees it: runs start late, hang, die; calls fail before or after they took effect."""

    def start(self, name: str, arguments: object) -> str:
        def begin() -> str:
            if name not in self.house.jobs:
                self.house.jobs[name] = Job(name, late=self.house.is_over(name))
                work = lambda actor: play(self.house, actor, name)  # noqa: E731 - one line says it
                self.house.world.spawn("job", work, after=self.house.world.seconds(1, 40))
            return name

        return self._called(begin)

    def get(self, run_id: str) -> JobRun | None:
        job = self._called(lambda: self.house.jobs.get(run_id))
        return job and JobRun(job.name, job.name, job.state, started_at=job.started_at)

    def active(self, prefix: str) -> list[JobRun]:
        found = self._called(lambda: [job for job in self.house.jobs.values() if job.name.startswith(prefix)])
        runs = [JobRun(job.name, job.name, job.state) for job in found]
        return [run for run in runs if not run.has_ended]

    def cancel(self, run_id: str) -> None:
        def end() -> None:
            job = self.house.jobs[run_id]
            if job.state == "SUBMITTED":
                job.state = "CANCELLED"
            elif job.state == "RUNNING":
                job.state = "CANCELLING"
                self.house.world.spawn("cancel", lambda _actor: stop(job), after=self.house.world.seconds(1, 30))

        self._called(end)

    def _called(self, act: Callable[[], Any]) -> Any:
        self.point()
        if self.house.chaos and self.house.world.chance(0.03):
            raise JobServiceUnavailable("the job service did not answer")
        answer = act()
        if self.house.chaos and self.house.world.chance(0.02):
            raise JobServiceUnavailable("the job service's answer was lost")
        self.point()
        return answer


def stop(job: Job) -> None:
    if job.actor is not None and not job.actor.done:
        job.actor.kill()
    job.state = "CANCELLED"


def play(house: "House", actor: Actor, name: str) -> None:
    """A job run: the driver's process, whose lease somebody else renews as long as it shows progress."""
    job = house.jobs[name]
    if job.state != "SUBMITTED":
        return
    job.state, job.actor, job.started_at = "RUNNING", actor, house.world.now
    ended = "FAILED"
    try:
        task_id, _, attempt = name.rpartition("-")
        service = house.service(actor)
        if house.chaos and house.world.chance(0.1):
            house.world.note(f"{actor.name} hangs")
            actor.sleep(timedelta(hours=6))
        try:
            task = held_by(service.get(task_id), int(attempt))
            Purge(house, actor, service).run(task, hand_over_at=None)
            ended = "SUCCESS"
        except TaskError as error:
            house.world.note(f"{actor.name} breaks: {error.code}")
    finally:
        if job.state == "RUNNING":
            job.state = ended


def monotonic_of(now: datetime) -> float:
    """Seconds that nobody sets: the same for all, whatever their wall clocks say."""
    return (now - START).total_seconds()


def lasting(lost_timeout: timedelta) -> Callable[[datetime], Lease]:
    return lambda now: Lease.lasting(lost_timeout, now)
