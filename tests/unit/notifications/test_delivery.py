"""Notifications with a receiver that fails, is slow, redirects, comes late, and sees repeats; over real HTTPS."""

import itertools
import json
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from delegation import items
from delegation.notifications.delivery import DeliveryOutcome, deliver_apart, deliver_due, send_due
from delegation.notifications.https import event_not_accepted
from delegation.notifications.queue import Message, Pool, pool_of
from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life import notifications as owing
from delegation.tasks.life.notifications import NotificationPolicy, NotificationState, after_failure
from delegation.tasks.stores.base import Create
from delegation.wiring.notifier import _run, deliver_once
from tests.kit.tasks.builders import HOUR, MINUTE, submitted
from tests.unit.notifications.receiver import DRIP, GARBAGE, HANG_UP, REDIRECT, SLOW
from tests.unit.notifications.site import KEY, NotifyingProcesses

OWED, DEAD = NotificationState.OWED, NotificationState.DEAD


def policy_of(receiver, **changes):
    return replace(NotificationPolicy(callbacks={"catalog": receiver.url}, private_addresses=True), **changes)


def ended_site(receiver, **changes):
    site = NotifyingProcesses(receiver, policy=policy_of(receiver, **changes))
    site.finish(site.held())
    return site


def test_an_end_is_delivered_at_once_and_says_what_the_task_says(receiver):
    site = ended_site(receiver)
    assert [one.outcome for one in site.notify()] == [DeliveryOutcome.DELIVERED]
    (ended,) = site.verified()
    (task,) = site.store.heads().tasks
    assert (ended.task_id, ended.version, ended.status) == (task.task_id, task.version, "SUCCESS")
    assert ended.result_summary == "deleted 3 files"
    assert site.store.owed == {}


@pytest.mark.parametrize(
    ("action", "code"),
    [
        (500, "CALLBACK_NOT_ACCEPTED: its receiver answered 500"),
        (404, "CALLBACK_NOT_ACCEPTED: its receiver answered 404"),
        (REDIRECT, "CALLBACK_NOT_ACCEPTED: its receiver answered 307"),
        (301, "CALLBACK_NOT_ACCEPTED: its receiver answered 301"),
        (SLOW, "CALLBACK_UNREACHABLE: its receiver did not answer within"),
        (DRIP, "CALLBACK_UNREACHABLE: its receiver did not answer within"),
        (HANG_UP, "CALLBACK_UNREACHABLE"),
        (GARBAGE, "CALLBACK_UNREACHABLE"),
    ],
)
def test_a_receiver_that_fails_gets_it_again_with_the_same_key_and_body(receiver, action, code):
    receiver.script[:] = [action, action]
    site = ended_site(receiver)
    assert [one.outcome for one in site.notify()] == [DeliveryOutcome.FAILED]
    (failed,) = site.left(OWED)
    assert str(failed.last_error).startswith(code)
    assert "hooks" not in str(failed.last_error)
    assert failed.due_at > site.clock()
    assert site.settle() == [DeliveryOutcome.FAILED, DeliveryOutcome.DELIVERED]
    assert len(receiver.received) == 3
    assert len(receiver.keys) == len(receiver.bodies) == 1
    assert len({headers["Delegation-Signature"] for headers, _ in receiver.received}) == 3
    assert len(site.verified()) == 3


def test_a_receiver_that_accepts_and_loses_its_answer_recognizes_the_repeat(receiver):
    """It processes what it accepted, and the delivery that it got twice has one Idempotency-Key."""
    processed = set()

    def process():
        headers, _ = receiver.received[-1]
        processed.add(headers["Idempotency-Key"])

    receiver.on_request = process
    receiver.script[:] = [HANG_UP]
    site = ended_site(receiver)
    site.settle()
    assert len(receiver.received) == 2
    assert len(processed) == 1


def test_a_queue_that_is_down_delays_only(receiver):
    site = NotifyingProcesses(receiver, policy=policy_of(receiver))
    site.queue_is_down = True
    site.finish(site.held())
    site.clock.advance(2 * MINUTE)
    site.sweep()
    assert site.messages == []
    site.queue_is_down = False
    site.clock.advance(2 * MINUTE)
    assert site.settle() == [DeliveryOutcome.DELIVERED]


