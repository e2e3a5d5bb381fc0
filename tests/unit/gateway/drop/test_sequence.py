"""Drops with purge through the gateway: what each caller gets, what is deleted, and what stays."""

import pytest

from delegation.gateway.drop.tombstones import TombstoneState
from tests.unit.gateway.drop.world import HIDDEN, ORDERS, DropWorld


@pytest.fixture
def world():
    made = []

    def make(**properties: str) -> DropWorld:
        made.append(DropWorld(**properties))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_drop_frees_the_name_at_once_and_purges_afterwards(world):
    here = world()
    here.table("other")
    others = here.data()
    uuid = here.table()
    assert here.drop().status == 204
    assert here.uuid() is None
    assert len(here.hidden()) == 1
    record = here.record()
    assert (record.state, record.table_uuid, record.identifier) == (TombstoneState.RENAMED, uuid, ORDERS)
    assert here.data() > others
    here.work()
    assert here.data() == others
    assert here.hidden() == []
    assert here.record().state is TombstoneState.DROPPED
    (task,) = here.drop_tasks()
    assert (task.status, task.error_code, task.result_summary.partition(",")[0]) == (
        "SUCCESS",
        None,
        "deleted 5 files",
    )


HIDDEN_NAME = HIDDEN[0]
