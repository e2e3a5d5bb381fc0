"""What every store promises about notifications: stored with the end that they announce, found, changed and deleted."""

import json
from collections.abc import Callable
from datetime import timedelta

import pytest

from delegation.tasks.contract.support import (
    FAR,
    HOUR,
    MINUTE,
    NOW,
    acquired,
    failed,
    refused,
    resubmitted,
    rows,
    started,
    submitted,
    succeeded,
    touched,
)
from delegation.tasks.errors import StaleTask
from delegation.tasks.life import notifications as owing
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.notifications import (
    Notification,
    NotificationPolicy,
    NotificationState,
    after_failure,
    joined,
    owed_by,
)
from delegation.tasks.stores.base import Advance, Create, Expect, Revise, TaskStore
from delegation.tasks.stores.notifications import NotificationStore

NotificationCheck = Callable[[TaskStore, NotificationStore], None]
CHANNELS = ("event", "callback:catalog")
OWED, DEAD = NotificationState.OWED, NotificationState.DEAD


def running(store: TaskStore, channels: tuple[str, ...] = CHANNELS) -> Task:
    task = store.apply(Create(submitted(notify=channels)))
    return store.apply(Advance(task, started(acquired(task)).evolve(version=2)))


def ended(store: TaskStore, channels: tuple[str, ...] = CHANNELS) -> tuple[Task, list[Notification]]:
    """A task that ended as FAILURE, and its notifications by the pure function, in the order of ids."""
    task = running(store, channels)
    done = store.apply(Advance(task, failed(task, NOW + MINUTE)))
    return done, sorted(owed_by([done]), key=lambda owed: owed.notification_id)


def an_end_stores_what_it_announces(store: TaskStore, owed: NotificationStore) -> None:
    task = running(store)
    assert not owed.notifications_of(task.task_id)
    done = store.apply(Advance(task, failed(task, NOW + MINUTE)))
    stored = list(owed.notifications_of(task.task_id))
    assert {notification.channel for notification in stored} == set(CHANNELS)
    assert stored == sorted(owed_by([done]), key=lambda notification: notification.notification_id)
    assert json.loads(stored[0].body)["status"] == "FAILURE"
    assert owed.notification(task.task_id, stored[0].notification_id) == stored[0]
    assert owed.notification(task.task_id, "another") is None


def an_end_that_nobody_asked_for_announces_nothing(store: TaskStore, owed: NotificationStore) -> None:
    task, stored = ended(store, ())
    assert stored == []
    assert not owed.notifications_of(task.task_id)
    assert not owed.notifications(OWED, FAR)


def a_refused_end_announces_nothing(store: TaskStore, owed: NotificationStore) -> None:
    task = running(store)
    store.apply(Revise(task, touched(task, dispatches=task.dispatches.evolve(count=1))))
    with pytest.raises(Exception, match="revision"):
        store.apply(Advance(task, failed(task)))
    assert not owed.notifications_of(task.task_id)


def a_passed_end_announces_too(store: TaskStore, owed: NotificationStore) -> None:
    """The run of a recurring task ends and the task is submitted again in one write."""
    task = running(store)
    end = succeeded(task, NOW + MINUTE)
    again = resubmitted(end, NOW + MINUTE).evolve(revision=end.revision, nonce=end.nonce)
    store.apply(Advance(task, again, (end,)))
    assert {notification.version for notification in owed.notifications_of(task.task_id)} == {end.version}


def an_end_repeated_with_its_nonce_announces_nothing_more(store: TaskStore, owed: NotificationStore) -> None:
    """A repeat after a lost answer must not bring back a notification that was delivered meanwhile."""
    task = running(store)
    change = Advance(task, failed(task))
    store.apply(change)
    for notification in owed.notifications_of(task.task_id):
        owed.remove_notification(notification)
    assert store.apply(change).status is Status.FAILURE
    assert not owed.notifications_of(task.task_id)


