"""What every TaskStore promises, one function a promise; also run against broken stores, which must fail them."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import pytest

from delegation.tasks import codec
from delegation.tasks.errors import MalformedRecord, RevisionConflict, StaleTask, TaskExists
from delegation.tasks.memory import MemoryTaskStore
from delegation.tasks.model import PlanSegment, Task
from delegation.tasks.store import Advance, Change, Create, Expect, Revise, TaskStore
from tests.unit.tasks.builders import (
    HOUR,
    MINUTE,
    NOW,
    SECOND,
    acquired,
    failed,
    resubmitted,
    retried,
    started,
    submitted,
    succeeded,
    touched,
)

Check = Callable[[TaskStore], None]
THREADS = 8
FAR = NOW + 1000 * HOUR


def a_life() -> list[Task]:
    """Seven versions that pass through every status but FAILURE."""
    life = [submitted()]
    life.append(acquired(life[-1]))
    life.append(retried(life[-1]))
    life.append(acquired(life[-1], "worker-2", NOW + MINUTE))
    life.append(started(life[-1], NOW + MINUTE, first_delete=True))
    life.append(succeeded(life[-1], NOW + 2 * MINUTE))
    life.append(resubmitted(life[-1], NOW + HOUR))
    return life


def stored(store: TaskStore, life: Sequence[Task]) -> Task:
    """Store a life version by version; answers the last head."""
    head = store.apply(Create(life[0]))
    for version in life[1:]:
        head = store.apply(Advance(head, version))
    return head


def rows(store: TaskStore, task_id: str) -> list[Task]:
    return list(store.history(task_id))


def row(task: Task) -> Task:
    """What the row of a version holds: all but its place in the index."""
    return task.evolve(due_at=None)


def refused(store: TaskStore, change: Change, error: type[Exception]) -> Task | None:
    """Apply a change that must be refused with exactly this error; answers the head that the refusal shows."""
    with pytest.raises(error) as refusal:
        store.apply(change)
    assert refusal.type is error
    shown: Task | None = refusal.value.stored  # type: ignore[attr-defined]
    return shown


def written_by_a_newer_release(store: TaskStore, task: Task) -> None:
    """Rewrite the head of a stored task in a format that this release does not know."""
    if isinstance(store, MemoryTaskStore):
        store.make_unreadable(task.task_id)
        return
    stored = codec.head_item
    with patch.object(codec, "head_item", lambda head: {**stored(head), "format": 9}):
        store.apply(Revise(task, touched(task)))


# ---- creating


def create_stores_head_and_first_version(store: TaskStore) -> None:
    task = submitted()
    assert store.get(task.task_id) is None
    assert store.apply(Create(task)) == task
    assert store.get(task.task_id) == task
    assert store.get_version(task.task_id, 1) == row(task)
    assert rows(store, task.task_id) == [row(task)]


def create_is_refused_with_the_task_that_exists(store: TaskStore) -> None:
    first = store.apply(Create(submitted()))
    assert refused(store, Create(submitted(first.task_id, task_payload="{}")), TaskExists) == first
    assert store.get(first.task_id) == first
    assert rows(store, first.task_id) == [row(first)]


def create_is_refused_after_the_task_moved_on(store: TaskStore) -> None:
    life = a_life()
    head = stored(store, life)
    assert refused(store, Create(submitted(head.task_id)), TaskExists) == head
    assert rows(store, head.task_id) == [row(task) for task in life]


def create_repeated_with_its_nonce_answers_as_before(store: TaskStore) -> None:
    task = submitted()
    store.apply(Create(task))
    assert store.apply(Create(task)) == task
    head = store.apply(Advance(task, acquired(task)))
    # As it answered then (DynamoDB does, while it knows the request token) or as the task stands now.
    assert store.apply(Create(task)) in (task, head)
    assert store.get(task.task_id) == head
    assert rows(store, task.task_id) == [row(task), row(head)]


def tasks_do_not_touch_each_other(store: TaskStore) -> None:
    one, other = store.apply(Create(submitted())), store.apply(Create(submitted()))
    head = store.apply(Advance(one, acquired(one)))
    assert store.get(other.task_id) == other
    assert store.get(one.task_id) == head
    assert rows(store, other.task_id) == [row(other)]


# ---- advancing


def advance_moves_the_head_and_keeps_every_row(store: TaskStore) -> None:
    life = a_life()
    head = stored(store, life)
    assert head == life[-1]
    assert store.get(head.task_id) == life[-1]
    assert rows(store, head.task_id) == [row(task) for task in life]
    assert [store.get_version(head.task_id, n) for n in range(1, 9)] == [*map(row, life), None]


def advance_over_several_versions_keeps_each_of_them(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    held = store.apply(Advance(task, acquired(task)))
    running = started(held).evolve(revision=held.revision + 1)
    done = succeeded(running).evolve(revision=held.revision + 1, nonce=running.nonce)
    change = Advance(held, done, via=(running,))
    assert store.apply(change) == done
    assert store.apply(change).version == done.version
    assert rows(store, task.task_id) == [row(task), row(held), row(running), row(done)]
    assert refused(store, Advance(held, failed(held)), StaleTask) == done
    assert rows(store, task.task_id) == [row(task), row(held), row(running), row(done)]


def advance_from_a_former_version_is_stale(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    head = store.apply(Advance(task, acquired(task)))
    assert refused(store, Advance(task, acquired(task, "worker-2")), StaleTask) == head
    assert refused(store, Advance(task, failed(task)), StaleTask) == head
    assert store.get(task.task_id) == head
    assert rows(store, task.task_id) == [row(task), row(head)]


def advance_from_a_version_that_does_not_exist_yet_is_stale(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    ahead = acquired(task)
    assert refused(store, Advance(ahead, started(ahead)), StaleTask) == task
    assert rows(store, task.task_id) == [row(task)]


def advance_over_a_touched_head_is_a_revision_conflict(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    head = store.apply(Revise(task, touched(task, dispatch_count=1)))
    assert refused(store, Advance(task, acquired(task)), RevisionConflict) == head
    assert store.get(task.task_id) == head
    assert rows(store, task.task_id) == [row(task)]


def advance_of_an_unknown_task_is_stale(store: TaskStore) -> None:
    task = submitted()
    assert refused(store, Advance(task, acquired(task)), StaleTask) is None
    assert store.get(task.task_id) is None
    assert rows(store, task.task_id) == []


def advance_repeated_with_its_nonce_answers_as_before(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    after = acquired(task)
    store.apply(Advance(task, after))
    assert store.apply(Advance(task, after)) == after
    assert rows(store, task.task_id) == [row(task), row(after)]


def advance_is_recognised_below_a_later_head(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    after = acquired(task)
    beat = store.apply(Revise(store.apply(Advance(task, after)), touched(after, files_deleted=7)))
    assert store.apply(Advance(task, after)) in (after, beat)
    later = store.apply(Advance(beat, started(beat)))
    assert store.apply(Advance(task, after)) in (after, later)
    assert store.get(task.task_id) == later
    assert rows(store, task.task_id) == [row(task), row(after), row(later)]


# ---- revising


def revise_rewrites_the_head_and_keeps_the_rows(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    holder = store.apply(Advance(task, acquired(task)))
    plan = (PlanSegment(id="1/0", sha256="ab" * 32),)
    after = touched(holder, plan_segments=plan, files_planned=2**40, progress_ts=NOW + SECOND)
    assert store.apply(Revise(holder, after)) == after
    assert store.get(task.task_id) == after
    assert rows(store, task.task_id) == [row(task), row(holder)]
    last = store.apply(Advance(after, started(after)))
    assert rows(store, task.task_id) == [row(task), row(holder), row(last)]


def revise_of_a_touched_head_is_a_revision_conflict(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    head = store.apply(Revise(task, touched(task, dispatch_count=1)))
    assert refused(store, Revise(task, touched(task, cancel_requested=True)), RevisionConflict) == head
    assert store.get(task.task_id) == head


def revise_of_a_former_version_is_stale(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    head = store.apply(Advance(task, acquired(task)))
    assert refused(store, Revise(task, touched(task, dispatch_count=1)), StaleTask) == head
    assert store.get(task.task_id) == head


def revise_of_an_unknown_task_is_stale(store: TaskStore) -> None:
    task = submitted()
    assert refused(store, Revise(task, touched(task, dispatch_count=1)), StaleTask) is None
    assert store.get(task.task_id) is None


def revise_repeated_with_its_nonce_answers_as_before(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    after = touched(task, dispatch_count=1)
    store.apply(Revise(task, after))
    assert store.apply(Revise(task, after)) == after
    assert store.get(task.task_id) == after


# ---- expecting


def expect_asks_for_the_version_whatever_the_revision(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    assert store.apply(Expect(task)) == task
    head = store.apply(Revise(task, touched(task, dispatch_count=1)))
    assert store.apply(Expect(task)) == head
    assert store.get(task.task_id) == head
    assert rows(store, task.task_id) == [row(task)]


def expect_refuses_another_version(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    head = store.apply(Advance(task, acquired(task)))
    assert refused(store, Expect(task), StaleTask) == head
    assert store.apply(Expect(head)) == head
    assert refused(store, Expect(submitted()), StaleTask) is None


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
    head = store.apply(Revise(task, touched(task, dispatch_count=1)))
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


def due_answers_at_most_the_limit_and_the_oldest_of_all_shards(store: TaskStore) -> None:
    tasks = [store.apply(Create(submitted(due_at=NOW + n * SECOND))) for n in range(40)]
    assert [entry.task_id for entry in store.due(FAR, limit=5)] == [task.task_id for task in tasks[:5]]


def due_of_some_shards_is_the_oldest_of_these(store: TaskStore) -> None:
    tasks = [store.apply(Create(submitted(due_at=NOW + n * SECOND))) for n in range(40)]
    halves = [codec.due_buckets()[:8], codec.due_buckets()[8:]]
    for half in halves:
        there = [task.task_id for task in tasks if codec.due_bucket(task.task_id) in half]
        assert [entry.task_id for entry in store.due(FAR, shards=half)] == there
        assert [entry.task_id for entry in store.due(FAR, limit=3, shards=half)] == there[:3]


def due_follows_the_head_and_forgets_the_rows(store: TaskStore) -> None:
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
    pages, cursor = [], None
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


def heads_tell_what_they_cannot_read(store: TaskStore) -> None:
    """A record of a newer release stands in nobody's way, and its place in the index stays."""
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
    first = submitted(carried=carried)
    store.apply(Create(first))
    head = store.get(first.task_id)
    assert head is not None
    assert head.carried == carried
    beat = touched(head, dispatch_count=1)
    store.apply(Revise(head, beat))
    head = store.get(first.task_id)
    assert head is not None
    assert head.carried == carried
    store.apply(Advance(head, acquired(head)))
    head = store.get(first.task_id)
    assert head is not None
    assert head.carried == carried
    assert [task.carried for task in rows(store, first.task_id)] == [carried, carried]


