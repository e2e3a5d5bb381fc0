"""What every store promises of admission: places that follow the head, and a register that one writer moves."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from delegation.tasks.life import transitions as t
from delegation.tasks.life.lanes import Lane, Queued, Running, Traits
from delegation.tasks.life.model import Task
from delegation.tasks.stores.admission import EVERY_LANE, Recent, Register, Span
from delegation.tasks.stores.base import Advance, Create, Revise
from delegation.tasks.testing.builders import (
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    acquired,
    failed,
    retried,
    started,
    submitted,
    succeeded,
    touched,
)
from delegation.tasks.testing.contract.support import FAR, THREADS

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
        page = store.queued_in(NOW + MINUTE, each=2, lanes=2, span=Span(after, EVERY_LANE.until))
        found += page.found
        after, pages = page.after, pages + 1
    assert Counter(found) == Counter(store.queued(NOW + MINUTE, each=2))
    assert (len(found), [one.lane.priority for one in found] == sorted((2, 1, 0) * 6, reverse=True)) == (18, True)
    urgent = store.queued_in(FAR, each=9, lanes=99, span=Span(until="8/"))
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
