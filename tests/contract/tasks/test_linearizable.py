"""Histories of racing threads are linearizable: as if every call had taken effect at one instant of its duration.

Every write of a head has the next revision, so the order of the writes is known, and a history is linearizable exactly
if no call read or wrote a revision that real time rules out (no search is needed).
"""

import itertools
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from delegation.tasks.errors import RevisionConflict, StaleTask
from delegation.tasks.life.model import Status, Task
from delegation.tasks.stores.base import Advance, Create, Revise, TaskStore
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.stores.persistence import PersistenceTaskStore, catalog_of_tasks, task_process
from polaris_persistence.backends.memory import MemoryBackend
from tests.contract.task_tables import local_task_store
from tests.effort import examples
from tests.kit.tasks.builders import acquired, retried, submitted, touched

THREADS = 8
CALLS = 25


@dataclass(frozen=True)
class Call:
    """One call, from `began` to `ended` on a common counter, and the revision that it read or wrote."""

    began: int
    ended: int
    revision: int
    wrote: bool


def violations(history: list[Call]) -> list[str]:
    """Return every pair of calls whose order in time contradicts the order of their revisions."""
    found = []
    made = [call.revision for call in history if call.wrote]
    if len(set(made)) != len(made) or sorted(made) != list(range(2, len(made) + 2)):
        found.append(f"revisions {sorted(made)} have duplicates or gaps")
    for former, later in itertools.permutations(history, 2):
        if former.ended < later.began:
            newer = later.revision > former.revision if later.wrote else later.revision >= former.revision
            if not newer:
                found.append(f"{later} after {former}")
    known = {call.revision: call for call in history if call.wrote}
    for call in history:
        writer = known.get(call.revision)
        if writer is not None and not call.wrote and call.ended < writer.began:
            found.append(f"{call} saw {writer} before it was written")
    return found


def play(store: TaskStore, seed: int) -> list[Call]:
    """Let threads read, rewrite and advance one task; a call saw the task that it returned or was refused with."""
    first = store.apply(Create(submitted()))
    counter = itertools.count()

    def thread(number: int) -> list[Call]:
        dice = random.Random(f"{seed}-{number}")
        seen, calls = first, []
        for _ in range(CALLS):
            began = next(counter)
            wrote = False
            kind = dice.random()
            if kind < 0.3:
                seen = store.get(first.task_id) or seen
            else:
                try:
                    seen = store.apply(Revise(seen, touched(seen, files_deleted=number)) if kind < 0.7 else step(seen))
                    wrote = True
                except (StaleTask, RevisionConflict) as refusal:
                    seen = refusal.stored or first
            calls.append(Call(began, next(counter), seen.revision, wrote))
        return calls

    with ThreadPoolExecutor(THREADS) as pool:
        return [call for calls in pool.map(thread, range(THREADS)) for call in calls]


def step(task: Task) -> Advance:
    held = task.status is Status.ACQUIRING_RESOURCES
    return Advance(task, retried(task) if held else acquired(task))


@pytest.fixture(params=["memory", "kernel", pytest.param("local", marks=pytest.mark.dynamodb_local)])
def store(request: pytest.FixtureRequest) -> Iterator[TaskStore]:
    if request.param == "memory":
        yield MemoryTaskStore()
    elif request.param == "kernel":
        yield PersistenceTaskStore(catalog_of_tasks(task_process(MemoryBackend())))
    else:
        with local_task_store(request.getfixturevalue("dynamodb_local").url) as in_dynamodb:
            yield in_dynamodb


@pytest.mark.parametrize("seed", range(examples(3)))
def test_histories_are_linearizable(store: TaskStore, seed: int) -> None:
    history = play(store, seed)
    assert len(history) == THREADS * CALLS
    assert sum(call.wrote for call in history) >= CALLS
    assert violations(history) == []


class StaleReads(MemoryTaskStore):
    """Answers every other read from a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[str, Task] = {}
        self.reads = 0

    def get(self, task_id: str) -> Task | None:
        self.reads += 1
        if self.reads % 2 and task_id in self.cache:
            return self.cache[task_id]
        found = super().get(task_id)
        if found is not None:
            self.cache.setdefault(task_id, found)
        return found


class LosesWrites(MemoryTaskStore):
    """Acknowledges every revision."""

    def _move(self, before: Task, after: Task, *, row: bool) -> Task:
        self._heads[before.task_id] = after
        return after


@pytest.mark.parametrize("broken", [StaleReads, LosesWrites])
def test_a_store_that_is_not_linearizable_is_detected(broken: type[MemoryTaskStore]) -> None:
    assert any(violations(play(broken(), seed)) for seed in range(3))