# ---- several at once


def one_winner_per_version(store: TaskStore) -> None:
    """Threads race for every version of one task; nobody wins twice, no version is skipped, every loser is told."""
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
            won = [task for task in _race(pool, store, [Advance(before, after) for after in candidates]) if task]
            assert len(won) == 1
            winners += won
    assert rows(store, head.task_id) == [row(task) for task in winners]
    assert store.get(head.task_id) == winners[-1]


def one_creator_per_task(store: TaskStore) -> None:
    task_id = submitted().task_id
    with ThreadPoolExecutor(THREADS) as pool:
        won = [task for task in _race(pool, store, [Create(submitted(task_id)) for _ in range(THREADS)]) if task]
    assert len(won) == 1
    assert store.get(task_id) == won[0]


def no_acknowledged_revision_is_lost(store: TaskStore) -> None:
    """Threads count up in one head, reading again after each refusal: every acknowledged step is in the sum."""
    task_id = store.apply(Create(submitted())).task_id

    def count(_thread: int) -> int:
        done = 0
        while done < 5:
            head = store.get(task_id)
            assert head is not None
            try:
                store.apply(Revise(head, touched(head, dispatch_count=head.dispatch_count + 1)))
            except RevisionConflict:
                continue
            done += 1
        return done

    with ThreadPoolExecutor(THREADS) as pool:
        total = sum(pool.map(count, range(THREADS)))
    head = store.get(task_id)
    assert head is not None
    assert (head.dispatch_count, head.revision, head.version) == (total, 1 + total, 1)


