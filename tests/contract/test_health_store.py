"""One contract for every HealthStore: in memory, DynamoDB in moto, DynamoDB Local."""

import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delegation.testing.healths import PAST, STATE, HealthStoreContract, health, table
from delegation.upkeep.errors import HealthUnavailable
from delegation.upkeep.health.model import ManifestSizes, ReadState, SnapshotChange
from delegation.upkeep.health.store import HealthStore, HealthTable
from tests.contract.task_tables import client_by, moto, no_wait
from tests.contract.test_reference_store import reference_store
from tests.contract.where import LOCAL, MOTO
from tests.kit.dynamodb import MemoryHealthStore


def health_store(client: Any, *, tries: int = 6) -> HealthStore:
    """A store over a new table of the reference index."""
    return HealthStore(HealthTable(client, tries=tries, sleep=no_wait), reference_store(client)._items.table)


@pytest.fixture(params=["memory", MOTO, LOCAL])
def store_of_each_kind(request: pytest.FixtureRequest) -> Iterator[HealthStore]:
    if request.param == "memory":
        yield MemoryHealthStore()
        return
    with client_by(request) as client:
        yield health_store(client)


class TestHealthStore(HealthStoreContract):
    @pytest.fixture
    def store(self, store_of_each_kind: HealthStore) -> HealthStore:
        return store_of_each_kind


def test_what_a_former_release_stored_is_read_and_reads_what_this_one_stores():
    with moto() as client:
        store = health_store(client)
        store.put(health(small_bytes=1, oversized_files=2, oversized_bytes=3, past=(PAST,)), STATE)
        items = client.scan(TableName=store._items.table)["Items"]
        [read] = [one for one in items if "read" in one]
        [[_, *numbers]] = json.loads(zlib.decompress(read["read"]["B"]))["manifests"]
        assert numbers == [1, 2, 3, 4, 5, 6]
        # As the former release writes the items:
        [main] = [one for one in items if "small_files" in one]
        for item, later in ((read, ("sizes",)), (main, ("small_bytes", "oversized_files", "oversized_bytes", "past"))):
            client.put_item(TableName=store._items.table, Item={k: v for k, v in item.items() if k not in later})
        found = store.health(table("t"))
        assert (found.small_files, found.small_bytes, found.oversized_files, found.oversized_bytes) == (
            0,
            None,
            None,
            None,
        )
        # The sizes of its manifests are not known, so they are read again once the table changes.
        assert store.read_state(table("t")) == replace(STATE, manifests={})


NUMBER = st.integers(0, 2**70)
STATES = st.builds(
    ReadState,
    st.text(max_size=5),
    NUMBER,
    st.dictionaries(st.binary(min_size=8, max_size=8), st.builds(ManifestSizes, *[NUMBER] * 9), max_size=4),
    st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.builds(SnapshotChange, *[NUMBER] * 3), max_size=4),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(state=STATES)
def test_any_state_comes_back(store_of_each_kind, state):
    store = store_of_each_kind
    before = store.health(table("t"))
    store.put(before or health(), state)
    assert store.read_state(table("t")) == state


def test_a_table_that_does_not_answer_is_an_error_that_may_be_repeated():
    with moto() as client:
        store = HealthStore(HealthTable(client, tries=1, sleep=no_wait), "not-there")
        with pytest.raises(HealthUnavailable) as caught:
            store.health(table("t"))
        assert caught.value.retryable


def test_an_item_of_a_newer_form_is_read_as_nothing_known():
    with moto() as client:
        store = health_store(client)
        store.put(health(), STATE)
        client.update_item(
            TableName=store._items.table,
            Key={"pk": {"S": "health-read:cat"}, "sk": {"S": _sort_key(client, store._items.table)}},
            UpdateExpression="SET #f = :two",
            ExpressionAttributeNames={"#f": "format"},
            ExpressionAttributeValues={":two": {"N": "2"}},
        )
        assert store.read_state(table("t")) == ReadState()


def _sort_key(client: Any, name: str) -> str:
    return next(
        item["sk"]["S"] for item in client.scan(TableName=name)["Items"] if item["pk"]["S"] == "health-read:cat"
    )
