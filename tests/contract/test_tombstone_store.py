"""One contract for every TombstoneStore: in memory, DynamoDB in moto, DynamoDB Local."""

import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from delegation.gateway.drop.errors import MalformedTombstone, TombstoneOutcomeUnknown
from delegation.gateway.drop.store import CALLERS_INDEX, DUE_INDEX, NEWEST_INDEX, TombstoneStore, TombstoneTable
from delegation.testing.tombstones import NOW, TombstoneStoreContract, TombstoneStorePromises, pending
from polaris_common.dynamodb import to_item
from tests.contract.task_tables import client_by, keys, no_wait
from tests.contract.where import LOCAL
from tests.kit.dynamodb import MemoryTombstoneStore


def create_tombstone_table(client: Any) -> str:
    """A table of its own, as infra declares it."""
    table = f"tombstones-{uuid.uuid4()}"
    names = ("table_key", "tombstone_id", "listed_in", "listed_key", "checked_in", "check_at", "caller")
    indexes = ((NEWEST_INDEX, names[2:4]), (DUE_INDEX, names[4:6]), (CALLERS_INDEX, ("caller", "listed_key")))
    client.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
        KeySchema=keys("table_key", "tombstone_id"),
        GlobalSecondaryIndexes=[
            {"IndexName": index, "KeySchema": keys(*pair), "Projection": {"ProjectionType": "ALL"}}
            for index, pair in indexes
        ],
    )
    return table


def tombstone_store(client: Any) -> TombstoneStore:
    return TombstoneStore(TombstoneTable(client, tries=2, sleep=no_wait), create_tombstone_table(client))


class TestTombstoneStore(TombstoneStoreContract):
    @pytest.fixture(params=["memory", LOCAL])
    def store(self, request: pytest.FixtureRequest) -> Iterator[TombstoneStore]:
        if request.param == "memory":
            yield MemoryTombstoneStore()
            return
        with client_by(request) as client:
            yield tombstone_store(client)


class TestTombstoneStoreInMoto(TombstoneStorePromises):
    @pytest.fixture
    def store(self, moto_client: Any) -> TombstoneStore:
        return tombstone_store(moto_client)


class LosesAnswers:
    """A DynamoDB client whose next answers to PutItem get lost, after the write was applied or before."""

    def __init__(self, client: Any, *, lost: int, applied: bool) -> None:
        self._client = client
        self._lost = lost
        self._applied = applied

    def put_item(self, **arguments: Any) -> Any:
        if self._lost:
            self._lost -= 1
            if self._applied:
                self._client.put_item(**arguments)
            raise ReadTimeoutError(endpoint_url="dynamodb")
        return self._client.put_item(**arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


@pytest.mark.parametrize("lost", [1, 2])
def test_a_write_whose_answer_was_lost_is_recognized(moto_client, lost):
    client = LosesAnswers(moto_client, lost=lost, applied=True)
    store = TombstoneStore(TombstoneTable(client, tries=2, sleep=no_wait), create_tombstone_table(moto_client))
    record = pending()
    store.put(record)
    assert store.get(record.tombstone_id) == record


def test_a_write_that_never_arrived_is_an_unknown_outcome(moto_client):
    client = LosesAnswers(moto_client, lost=2, applied=False)
    store = TombstoneStore(TombstoneTable(client, tries=2, sleep=no_wait), create_tombstone_table(moto_client))
    with pytest.raises(TombstoneOutcomeUnknown):
        store.put(pending())


def test_a_record_of_a_newer_release_is_not_read(moto_client):
    table = create_tombstone_table(moto_client)
    store = TombstoneStore(TombstoneTable(moto_client, tries=2, sleep=no_wait), table)
    record = pending()
    store.put(record)
    key = to_item({"table_key": record.tombstone_id[:16], "tombstone_id": record.tombstone_id})
    moto_client.update_item(
        TableName=table,
        Key=key,
        UpdateExpression="SET #format = :nine",
        ExpressionAttributeNames={"#format": "format"},
        ExpressionAttributeValues=to_item({":nine": 9}),
    )
    with pytest.raises(MalformedTombstone, match="format"):
        store.get(record.tombstone_id)
    # It keeps nobody from seeing the others.
    other = pending(now=NOW - timedelta(seconds=1))
    store.put(other)
    for page in (store.newest(9), store.due(NOW + timedelta(hours=1), 9)):
        assert (page.tombstones, page.unreadable) == ((other,), 1)
    first = store.newest(1)
    assert (first.tombstones, store.newest(1, first.cursor).tombstones) == ((), (other,))


def test_records_that_cannot_be_read_take_no_place_of_one_that_is_due(moto_client):
    table = create_tombstone_table(moto_client)
    store = TombstoneStore(TombstoneTable(moto_client, tries=2, sleep=no_wait), table)
    for number in range(3):
        damaged = pending(now=NOW - timedelta(seconds=9 - number))
        store.put(damaged)
        moto_client.update_item(
            TableName=table,
            Key=to_item({"table_key": damaged.tombstone_id[:16], "tombstone_id": damaged.tombstone_id}),
            UpdateExpression="REMOVE realm",
        )
    due = pending()
    store.put(due)
    page = store.due(NOW + timedelta(hours=1), 1)
    assert (page.tombstones, page.unreadable) == ((due,), 3)
