"""A service that may not do its part: nothing is renamed, or the table gets its name back, or can be given it."""

import contextlib
import json
from datetime import timedelta

import pytest

from delegation.gateway.drop.errors import NameTaken, RestoreRefused
from delegation.gateway.drop.steps import GIVE_UP_AFTER
from delegation.gateway.drop.tombstones import TombstoneState
from delegation.idempotency.reservations import MemoryReservationStore
from delegation.identifiers import TableIdentifier
from delegation.storage.memory import Faults, Killed
from infra.local.catalog.privileges import Privilege
from tests.unit.gateway.drop.test_keys import RENAME, with_keys
from tests.unit.gateway.drop.test_owners import Owner
from tests.unit.gateway.drop.test_upkeep import left_behind
from tests.unit.gateway.drop.world import HIDDEN, ORDERS

S = TombstoneState
LISTS = Privilege.TABLE_LIST
AGAIN = TableIdentifier("lake", ("ns",), "orders_again")


def test_a_service_without_grants_in_the_tombstone_namespace_has_nothing_renamed(here):
    here.confine()
    uuid = here.table()
    answer = here.drop()
    assert (answer.status, answer.code) == (500, "SERVICE_NOT_PERMITTED")
    assert "was not dropped" in answer.text
    assert "delegation polaris setup lake --tombstones delegation_tombstones" in answer.text
    assert (here.uuid(), here.hidden(), here.records.newest(1).tombstones) == (uuid, [], ())
    assert RENAME not in here.faults.names
    here.permit()
    assert here.drop().status == 204


def test_the_key_of_a_drop_that_was_not_begun_drops_once_the_service_is_permitted(here):
    with_keys(here, MemoryReservationStore())
    here.confine()
    uuid = here.table()
    assert here.drop(key="one").code == "SERVICE_NOT_PERMITTED"
    assert (here.uuid(), here.hidden()) == (uuid, [])
    here.permit()
    here.clock.advance(timedelta(minutes=2))
    assert here.drop(key="one").status == 204


def test_a_table_that_the_service_cannot_load_after_the_rename_gets_its_name_back(here):
    here.confine(LISTS)
    uuid = here.table()
    answer = here.drop()
    assert (answer.status, answer.code) == (409, "DROP_REFUSED")
    assert "the principal needs TABLE_READ_PROPERTIES" in answer.text
    assert (here.uuid(), here.hidden(), here.record().state) == (uuid, [], S.RESTORED)
    here.permit()
    here.settle()
    assert here.uuid() == uuid


def test_where_nobody_may_rename_it_back_it_is_restored_as_soon_as_the_service_may(world):
    here = world(trusted_roles="stewards")
    here.confine(LISTS)
    here.confine(Privilege.TABLE_CREATE, who="dropper")
    uuid = here.table()
    answer = here.drop(who="dropper", roles="stewards")
    assert (answer.status, answer.code) == (500, "SERVICE_NOT_PERMITTED")
    assert "delegation tombstones restore" in answer.text
    record = here.record()
    assert (here.uuid(), len(here.hidden()), record.state) == (None, 1, S.PENDING)
    for _ in range(3):
        here.clock.advance(timedelta(minutes=20))
        here.upkeep()
    assert (here.record().state, here.hidden()) == (S.PENDING, [record.destination_name])
    assert "TABLE_READ_PROPERTIES" in str(here.record().trouble)
    with pytest.raises(RestoreRefused, match="the principal needs TABLE_DROP"):
        here.tombstones.restore(record.tombstone_id)
    here.permit()
    assert here.tombstones.restore(record.tombstone_id).state is S.RESTORED
    here.settle()
    assert (here.uuid(), here.hidden(), here.record().state) == (uuid, [], S.RESTORED)


def test_a_drop_that_no_grant_let_finish_is_finished_when_there_is_one(here):
    left_behind(here)
    here.confine(LISTS)
    here.clock.advance(timedelta(hours=1))
    here.upkeep()
    assert len(here.hidden()) == 1
    here.permit()
    here.clock.advance(timedelta(hours=1))
    here.settle()
    assert (here.uuid(), here.hidden(), here.data()) == (None, [], set())


@pytest.mark.parametrize("target", [None, AGAIN])
def test_a_rename_without_a_recorded_end_is_restored_at_once(world, target):
    here = world(grace="7d")
    tombstone = left_behind(here).tombstone_id
    uuid = here.record().expected_uuid
    restored = here.tombstones.restore(tombstone, target)
    assert (restored.state, restored.restore_identifier) == (S.RESTORED, target or ORDERS)
    here.settle()
    assert (here.uuid((target or ORDERS).name), here.hidden()) == (uuid, [])


@pytest.mark.parametrize("kill_at", range(1, 7))
def test_a_restore_that_is_killed_is_finished_by_the_recurring_task(world, kill_at):
    here = world(grace="7d")
    tombstone, uuid = left_behind(here).tombstone_id, here.record().expected_uuid
    here.restart(Faults(kill_at=kill_at, after=True))
    with contextlib.suppress(Killed):
        here.tombstones.restore(tombstone)
    here.restart()
    here.clock.advance(timedelta(hours=1))
    here.upkeep()
    record = here.records.get(tombstone)
    assert (record.state, here.uuid()) in {(S.RESTORED, uuid), (S.RENAMED, None)}
    assert here.tombstones.restore(tombstone).state is S.RESTORED
    assert (here.uuid(), here.hidden()) == (uuid, [])


