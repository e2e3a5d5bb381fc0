"""Drops with purge under an Idempotency-Key: the key decides, also after the table was made anew."""

from dataclasses import replace
from datetime import timedelta

import pytest

from delegation.gateway.drop.caller.keyed import KeyedDrops
from delegation.gateway.drop.tombstones import TombstoneState
from delegation.gateway.keys.patience import Patience
from delegation.gateway.keys.service import policy_for
from delegation.idempotency.errors import KeyConflict
from delegation.idempotency.mutations.memory import MemoryReservationStore
from delegation.idempotency.mutations.service import Mutations
from delegation.storage.memory import Faults, Killed
from tests.unit.gateway.drop.world import REALM, DropWorld
from tests.unit.tasks.builders import nonce


def with_keys(here: DropWorld, store: MemoryReservationStore | None = None) -> MemoryReservationStore:
    """Have the gateway honour keys, whose records are in `store`."""
    store = store or MemoryReservationStore()
    mutations = Mutations(store, policy=policy_for(12, timedelta(minutes=30)), clock=here.clock, nonce=nonce)
    patience = replace(Patience.within(12), sleep=here.sleep, monotonic=here.seconds)
    here.drops = KeyedDrops(here.drops, mutations, REALM, here.forward, patience, here.clock)
    return store


def test_the_same_key_is_replayed_although_the_table_was_made_anew(world):
    here = world()
    here.table()
    with_keys(here)
    assert here.drop(key="one").status == 204
    second = here.table()
    assert here.drop(key="one").status == 204
    assert here.uuid() == second
    assert here.drop(key="two").status == 204
    assert here.uuid() is None


def test_a_refusal_is_replayed(world):
    here = world()
    uuid = here.table(**{"gc.enabled": "false"})
    with_keys(here)
    answers = [here.drop(key="one") for _ in range(2)]
    assert answers[0] == answers[1]
    assert (answers[0].status, answers[0].code) == (409, "ConflictException")
    assert here.uuid() == uuid


def test_a_key_is_bound_to_its_request(world):
    here = world()
    here.table()
    with_keys(here)
    assert here.drop(key="one").status == 204
    with pytest.raises(KeyConflict):
        here.drop(key="one", query="purgeRequested=True")


@pytest.mark.parametrize("after", [False, True])
def test_a_call_that_was_killed_is_reconciled_by_its_repeat(world, after):
    here = world()
    here.table()
    here.drop()  # counts nothing; only to learn the calls
    names = here.faults.names
    rename = next(number for number, name in enumerate(names, 1) if name.endswith("tables/rename"))
    here = world()
    here.table()
    here.restart(Faults(kill_at=rename, after=after))
    keys = with_keys(here)
    with pytest.raises(Killed):
        here.drop(key="one")
    here.restart()
    with_keys(here, keys)
    assert here.drop(key="one").status == 204
    here.settle()
    assert (here.uuid(), here.data()) == (None, set())
    states = {one.state for one in here.records.newest(9).tombstones}
    assert states <= {TombstoneState.DROPPED, TombstoneState.CLEARED}
