"""Random operations on a store and on two dictionaries: both return the same in any order."""

import contextlib
import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from delegation.tasks.errors import RevisionConflict, StaleTask, TaskError, TaskExists
from delegation.tasks.life import transitions as t
from delegation.tasks.life.model import Status, Task
from delegation.tasks.stores.base import Advance, Create, Expect, Revise, TaskChange, TaskStore
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.tasks.stores.persistence import PersistenceTaskStore, catalog_of_tasks, task_process
from polaris_persistence.backends.memory import MemoryBackend
from tests.contract.task_tables import moto, task_store
from tests.effort import examples
from tests.kit.tasks.builders import (
    HOUR,
    MINUTE,
    NOW,
    acquired,
    failed,
    resubmitted,
    retried,
    started,
    submitted,
    succeeded,
    touched,
)

FAR = NOW + 10_000 * HOUR
IDS = ("task-a", "task-b", "task-c")
STEPS: dict[Status, tuple[Callable[[Task], Task], ...]] = {
    Status.SUBMITTED: (acquired, failed),
    Status.ACQUIRING_RESOURCES: (started, retried, failed),
    Status.RUNNING: (succeeded, retried, failed),
    Status.RETRY_SCHEDULED: (acquired, failed),
    Status.SUCCESS: (resubmitted,),
    Status.FAILURE: (resubmitted,),
}


class Model:
    """The expected content of the store: the heads, and the rows in the order in which they were added."""

    def __init__(self) -> None:
        self.heads: dict[str, Task] = {}
        self.rows: dict[str, list[Task]] = {}

    def expected(self, change: TaskChange) -> Task | type[TaskError]:
        """Return what a change that was not applied before must lead to, without applying it."""
        task_id = change.after.task_id
        head = self.heads.get(task_id)
        match change:
            case Create(task):
                return TaskExists if head else task
            case Expect(task):
                return head if head and head.version == task.version else StaleTask
            case Advance(before, after) | Revise(before, after):
                if head is None or head.version != before.version:
                    return StaleTask
                return after if head.revision == before.revision else RevisionConflict

    def apply(self, change: TaskChange) -> None:
        if isinstance(change, Expect):
            return
        after = change.after
        self.heads[after.task_id] = after
        steps = change.rows if isinstance(change, Advance) else (after,)
        if not isinstance(change, Revise):
            self.rows.setdefault(after.task_id, []).extend(step.row for step in steps)