def test_the_sweeper_waits_for_the_first_message_and_fills_no_queue(receiver):
    site = ended_site(receiver)
    site.sweep()
    assert len(site.messages) == 1
    site.clock.advance(MINUTE)
    site.sweep()
    site.sweep()
    assert len(site.messages) == 2
    assert [one.outcome for one in site.notify()] == [DeliveryOutcome.DELIVERED, DeliveryOutcome.SKIPPED]
    assert len(receiver.received) == 1


def test_a_dead_letter_is_left_until_it_is_revived(receiver):
    receiver.script[:] = [500] * 3
    site = ended_site(receiver, max_attempts=3)
    assert site.settle() == [DeliveryOutcome.FAILED, DeliveryOutcome.FAILED, DeliveryOutcome.DEAD]
    (dead,) = site.left(DEAD)
    site.clock.advance(HOUR)
    site.sweep()
    assert (site.messages, len(receiver.received)) == ([], 3)
    assert [one.outcome for one in _take(site, Message.of(dead))] == [DeliveryOutcome.SKIPPED]
    assert site.owed.revise_notification(dead, owing.revived(dead, site.clock()))
    site.sweep()
    # Its receiver failed three times in a row, so it is delivered among those of receivers that are set apart.
    assert site.settle() == [DeliveryOutcome.FAILED, DeliveryOutcome.DELIVERED]
    assert len(receiver.keys) == 1


def test_a_callback_that_no_setting_names_any_more_waits_for_it(receiver):
    site = ended_site(receiver)
    site.notifier = replace(site.notifier, policy=policy_of(receiver, callbacks={"other": receiver.url}))
    assert [one.outcome for one in site.notify()] == [DeliveryOutcome.FAILED]
    assert "delegation.notifications.callback.catalog" in str(site.left(OWED)[0].last_error)
    site.notifier = replace(site.notifier, policy=policy_of(receiver))
    site.clock.advance(HOUR)
    site.sweep()
    assert site.settle() == [DeliveryOutcome.DELIVERED]


@pytest.mark.parametrize("secret", ["", "[]", "{}", '{"catalog": []}', '{"catalog": ["too short"]}', '{"catalog": 7}'])
def test_a_callback_without_a_key_is_never_sent_unsigned(receiver, secret):
    site = NotifyingProcesses(receiver, policy=policy_of(receiver))
    site.secret = secret
    site.finish(site.held())
    assert [one.outcome for one in site.notify()] == [DeliveryOutcome.FAILED]
    assert receiver.received == []
    (failed,) = site.left(OWED)
    assert str(failed.last_error).startswith("CALLBACK_KEYS_UNAVAILABLE")
    assert "short" not in str(failed.last_error)


def test_a_receiver_that_was_not_called_has_not_failed(receiver):
    """Set apart, it would get one notification at a time when the settings are right again."""
    site = ended_site(receiver)
    site.secret = "{}"
    assert [one.outcome for one in site.notify()] == [DeliveryOutcome.FAILED]
    site.clock.advance(HOUR)
    site.sweep()
    site.notifier = replace(site.notifier, policy=policy_of(receiver, callbacks={"other": receiver.url}))
    assert [one.outcome for one in site.notify()] == [DeliveryOutcome.FAILED]
    assert site.store.receivers == {}


def test_a_replaced_key_is_used_after_five_minutes_and_both_sign_meanwhile(receiver):
    site = ended_site(receiver)
    receiver.script[:] = [500, 500]
    site.notify()
    site.secret = json.dumps({"catalog": ["the next key, of 32 bytes at the least", KEY]})
    site.settle()
    counts = [headers["Delegation-Signature"].count("v1=") for headers, _ in receiver.received]
    assert counts == [1, 2, 2]
    assert len(site.verified()) == 3


def test_a_refused_event_is_repeated(receiver):
    site = NotifyingProcesses(receiver, policy=NotificationPolicy(events=True))
    accepted, tries = site.bus.put, []

    def refusing(owed):
        tries.append(owed)
        if len(tries) == 1:
            raise event_not_accepted("EventBridge answered ThrottlingException")
        accepted(owed)

    site.bus.put = refusing
    site.finish(site.held(callback=None))
    assert site.settle() == [DeliveryOutcome.FAILED, DeliveryOutcome.DELIVERED]
    assert [one["type"] for one in site.bus.events] == ["TASK_ENDED"]


