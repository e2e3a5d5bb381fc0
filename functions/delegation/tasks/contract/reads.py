"""What every TaskStore returns: history, the due index, all heads, lists in pages, and unknown attributes."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.tasks.contract.support import (
    FAR,
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    Check,
    a_life,
    acquired,
    failed,
    resubmitted,
    row,
    rows,
    stored,
    submitted,
    touched,
    written_by_a_newer_release,
)
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Labels, Task
from delegation.tasks.stores import codec
from delegation.tasks.stores.base import Advance, Create, Received, Revise, TaskStore

# ---- history


def history_pages_in_order_while_the_task_runs(store: TaskStore) -> None:
    life = a_life()
    head = stored(store, life)
    store.apply(Create(submitted()))
    versions = [[task.version for task in store.history(head.task_id, after=n, limit=3)] for n in (0, 3, 6, 7)]
    assert versions == [[1, 2, 3], [4, 5, 6], [7], []]
    assert [task.version for task in store.history(head.task_id, after=-1, limit=2)] == [1, 2]
    assert store.history(submitted().task_id) == ()


def a_version_is_a_row_never_the_head(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    head = store.apply(Revise(task, touched(task, dispatches=task.dispatches.evolve(count=1))))
    assert store.get_version(task.task_id, 1) == row(task) != row(head)
    assert store.get_version(task.task_id, 0) is None


# ---- the due index


def due_lists_what_is_due_oldest_first(store: TaskStore) -> None:
    tasks = [store.apply(Create(submitted(due_at=NOW + n * MINUTE))) for n in (5, 1, 4, 2, 3)]
    store.apply(Create(submitted(due_at=None)))
    by_time = sorted(tasks, key=lambda task: task.due_at or FAR)
    due = store.due(NOW + 3 * MINUTE)
    assert [(entry.task_id, entry.due_at) for entry in due] == [(t.task_id, t.due_at) for t in by_time[:3]]
    assert [entry.task_id for entry in store.due(FAR)] == [task.task_id for task in by_time]
    assert list(store.due(NOW + MINUTE - SECOND / 1000)) == []


def due_returns_at_most_the_limit_and_the_oldest_of_all_shards(store: TaskStore) -> None:
    tasks = [store.apply(Create(submitted(due_at=NOW + n * SECOND))) for n in range(40)]
    assert [entry.task_id for entry in store.due(FAR, limit=5)] == [task.task_id for task in tasks[:5]]


def due_of_some_shards_is_the_oldest_of_these(store: TaskStore) -> None:
    tasks = [store.apply(Create(submitted(due_at=NOW + n * SECOND))) for n in range(40)]
    halves = [codec.due_buckets()[:8], codec.due_buckets()[8:]]
    for half in halves:
        there = [task.task_id for task in tasks if codec.due_bucket(task.task_id) in half]
        assert [entry.task_id for entry in store.due(FAR, shards=half)] == there
        assert [entry.task_id for entry in store.due(FAR, limit=3, shards=half)] == there[:3]


def due_follows_the_head_not_the_rows(store: TaskStore) -> None:
    life = a_life()
    head = store.apply(Create(life[0]))
    for task in [*life[1:], None]:
        expected = [(head.task_id, head.due_at)] if head.due_at else []
        assert [(entry.task_id, entry.due_at) for entry in store.due(FAR)] == expected
        if task is not None:
            head = store.apply(Advance(head, task))


def a_rewritten_head_moves_within_the_index(store: TaskStore) -> None:
    task = store.apply(Create(submitted(due_at=NOW)))
    store.apply(Revise(task, touched(task, due_at=NOW + HOUR)))
    assert list(store.due(NOW + MINUTE)) == []
    assert [(entry.task_id, entry.due_at) for entry in store.due(FAR)] == [(task.task_id, NOW + HOUR)]


def a_terminal_task_leaves_the_index(store: TaskStore) -> None:
    won = stored(store, a_life()[:6])
    lost = store.apply(Create(submitted()))
    lost = store.apply(Advance(lost, failed(lost)))
    assert won.is_terminal
    assert lost.is_terminal
    assert list(store.due(FAR)) == []
    again = store.apply(Advance(lost, resubmitted(lost)))
    assert [entry.task_id for entry in store.due(FAR)] == [again.task_id]


# ---- all heads


def heads_pages_over_every_task_once(store: TaskStore) -> None:
    current = {}
    for n in range(11):
        task = stored(store, a_life()[: 1 + n % 7])
        current[task.task_id] = task
    pages: list[tuple[Task, ...]] = []
    cursor: str | None = None
    while len(pages) < 12:
        page = store.heads(cursor=cursor, limit=4)
        pages.append(page.tasks)
        cursor = page.cursor
        if cursor is None:
            break
    assert [len(page) for page in pages] == [4, 4, 3]
    shown = [task for page in pages for task in page]
    assert {task.task_id: task for task in shown} == current
    assert len(shown) == 11


def heads_of_an_exact_page_have_no_cursor(store: TaskStore) -> None:
    assert store.heads() == store.heads(limit=1)
    assert store.heads().tasks == ()
    assert store.heads().cursor is None
    for _ in range(3):
        stored(store, a_life())
    page = store.heads(limit=3)
    assert (len(page.tasks), page.cursor) == (3, None)


def heads_include_what_they_cannot_read(store: TaskStore) -> None:
    """A record of a newer release hides no other, and keeps its place in the index."""
    ours = [store.apply(Create(submitted())) for _ in range(5)]
    theirs = [store.apply(Create(submitted(due_at=NOW))) for _ in range(3)]
    for task in theirs:
        written_by_a_newer_release(store, task)
    for limit in (1, 3, 8, 100):
        pages, cursor = [store.heads(limit=limit)], None
        while (cursor := pages[-1].cursor) is not None:
            pages.append(store.heads(cursor=cursor, limit=limit))
        assert [len(page.entries) for page in pages[:-1]] == [limit] * (len(pages) - 1)
        assert len(pages) == -(-8 // limit)
        shown = [task for page in pages for task in page.tasks]
        assert sorted(shown, key=lambda task: task.task_id) == sorted(ours, key=lambda task: task.task_id)
        unreadable = [entry for page in pages for entry in page.unreadable]
        assert sorted(entry.task_id for entry in unreadable) == sorted(task.task_id for task in theirs)
        assert all("format" in entry.reason for entry in unreadable)
    for task in theirs:
        with pytest.raises(MalformedRecord):
            store.get(task.task_id)
    assert {task.task_id for task in theirs} == {entry.task_id for entry in store.due(NOW)}


# ---- attributes of newer releases


def unknown_attributes_survive_every_rewrite(store: TaskStore) -> None:
    carried = {"tier": "gold", "weights": [1, 2], "nested": {"since": "2031"}}
    first = submitted(details=carried)
    store.apply(Create(first))
    head = store.get(first.task_id)
    assert head is not None
    assert head.details == carried
    beat = touched(head, dispatches=head.dispatches.evolve(count=1))
    store.apply(Revise(head, beat))
    head = store.get(first.task_id)
    assert head is not None
    assert head.details == carried
    store.apply(Advance(head, acquired(head)))
    head = store.get(first.task_id)
    assert head is not None
    assert head.details == carried
    assert [task.details for task in rows(store, first.task_id)] == [carried, carried]


CHECKS: tuple[Check, ...] = (
    history_pages_in_order_while_the_task_runs,
    a_version_is_a_row_never_the_head,
    due_lists_what_is_due_oldest_first,
    due_returns_at_most_the_limit_and_the_oldest_of_all_shards,
    due_of_some_shards_is_the_oldest_of_these,
    due_follows_the_head_not_the_rows,
    a_rewritten_head_moves_within_the_index,
    a_terminal_task_leaves_the_index,
    heads_pages_over_every_task_once,
    heads_of_an_exact_page_have_no_cursor,
    heads_include_what_they_cannot_read,
    unknown_attributes_survive_every_rewrite,
)


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
    """Across midnight, across empty days, and across more empty days than one call reads."""
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


LISTS: tuple[Check, ...] = (
    the_newest_received_is_first_however_large_the_pages,
    tasks_of_one_moment_have_a_fixed_order,
    a_list_begins_at_its_time,
    a_label_finds_its_tasks_in_the_same_order,
    a_list_has_the_present_heads_once,
    a_task_submitted_again_moves_to_the_front,
    a_page_follows_a_position_whose_task_is_gone,
    a_list_includes_what_it_cannot_read,
)