def test_a_rename_that_was_not_performed_is_not_restored(here):
    uuid = here.table()
    here.requests.lose = lambda request: "request" if request.url.path.endswith("tables/rename") else None
    assert here.drop().status == 503
    here.requests.lose = lambda _request: None
    with pytest.raises(RestoreRefused, match="not confirmed"):
        here.tombstones.restore(here.record().tombstone_id)
    here.clock.advance(GIVE_UP_AFTER)
    here.upkeep()
    with pytest.raises(RestoreRefused, match="never renamed"):
        here.tombstones.restore(here.record().tombstone_id)
    assert (here.uuid(), here.record().state) == (uuid, S.CLEARED)


def test_a_rename_that_came_after_the_record_was_cleared_is_restored(here):
    uuid = here.table()
    here.requests.lose = lambda request: "request" if request.url.path.endswith("tables/rename") else None
    here.drop()
    here.requests.lose = lambda _request: None
    here.clock.advance(GIVE_UP_AFTER)
    here.upkeep()
    record = here.record()
    assert record.state is S.CLEARED
    here.rename("orders", HIDDEN, record.destination_name)
    assert here.tombstones.restore(record.tombstone_id).state is S.RESTORED
    assert (here.uuid(), here.hidden()) == (uuid, [])


def test_a_table_whose_metadata_file_went_after_the_rename_gets_its_name_back(here):
    tombstone = left_behind(here).tombstone_id
    lost = {where: content for where, content in here.lake.objects.items() if where[1].endswith(".metadata.json")}
    for where in lost:
        del here.lake.objects[where]
    here.clock.advance(GIVE_UP_AFTER)
    here.upkeep()
    record = here.records.get(tombstone)
    assert (record.state, here.hidden()) == (S.RESTORED, [])
    assert "TABLE_METADATA_MISSING" in str(record.problem)
    here.lake.objects.update(lost)
    assert here.uuid() == record.expected_uuid


def test_another_name_is_chosen_where_the_former_one_is_taken(here):
    tombstone = left_behind(here).tombstone_id
    uuid = here.record().expected_uuid
    other = here.table()
    here.confine(LISTS, Privilege.TABLE_DROP)
    here.clock.advance(GIVE_UP_AFTER)
    here.upkeep()
    assert "NAME_TAKEN" in str(here.records.get(tombstone).trouble)
    with pytest.raises(NameTaken):
        here.tombstones.restore(tombstone)
    assert here.tombstones.restore(tombstone, AGAIN).state is S.RESTORED
    assert (here.uuid(), here.uuid("orders_again"), here.hidden()) == (other, uuid, [])


def test_a_caller_gives_no_other_name_to_a_table_that_is_not_known_to_be_its_own(here):

    def swap(request):
        if request.url.path.endswith("tables/rename"):
            here.requests.lose = lambda _request: None
            here.unregister()
            here.other = here.table()

    here.requests.lose = swap
    owner, record = Owner(here), left_behind(here)
    status, body = owner.restore(record.tombstone_id, {"namespace": ["ns"], "name": "mine"})
    assert (status, body["error"]["type"]) == (409, "ConflictException"), json.dumps(body)
    assert owner.restore(record.tombstone_id)[0] == 200
    assert (here.uuid(), here.uuid("mine"), here.hidden()) == (here.other, None, [])


def test_a_drop_makes_four_requests_of_the_catalog_and_the_first_of_a_process_three_more(here):
    base = "/api/catalog/v1/lake/namespaces"
    made = {}
    here.restart()
    for name in ("orders", "returns"):
        here.table(name)
        here.faults.names.clear()
        here.clock.advance(timedelta(seconds=1))
        here.drop(name)
        made[name] = [call for call in here.faults.names if call.split()[0] in {"GET", "POST", "HEAD", "DELETE"}]
    hidden = f"{base}/{HIDDEN[0]}/tables"
    moved = f"GET {hidden}/{here.record().destination_name}"
    assert made["returns"] == [f"GET {base}/ns/tables/returns", f"GET {hidden}", RENAME, moved]
    assert len(made["orders"]) == len(made["returns"]) + 3  # the service's token, the catalog's kind and configuration


def restored_before_the_write(here):
    """Have somebody restore the table after it was loaded at its destination, before that is recorded."""
    put = here.records.replace

    def replace(record, before):
        here.records.replace = put
        here.tombstones.restore(record.tombstone_id)
        put(record, before)

    here.records.replace = replace


def test_a_drop_whose_table_was_restored_before_the_rename_was_recorded_is_refused(here):
    uuid = here.table()
    restored_before_the_write(here)
    answer = here.drop()
    assert (answer.status, answer.code) in {(409, "DROP_REFUSED"), (503, "DROP_INTERRUPTED")}
    here.settle()
    assert (here.uuid(), here.hidden(), here.record().state, here.drop_tasks()) == (uuid, [], S.RESTORED, [])


def test_the_recurring_task_leaves_a_table_that_is_restored_meanwhile(here):
    left_behind(here)
    uuid = here.record().expected_uuid
    here.clock.advance(GIVE_UP_AFTER)
    restored_before_the_write(here)
    assert here.upkeep().troubled == 0
    here.settle()
    assert (here.uuid(), here.hidden(), here.record().state, here.drop_tasks()) == (uuid, [], S.RESTORED, [])
