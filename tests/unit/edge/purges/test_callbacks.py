"""A request picks the callback that the end of its task announces; and the proposal's four modes of delegation."""

import json
from dataclasses import replace

import pytest

from delegation.edge.answers import status_of
from delegation.idempotency.keys import IdempotencyError
from delegation.tasks.life.notifications import NotificationPolicy
from delegation.tasks.options import InvalidOption
from delegation.tasks.stores.base import Advance
from delegation.tasks.stores.memory import MemoryNotificationStore
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.lakes.lake import filled
from tests.kit.tasks.builders import failed
from tests.kit.worlds.service import World
from tests.services import change_service

URLS = {"catalog": "https://catalog.acme.org/hook", "audit": "https://audit.acme.org/hook"}


def world(**changes):
    there = filled(World(), "orders")
    policy = replace(NotificationPolicy(callbacks=URLS), **changes)
    change_service(there.tasks, policies=replace(there.tasks.policies, notifications=policy))
    return there


def owed(there):
    """The channels and statuses of what is owed."""
    found = sorted(there.store.owed.values(), key=lambda one: one.channel)
    return [(one.channel, json.loads(one.body)["status"]) for one in found]


def task_id_of(answer):
    return json.loads(answer.body)["delegation_task_id"]


def test_the_end_announces_the_callback_that_the_request_picked():
    there = world()
    answer = there.submit(there.body("orders", callback="catalog"), "key-1")
    assert owed(there) == []
    there.drive()
    assert owed(there) == [("callback:catalog", "SUCCESS")]
    (found,) = there.store.owed.values()
    body = json.loads(found.body)
    assert body["task_id"] == task_id_of(answer)
    assert body["table_identity"]["table_name"] == "orders"


def test_a_synchronous_request_may_pick_one_too():
    there = world()
    assert there.execute(there.body("orders", callback="audit"), "key-1").status == 200
    assert owed(there) == [("callback:audit", "SUCCESS")]


def test_a_request_without_one_announces_the_event_alone_where_events_are_on():
    there = world(events=True)
    there.submit(there.body("orders"))
    there.drive()
    assert owed(there) == [("event", "SUCCESS")]


@pytest.mark.parametrize("urls", [{}, {"audit": URLS["audit"]}])
def test_a_callback_that_no_setting_names_is_refused_and_nothing_accepted(urls):
    there = world(callbacks=urls)
    expected = f"configured: {', '.join(urls) or 'none'}"
    with pytest.raises(DelegationError, check=coded("PROPERTY_NOT_ALLOWED"), match=expected) as refused:
        there.submit(there.body("orders", callback="catalog"), "key-1")
    assert status_of(refused.value) == 403
    assert "https" not in str(refused.value)
    assert there.store.heads().tasks == ()


def test_an_address_is_no_name_of_a_callback():
    there = world()
    with pytest.raises(InvalidOption, match="callback: must be a name"):
        there.submit(there.body("orders", callback="https://attacker.example/"), "key-1")


def test_a_request_that_attaches_adds_its_callback():
    there = world()
    there.submit(there.body("orders", callback="catalog"), "key-1")
    there.submit(there.body("orders", callback="audit"), "key-2")
    there.submit(there.body("orders"), "key-3")
    there.drive()
    assert owed(there) == [("callback:audit", "SUCCESS"), ("callback:catalog", "SUCCESS")]


def test_a_request_for_what_was_purged_already_is_owed_its_callback_at_once():
    there = world()
    body = there.body("orders", callback="audit")
    first = there.submit(there.body("orders"), "key-1")
    there.drive()
    assert owed(there) == []
    second = there.submit(body, "key-2")
    assert task_id_of(first) == task_id_of(second)
    assert owed(there) == [("callback:audit", "SUCCESS")]
    MemoryNotificationStore(there.store).remove_notification(*there.store.owed.values())
    there.submit(body, "key-2")  # a replay of the answer announces nothing more
    assert owed(there) == []


def test_another_callback_is_no_conflict_but_other_properties_are():
    there = world()
    there.submit(there.body("orders", callback="catalog"))
    there.submit(there.body("orders", callback="audit"))
    with pytest.raises(IdempotencyError, check=coded("TASK_EXISTS")):
        there.submit(there.body("orders", callback="audit", shared="refuse"))


def test_each_submission_names_its_callbacks_and_a_retry_keeps_them():
    there = world()
    task_id = task_id_of(there.submit(there.body("orders", callback="catalog"), "key-1"))
    head = there.tasks.reads.get(task_id)
    there.store.apply(Advance(head, failed(head, there.clock())))
    there.tasks.operators.retry(task_id)
    assert there.tasks.reads.get(task_id).notify == ("callback:catalog",)
    head = there.tasks.reads.get(task_id)
    there.store.apply(Advance(head, failed(head, there.clock())))
    assert owed(there) == [("callback:catalog", "FAILURE")] * 2
    there.submit(there.body("orders", callback="audit"), "key-2")
    assert there.tasks.reads.get(task_id).notify == ("callback:audit",)


# ---- the modes of delegation (Delegation Service proposal, Delegation Mode)
