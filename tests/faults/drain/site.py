"""A deployment on a hand-moved clock: the real dispatcher, sweeper and steps over simulated AWS services."""

import heapq
import itertools
import json
from collections.abc import Callable, Generator
from datetime import timedelta
from typing import Any, Protocol

from delegation.orchestration.dispatch import Admission, Dispatcher, Inbox
from delegation.orchestration.failures import Step
from delegation.orchestration.job_runs import ExternalJobRuns
from delegation.orchestration.steps import Steps
from delegation.orchestration.sweep import sweep
from delegation.tasks.life.declared import TaskType, TaskTypes
from delegation.tasks.life.model import Task
from delegation.tasks.life.policy import Policies
from delegation.tasks.stores.admission import AdmissionStore
from delegation.tasks.stores.base import Advance, TaskChange, TaskStore
from delegation.tasks.work.behaviors import Behaviors
from delegation.tasks.work.hooks import TaskHooks
from delegation.tasks.work.service import TaskService
from polaris_common.errors import DelegationError
from tests.faults.drain.work import TASK_TYPE, TASK_TYPES, Jobs, Sized, traits_of
from tests.faults.simulator.state_machine import STATES, act, backoff, matches, pause
from tests.kit.tasks.builders import MINUTE, SECOND, Clock

STEP = timedelta(milliseconds=150)
DELIVERY = timedelta(milliseconds=300)
LIMITS = {"RunInline": timedelta(seconds=900)}
BATCH = 10
Waits = Generator[timedelta, None, None]


class Throttled(Exception):
    """Lambda has no free slot."""


class Poisoned(Exception):
    """What a poisoned task has its store, its execution or its work raise."""


def nothing() -> None:
    """Do nothing each minute."""


class DrainStore(TaskStore, AdmissionStore, Protocol):
    """What the deployment needs of a store."""