def each_end_announces_notifications_of_its_own(store: TaskStore, owed: NotificationStore) -> None:
    task, first = ended(store)
    again = store.apply(Advance(task, resubmitted(task, NOW + HOUR)))
    held = store.apply(Advance(again, started(acquired(again, now=NOW + HOUR)).evolve(version=again.version + 1)))
    store.apply(Advance(held, succeeded(held, NOW + 2 * HOUR)))
    ids = {notification.notification_id for notification in owed.notifications_of(task.task_id)}
    assert len(ids) == 4
    assert {notification.notification_id for notification in first} < ids


def what_is_owed_outlives_its_task_and_another_of_its_id(store: TaskStore, owed: NotificationStore) -> None:
    task, first = ended(store)
    store.remove(task)
    assert list(owed.notifications_of(task.task_id)) == first
    later = submitted(task.task_id, notify=CHANNELS, created_ts=NOW + HOUR)
    other = store.apply(Create(later))
    store.apply(Advance(other, failed(started(acquired(other))).evolve(version=2)))
    assert len(owed.notifications_of(task.task_id)) == 4


def expect_stores_what_a_late_caller_is_owed(store: TaskStore, owed: NotificationStore) -> None:
    task, _ = ended(store, ("event",))
    _, late = joined(task, ("event", "callback:late"))
    for _ in range(2):
        assert store.apply(Expect(task, late)) == task
    assert {notification.channel for notification in owed.notifications_of(task.task_id)} == {"event", "callback:late"}
    again = store.apply(Advance(task, resubmitted(task, NOW + HOUR)))
    (other,) = joined(task, ("callback:other",))[1]
    assert refused(store, Expect(task, (other,)), StaleTask) == again
    assert owed.notification(task.task_id, other.notification_id) is None


def what_is_due_is_found_oldest_first(store: TaskStore, owed: NotificationStore) -> None:
    announced: list[Notification] = []
    for minutes in (3, 1, 2):
        task = running(store, ("event",))
        done = store.apply(Advance(task, failed(task, NOW + minutes * MINUTE)))
        announced += owed_by([done])
    in_order = sorted(announced, key=lambda notification: notification.due_at)
    assert list(owed.notifications(OWED, FAR)) == in_order
    assert list(owed.notifications(OWED, FAR, limit=2)) == in_order[:2]
    assert list(owed.notifications(OWED, in_order[1].due_at)) == in_order[:2]
    assert not owed.notifications(OWED, in_order[0].due_at - timedelta(microseconds=1))
    assert not owed.notifications(DEAD, FAR)


def a_change_needs_the_revision_that_was_read(store: TaskStore, owed: NotificationStore) -> None:
    task, (notification, *_) = ended(store)
    begun = owing.begun(notification, NOW + HOUR, NotificationPolicy())
    assert owed.revise_notification(notification, begun) is True
    assert owed.notification(task.task_id, notification.notification_id) == begun
    assert owed.revise_notification(notification, owing.revived(notification, NOW)) is False
    assert owed.notification(task.task_id, notification.notification_id) == begun


def a_dead_letter_is_found_apart_and_revived(store: TaskStore, owed: NotificationStore) -> None:
    _, (notification, *others) = ended(store)
    once = NotificationPolicy(max_attempts=1)
    begun = owing.begun(notification, NOW + HOUR, once)
    dead = owing.failed(begun, "CALLBACK_NOT_ACCEPTED: its receiver answered 500", NOW + HOUR, once)
    assert owed.revise_notification(notification, begun)
    assert owed.revise_notification(begun, dead)
    assert list(owed.notifications(DEAD, FAR)) == [dead]
    assert list(owed.notifications(OWED, FAR)) == others
    revived = owing.revived(dead, NOW + 2 * HOUR)
    assert owed.revise_notification(dead, revived)
    assert revived.attempts == 0
    assert not owed.notifications(DEAD, FAR)
    assert list(owed.notifications(OWED, FAR)) == [*others, revived]