def heartbeats_and_a_finish_do_not_overwrite_each_other(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    held = store.apply(Advance(task, acquired(task)))
    running = store.apply(Advance(held, started(held)))
    changes: list[Change] = [Revise(running, touched(running, files_deleted=n)) for n in range(1, THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        won = [done for done in _race(pool, store, [Advance(running, succeeded(running)), *changes]) if done]
    assert len(won) == 1
    assert store.get(task.task_id) == won[0]
    assert len(rows(store, task.task_id)) == won[0].version


# ---- removing


def remove_takes_rows_and_head_of_that_task_only(store: TaskStore) -> None:
    """A life of more rows than one transaction of DynamoDB's removes."""
    other = store.apply(Create(submitted()))
    life = a_life()
    for turn in range(6):
        life.append(acquired(life[-1], "worker-3", NOW + (turn + 2) * HOUR))
        life.append(retried(life[-1], NOW + (turn + 2) * HOUR))
    life.append(failed(life[-1]))
    done = stored(store, life)
    assert store.remove(done) is True
    assert store.get(done.task_id) is None
    assert rows(store, done.task_id) == []
    assert store.remove(done) is False
    assert rows(store, other.task_id) == [row(other)]
    again = submitted(done.task_id)
    assert store.apply(Create(again)) == again


def remove_of_a_task_that_moved_on_is_refused(store: TaskStore) -> None:
    life = a_life()
    done = stored(store, life[:-1])
    head = store.apply(Advance(done, life[-1]))
    with pytest.raises(StaleTask) as stale:
        store.remove(done)
    assert stale.value.stored == head
    assert store.get(head.task_id) == head
    assert rows(store, head.task_id) == [row(task) for task in life]


def remove_of_a_live_task_is_refused(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    with pytest.raises(ValueError, match="terminal"):
        store.remove(task)
    assert store.get(task.task_id) == task


# ---- forgetting


def forget_takes_old_rows_of_that_task_and_nothing_else(store: TaskStore) -> None:
    """A life of more rows than one transaction of DynamoDB's removes."""
    other = store.apply(Create(submitted()))
    life = a_life()
    for turn in range(8):
        life.append(acquired(life[-1], "worker-3", NOW + (turn + 2) * HOUR))
        life.append(retried(life[-1], NOW + (turn + 2) * HOUR))
    head = stored(store, life)
    below = len(life) - 2
    assert store.forget(head.task_id, below) == below - 1
    assert rows(store, head.task_id) == [row(task) for task in life[below - 1 :]]
    assert store.get(head.task_id) == head
    assert store.get_version(head.task_id, 1) is None
    assert store.forget(head.task_id, below) == 0
    assert rows(store, other.task_id) == [row(other)]


def forget_leaves_the_row_of_the_head(store: TaskStore) -> None:
    life = a_life()
    head = stored(store, life)
    assert store.forget(head.task_id, head.version + 5) == head.version - 1
    assert rows(store, head.task_id) == [row(head)]
    again = store.apply(Revise(head, touched(head, files_deleted=7)))
    assert store.get(head.task_id) == again
    assert store.forget(submitted().task_id, 3) == 0


def forget_of_a_first_version_takes_nothing(store: TaskStore) -> None:
    """A recurring task of a kind that nobody here runs stays at version 1 for as long as it likes."""
    task = store.apply(Create(submitted()))
    for below in (1, 2):
        assert store.forget(task.task_id, below) == 0
    assert rows(store, task.task_id) == [row(task)]


def _race(pool: ThreadPoolExecutor, store: TaskStore, changes: Sequence[Change]) -> list[Task | None]:
    """Apply all changes at once, one a thread; None where one was refused."""
    line = threading.Barrier(len(changes))

    def run(change: Change) -> Task | None:
        line.wait(60)
        try:
            return store.apply(change)
        except (TaskExists, StaleTask, RevisionConflict):
            return None

    return list(pool.map(run, changes))


SEQUENTIAL: tuple[Check, ...] = (
    create_stores_head_and_first_version,
    create_is_refused_with_the_task_that_exists,
    create_is_refused_after_the_task_moved_on,
    create_repeated_with_its_nonce_answers_as_before,
    tasks_do_not_touch_each_other,
    advance_moves_the_head_and_keeps_every_row,
    advance_over_several_versions_keeps_each_of_them,
    advance_from_a_former_version_is_stale,
    advance_from_a_version_that_does_not_exist_yet_is_stale,
    advance_over_a_touched_head_is_a_revision_conflict,
    advance_of_an_unknown_task_is_stale,
    advance_repeated_with_its_nonce_answers_as_before,
    advance_is_recognised_below_a_later_head,
    revise_rewrites_the_head_and_keeps_the_rows,
    revise_of_a_touched_head_is_a_revision_conflict,
    revise_of_a_former_version_is_stale,
    revise_of_an_unknown_task_is_stale,
    revise_repeated_with_its_nonce_answers_as_before,
    expect_asks_for_the_version_whatever_the_revision,
    expect_refuses_another_version,
    history_pages_in_order_while_the_task_runs,
    a_version_is_a_row_never_the_head,
    due_lists_what_is_due_oldest_first,
    due_answers_at_most_the_limit_and_the_oldest_of_all_shards,
    due_of_some_shards_is_the_oldest_of_these,
    due_follows_the_head_and_forgets_the_rows,
    a_rewritten_head_moves_within_the_index,
    a_terminal_task_leaves_the_index,
    heads_pages_over_every_task_once,
    heads_of_an_exact_page_have_no_cursor,
    heads_tell_what_they_cannot_read,
    unknown_attributes_survive_every_rewrite,
    remove_takes_rows_and_head_of_that_task_only,
    remove_of_a_task_that_moved_on_is_refused,
    remove_of_a_live_task_is_refused,
    forget_takes_old_rows_of_that_task_and_nothing_else,
    forget_leaves_the_row_of_the_head,
    forget_of_a_first_version_takes_nothing,
)
CONCURRENT: tuple[Check, ...] = (
    one_winner_per_version,
    one_creator_per_task,
    no_acknowledged_revision_is_lost,
    heartbeats_and_a_finish_do_not_overwrite_each_other,
)
