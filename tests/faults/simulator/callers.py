"""Callers: clients with and without idempotency keys, submitters of parents, and an operator."""

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel

from delegation.idempotency.keys import RequestInProgress, ResubmitsExhausted, ResubmittedTooSoon, Scope
from delegation.idempotency.service import Acceptance, Accepted, IdempotentRequest, Replayed
from delegation.idempotency.store import StoredAnswer
from delegation.tasks.errors import (
    LeaseLost,
    MalformedRecord,
    OutcomeUnknown,
    StoreUnavailable,
    TaskExists,
    TaskNotFound,
)
from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import Status, Task
from delegation.tasks.stores.base import Create
from delegation.tasks.submit import Tasks
from delegation.tasks.work import maintenance
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks.work.service import TaskService
from tests.faults.simulator.ledger import answer_of
from tests.faults.simulator.scheduler import Actor
from tests.faults.simulator.work import PURGE, Size, family, once

if TYPE_CHECKING:
    from tests.faults.simulator.deployment import Deployment

T = TypeVar("T")
PASSING = (StoreUnavailable, OutcomeUnknown)
GRACE = timedelta(seconds=10)
WITH_DEADLINE = str(uuid.UUID(int=2))
DEADLINE = timedelta(minutes=4)


class Callers:
    """All callers; `waiting` counts those without an answer."""

    def __init__(self, deployment: "Deployment") -> None:
        self.deployment = deployment
        self.world = deployment.world
        self.waiting = 0

    def start(self) -> None:
        dice = self.world.dice
        for number in range(1 + dice.randrange(3)):
            task_id = str(uuid.UUID(int=number + 1))
            for _ in range(1 + dice.randrange(2)):
                caller = self.keyed if self.world.chance(0.4) else self.plain
                key = f"key-{dice.randrange(3)}"
                self._start("client", lambda actor, i=task_id, k=f"{key}/{task_id}", c=caller: c(actor, i, k))
        if self.world.chance(0.3):
            self._start("parent", self.parent)
        if self.world.chance(0.4):
            self._start("once", lambda actor: self.submitted(actor, once(self.deployment, actor), Size(name="once")))
        if self.world.chance(0.5):
            self.world.spawn("operator", self.operator, after=self.world.seconds(5, 60))

    def _start(self, kind: str, work: Callable[[Actor], None]) -> None:
        self.waiting += 1

        def counted(actor: Actor) -> None:
            try:
                work(actor)
            finally:
                self.waiting -= 1

        self.world.spawn(kind, counted)

    # ---- without a key

    def plain(self, actor: Actor, task_id: str, _key: str) -> None:
        """Submit a task, wait for its outcome, and perhaps submit it again."""
        service = self.deployment.service(actor)
        if self._create(actor, service, first_version(task_id, actor, synchronous=self.world.chance(0.5))) is None:
            return
        self.deployment.ledger.accepted.add(task_id)
        attempted(lambda: service.dispatching.dispatch(task_id))
        cancels = self.world.dice.choice((0, 0, 0, 0.02, 0.3))
        for _ in range(self.world.dice.randrange(4)):
            outcome = self._outcome(actor, service, task_id, cancels)
            if outcome is None or not self.deployment.chaos:
                return
            self.deployment.ledger.reported(outcome)
            again = with_retries(actor, lambda: service.writes.change(task_id, resubmitted))
            if again is None:
                return
            attempted(lambda: service.dispatching.dispatch(task_id))
        outcome = self._outcome(actor, service, task_id, cancels=0)
        if outcome is not None:
            self.deployment.ledger.reported(outcome)

    def _create(self, actor: Actor, service: TaskService, first: Task) -> Task | None:
        for _ in range(20):
            try:
                return service.reads.store.apply(Create(first))
            except TaskExists as exists:
                return exists.stored
            except PASSING:
                actor.sleep(self.world.seconds(0.1, 5))
        return None

    def _outcome(self, actor: Actor, service: TaskService, task_id: str, cancels: float) -> Task | None:
        for _ in range(2000):
            if self.world.chance(cancels):
                attempted(lambda: service.operators.cancel(task_id))
            actor.sleep(self.world.seconds(0.1, self.world.dice.choice((3, 60))))
            try:
                task = service.reads.get(task_id)
            except PASSING:
                continue
            except TaskNotFound:
                return None  # removed after its retention
            if task.is_terminal:
                return task
        return None

    # ---- with a key

    def keyed(self, actor: Actor, task_id: str, key: str) -> None:
        """Repeat a request with its key until it has a final answer, and perhaps once more."""
        service = self.deployment.service(actor)
        acceptance = self.deployment.acceptance(actor)
        synchronous = self.world.chance(0.5)
        path = "/execute" if synchronous else "/tasks"
        scope = Scope("caller", "realm", "POST", path, key)
        repeats = 1 + self.world.dice.randrange(3)
        for _ in range(400):
            request = self._request(actor, scope, task_id, synchronous=synchronous)
            try:
                accepted = acceptance.accept(request)
                if isinstance(accepted, Accepted):
                    self.deployment.ledger.accepted.add(task_id)
                    if accepted.submitted:
                        attempted(lambda: service.dispatching.dispatch(task_id))
                answer = self._answer(actor, acceptance, accepted, synchronous=synchronous)
            except (RequestInProgress, ResubmittedTooSoon):
                actor.sleep(self.world.seconds(2, 30))
                continue
            except ResubmitsExhausted:
                return
            except (*PASSING, TaskNotFound):
                actor.sleep(self.world.seconds(0.1, 20))
                continue
            if answer is not None and answer.is_final:
                self.deployment.ledger.answered(scope.id, task_id, answer, terminal=synchronous)
                repeats -= 1
            if repeats == 0 or (not self.deployment.chaos and answer is not None):
                return
            actor.sleep(self.world.seconds(1, 90))

    def _answer(
        self, actor: Actor, acceptance: Acceptance, accepted: Accepted | Replayed, *, synchronous: bool
    ) -> StoredAnswer | None:
        """Return the answer of this request; None when a synchronous request times out."""
        if isinstance(accepted, Replayed):
            return accepted.answer
        if not synchronous:
            return accepted.record.answer if accepted.record else None
        for _ in range(10):
            outcome = acceptance.outcome(accepted.task.task_id, accepted.bound_version)
            if outcome is not None:
                return acceptance.conclude(accepted, outcome, answer_of)
            actor.sleep(self.world.seconds(0.1, 3))
        return None

    def _request(self, actor: Actor, scope: Scope, task_id: str, *, synchronous: bool) -> IdempotentRequest:
        return IdempotentRequest(
            scope=scope,
            payload_hash=lambda _rule: "a" * 64,
            answer_now=None if synchronous else (lambda task: StoredAnswer(202, task.task_id)),
            answer_of=answer_of,
            first=lambda: first_version(task_id, actor, synchronous=synchronous),
            obstacle=lambda _task: None,
            again=lambda task, now: again_unless_done(task, now, synchronous=synchronous),
        )

    # ---- parents and operators

    def parent(self, actor: Actor) -> None:
        """Submit a task with children, and wait for its outcome."""
        service = self.deployment.service(actor)
        size = Size(name="the family", children=self.world.dice.randrange(1, 4))
        self.submitted(actor, family(self.deployment, actor, service), size)

    def submitted(self, actor: Actor, behavior: Behavior[Size, BaseModel], size: Size) -> None:
        """Submit a task of a behavior, and wait for its outcome."""
        service = self.deployment.service(actor)
        for _ in range(20):
            try:
                submitted = Tasks(service).submit(behavior, size)
                break
            except PASSING:
                actor.sleep(self.world.seconds(0.1, 5))
        else:
            return
        self.deployment.ledger.accepted.add(submitted.task_id)
        for _ in range(2000):
            actor.sleep(self.world.seconds(1, 60))
            try:
                outcome = submitted.handle.outcome()
            except PASSING:
                continue
            except TaskNotFound:
                return
            if outcome is not None:
                self.deployment.ledger.reported(outcome)
                return

    def operator(self, actor: Actor) -> None:
        """Cancel and retry tasks at random."""
        service = self.deployment.service(actor)
        while self.deployment.chaos:
            actor.sleep(self.world.seconds(10, 240))
            ids = sorted(self.deployment.memory._heads)
            if not ids:
                continue
            task_id = self.world.dice.choice(ids)
            if self.world.chance(0.5):
                attempted(lambda task_id=task_id: service.operators.cancel(task_id))
            else:
                attempted(lambda task_id=task_id: service.writes.change(task_id, retried_by_hand))


