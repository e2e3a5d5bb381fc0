"""The task system under faults, on a hand-moved clock (`make simulate`); `told` is what the processes did.

In `persistence` the tasks are in the NoSQL persistence, every change a commit.
"""

import sys
from datetime import timedelta
from itertools import pairwise
from typing import Any, ClassVar, Final
from unittest.mock import patch

from delegation.orchestration import steps
from delegation.orchestration.failures import StateFailure
from delegation.tasks.errors import LeaseLost
from delegation.tasks.life import outcomes, transitions
from delegation.tasks.life.model import HELD, Task
from tests.faults.simulator.deployment import DRIFT, END, MAX_STEPS, Deployment, Mutation
from tests.faults.simulator.ledger import Violation
from tests.faults.simulator.scheduler import START, Simulation
from tests.faults.simulator.stores import TABLE, WITHOUT_NONCES
from tests.kit.explorer import Explorer, Story, WrongOutcome


class JobsIgnored:
    """Cancels no job of a lost attempt."""

    def end(self, task: Task) -> bool:
        return True


def held_by_anyone(task: Task, attempt: int) -> Task:
    """The check of the fencing token without the token: any lease holder passes."""
    if task.status not in HELD:
        raise LeaseLost(task.task_id, attempt=attempt, current=task.attempt_count, status=task.status)
    return task


class TasksUnderFaults(Story):
    """One seed. Which process acts next, and what befalls it, is in its simulation, so it is one event."""

    steps = 0
    store: ClassVar[str] = TABLE
    mutation: ClassVar[Mutation] = Mutation()

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world = Simulation(seed, DRIFT)
        self.told = self.world.log
        self.deployment = Deployment(self.world, self.mutation, self.store)

    @staticmethod
    def surroundings(seed: int) -> Any:
        """Make long runs continue in a new execution after 4 heartbeats instead of 1,500."""
        return patch.object(steps, "MAX_TURNS", 4)

    def end(self) -> None:
        ledger = self.deployment.ledger
        try:
            self.deployment.start()
            while not self.deployment.is_quiet() and self.world.now - START < END and self.world.steps < MAX_STEPS:
                self.world.step()
            ledger.check_end()
        except Violation as found:
            raise WrongOutcome(f"step {self.world.steps}: {found}") from found
        finally:
            for rows in (*ledger.lives, *ledger.rows.values()):
                self.counts.update(f"{one.status.value} -> {other.status.value}" for one, other in pairwise(rows))
                self.counts.update(row.error_code for row in rows if row.error_code)
            self.counts.update(ledger.happened)

    def close(self) -> None:
        self.deployment.closing = True
        self.world.close()


def without(**changes: Any) -> Any:
    return patch.object(TasksUnderFaults, "mutation", Mutation(**changes))


MUTATIONS: Final = {
    "drift": lambda: without(drift_margin=timedelta(0)),
    "nonce": lambda: without(stores=WITHOUT_NONCES),
    "fencing": lambda: patch.object(transitions, "held_by", held_by_anyone),
    # An attempt ends although its invocation may still work, because only its answer was lost.
    "answers": lambda: patch.object(StateFailure, "may_still_work", property(lambda _failure: False)),
    # Work of which nothing shows that it did not run is retried.
    "once": lambda: patch.object(outcomes, "_may_not_run_again", lambda *_arguments: False),
    "jobs": lambda: without(external_jobs=lambda _jobs: JobsIgnored()),
}
EXPLORER: Final = Explorer(
    "tests.faults.simulator.simulate",
    TasksUnderFaults,
    lambda total: f"{total['RUNNING -> SUCCESS']} tasks succeeded, {total['answer lost']} answers lost",
    MUTATIONS,
    seeds=500,
)

if __name__ == "__main__":
    sys.exit(EXPLORER.main(sys.argv[1:]))
