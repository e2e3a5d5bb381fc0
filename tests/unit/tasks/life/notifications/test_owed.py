"""What an end announces: pure functions of the task."""

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.tasks.life import notifications as owing
from delegation.tasks.life.model import Status
from delegation.tasks.life.notifications import NotificationPolicy, NotificationState, joined, owed_by
from tests.kit.tasks.builders import HOUR, MINUTE, NOW, in_status, submitted, succeeded, touched

BOTH = ("event", "callback:catalog")


@pytest.mark.parametrize("status", Status)
def test_only_an_end_announces_and_one_notification_for_each_channel(status):
    found = owed_by([in_status(status, notify=BOTH)])
    assert all(one.due_at - one.created_ts == timedelta(minutes=1) for one in found), "then the sweeper sends it"
    assert [one.channel for one in found] == (list(BOTH) if status in {Status.SUCCESS, Status.FAILURE} else [])


def test_the_id_is_of_the_task_its_life_the_end_and_the_channel():
    task = in_status(Status.SUCCESS, notify=BOTH)
    others = [
        task,
        in_status(Status.SUCCESS, notify=BOTH),
        task.evolve(version=task.version + 2),
        task.evolve(created_ts=NOW + HOUR),
    ]
    assert len({one.notification_id for other in others for one in owed_by([other])}) == 8
    assert owed_by([touched(task, files_deleted=9)])[0].notification_id == owed_by([task])[0].notification_id


def test_the_body_says_what_ended_how_and_for_whom():
    payload = {
        "common_payload": {"polaris_correlation_id": "drop-7"},
        "operation_parameters": {"table_identity": {"catalog_name": "lake"}, "properties": {"secret": "s3cr3t"}},
    }
    task = in_status(Status.FAILURE, notify=BOTH, task_payload=json.dumps(payload))
    event, callback = owed_by([task.evolve(effects_began_ts=NOW)])
    body = json.loads(callback.body)
    assert body == {
        "notification_id": callback.notification_id,
        "type": "TASK_ENDED",
        "channel": "callback:catalog",
        "task_id": task.task_id,
        "version": task.version,
        "task_type": "TABLE_PURGE",
        "status": "FAILURE",
        "error_code": "STORAGE_DENIED",
        "result_summary": "access denied",
        "partly_deleted": True,
        "created_ts": "2026-11-21T12:00:00.000000Z",
        "ended_ts": "2026-11-21T12:00:00.000000Z",
        "polaris_correlation_id": "drop-7",
        "table_identity": {"catalog_name": "lake"},
    }
    assert json.loads(event.body) == {**body, "notification_id": event.notification_id, "channel": "event"}
    assert "s3cr3t" not in repr(callback) + callback.body


@pytest.mark.parametrize("payload", ["", "[]", "null", "7", '{"common_payload": 3, "operation_parameters": []}'])
def test_a_payload_of_another_form_has_no_table(payload):
    (found,) = owed_by([in_status(Status.SUCCESS, notify=("event",), task_payload=payload)])
    assert json.loads(found.body).keys().isdisjoint({"table_identity", "polaris_correlation_id"})


def test_a_request_that_attaches_adds_its_channels_once():
    task = submitted(notify=("event",))
    after, owed = joined(task, BOTH)
    assert (after.notify, owed) == (BOTH, ())
    assert joined(after, BOTH) == (after, ())
    assert joined(after, ())[0] is after


def test_a_request_for_what_has_ended_is_owed_its_callback_and_no_second_event():
    task = in_status(Status.SUCCESS, notify=("event",))
    after, owed = joined(task, BOTH)
    assert after is task
    assert [one.channel for one in owed] == ["callback:catalog"]
    assert owed[0].notification_id == owed_by([task.evolve(notify=BOTH)])[1].notification_id


@given(attempts=st.integers(1, 60), most=st.integers(1, 40))
def test_a_delivery_is_tried_as_often_as_the_policy_allows_and_ever_later(attempts, most):
    policy = NotificationPolicy(max_attempts=most)
    (one,) = owed_by([succeeded(in_status(Status.RUNNING, notify=("event",)))])
    now, waits = NOW, []
    for _ in range(attempts):
        begun = owing.begun(one, now, policy)
        assert begun.revision == one.revision + 1
        if begun.is_dead:
            break
        waits.append(begun.due_at - now)
        one = owing.failed(begun, "CALLBACK_UNREACHABLE: no answer", now, policy)
        assert one.is_dead == (begun.attempts == most)
        now += waits[-1]
        if one.is_dead:
            break
    assert len(waits) == min(attempts, most)
    assert waits == sorted(waits)
    assert all(MINUTE <= wait <= HOUR for wait in waits)


def test_a_delivery_whose_process_died_at_the_last_attempt_is_a_dead_letter():
    policy = NotificationPolicy(max_attempts=1)
    begun = owing.begun(owed_by([in_status(Status.SUCCESS, notify=("event",))])[0], NOW, policy)
    assert (begun.state, begun.attempts) == (NotificationState.OWED, 1)
    assert owing.begun(begun, NOW + HOUR, policy).is_dead


def test_a_revived_dead_letter_has_all_its_attempts_and_keeps_id_and_body():
    (one,) = owed_by([in_status(Status.SUCCESS, notify=("event",))])
    once = NotificationPolicy(max_attempts=1)
    dead = owing.failed(owing.begun(one, NOW, once), "x" * 1_000, NOW, once)
    revived = owing.revived(dead, NOW + HOUR)
    assert (revived.is_dead, revived.attempts, revived.due_at) == (False, 0, NOW + HOUR)
    assert (revived.notification_id, revived.body) == (one.notification_id, one.body)
    assert len(revived.last_error or "") == 300
