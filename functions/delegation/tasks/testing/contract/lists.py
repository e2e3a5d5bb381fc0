"""What every TaskStore promises of lists: the newest received first, in pages, all tasks or those with a label."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from delegation.tasks.life.model import Labels, Task
from delegation.tasks.stores.base import Advance, Create, Received, Revise, TaskStore
from delegation.tasks.testing.builders import (
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    acquired,
    failed,
    resubmitted,
    submitted,
    touched,
)
from delegation.tasks.testing.contract.support import Check, a_life, written_by_a_newer_release

DAY = timedelta(days=1)
ALL = Received(until=NOW + HOUR, since=NOW - 4 * DAY)
ORDERS = Labels("lake.sales.orders", "c-1")
LONG = Labels("\u00e4" * 5000, "\u00f6" * 5000)


def received(age: timedelta, labels: Labels = Labels(), **fields: Any) -> Task:  # noqa: B008 - it is frozen
    at = NOW - age
    return submitted(received_timestamp=at, created_ts=at, last_status_change_ts=at, **labels.keys(), **fields)


def pages(store: TaskStore, which: Received = ALL, *, limit: int = 100) -> Iterator[list[str]]:
    before = None
    for _ in range(100):
        page = store.received(which, before=before, limit=limit)
        assert len(page.entries) <= limit
        yield [entry.task_id for _, entry in page.entries]
        before = page.cursor
        if before is None:
            return
    raise AssertionError("the list has no end")


def ids(store: TaskStore, which: Received = ALL, *, limit: int = 100) -> list[str]:
    return [task_id for page in pages(store, which, limit=limit) for task_id in page]


def the_newest_received_is_first_however_large_the_pages(store: TaskStore) -> None:
    """Over the ends of days, over empty days, and over more of them than one call reads."""
    ages = (2 * SECOND, 13 * HOUR, 300 * DAY, 0 * SECOND, 2 * DAY, 90 * DAY, 1 * SECOND, 90 * DAY + SECOND)
    stored = {age: store.apply(Create(received(age))).task_id for age in ages}
    newest_first = [stored[age] for age in sorted(stored)]
    for limit in (1, 3, 5):
        assert ids(store, Received(NOW, since=NOW - 5 * DAY), limit=limit) == newest_first[:5]
    assert ids(store, Received(NOW), limit=2) == newest_first
    assert ids(store, Received(NOW - HOUR, since=NOW - 5 * DAY)) == newest_first[3:5]


def tasks_of_one_moment_have_a_fixed_order(store: TaskStore) -> None:
    tasks = {store.apply(Create(received(0 * SECOND))).task_id for _ in range(5)}
    listed = ids(store)
    assert sorted(listed) == sorted(tasks)
    assert ids(store, limit=1) == ids(store, limit=2) == listed


def a_list_begins_at_its_time(store: TaskStore) -> None:
    new, old = (store.apply(Create(received(age, ORDERS))).task_id for age in (0 * SECOND, 30 * DAY))
    for which in (ALL, Received(NOW, target=ORDERS.target), Received(NOW, correlation_id=ORDERS.correlation_id)):
        assert ids(store, replace(which, since=NOW)) == [new]
        assert ids(store, replace(which, since=NOW + SECOND / 1000)) == []
        assert ids(store, replace(which, since=NOW - 30 * DAY)) == [new, old]
        assert ids(store, replace(which, since=NOW + DAY)) == []


def a_label_finds_its_tasks_in_the_same_order(store: TaskStore) -> None:
    ours = [store.apply(Create(received(n * DAY, ORDERS))).task_id for n in (3, 1, 2)]
    other = store.apply(Create(received(0 * SECOND, replace(ORDERS, correlation_id="c-2")))).task_id
    store.apply(Create(received(0 * SECOND)))
    long = store.apply(Create(received(0 * SECOND, LONG))).task_id
    newest_first = [ours[1], ours[2], ours[0]]
    table = replace(ALL, target=ORDERS.target)
    for limit in (1, 2, 3, 100):
        assert ids(store, table, limit=limit) == [other, *newest_first]
        assert ids(store, replace(ALL, correlation_id="c-1"), limit=limit) == newest_first
    assert ids(store, replace(table, correlation_id="c-2")) == [other]
    assert ids(store, replace(table, correlation_id=LONG.correlation_id)) == []
    assert ids(store, replace(ALL, target=LONG.target, correlation_id=LONG.correlation_id)) == [long]
    assert ids(store, replace(ALL, target="lake.sales")) == []


def a_list_has_the_present_heads_once(store: TaskStore) -> None:
    life = a_life()
    head = store.apply(Create(life[0]))
    for task in [*life[1:], None]:
        ((_, listed),) = store.received(ALL).entries
        assert listed == head
        if task is not None:
            head = store.apply(Advance(head, task))
    head = store.apply(Revise(head, touched(head, dispatches=head.dispatches.evolve(count=9))))
    ((_, listed),) = store.received(replace(ALL, until=NOW + DAY)).entries
    assert listed == head


def a_task_submitted_again_moves_to_the_front(store: TaskStore) -> None:
    first = store.apply(Create(received(DAY, ORDERS)))
    newer = store.apply(Create(received(HOUR)))
    assert ids(store) == [newer.task_id, first.task_id]
    page = store.received(ALL, limit=1)
    ended = store.apply(Advance(first, failed(first)))
    again = resubmitted(ended, NOW).evolve(**replace(ORDERS, correlation_id="c-2").keys())
    store.apply(Advance(ended, again))
    assert store.received(ALL, before=page.entries[0][0]).entries == ()
    assert ids(store) == [first.task_id, newer.task_id]
    assert ids(store, replace(ALL, correlation_id="c-1")) == []
    assert ids(store, replace(ALL, correlation_id="c-2")) == [first.task_id]


def a_page_follows_a_position_whose_task_is_gone(store: TaskStore) -> None:
    tasks = [store.apply(Create(received(n * MINUTE, ORDERS))) for n in range(4)]
    for which in (ALL, replace(ALL, target=ORDERS.target)):
        places = [place for place, _ in store.received(which).entries]
        assert [entry.task_id for _, entry in store.received(which, before=places[1], limit=1).entries] == [
            tasks[2].task_id
        ]
    ended = store.apply(Advance(tasks[1], failed(tasks[1])))
    assert store.remove(ended) is True
    for which in (ALL, replace(ALL, target=ORDERS.target)):
        assert ids(store, which) == [tasks[n].task_id for n in (0, 2, 3)]
        assert [entry.task_id for _, entry in store.received(which, before=places[1]).entries] == [
            tasks[n].task_id for n in (2, 3)
        ]


def a_list_includes_what_it_cannot_read(store: TaskStore) -> None:
    ours, theirs = (store.apply(Create(received(n * MINUTE, ORDERS))) for n in (0, 1))
    store.apply(Advance(ours, acquired(ours)))
    written_by_a_newer_release(store, theirs)
    for which in (ALL, replace(ALL, target=ORDERS.target)):
        assert ids(store, which) == ids(store, which, limit=1) == [ours.task_id, theirs.task_id]
        assert "format" in store.received(which).entries[1][1].reason  # type: ignore[union-attr]


CHECKS: tuple[Check, ...] = (
    the_newest_received_is_first_however_large_the_pages,
    tasks_of_one_moment_have_a_fixed_order,
    a_list_begins_at_its_time,
    a_label_finds_its_tasks_in_the_same_order,
    a_list_has_the_present_heads_once,
    a_task_submitted_again_moves_to_the_front,
    a_page_follows_a_position_whose_task_is_gone,
    a_list_includes_what_it_cannot_read,
)
