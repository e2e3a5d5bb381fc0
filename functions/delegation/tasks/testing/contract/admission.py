"""What every store promises of admission, and to several threads."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from delegation.tasks.errors import RevisionConflict
from delegation.tasks.life import transitions as t
from delegation.tasks.life.lanes import Lane, Queued, Running, Traits
from delegation.tasks.life.model import Task
from delegation.tasks.stores.admission import EVERY_LANE, LaneRange, Recent, Register
from delegation.tasks.stores.base import Advance, Create, Revise, TaskChange, TaskStore
from delegation.tasks.testing.contract.support import (
    FAR,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    THREADS,
    Check,
    acquired,
    failed,
    race,
    retried,
    row,
    rows,
    started,
    submitted,
    succeeded,
    touched,
)

LANE = Lane.of("EXAMPLE", Traits("sales", "lake"))
OTHER = Lane.of("EXAMPLE", Traits("sa/les", "läke 2"))
URGENT = Lane.of("EXAMPLE", Traits("sales", "lake", priority=9))


def waits(lane: Lane = LANE, after: Any = 0 * SECOND) -> Task:
    first = submitted(next_scheduled_run_ts=NOW + after)
    return t.queued(first, lane.text, NOW)


def admitted(task: Task) -> Task:
    return touched(
        task,
        admission=task.admission.evolve(admitted_ts=NOW),
        dispatches=task.dispatches.evolve(count=1),
        due_at=NOW + MINUTE,
    )


def queued_has_the_longest_waiting_of_each_lane(store: Any) -> None:
    ours = [store.apply(Create(waits(LANE, n * SECOND))) for n in range(7)]
    theirs = [store.apply(Create(waits(OTHER, n * SECOND))) for n in range(2)]
    urgent = store.apply(Create(waits(URGENT, HOUR)))
    store.apply(Create(submitted()))
    assert set(store.queued(NOW + MINUTE, each=3)) == {
        *(Queued(task.task_id, LANE, NOW + n * SECOND) for n, task in enumerate(ours[:3])),
        *(Queued(task.task_id, OTHER, NOW + n * SECOND) for n, task in enumerate(theirs)),
    }
    everything = {task.task_id for task in (*ours, *theirs, urgent)}
    assert {one.task_id for one in store.queued(FAR, each=100)} == everything
    assert len(store.queued(FAR, each=1)) == 3
    assert len(store.queued(NOW, each=100)) == 2


def lanes_are_read_from_one_to_the_next(store: Any) -> None:
    lanes = [Lane.of("EXAMPLE", Traits(f"t{n}", "lake", priority=n % 3)) for n in range(9)]
    for lane in lanes:
        for n in range(3):
            store.apply(Create(waits(lane, n * SECOND)))
    store.apply(Create(waits(OTHER, HOUR)))
    found: list[Queued] = []
    after: str | None = EVERY_LANE.after
    pages = 0
    while after is not None:
        page = store.queued_in(NOW + MINUTE, each=2, lanes=2, span=LaneRange(after, EVERY_LANE.until))
        found += page.found
        after, pages = page.after, pages + 1
    assert Counter(found) == Counter(store.queued(NOW + MINUTE, each=2))
    assert (len(found), [one.lane.priority for one in found] == sorted((2, 1, 0) * 6, reverse=True)) == (18, True)
    urgent = store.queued_in(FAR, each=9, lanes=99, span=LaneRange(until="8/"))
    assert {one.lane.priority for one in urgent.found} == {2, 5}
    assert urgent.after is None


def a_task_is_queued_then_running_then_neither(store: Any) -> None:
    head = store.apply(Create(waits()))
    assert store.running() == ()
    seen = []
    for step in (admitted, acquired, started, retried):
        after = step(head)
        head = store.apply(Revise(head, after) if step is admitted else Advance(head, after))
        seen.append((store.queued(FAR, each=9), store.running()))
    task_id = head.task_id
    starting, held = (((), (Running(task_id, LANE, is_held=is_held),)) for is_held in (False, True))
    assert seen == [starting, held, held, ((Queued(task_id, LANE, NOW + MINUTE),), ())]
    head = store.apply(Revise(head, admitted(head)))
    head = store.apply(Advance(head, acquired(head)))
    head = store.apply(Advance(head, failed(head)))
    assert (store.queued(FAR, each=9), store.running()) == ((), ())


def an_ended_attempt_frees_its_place_in_one_write(store: Any) -> None:
    head = store.apply(Create(acquired(waits()).evolve(version=1)))
    assert [one.is_held for one in store.running()] == [True]
    running = started(head)
    done = succeeded(running).evolve(revision=running.revision, nonce=running.nonce)
    store.apply(Advance(head, done, (running,)))
    assert store.running() == ()
    assert store.remove(done) is True


def a_task_without_a_lane_is_not_counted(store: Any) -> None:
    head = store.apply(Create(submitted()))
    store.apply(Advance(head, acquired(head)))
    assert (store.queued(FAR, each=9), store.running()) == ((), ())


def the_register_moves_from_its_revision_only(store: Any) -> None:
    assert store.register() == Register()
    first = Register(1, (Recent("task-1", LANE, NOW), Recent("task-2", OTHER, NOW + SECOND)))
    assert store.write_register(first) is True
    assert store.register() == first
    assert store.write_register(replace(first, recent=())) is False
    assert store.write_register(Register(3)) is False
    assert store.register() == first
    assert store.write_register(Register(2)) is True
    assert store.register() == Register(2)
    assert store.heads().entries == ()


def one_of_many_writers_moves_the_register(store: Any) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        for revision in (1, 2, 3):
            wrote = list(pool.map(lambda _n, r=revision: store.write_register(Register(r)), range(THREADS)))
            assert sum(wrote) == 1


CHECKS = (
    queued_has_the_longest_waiting_of_each_lane,
    lanes_are_read_from_one_to_the_next,
    a_task_is_queued_then_running_then_neither,
    an_ended_attempt_frees_its_place_in_one_write,
    a_task_without_a_lane_is_not_counted,
    the_register_moves_from_its_revision_only,
)
THREADED = (one_of_many_writers_moves_the_register,)


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


CONCURRENT: tuple[Check, ...] = (
    one_winner_per_version,
    one_creator_per_task,
    no_acknowledged_revision_is_lost,
    heartbeats_and_a_finish_do_not_overwrite_each_other,
)