def what_was_delivered_is_gone_and_cannot_be_changed(store: TaskStore, owed: NotificationStore) -> None:
    task, (delivered, *others) = ended(store)
    for _ in range(2):
        owed.remove_notification(delivered)
    assert owed.notification(task.task_id, delivered.notification_id) is None
    assert list(owed.notifications_of(task.task_id)) == others
    assert list(owed.notifications(OWED, FAR)) == others
    assert owed.revise_notification(delivered, owing.sent_again(delivered, NOW)) is False


def notifications_are_seen_by_no_read_of_tasks(store: TaskStore, _owed: NotificationStore) -> None:
    task, announced = ended(store)
    assert announced
    assert [head.task_id for head in store.heads().tasks] == [task.task_id]
    assert store.heads().unreadable == ()
    assert not store.due(FAR)
    assert [row.version for row in rows(store, task.task_id)] == list(range(1, task.version + 1))


def what_is_parked_is_found_by_its_channel_only(store: TaskStore, owed: NotificationStore) -> None:
    task, announced = ended(store, ("callback:a", "callback:b"))
    first, second = sorted(announced, key=lambda notification: notification.channel)
    waiting = owing.parked(first, NOW + HOUR, NOW, NotificationPolicy())
    assert owed.revise_notification(first, waiting)
    assert list(owed.notifications(OWED, FAR)) == [second]
    assert list(owed.notifications(OWED, FAR, parked="callback:a")) == [waiting]
    assert not owed.notifications(OWED, FAR, parked="callback:b")
    assert not owed.notifications(OWED, NOW, parked="callback:a")
    assert owed.notification(task.task_id, first.notification_id) == waiting
    assert sorted(owed.notifications_of(task.task_id), key=lambda notification: notification.channel) == [
        waiting,
        second,
    ]
    again = owing.failed(waiting, "CALLBACK_UNREACHABLE: no answer", NOW, NotificationPolicy())
    assert owed.revise_notification(waiting, again)
    assert not owed.notifications(OWED, FAR, parked="callback:a")
    assert {notification.channel for notification in owed.notifications(OWED, FAR)} == {"callback:a", "callback:b"}
    owed.remove_notification(again)
    assert list(owed.notifications(OWED, FAR)) == [second]


def a_receiver_is_stored_under_the_revision_that_was_read(store: TaskStore, owed: NotificationStore) -> None:
    assert owed.receiver("callback:a") is None
    assert not owed.receivers()
    first = after_failure(None, "callback:a", 10 * MINUTE, NOW)
    other = after_failure(None, "callback:b", MINUTE / 60, NOW)
    assert owed.revise_receiver(None, other) is True
    assert owed.revise_receiver(None, first) is True
    assert owed.revise_receiver(None, first) is False
    second = after_failure(first, "callback:a", MINUTE, NOW + HOUR)
    assert owed.revise_receiver(first, second) is True
    assert owed.revise_receiver(first, after_failure(first, "callback:a", MINUTE, NOW)) is False
    assert owed.receiver("callback:a") == second
    assert list(owed.receivers()) == [second, other]
    assert store.heads().tasks == ()
    assert store.heads().unreadable == ()


CHECKS: tuple[NotificationCheck, ...] = (
    an_end_stores_what_it_announces,
    an_end_that_nobody_asked_for_announces_nothing,
    a_refused_end_announces_nothing,
    a_passed_end_announces_too,
    an_end_repeated_with_its_nonce_announces_nothing_more,
    each_end_announces_notifications_of_its_own,
    what_is_owed_outlives_its_task_and_another_of_its_id,
    expect_stores_what_a_late_caller_is_owed,
    what_is_due_is_found_oldest_first,
    a_change_needs_the_revision_that_was_read,
    a_dead_letter_is_found_apart_and_revived,
    what_was_delivered_is_gone_and_cannot_be_changed,
    notifications_are_seen_by_no_read_of_tasks,
    what_is_parked_is_found_by_its_channel_only,
    a_receiver_is_stored_under_the_revision_that_was_read,
)
