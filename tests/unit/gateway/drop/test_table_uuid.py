"""Drops of the table with a given uuid: another table of the name stays, and a repeat is known at any time."""

from datetime import timedelta

import pytest

from delegation.gateway.drop.tombstones import TombstoneState
from delegation.idempotency.keys import KeyConflict
from tests.unit.gateway.drop.test_keys import with_keys
from tests.unit.gateway.drop.world import HIDDEN

S = TombstoneState
DAY = timedelta(days=1)
OTHER = "f47ac10b-58cc-4372-a567-0e02b2c3d479"


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
    answer = here.drop(uuid=OTHER)
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
    assert here.drop(uuid=OTHER).status == 404
    assert len(here.records.newest(9).tombstones) == 1


def test_a_key_is_bound_to_the_uuid_in_any_case(here):
    first = here.table()
    with_keys(here)
    assert here.drop(key="one", uuid=first).status == 204
    second = here.table()
    assert here.drop(key="one", uuid=first.upper()).status == 204
    for uuid in (second, None):
        with pytest.raises(KeyConflict):
            here.drop(key="one", uuid=uuid)
    assert here.uuid() == second


def test_the_repeat_of_an_unclear_drop_with_another_uuid_does_not_drop_the_first_table(here):
    own = here.table()
    with_keys(here)
    here.requests.lose = lambda request: "request" if request.url.path.endswith("tables/rename") else None
    assert here.drop(key="one", uuid=own).status == 503
    here.requests.lose = lambda _request: None
    here.clock.advance(timedelta(minutes=1))
    with pytest.raises(KeyConflict):
        here.drop(key="one", uuid=OTHER)
    assert here.uuid() == own


@pytest.fixture
def passing(world):
    """A world whose unsupported drops the catalog purges itself."""
    here = world(unsupported="pass")
    here.catalog.warehouse.replace_properties({"polaris.config.drop-with-purge.enabled": "true"})
    return here


def test_the_table_with_the_uuid_is_left_to_the_catalog(passing):
    own = passing.table()
    passing.send("DELETE", f"namespaces/{HIDDEN[0]}")
    assert passing.drop(uuid=OTHER).code == "TABLE_REPLACED"
    assert passing.uuid() == own
    assert passing.drop(uuid=own).status == 204
    assert passing.uuid() is None


@pytest.mark.parametrize("key", [None, "one"])
def test_a_table_whose_uuid_is_unknown_is_not_left_to_the_catalog(passing, key):
    own = passing.table()
    with_keys(passing)
    vending = (400, "IllegalArgumentException", "Credential vending was requested for table ns.orders")
    passing.requests.fake = {"GET /api/catalog/v1/lake/namespaces/ns/tables/orders": vending}
    answer = passing.drop(uuid=OTHER, key=key)
    assert (answer.status, "vends no storage credentials" in answer.text) == (400, True)
    passing.requests.fake = {}
    assert passing.uuid() == own


def test_a_repeat_leaves_to_the_catalog_no_other_table_than_the_first_request(passing):
    """The first request's rename was lost, and the table of its record is replaced by another one."""
    passing.table()
    with_keys(passing)
    passing.requests.lose = lambda request: "request" if request.url.path.endswith("tables/rename") else None
    assert passing.drop(key="one").status == 503
    passing.requests.lose = lambda _request: None
    passing.send("DELETE", "namespaces/ns/tables/orders")
    second = passing.table()
    passing.clock.advance(timedelta(minutes=1))
    vending = (400, "IllegalArgumentException", "Credential vending was requested for table ns.orders")
    passing.requests.fake = {"GET /api/catalog/v1/lake/namespaces/ns/tables/orders": vending}
    assert passing.drop(key="one").status == 400
    passing.requests.fake = {}
    assert passing.uuid() == second