def again_unless_done(task: Task, now: datetime, *, synchronous: bool) -> Task | None:
    if not task.is_terminal or task.status is Status.SUCCESS:
        return None
    return resubmitted(task, now, synchronous=synchronous)


def first_version(task_id: str, actor: Actor, *, synchronous: bool) -> Task:
    now = actor.clock()
    return Task(
        task_id=task_id,
        task_type=PURGE,
        task_payload="{}",
        received_timestamp=now,
        last_status_change_ts=now,
        created_ts=now,
        next_scheduled_run_ts=now,
        due_at=now + GRACE,
        nonce=actor.nonce(),
        synchronous=synchronous,
        deadline_ts=now + DEADLINE if task_id == WITH_DEADLINE else None,
    )


def resubmitted(task: Task, now: datetime, *, synchronous: bool = False) -> Task:
    if not task.is_terminal:
        return task
    restarted = {} if task.status is Status.SUCCESS else None
    return t.resubmit(task, now, payload=task.task_payload, synchronous=synchronous, grace=GRACE, restarted=restarted)


def retried_by_hand(task: Task, now: datetime) -> Task:
    is_failure = task.status is Status.FAILURE and task.task_type != maintenance.TASK_TYPE
    return resubmitted(task, now) if is_failure else task


def attempted(act: Callable[[], T]) -> T | None:
    """Call once; return None when the store or the queue failed, or the task cannot be read."""
    try:
        return act()
    except (*PASSING, TaskNotFound, MalformedRecord):
        return None


def with_retries(actor: Actor, act: Callable[[], T]) -> T | None:
    """Call with a few retries, as a client would."""
    for n in range(5):
        try:
            return act()
        except PASSING:
            actor.sleep(timedelta(seconds=2**n))
        except (TaskNotFound, LeaseLost):
            return None
    return None