@pytest.mark.parametrize("how", ["cancelled", "retried and cancelled"])
def test_every_end_is_notified_whichever_call_ends_the_task(receiver, how):
    site = NotifyingProcesses(receiver, policy=policy_of(receiver))
    task = site.store.apply(Create(submitted(notify=("callback:catalog",))))
    site.tasks.operators.cancel(task.task_id)
    ends = 1
    if how == "retried and cancelled":
        site.tasks.operators.retry(task.task_id)
        site.tasks.operators.cancel(task.task_id)
        ends = 2
    site.settle()
    assert [ended.error_code for ended in site.verified()] == ["CANCELLED"] * ends
    assert len(receiver.keys) == ends


def test_a_worker_delivers_what_is_due_without_a_queue(receiver, caplog):
    receiver.script[:] = [500]
    site = NotifyingProcesses(receiver, policy=policy_of(receiver))
    site.queue_is_down = True
    site.finish(site.held())
    assert deliver_due(site.notifier) == []
    caplog.set_level("INFO", logger="delegation.wiring.notifier")
    for message in ("not delivered", "delivered"):
        site.clock.advance(HOUR)
        deliver_once(site.notifier)
        assert caplog.messages[-1] == message
    assert len(receiver.received) == 2
    assert site.store.owed == {}


def test_turns_that_fail_after_hours_do_not_end_a_worker_s_deliveries(receiver, monkeypatch):
    slow = partial(items.each_item, seconds=itertools.count(step=3600).__next__)
    monkeypatch.setattr("delegation.wiring.notifier.each_item", slow)
    turns = itertools.count(1)

    def deliver(_notifier):
        raise StoreUnavailable(f"away in turn {next(turns)}")

    stop = SimpleNamespace(wait=lambda _seconds: next(turns) > 9)
    _run(ended_site(receiver).notifier, deliver, stop)
    assert next(turns) > 9


def test_without_settings_nothing_is_stored_or_sent(receiver):
    site = NotifyingProcesses(receiver, policy=NotificationPolicy())
    site.finish(site.held(callback=None))
    assert (site.store.owed, site.messages) == ({}, [])


def _take(site, message):
    return [site.notifier.take(message)]


def test_a_message_to_a_receiver_that_is_set_apart_begins_no_delivery(receiver):
    site = ended_site(receiver)
    site.store.receivers["callback:catalog"] = after_failure(None, "callback:catalog", HOUR, site.clock())
    assert [one.outcome for one in site.notify()] == [DeliveryOutcome.FAILED]
    (parked,) = site.left(OWED)
    assert (parked.parked, parked.attempts, receiver.received) == (True, 0, [])
    site.clock.advance(HOUR)
    site.sweep()
    assert [one.outcome for one in site.notify()] == [DeliveryOutcome.DELIVERED]
    assert site.store.owed == {}


def several_ends(site, number):
    task = site.store.apply(Create(submitted(notify=("callback:catalog",))))
    site.tasks.operators.cancel(task.task_id)
    for _ in range(number - 1):
        site.tasks.operators.retry(task.task_id)
        site.tasks.operators.cancel(task.task_id)


def test_what_a_failing_receiver_is_owed_for_longer_than_all_deliveries_last_is_a_dead_letter(receiver):
    receiver.script[:] = [500] * 100
    site = NotifyingProcesses(receiver, policy=policy_of(receiver, max_attempts=9))
    several_ends(site, 4)
    assert site.settle().count(DeliveryOutcome.DEAD) == 4
    # Alone, each would have been tried nine times.
    assert len(receiver.received) < 2 * 9
    assert len(site.left(DEAD)) == 4
    assert all(one.last_error for one in site.left(DEAD))
    assert all(one.parked is False for one in site.left(DEAD))


