"""Many DELETEs of one table at once, with a key and without: one drop, the same answer to all, and few writes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from delegation.gateway.drop import tombstones as records
from delegation.gateway.drop.tombstones import TombstoneState
from delegation.gateway.keys.service import Patience
from delegation.idempotency.reservations import MemoryReservationStore, MutationInProgress
from delegation.storage.memory import Faults, Killed
from tests.kit.tasks.builders import SECOND
from tests.unit.gateway.drop.deployment import Counted
from tests.unit.gateway.drop.test_keys import with_keys
from tests.unit.gateway.drop.world import HIDDEN, ORDERS, REALM

S = TombstoneState
RENAME = 11
"""The number of the rename among the calls of a keyed drop."""


def patient(here):
    """Have duplicates wait until the first call ends; to move the common clock would end the leases of the others."""
    pause = threading.Event()
    here.drops = replace(here.drops, patience=Patience(14.0, lambda _: pause.wait(0.001), lambda: 0.0))


@pytest.mark.parametrize("number", [2, 16, 64])
@pytest.mark.parametrize("key", [None, "one"])
def test_all_duplicates_get_the_same_answer(here, number, key):
    here.table()
    with_keys(here)
    patient(here)
    together = threading.Barrier(number)

    def drop(_number: int):
        together.wait()
        return here.drop(key=key)

    with ThreadPoolExecutor(number) as pool:
        answers = list(pool.map(drop, range(number)))
    assert [(one.status, one.code) for one in answers] == [(204, None)] * number
    assert len({one.tombstone for one in answers}) == 1
    assert (here.uuid(), len(here.hidden())) == (None, 1)
    here.settle()
    assert here.data() == set()


def overtaken(here, number, *, cleared):
    """Put the records of duplicates whose rename came too late, or that have not sent it yet."""
    first = here.record()
    for each in range(number):
        at = here.clock.now + SECOND * (each + 1) / 1000
        late = records.pending(
            REALM, ORDERS, HIDDEN, at, expected_uuid=first.expected_uuid, caller=first.caller, waits=False
        )
        here.records.put(late)
        if cleared:
            here.records.replace(records.cleared(late, at, "404"), late)


@pytest.mark.parametrize("cleared", [True, False])
def test_the_drop_is_found_among_the_records_of_all_its_duplicates(here, cleared):
    here.table()
    tombstone = here.drop().tombstone
    overtaken(here, 63, cleared=cleared)
    here.restart()
    answer = here.drop()
    assert (answer.status, answer.tombstone) == (204, tombstone)
    assert len(here.faults.names) < 30


def test_a_duplicate_waits_until_the_winner_is_known(here):
    """All that it can see is that others are under way."""
    here.table()
    tombstone = here.drop().tombstone
    overtaken(here, 15, cleared=False)
    winner = here.record() if here.record().tombstone_id == tombstone else here.records.get(tombstone)
    not_yet = winner.model_copy(update={"state": S.PENDING, "table_uuid": None, "task_id": None})
    here.records._items.put(not_yet)
    here.on_sleep = lambda: here.records._items.put(winner)
    answer = here.drop()
    assert (answer.status, answer.tombstone) == (204, tombstone)


def test_a_table_made_under_the_name_is_not_answered_by_the_drop_of_the_former_one(here):
    """Its own rename is not made: the catalog answers 503."""
    here.dropped()
    here.table()
    made = here.uuid()
    here.requests.lose = lambda request: "503 instead" if request.url.path.endswith("tables/rename") else None
    assert here.drop().status == 503
    assert here.uuid() == made


def test_a_duplicate_whose_rename_the_catalog_could_not_decide_is_answered_as_the_winner(here):
    """Polaris answers some of several renames at once with 500 or 503, and moves the table for another one."""
    here.table()

    def second(request):
        if request.url.path.endswith("tables/rename"):
            here.requests.lose = lambda _request: None
            here.first = here.drop()
            return "503 instead"
        return None

    here.requests.lose = second
    answer = here.drop()
    assert (answer.status, answer.tombstone) == (204, here.first.tombstone)
    here.settle()
    assert {one.state for one in here.records.newest(9).tombstones} == {S.DROPPED, S.CLEARED}


@pytest.mark.parametrize("key", [None, "one"])
def test_all_duplicates_of_a_refusal_get_it(here, key):
    uuid = here.table(**{"gc.enabled": "false"})
    with_keys(here)
    patient(here)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: here.drop(key=key), range(16)))
    assert {one.status for one in answers} == {409}
    assert here.uuid() == uuid


def killed_after_the_rename(here):
    """A keyed drop whose process ended just after the rename; the table of keys is returned."""
    here.table()
    here.restart(Faults(kill_at=RENAME, after=True))
    keys = MemoryReservationStore()
    with_keys(here, Counted(keys, "key", here.faults))
    with pytest.raises(Killed):
        here.drop(key="one")
    assert (here.uuid(), len(here.hidden())) == (None, 1)
    here.restart()
    return keys


def test_a_duplicate_right_after_a_kill_waits_and_gets_the_answer(here):
    keys = killed_after_the_rename(here)
    with_keys(here, keys)
    began = here.clock.now
    assert here.drop(key="one").status == 204
    assert (here.clock.now - began).total_seconds() < 14


def test_a_waiting_duplicate_writes_at_most_once_a_second(here):
    keys = killed_after_the_rename(here)
    counted = Counted(keys, "key", here.faults)
    with_keys(here, counted)
    began = here.clock.now
    assert here.drop(key="one").status == 204
    waited = (here.clock.now - began).total_seconds()
    writes = [name for name in here.faults.names if name.startswith("key ") and name != "key get"]
    assert waited > 10
    assert len(writes) <= 4


def test_a_call_that_waits_for_its_purge_keeps_its_key(world):
    """A duplicate that comes after the first lease would be over neither takes the key nor drops anything."""
    here = world(mode="wait")
    here.table()
    keys = with_keys(here)
    came = []

    def come():
        if here.clock.now - began > 20 * SECOND and not came:
            came.append(True)
            here.drops = replace(here.drops, patience=Patience(0.0))
            with pytest.raises(MutationInProgress):
                here.drop(key="one")
            here.run_due()

    began = here.clock.now
    here.on_sleep = come
    assert here.drop(key="one").status == 204
    assert came
    assert (len(here.records.newest(9).tombstones), here.data()) == (1, set())
    assert isinstance(keys, MemoryReservationStore)
    assert [one.attempt for one in keys._records.values()] == [1]


def test_a_request_that_waited_for_its_key_does_not_outlast_the_time_of_an_answer(world):
    """Its own wait for the purge ends when its answer is due, not a whole budget after it got the key."""
    here = world(mode="wait")
    keys = killed_after_the_rename(here)
    with_keys(here, keys)
    began = here.clock.now
    assert here.drop(key="one").code == "STILL_PURGING"
    assert (here.clock.now - began).total_seconds() < 28