class DispatchedTasks:
    """Tasks, the queue and the executions; `lambdas` invocations at most run at once, the others are throttled."""

    def __init__(self, store: DrainStore, policies: Policies, *, lambdas: int) -> None:
        self.clock = Clock()
        self.store = store
        self.lambdas = lambdas
        self.busy = 0
        self.messages: list[str] = []
        self.executions: set[str] = set()
        self.running_executions = 0
        self.polling = False
        self.running = self.most_running = 0
        self._events: list[tuple[Any, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self.jobs = Jobs(self)
        self.tasks = TaskService(
            store,
            policies,
            self,
            clock=self.clock,
            hooks=TaskHooks(
                types=TaskTypes([TaskType(name=TASK_TYPE, traits=traits_of)]), external_jobs=ExternalJobRuns(self.jobs)
            ),
        )
        self.behavior = Sized(self)
        self.steps = Steps(self.tasks, TASK_TYPES, behaviors=Behaviors([self.behavior]), jobs=self.jobs)
        dispatcher = Dispatcher(self, "machine")
        admission = Admission(self.tasks, store, TASK_TYPES, dispatcher.start_execution, limits=policies.limits)
        self.inbox = Inbox(dispatcher, admission)

    # ---- time

    def after(self, wait: timedelta, event: Callable[[], object]) -> None:
        """Do something later."""
        heapq.heappush(self._events, (self.clock.now + wait, next(self._order), event))

    def run(self, until: Callable[[], bool]) -> None:
        """Let events happen, the earliest first, until a condition holds."""
        while not until():
            at, _, event = heapq.heappop(self._events)
            self.clock.now = max(self.clock.now, at)
            event()

    def keep_sweeping(self, each_minute: Callable[[], object] = nothing) -> None:
        """Sweep now and every minute after it."""
        for _ in sweep(self.tasks, TASK_TYPES, deadline=self.clock() + 55 * SECOND, clock=self.clock):
            pass
        self.tasks.messages.wake()
        each_minute()
        self.after(MINUTE, lambda: self.keep_sweeping(each_minute))

    def is_good(self, _task: Task) -> bool:
        """Return whether a task is to end as SUCCESS."""
        return True

    def count_ends(self) -> Callable[[], int]:
        """Return a function that returns how many tasks ended since."""
        ends = 0

        def applied(change: TaskChange) -> Task:
            nonlocal ends
            after = apply(change)
            if isinstance(change, Advance):
                self.running += after.is_held - change.before.is_held
            self.most_running = max(self.most_running, self.running)
            ends += after.is_terminal and self.is_good(after)
            return after

        apply, self.store.apply = self.store.apply, applied  # type: ignore[method-assign]
        return lambda: ends

    # ---- SQS

    def send(self, task_id: str, n: int, *, correlation_id: str | None = None) -> None:
        """See DispatchQueue.send."""
        self.messages.append(json.dumps({"task_id": task_id, "n": n}))
        self._poll_soon()

    def _poll_soon(self) -> None:
        if not self.polling:
            self.polling = True
            self.after(DELIVERY, self._deliver)

    def _deliver(self) -> None:
        """Invoke the dispatcher with a batch; messages that it returns as failed are delivered again."""
        self.polling = False
        batch, self.messages = self.messages[:BATCH], self.messages[BATCH:]
        self.messages += self.dispatch(batch)
        if self.messages:
            self._poll_soon()

    def dispatch(self, batch: list[str]) -> list[str]:
        """What the dispatcher's handler does; returns the messages that failed."""
        for body in batch:
            self.inbox.take(body)
        self.inbox.admit()
        return []

    # ---- Step Functions

    def start_execution(self, *, name: str, input: str, **_more: str) -> None:  # noqa: A002
        """What boto3's client does, for a name that was not used before."""
        if name in self.executions:
            return
        self.executions.add(name)
        self.running_executions += 1
        message = json.loads(input)
        self._advance(self._execution(message["task_id"], message["n"]))

    def _advance(self, execution: Waits) -> None:
        wait = next(execution, None)
        if wait is None:
            self.running_executions -= 1
        else:
            self.after(wait, lambda: self._advance(execution))

    def _execution(self, task_id: str, n: int) -> Waits:
        name, state = "Acquire", {"task_id": task_id, "n": n}
        while True:
            definition = STATES[name]
            match definition["Type"]:
                case "Task":
                    following, state = yield from self._state(name, state)
                    if following is None:
                        return
                    name = following
                case "Choice":
                    chosen = (c["Next"] for c in definition["Choices"] if c["StringEquals"] == state["next"])
                    name = next(chosen, definition["Default"])
                case "Wait":
                    yield pause(definition, state, self.clock())
                    name = definition["Next"]
                case _:
                    return

    def _state(self, name: str, state: dict[str, Any]) -> Generator[timedelta, None, tuple[str | None, dict[str, Any]]]:
        definition = STATES[name]
        tried = [0] * len(definition.get("Retry", []))
        while True:
            try:
                answer = yield from self._invocation(name, state)
            except (DelegationError, Throttled, Poisoned) as error:
                failed = "Lambda.TooManyRequestsException" if isinstance(error, Throttled) else type(error).__name__
            else:
                return definition["Next"], answer
            fitting = (at for at, rule in enumerate(definition.get("Retry", [])) if matches(rule, failed))
            at = next(fitting, None)
            if at is None or tried[at] >= definition["Retry"][at]["MaxAttempts"]:
                caught = next((one for one in definition.get("Catch", []) if matches(one, failed)), None)
                return (caught["Next"], state) if caught else (None, state)
            yield backoff(definition["Retry"][at], tried[at]) * 0.5
            tried[at] += 1

    def _invocation(self, name: str, state: dict[str, Any]) -> Generator[timedelta, None, dict[str, Any]]:
        if self.busy >= self.lambdas:
            raise Throttled
        self.busy += 1
        try:
            yield STEP
            step = Step.of(state)
            answer = act(self.steps, name, step, self.clock() + LIMITS.get(name, MINUTE))
            if name == "RunInline":
                yield from self.behavior.working(step)
            return answer
        finally:
            self.busy -= 1
