"""A process dies at a call between the end of a task and its delivered callback: nothing is lost, one key is used."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delegation.tasks.life.notifications import NotificationState, owed_by
from tests.unit.notifications.receiver import HANG_UP, REDIRECT, Receiver
from tests.unit.notifications.site import NotifyingProcesses

CALLS = [
    *("before apply", "after apply"),
    *("before send", "after send") * 2,
    *("before notification", "before receiver", "before revise_notification", "after revise_notification"),
    *("before event", "after event", "before remove_notification", "after remove_notification"),
    *("before notification", "before receiver", "before revise_notification", "after revise_notification"),
    *("before post", "after post", "before remove_notification", "after remove_notification"),
]
"""Those of a life in which nobody dies, from the terminal write on; reads of the head before it have no effect."""


def lived(receiver: Receiver, kills: frozenset[int]) -> NotifyingProcesses:
    """Let a task end and its notifications be delivered; processes die at these calls."""
    site = NotifyingProcesses(receiver, kills=kills)
    task = site.held()
    site.finish(task)
    site.settle()
    return site


def check(site: NotifyingProcesses) -> None:
    """The callback and the event arrived, once or more, all with the same key and the same body."""
    site.kills = frozenset()
    (task_id,) = {task.task_id for task in site.store.heads().tasks}
    head = site.store.get(task_id)
    event, callback = owed_by([head])
    assert site.receiver.keys == {callback.notification_id}
    assert site.receiver.bodies == {callback.body.encode()}
    assert {ended.version for ended in site.verified()} == {head.version}
    assert {one["notification_id"] for one in site.bus.events} == {event.notification_id}
    assert site.left(NotificationState.OWED) == site.left(NotificationState.DEAD) == []


def test_without_a_crash_each_is_delivered_once(receiver: Receiver) -> None:
    site = lived(receiver, frozenset())
    check(site)
    assert [call for call in site.calls if call != "before get"][: len(CALLS)] == CALLS
    assert (len(receiver.received), len(site.bus.events)) == (1, 1)


@pytest.mark.parametrize("number", range(len(CALLS) + 1))
def test_a_crash_at_a_call_loses_nothing(receiver: Receiver, number: int) -> None:
    site = lived(receiver, frozenset({number}))
    assert len(site.calls) > number
    check(site)
    assert len(receiver.received) <= 2


@given(
    kills=st.frozensets(st.integers(0, 80), max_size=12),
    script=st.lists(st.sampled_from([500, 302, 410, REDIRECT, HANG_UP]), max_size=6),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_crashes_and_failing_receivers_together_lose_nothing(receiver, kills, script):
    receiver.received.clear()
    receiver.script[:] = script
    check(lived(receiver, kills))