def test_one_delivery_at_a_time_tries_a_failing_receiver(receiver):
    receiver.script[:] = [500, 200]
    site = NotifyingProcesses(receiver, policy=policy_of(receiver))
    several_ends(site, 2)
    site.store.receivers["callback:catalog"] = after_failure(None, "callback:catalog", HOUR, site.clock())
    site.clock.advance(HOUR)
    one, other = site.left(OWED)
    beside = []
    receiver.on_request = lambda: beside.extend(_take(site, Message.of(other, apart=True)))
    assert [one.outcome for one in _take(site, Message.of(one, apart=True))] == [DeliveryOutcome.FAILED]
    (refused,) = beside
    assert refused.error.code == "RECEIVER_SET_APART"
    assert "failed 1 time in a row" in str(refused.error)
    assert (refused.owed.attempts, refused.owed.parked) == (0, True)
    assert len(receiver.received) == 1
    assert site.store.receivers["callback:catalog"].failures == 2


def test_the_sweeper_fills_no_queue_beyond_its_room_and_leaves_nothing_behind(receiver):
    site = NotifyingProcesses(receiver, policy=policy_of(receiver))
    site.queue_is_down = True
    several_ends(site, 8)
    site.queue_is_down = False
    for _ in range(5):
        site.clock.advance(HOUR)
        send_due(site.owed, site, site.policy, site.clock(), room=3)
        assert len(site.messages) == 3
    for _ in range(3):
        site.notify()
        site.clock.advance(HOUR)
        send_due(site.owed, site, site.policy, site.clock(), room=3)
    site.notify()
    assert site.store.owed == {}
    assert len(receiver.keys) == 8


def test_what_is_owed_to_a_receiver_that_is_set_apart_stays_due_while_the_queue_is_full(receiver):
    site = ended_site(receiver)
    site.store.receivers["callback:catalog"] = after_failure(None, "callback:catalog", HOUR, site.clock())
    site.notify()
    site.clock.advance(HOUR)
    (parked,) = site.left(OWED)
    assert send_due(site.owed, site, site.policy, site.clock(), room=0) == 0
    assert site.left(OWED) == [parked]


def test_a_worker_delivers_to_a_receiver_that_is_set_apart_beside_the_others(receiver):
    site = NotifyingProcesses(receiver, policy=policy_of(receiver))
    site.queue_is_down = True
    several_ends(site, 2)
    site.store.receivers["callback:catalog"] = after_failure(None, "callback:catalog", HOUR, site.clock())
    site.clock.advance(HOUR)
    assert [one.outcome for one in deliver_due(site.notifier)] == [DeliveryOutcome.FAILED] * 2
    assert receiver.received == []
    site.clock.advance(HOUR)
    assert deliver_due(site.notifier) == []
    assert [one.outcome for one in deliver_apart(site.notifier)] == [DeliveryOutcome.DELIVERED]
    assert [one.outcome for one in deliver_apart(site.notifier)] == [DeliveryOutcome.DELIVERED]
    assert site.store.owed == {}


def test_a_delivery_that_another_process_begins_first_is_not_begun(receiver):
    site = ended_site(receiver)
    (owed,) = site.left(OWED)
    fault, rivals = site.store.fault, [owing.begun(owed, site.clock(), site.policy)]

    def rival(point):
        fault(point)
        if point == "before revise_notification" and rivals:
            site.store.owed[owed.task_id, owed.notification_id] = rivals.pop()

    site.store.fault = rival
    assert [one.outcome for one in site.notify()] == [DeliveryOutcome.SKIPPED]
    assert receiver.received == []


@pytest.mark.parametrize("n", [1, 3])
def test_only_the_message_of_the_next_delivery_begins_one(receiver, n):
    """A message that SQS delivers twice would begin a second delivery beside the first."""
    receiver.script[:] = [500]
    site = ended_site(receiver)
    site.notify()
    (owed,) = site.left(OWED)
    assert owed.attempts == 1
    assert [one.outcome for one in _take(site, Message(owed.task_id, owed.notification_id, n))] == [
        DeliveryOutcome.SKIPPED
    ]
    assert len(receiver.received) == 1


def test_each_kind_of_delivery_has_a_queue_of_its_own(receiver):
    site = NotifyingProcesses(receiver)
    site.finish(site.held())
    pools = {owed.channel: {pool_of(owed), pool_of(owed, apart=True)} for owed in site.left(OWED)}
    assert pools == {"event": {Pool.EVENTS, Pool.APART}, "callback:catalog": {Pool.CALLBACKS, Pool.APART}}
