"""What every TaskStore returns: history, the due index, all heads, and unknown attributes."""

import pytest

from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Task
from delegation.tasks.stores import codec
from delegation.tasks.stores.base import Advance, Create, Revise, TaskStore
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
from delegation.tasks.testing.contract.support import FAR, Check, a_life, row, rows, stored, written_by_a_newer_release

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
    found = store.due(NOW + 3 * MINUTE)
    assert [(entry.task_id, entry.due_at) for entry in found] == [(t.task_id, t.due_at) for t in by_time[:3]]
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
    """A record of a newer release hinders no other, and its place in the index stays."""
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
        unreadable = [one for page in pages for one in page.unreadable]
        assert sorted(one.task_id for one in unreadable) == sorted(task.task_id for task in theirs)
        assert all("format" in one.reason for one in unreadable)
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
