"""What every TaskStore promises to several threads."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from delegation.tasks.errors import RevisionConflict
from delegation.tasks.life.model import Task
from delegation.tasks.stores.base import Advance, Create, Revise, TaskChange, TaskStore
from delegation.tasks.testing.builders import (
    acquired,
    retried,
    started,
    submitted,
    succeeded,
    touched,
)
from delegation.tasks.testing.contract.support import THREADS, Check, race, row, rows


def one_winner_per_version(store: TaskStore) -> None:
    """Threads race for every version of one task; one wins each, no version is skipped, every other is refused."""
    head = store.apply(Create(submitted()))
    steps: list[Callable[[Task, str], Task]] = [
        acquired,
        lambda task, _name: retried(task),
        acquired,
        lambda task, _name: started(task),
        lambda task, _name: succeeded(task),
    ]
    winners = [head]
    with ThreadPoolExecutor(THREADS) as pool:
        for step in steps:
            before = winners[-1]
            candidates = [step(before, f"worker-{n}") for n in range(THREADS)]
            won = [task for task in race(pool, store, [Advance(before, after) for after in candidates]) if task]
            assert len(won) == 1
            winners += won
    assert rows(store, head.task_id) == [row(task) for task in winners]
    assert store.get(head.task_id) == winners[-1]


def one_creator_per_task(store: TaskStore) -> None:
    task_id = submitted().task_id
    with ThreadPoolExecutor(THREADS) as pool:
        won = [task for task in race(pool, store, [Create(submitted(task_id)) for _ in range(THREADS)]) if task]
    assert len(won) == 1
    assert store.get(task_id) == won[0]


def no_acknowledged_revision_is_lost(store: TaskStore) -> None:
    """Threads increment one head and read it again after each refusal: every acknowledged increment is in the sum."""
    task_id = store.apply(Create(submitted())).task_id

    def count(_thread: int) -> int:
        done = 0
        while done < 5:
            head = store.get(task_id)
            assert head is not None
            try:
                store.apply(
                    Revise(head, touched(head, dispatches=head.dispatches.evolve(count=head.dispatches.count + 1)))
                )
            except RevisionConflict:
                continue
            done += 1
        return done

    with ThreadPoolExecutor(THREADS) as pool:
        total = sum(pool.map(count, range(THREADS)))
    head = store.get(task_id)
    assert head is not None
    assert (head.dispatches.count, head.revision, head.version) == (total, 1 + total, 1)


def heartbeats_and_a_finish_do_not_overwrite_each_other(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    held = store.apply(Advance(task, acquired(task)))
    running = store.apply(Advance(held, started(held)))
    changes: list[TaskChange] = [Revise(running, touched(running, files_deleted=n)) for n in range(1, THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        won = [done for done in race(pool, store, [Advance(running, succeeded(running)), *changes]) if done]
    assert len(won) == 1
    assert store.get(task.task_id) == won[0]
    assert len(rows(store, task.task_id)) == won[0].version


CHECKS: tuple[Check, ...] = (
    one_winner_per_version,
    one_creator_per_task,
    no_acknowledged_revision_is_lost,
    heartbeats_and_a_finish_do_not_overwrite_each_other,
)
