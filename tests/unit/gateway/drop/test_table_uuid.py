"""Drops of the table with a given uuid: another table of the name stays, and a repeat is known at any time."""

from datetime import timedelta

import pytest

from delegation.gateway.drop.tombstones import TombstoneState

S = TombstoneState
DAY = timedelta(days=1)


def test_the_table_with_the_uuid_is_dropped(here):
    uuid = here.table()
    assert here.drop(uuid=uuid).status == 204
    here.work()
    assert (here.uuid(), here.data(), here.record().state) == (None, set(), S.DROPPED)


def test_the_uuid_is_compared_in_any_case(here):
    uuid = here.table()
    assert here.drop(uuid=f" {uuid.upper()}").status == 204
    assert here.drop(uuid=uuid.upper()).status == 204
    assert (here.uuid(), len(here.hidden())) == (None, 1)


def test_another_table_of_the_name_is_not_touched(here):
    here.table()
    answer = here.drop(uuid="f47ac10b-58cc-4372-a567-0e02b2c3d479")
    assert (answer.status, answer.code) == (409, "TABLE_REPLACED")
    assert here.uuid() in answer.text
    assert (here.hidden(), here.records.newest(1).tombstones) == ([], ())


@pytest.mark.parametrize("recreated", [False, True])
def test_a_repeat_a_day_later_is_answered_from_its_record(here, recreated):
    uuid = here.table()
    tombstone = here.drop(uuid=uuid).tombstone
    here.work()
    here.clock.advance(DAY)
    later = here.table(at="s3://lake/wh/ns/again") if recreated else None
    answer = here.drop(uuid=uuid, mode="wait")
    assert (answer.status, answer.tombstone, answer.state) == (204, tombstone, "DROPPED")
    assert (here.uuid(), here.hidden()) == (later, [])


def test_a_repeat_waits_for_the_purge_that_the_first_request_began(here):
    uuid = here.table()
    here.drop(uuid=uuid)
    here.clock.advance(DAY)
    here.on_sleep = here.run_due
    assert here.drop(uuid=uuid, mode="wait").state == "DROPPED"


def test_a_repeat_says_that_the_purge_was_refused(here):
    uuid = here.table()
    here.drop(uuid=uuid)
    (task,) = here.drop_tasks()
    here.tasks.operators.cancel(task.task_id)
    here.clock.advance(DAY)
    answer = here.drop(uuid=uuid, mode="wait")
    assert (answer.status, here.uuid(), here.hidden()) == (409, uuid, [])


def test_a_name_without_a_record_of_the_uuid_is_gone(here):
    uuid = here.table()
    here.drop(uuid=uuid)
    assert here.drop(uuid="f47ac10b-58cc-4372-a567-0e02b2c3d479").status == 404
    assert len(here.records.newest(9).tombstones) == 1
