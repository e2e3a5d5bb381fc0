"""What every TaskStore promises about writes: created once, changed only as read, removed whole."""

import json

import pytest

from delegation.tasks.contract.support import (
    HOUR,
    NOW,
    SECOND,
    Check,
    a_life,
    acquired,
    failed,
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
from delegation.tasks.errors import RevisionConflict, StaleTask, TaskExists
from delegation.tasks.stores.base import Advance, Create, Expect, Revise, TaskStore

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


def create_is_refused_after_the_task_changed(store: TaskStore) -> None:
    life = a_life()
    head = stored(store, life)
    assert refused(store, Create(submitted(head.task_id)), TaskExists) == head
    assert rows(store, head.task_id) == [row(task) for task in life]


def create_repeated_with_its_nonce_succeeds_again(store: TaskStore) -> None:
    task = submitted()
    store.apply(Create(task))
    assert store.apply(Create(task)) == task
    head = store.apply(Advance(task, acquired(task)))
    # Either the former answer (DynamoDB, while it knows the request token) or the present task.
    assert store.apply(Create(task)) in (task, head)
    assert store.get(task.task_id) == head
    assert rows(store, task.task_id) == [row(task), row(head)]


def whatever_is_json_comes_back_in_details_and_results(store: TaskStore) -> None:
    findings = [
        {"code": "ROW_COUNT", "count": 3, "samples": [{"size": 2**60, "share": 0.25, "whole": 1.0, "none": None}]}
    ]
    more = {
        "findings": findings,
        "huge": 10**40,
        "small": 1e-300,
        "text": "\x00é",
        "nested": [[[[]]], {}],
        "flag": True,
    }
    head = store.apply(Create(submitted()))
    after = acquired(head).with_details(more, reported={"n": [1, 0.5, {"m": 2}]}, pending_result='{"a": [1.5]}')
    head = store.apply(Advance(head, after))
    read = store.get(head.task_id)
    assert read == head == after
    assert [type(value) for value in findings[0].values()] == [
        type(value) for value in read.details["findings"][0].values()
    ]
    assert json.loads(json.dumps(read.public()))["findings"] == findings
    assert rows(store, head.task_id)[-1] == row(after)


def tasks_do_not_affect_each_other(store: TaskStore) -> None:
    task, other = store.apply(Create(submitted())), store.apply(Create(submitted()))
    head = store.apply(Advance(task, acquired(task)))
    assert store.get(other.task_id) == other
    assert store.get(task.task_id) == head
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
    head = store.apply(Revise(task, touched(task, dispatches=task.dispatches.evolve(count=1))))
    assert refused(store, Advance(task, acquired(task)), RevisionConflict) == head
    assert store.get(task.task_id) == head
    assert rows(store, task.task_id) == [row(task)]


def advance_of_an_unknown_task_is_stale(store: TaskStore) -> None:
    task = submitted()
    assert refused(store, Advance(task, acquired(task)), StaleTask) is None
    assert store.get(task.task_id) is None
    assert rows(store, task.task_id) == []


def advance_repeated_with_its_nonce_succeeds_again(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    after = acquired(task)
    store.apply(Advance(task, after))
    assert store.apply(Advance(task, after)) == after
    assert rows(store, task.task_id) == [row(task), row(after)]


def advance_is_recognized_below_a_later_head(store: TaskStore) -> None:
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
    plan = [{"id": "1/0", "sha256": "ab" * 32}]
    after = touched(holder, plan_segments=plan, files_planned=2**40, progress_ts=NOW + SECOND)
    assert store.apply(Revise(holder, after)) == after
    assert store.get(task.task_id) == after
    assert rows(store, task.task_id) == [row(task), row(holder)]
    last = store.apply(Advance(after, started(after)))
    assert rows(store, task.task_id) == [row(task), row(holder), row(last)]


def revise_of_a_touched_head_is_a_revision_conflict(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    head = store.apply(Revise(task, touched(task, dispatches=task.dispatches.evolve(count=1))))
    assert refused(store, Revise(task, touched(task, cancel_requested=True)), RevisionConflict) == head
    assert store.get(task.task_id) == head


def revise_of_a_former_version_is_stale(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    head = store.apply(Advance(task, acquired(task)))
    assert refused(store, Revise(task, touched(task, dispatches=task.dispatches.evolve(count=1))), StaleTask) == head
    assert store.get(task.task_id) == head


def revise_of_an_unknown_task_is_stale(store: TaskStore) -> None:
    task = submitted()
    assert refused(store, Revise(task, touched(task, dispatches=task.dispatches.evolve(count=1))), StaleTask) is None
    assert store.get(task.task_id) is None


def revise_repeated_with_its_nonce_succeeds_again(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    after = touched(task, dispatches=task.dispatches.evolve(count=1))
    store.apply(Revise(task, after))
    assert store.apply(Revise(task, after)) == after
    assert store.get(task.task_id) == after


# ---- expecting


def expect_checks_the_version_not_the_revision(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    assert store.apply(Expect(task)) == task
    head = store.apply(Revise(task, touched(task, dispatches=task.dispatches.evolve(count=1))))
    assert store.apply(Expect(task)) == head
    assert store.get(task.task_id) == head
    assert rows(store, task.task_id) == [row(task)]


def expect_refuses_another_version(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    head = store.apply(Advance(task, acquired(task)))
    assert refused(store, Expect(task), StaleTask) == head
    assert store.apply(Expect(head)) == head
    assert refused(store, Expect(submitted()), StaleTask) is None


CHECKS: tuple[Check, ...] = (
    create_stores_head_and_first_version,
    create_is_refused_with_the_task_that_exists,
    create_is_refused_after_the_task_changed,
    create_repeated_with_its_nonce_succeeds_again,
    tasks_do_not_affect_each_other,
    advance_moves_the_head_and_keeps_every_row,
    advance_over_several_versions_keeps_each_of_them,
    advance_from_a_former_version_is_stale,
    advance_from_a_version_that_does_not_exist_yet_is_stale,
    advance_over_a_touched_head_is_a_revision_conflict,
    advance_of_an_unknown_task_is_stale,
    advance_repeated_with_its_nonce_succeeds_again,
    advance_is_recognized_below_a_later_head,
    revise_rewrites_the_head_and_keeps_the_rows,
    revise_of_a_touched_head_is_a_revision_conflict,
    revise_of_a_former_version_is_stale,
    revise_of_an_unknown_task_is_stale,
    revise_repeated_with_its_nonce_succeeds_again,
    expect_checks_the_version_not_the_revision,
    expect_refuses_another_version,
    whatever_is_json_comes_back_in_details_and_results,
)


# ---- removing


def remove_deletes_rows_and_head_of_that_task_only(store: TaskStore) -> None:
    """A task of more rows than one DynamoDB transaction deletes."""
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


def remove_of_a_task_that_changed_is_refused(store: TaskStore) -> None:
    life = a_life()
    done = stored(store, life[:-1])
    head = store.apply(Advance(done, life[-1]))
    with pytest.raises(StaleTask) as stale:
        store.remove(done)
    assert stale.value.stored == head
    assert store.get(head.task_id) == head
    assert rows(store, head.task_id) == [row(task) for task in life]


def remove_of_a_task_that_was_touched_is_refused(store: TaskStore) -> None:
    """A head may be rewritten after the task's end, by a newer release for example. That write must not be lost."""
    done = stored(store, a_life()[:-1])
    head = store.apply(Revise(done, touched(done, files_deleted=7)))
    with pytest.raises(RevisionConflict) as conflict:
        store.remove(done)
    assert conflict.value.stored == head
    assert store.get(head.task_id) == head
    assert store.get_version(head.task_id, head.version) is not None
    assert store.remove(head) is True


def remove_of_a_live_task_is_refused(store: TaskStore) -> None:
    task = store.apply(Create(submitted()))
    with pytest.raises(ValueError, match="SUBMITTED"):
        store.remove(task)
    assert store.get(task.task_id) == task


# ---- forgetting


def forget_deletes_old_rows_of_that_task_only(store: TaskStore) -> None:
    """A task of more rows than one DynamoDB transaction deletes."""
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


def forget_of_a_first_version_deletes_nothing(store: TaskStore) -> None:
    """A recurring task of an unknown type stays at version 1."""
    task = store.apply(Create(submitted()))
    for below in (1, 2):
        assert store.forget(task.task_id, below) == 0
    assert rows(store, task.task_id) == [row(task)]


def a_task_is_there_although_its_first_row_was_forgotten(store: TaskStore) -> None:
    """A recurring task is submitted again and again; the row that shows who created it may be gone."""
    head = stored(store, a_life())
    store.forget(head.task_id, head.version)
    with pytest.raises(TaskExists) as caught:
        store.apply(Create(submitted(head.task_id)))
    assert caught.value.stored == head


REMOVAL: tuple[Check, ...] = (
    a_task_is_there_although_its_first_row_was_forgotten,
    remove_deletes_rows_and_head_of_that_task_only,
    remove_of_a_task_that_changed_is_refused,
    remove_of_a_task_that_was_touched_is_refused,
    remove_of_a_live_task_is_refused,
    forget_deletes_old_rows_of_that_task_only,
    forget_leaves_the_row_of_the_head,
    forget_of_a_first_version_deletes_nothing,
)
