"""What every store promises about admission, children and concurrent threads."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from typing import Any

from delegation.tasks.contract.support import (
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
    refused,
    retried,
    row,
    rows,
    started,
    stored,
    submitted,
    succeeded,
    touched,
)
from delegation.tasks.errors import RevisionConflict, StaleTask
from delegation.tasks.life import transitions as t
from delegation.tasks.life.lanes import Lane, Queued, Running, Traits
from delegation.tasks.life.model import AdoptedChildren, Task
from delegation.tasks.stores.admission import EVERY_LANE, LaneRange, Recent, Register, queued
from delegation.tasks.stores.base import MOST_AT_ONCE, Adopt, Advance, Child, Create, Revise, TaskChange, TaskStore

LANE = Lane.of("EXAMPLE", Traits("sales", "lake"))
OTHER = Lane.of("EXAMPLE", Traits("sa/les", "läke 2"))
URGENT = Lane.of("EXAMPLE", Traits("sales", "lake", priority=9))


def _queued(store: Any, now: datetime, *, each: int) -> tuple[Queued, ...]:
    return tuple(queued(store, now, each=each))


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
    assert set(_queued(store, NOW + MINUTE, each=3)) == {
        *(Queued(task.task_id, LANE, NOW + n * SECOND) for n, task in enumerate(ours[:3])),
        *(Queued(task.task_id, OTHER, NOW + n * SECOND) for n, task in enumerate(theirs)),
    }
    everything = {task.task_id for task in (*ours, *theirs, urgent)}
    assert {waiting.task_id for waiting in _queued(store, FAR, each=100)} == everything
    assert len(_queued(store, FAR, each=1)) == 3
    assert len(_queued(store, NOW, each=100)) == 2


def lanes_are_read_from_one_to_the_next(store: Any) -> None:
    lanes = [Lane.of("EXAMPLE", Traits(f"t{n}", "lake", priority=n % 3)) for n in range(9)]
    for lane in lanes:
        for n in range(3):
            store.apply(Create(waits(lane, n * SECOND)))
    store.apply(Create(waits(OTHER, HOUR)))
    waiting: list[Queued] = []
    after: str | None = EVERY_LANE.after
    pages = 0
    while after is not None:
        page = store.queued_in(NOW + MINUTE, each=2, lanes=2, span=LaneRange(after, EVERY_LANE.until))
        waiting += page.queued
        after, pages = page.after, pages + 1
    assert Counter(waiting) == Counter(_queued(store, NOW + MINUTE, each=2))
    assert len(waiting) == 18
    assert [task.lane.priority for task in waiting] == sorted((2, 1, 0) * 6, reverse=True)
    urgent = store.queued_in(FAR, each=9, lanes=99, span=LaneRange(until="8/"))
    assert {task.lane.priority for task in urgent.queued} == {2, 5}
    assert urgent.after is None


def a_task_is_queued_then_running_then_neither(store: Any) -> None:
    head = store.apply(Create(waits()))
    assert store.running() == ()
    seen = []
    for step in (admitted, acquired, started, retried):
        after = step(head)
        head = store.apply(Revise(head, after) if step is admitted else Advance(head, after))
        seen.append((_queued(store, FAR, each=9), store.running()))
    task_id = head.task_id
    starting, held = (((), (Running(task_id, LANE, is_held=is_held),)) for is_held in (False, True))
    assert seen == [starting, held, held, ((Queued(task_id, LANE, NOW + MINUTE),), ())]
    head = store.apply(Revise(head, admitted(head)))
    head = store.apply(Advance(head, acquired(head)))
    head = store.apply(Advance(head, failed(head)))
    assert (_queued(store, FAR, each=9), store.running()) == ((), ())


def an_ended_attempt_frees_its_place_in_one_write(store: Any) -> None:
    head = store.apply(Create(acquired(waits()).evolve(version=1)))
    assert [running.is_held for running in store.running()] == [True]
    running = started(head)
    done = succeeded(running).evolve(revision=running.revision, nonce=running.nonce)
    store.apply(Advance(head, done, (running,)))
    assert store.running() == ()
    assert store.remove(done) is True


def a_task_without_a_lane_is_not_counted(store: Any) -> None:
    head = store.apply(Create(submitted()))
    store.apply(Advance(head, acquired(head)))
    assert (_queued(store, FAR, each=9), store.running()) == ((), ())


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
    """Threads race for every version of one task. One wins each, no version is skipped, all others are refused."""
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


def a_child(attempt: int = 1, task_id: str | None = None, payload: str = "{}") -> Child:
    return Child(submitted(task_id).task_id, attempt, "CHILD", payload)


def a_parent(store: TaskStore) -> Task:
    task = store.apply(Create(submitted()))
    return store.apply(Advance(task, acquired(task)))


def adopt_records_child_and_parent_without_a_change_of_the_head(store: TaskStore) -> None:
    parent, child = a_parent(store), a_child(payload='{"é": 1}')
    assert (store.children(parent.task_id), store.parents(child.task_id)) in [((), {}), ([], {})]
    assert store.apply(Adopt(parent, parent, child)) == parent
    assert list(store.children(parent.task_id)) == [child]
    assert store.parents(child.task_id) == {parent.task_id: 1}
    assert store.get(parent.task_id) == parent
    assert rows(store, parent.task_id)[-1] == row(parent)


def adopt_rewrites_the_head_like_revise(store: TaskStore) -> None:
    parent, child = a_parent(store), a_child()
    after = touched(parent, family=AdoptedChildren(child_ordinal=1))
    assert store.apply(Adopt(parent, after, child)) == after
    assert store.get(parent.task_id) == after
    assert len(rows(store, parent.task_id)) == 2
    assert list(store.children(parent.task_id)) == [child]
    assert store.apply(Adopt(parent, after, child)) == after  # its answer was lost


def adopt_by_a_later_attempt_replaces_the_attempt(store: TaskStore) -> None:
    parent, child = a_parent(store), a_child()
    store.apply(Adopt(parent, parent, child))
    again = a_child(attempt=4, task_id=child.task_id)
    store.apply(Adopt(parent, parent, again))
    assert list(store.children(parent.task_id)) == [again]
    assert store.parents(child.task_id) == {parent.task_id: 4}


def adopt_of_a_former_version_is_refused_and_records_nothing(store: TaskStore) -> None:
    parent, child = a_parent(store), a_child()
    head = store.apply(Advance(parent, started(parent)))
    assert refused(store, Adopt(parent, parent, child), StaleTask) == head
    assert (
        refused(store, Adopt(parent, touched(parent, family=AdoptedChildren(child_ordinal=1)), child), StaleTask)
        == head
    )
    assert not store.children(parent.task_id)
    assert store.parents(child.task_id) == {}


def adopt_checks_the_revision_where_it_rewrites_the_head(store: TaskStore) -> None:
    parent, child = a_parent(store), a_child()
    head = store.apply(Revise(parent, touched(parent, dispatches=parent.dispatches.evolve(count=1))))
    assert (
        refused(store, Adopt(parent, touched(parent, family=AdoptedChildren(child_ordinal=1)), child), RevisionConflict)
        == head
    )
    assert not store.children(parent.task_id)
    assert store.apply(Adopt(parent, parent, child)).version == head.version
    assert list(store.children(parent.task_id)) == [child]
    assert store.get(parent.task_id) == head


def children_are_listed_by_id_and_seen_by_no_other_read(store: TaskStore) -> None:
    parent, other = a_parent(store), a_parent(store)
    children = sorted((a_child() for _ in range(5)), key=lambda child: child.task_id)
    for child in reversed(children):
        store.apply(Adopt(parent, parent, child))
    store.apply(Adopt(other, other, children[0]))
    assert list(store.children(parent.task_id)) == children
    assert list(store.children(other.task_id)) == children[:1]
    assert store.parents(children[0].task_id) == {parent.task_id: 1, other.task_id: 1}
    assert store.parents(children[1].task_id) == {parent.task_id: 1}
    assert {head.task_id for head in store.heads().tasks} == {parent.task_id, other.task_id}
    assert store.heads().unreadable == ()
    assert {entry.task_id for entry in store.due(FAR)} == {parent.task_id, other.task_id}
    assert len(rows(store, parent.task_id)) == 2


def disown_deletes_what_no_later_attempt_adopted(store: TaskStore) -> None:
    """More children than one DynamoDB transaction deletes."""
    parent, other = a_parent(store), a_parent(store)
    children = [a_child(attempt=1 + n % 3) for n in range(70)]
    for child in children:
        store.apply(Adopt(parent, parent, child))
    store.apply(Adopt(other, other, children[0]))
    assert store.disown(parent.task_id, 2) == 47
    left = sorted((child for child in children if child.attempt == 3), key=lambda child: child.task_id)
    assert list(store.children(parent.task_id)) == left
    assert store.parents(children[0].task_id) == {other.task_id: 1}
    assert store.parents(left[0].task_id) == {parent.task_id: 3}
    assert store.disown(parent.task_id, 2) == 0
    assert list(store.children(other.task_id)) == [children[0]]


def remove_deletes_the_records_of_children(store: TaskStore) -> None:
    parent, other, child = a_parent(store), a_parent(store), a_child()
    marked = store.apply(Adopt(parent, touched(parent, family=AdoptedChildren(children=(parent.task_id,))), child))
    store.apply(Adopt(other, other, child))
    done = store.apply(Advance(marked, failed(marked)))
    assert store.remove(done) is True
    assert not store.children(parent.task_id)
    assert store.parents(child.task_id) == {other.task_id: 1}


def a_child_outlives_its_records(store: TaskStore) -> None:
    """Removing a child keeps its record under the parent; a new child with its id finds that record."""
    parent, first = a_parent(store), submitted()
    store.apply(Adopt(parent, parent, a_child(task_id=first.task_id)))
    child = stored(store, [first, failed(acquired(first)).evolve(version=2, revision=2)])
    assert store.remove(child) is True
    assert [child.task_id for child in store.children(parent.task_id)] == [first.task_id]
    assert store.parents(first.task_id) == {parent.task_id: 1}


def adopt_records_several_children_or_none(store: TaskStore) -> None:
    parent = a_parent(store)
    children = sorted((a_child() for _ in range(MOST_AT_ONCE)), key=lambda child: child.task_id)
    after = touched(parent, family=AdoptedChildren(children=(parent.task_id,)))
    assert store.apply(Adopt(parent, after, children[0], tuple(children[1:]))) == after
    assert list(store.children(parent.task_id)) == children
    assert {tuple(store.parents(child.task_id)) for child in children} == {(parent.task_id,)}
    late = tuple(a_child() for _ in range(2))
    assert (
        refused(
            store,
            Adopt(parent, touched(parent, family=AdoptedChildren(child_ordinal=9)), late[0], late[1:]),
            RevisionConflict,
        )
        == after
    )
    assert list(store.children(parent.task_id)) == children
    assert not store.parents(late[1].task_id)


def create_all_stores_all_or_none(store: TaskStore) -> None:
    tasks = [submitted() for _ in range(MOST_AT_ONCE)]
    assert store.create_all(tasks) is True
    for task in tasks:
        assert (store.get(task.task_id), rows(store, task.task_id)) == (task, [row(task)])
        assert store.apply(Create(task)) == task  # its answer was lost
    assert {entry.task_id for entry in store.due(FAR)} == {task.task_id for task in tasks}
    new = submitted()
    assert store.create_all([new, submitted(tasks[0].task_id, nonce="another")]) is False
    assert store.get(new.task_id) is None
    assert store.get(tasks[0].task_id) == tasks[0]


def get_many_returns_the_heads_that_exist(store: TaskStore) -> None:
    tasks = [submitted() for _ in range(130)]
    for start in range(0, len(tasks), MOST_AT_ONCE):
        assert store.create_all(tasks[start : start + MOST_AT_ONCE])
    later = store.apply(Advance(tasks[0], acquired(tasks[0])))
    heads = {task.task_id: task for task in tasks} | {later.task_id: later}
    assert store.get_many([*heads, "absent", tasks[0].task_id]) == heads
    assert store.get_many([]) == {}


CHILDREN: tuple[Check, ...] = (
    adopt_records_several_children_or_none,
    create_all_stores_all_or_none,
    get_many_returns_the_heads_that_exist,
    adopt_records_child_and_parent_without_a_change_of_the_head,
    adopt_rewrites_the_head_like_revise,
    adopt_by_a_later_attempt_replaces_the_attempt,
    adopt_of_a_former_version_is_refused_and_records_nothing,
    adopt_checks_the_revision_where_it_rewrites_the_head,
    children_are_listed_by_id_and_seen_by_no_other_read,
    disown_deletes_what_no_later_attempt_adopted,
    remove_deletes_the_records_of_children,
    a_child_outlives_its_records,
)