class StoreMachine(RuleBasedStateMachine):
    """Writers that remember every head they ever read, and decide on any of them."""

    store_of: Callable[[], AbstractContextManager[TaskStore]]

    @initialize()
    def open_store(self) -> None:
        self.opened = contextlib.ExitStack()
        self.store: TaskStore = self.opened.enter_context(type(self).store_of())
        self.model = Model()
        self.seen: list[Task] = []
        self.applied: list[TaskChange] = []

    def teardown(self) -> None:
        self.opened.close()

    def attempt(self, change: TaskChange) -> None:
        expected = self.model.expected(change)
        if isinstance(expected, Task):
            assert self.store.apply(change) == expected
            self.model.apply(change)
            if not isinstance(change, Expect):
                self.applied.append(change)
                self.seen.append(expected)
            return
        task_id = change.after.task_id
        with pytest.raises(expected) as refusal:
            self.store.apply(change)
        assert refusal.type is expected
        assert refusal.value.stored == self.model.heads.get(task_id)  # type: ignore[attr-defined]

    @rule(task_id=st.sampled_from(IDS), minutes=st.integers(0, 3))
    def create(self, task_id: str, minutes: int) -> None:
        self.attempt(Create(submitted(task_id, due_at=NOW + minutes * MINUTE)))

    @precondition(lambda self: self.seen)
    @rule(data=st.data())
    def advance(self, data: st.DataObject) -> None:
        before = data.draw(st.sampled_from(self.seen[-6:]))
        step = data.draw(st.sampled_from(STEPS[before.status]))
        self.attempt(Advance(before, step(before)))

    @precondition(lambda self: self.seen)
    @rule(data=st.data())
    def advance_by_two(self, data: st.DataObject) -> None:
        before = data.draw(st.sampled_from(self.seen[-6:]))
        passed = data.draw(st.sampled_from(STEPS[before.status]))(before)
        after = data.draw(st.sampled_from(STEPS[passed.status]))(passed)
        self.attempt(Advance(before, after.evolve(revision=passed.revision, nonce=passed.nonce), via=(passed,)))

    @precondition(lambda self: self.seen)
    @rule(data=st.data(), seconds=st.integers(1, 100))
    def revise(self, data: st.DataObject, seconds: int) -> None:
        before = data.draw(st.sampled_from(self.seen[-6:]))
        due_at = None if before.is_terminal else NOW + timedelta(seconds=seconds)
        self.attempt(Revise(before, touched(before, files_deleted=seconds, due_at=due_at)))

    @precondition(lambda self: self.seen)
    @rule(data=st.data())
    def expect(self, data: st.DataObject) -> None:
        self.attempt(Expect(data.draw(st.sampled_from(self.seen[-6:]))))

    @rule(task_id=st.sampled_from(IDS))
    def write_to_a_missing_task(self, task_id: str) -> None:
        assume(task_id not in self.model.heads)
        task = submitted(task_id)
        self.attempt(Advance(task, acquired(task)))
        self.attempt(Revise(task, touched(task, dispatches=task.dispatches.evolve(count=1))))
        self.attempt(Expect(task))

    @precondition(lambda self: self.applied)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """The same change again, as after a lost answer: it returns and changes nothing."""
        change = data.draw(st.sampled_from(self.applied[-4:]))
        after = change.after
        head = self.model.heads[after.task_id]
        if isinstance(change, Revise) and head.nonce != after.nonce:
            expected = StaleTask if head.version != change.before.version else RevisionConflict
            with pytest.raises(expected):
                self.store.apply(change)
        else:
            assert self.store.apply(change) in (after, head)

    @invariant()
    def heads_and_rows_are_those_of_the_model(self) -> None:
        for task_id in IDS:
            rows = self.model.rows.get(task_id, [])
            assert self.store.get(task_id) == self.model.heads.get(task_id)
            assert list(self.store.history(task_id)) == rows
            assert [row.version for row in rows] == list(range(1, len(rows) + 1))
            assert self.store.get_version(task_id, len(rows)) == (rows[-1] if rows else None)
            assert self.store.get_version(task_id, len(rows) + 1) is None
            assert all(after.status in t.ARROWS[before.status] for before, after in itertools.pairwise(rows))

    @invariant()
    def every_head_is_listed_once(self) -> None:
        shown, cursor = [], None
        while True:
            page = self.store.heads(cursor=cursor, limit=2)
            shown += page.tasks
            cursor = page.cursor
            if cursor is None:
                break
        assert sorted(shown, key=lambda task: task.task_id) == [self.model.heads[i] for i in sorted(self.model.heads)]

    @invariant()
    def the_index_agrees_with_the_heads(self) -> None:
        waiting = sorted((task.due_at, task.task_id) for task in self.model.heads.values() if task.due_at)
        assert [(entry.due_at, entry.task_id) for entry in self.store.due(FAR)] == waiting


def machine(name: str, store_of: Callable[[], AbstractContextManager[Any]]) -> type[StoreMachine]:
    return type(name, (StoreMachine,), {"store_of": staticmethod(store_of)})


def check(kind: type[StoreMachine], most: int, steps: int, **more: Any) -> None:
    run_state_machine_as_test(
        kind,
        settings=settings(
            max_examples=most, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck), **more
        ),
    )


def test_memory() -> None:
    check(machine("InMemory", lambda: nullcontext(MemoryTaskStore())), examples(100), 40)


def test_persistence() -> None:
    def store() -> PersistenceTaskStore:
        return PersistenceTaskStore(catalog_of_tasks(task_process(MemoryBackend())))

    check(machine("OnPersistence", lambda: nullcontext(store())), examples(20), 30)


def test_moto() -> None:
    with moto() as client:
        check(machine("InMoto", lambda: task_store(client)), examples(5), 12)


class ForgetfulStore(MemoryTaskStore):
    """Forgets a revision now and then."""

    def _move(self, before: Task, after: Task, *, row: bool) -> Task:
        head = self._heads.get(before.task_id)
        if head is not None and head.version == before.version and head.revision == before.revision + 1:
            before = head
        return super()._move(before, after, row=row)


def test_the_machine_finds_a_broken_store() -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(
            machine("Forgetful", lambda: nullcontext(ForgetfulStore())),
            100,
            40,
            phases=[Phase.generate],
            derandomize=True,
        )
