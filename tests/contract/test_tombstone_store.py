"""One contract for every TombstoneStore: in memory, DynamoDB in moto, DynamoDB Local."""

import contextlib
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from delegation.dynamodb import to_item
from delegation.gateway.drop import tombstones as records
from delegation.gateway.drop.dynamodb import (
    CALLERS_INDEX,
    DUE_INDEX,
    NEWEST_INDEX,
    DynamoDbTombstoneStore,
    TombstoneTable,
)
from delegation.gateway.drop.errors import (
    MalformedTombstone,
    TombstoneOutcomeUnknown,
)
from delegation.gateway.drop.store import MemoryTombstoneStore, TombstoneConflict, TombstoneStore
from delegation.gateway.drop.tombstones import MovedTable, Tombstone, TombstoneState
from delegation.identifiers import TableIdentifier
from tests.contract.task_tables import dynamodb_client, moto, no_wait

NOW = datetime(2026, 11, 22, 12, 0, 0, 123456, tzinfo=UTC)
TABLE = TableIdentifier("lake", ("sales", "é.u"), "orders")
HIDDEN = ("delegation_tombstones",)
MOVED = MovedTable(table_uuid="u-2", metadata_location="s3://b/m.json", location="s3://b", format_version=2)
LOCAL = pytest.param("local", marks=pytest.mark.dynamodb_local)


def create_tombstone_table(client: Any) -> str:
    """A table of its own, as infra declares it."""
    table = f"tombstones-{uuid.uuid4()}"
    names = ("table_key", "tombstone_id", "listed_in", "listed_key", "checked_in", "check_at", "caller")
    indexes = ((NEWEST_INDEX, names[2:4]), (DUE_INDEX, names[4:6]), (CALLERS_INDEX, ("caller", "listed_key")))
    client.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
        KeySchema=_keys("table_key", "tombstone_id"),
        GlobalSecondaryIndexes=[
            {"IndexName": index, "KeySchema": _keys(*keys), "Projection": {"ProjectionType": "ALL"}}
            for index, keys in indexes
        ],
    )
    return table


def _keys(partition: str, sort: str) -> Any:
    return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]


def tombstone_store(client: Any) -> DynamoDbTombstoneStore:
    return DynamoDbTombstoneStore(TombstoneTable(client, tries=2, sleep=no_wait), create_tombstone_table(client))


@pytest.fixture(scope="module")
def in_moto() -> Iterator[Any]:
    with moto() as client:
        yield client


@pytest.fixture(params=["memory", "moto", LOCAL])
def store(request: pytest.FixtureRequest) -> Iterator[TombstoneStore]:
    if request.param == "memory":
        yield MemoryTombstoneStore()
    elif request.param == "moto":
        yield tombstone_store(request.getfixturevalue("in_moto"))
    else:
        with contextlib.closing(dynamodb_client(request.getfixturevalue("dynamodb_local").url)) as client:
            yield tombstone_store(client)


def pending(table: TableIdentifier = TABLE, now: datetime = NOW, **fields: Any) -> Tombstone:
    given = {"expected_uuid": "U-1", "caller": "principal:ann", "waits": False, **fields}
    return records.pending("POLARIS", table, HIDDEN, now, **given)


def renamed(record: Tombstone, now: datetime = NOW) -> Tombstone:
    return records.renamed(record, MOVED, now, task_id="task", grace=timedelta(days=7))


def test_a_record_comes_back_whole_in_every_state(store):
    record = pending(waits=True)
    store.put(record)
    assert store.get(record.tombstone_id) == record
    target = TableIdentifier("lake", ("sales",), "again")
    for change in (
        renamed,
        lambda one: records.failed(one, NOW, "GC_DISABLED: no"),
        lambda one: records.restoring(one, target, NOW),
        lambda one: records.restored(one, NOW),
    ):
        after = change(record)
        store.replace(after, record)
        assert store.get(record.tombstone_id) == after
        record = after
    assert (record.version, record.restore_identifier) == (5, target)
    assert store.get(pending().tombstone_id) is None


def test_an_id_that_is_taken_is_refused_with_its_record(store):
    record = pending()
    store.put(record)
    with pytest.raises(TombstoneConflict) as refused:
        store.put(record.model_copy(update={"nonce": "another"}))
    assert refused.value.stored == record


def test_replacing_is_conditional_on_what_was_read(store):
    record = pending()
    with pytest.raises(TombstoneConflict) as absent:
        store.replace(renamed(record), record)
    store.put(record)
    mine = renamed(record)
    store.replace(mine, record)
    with pytest.raises(TombstoneConflict) as refused:
        store.replace(records.cleared(record, NOW, "404"), record)
    assert (absent.value.stored, refused.value.stored) == (None, mine)
    assert store.get(record.tombstone_id) == mine


def test_the_same_write_again_is_no_conflict(store):
    record = pending()
    store.put(record)
    store.put(record)
    mine = renamed(record)
    store.replace(mine, record)
    store.replace(mine, record)
    assert store.get(record.tombstone_id) == mine


def test_a_table_s_records_come_newest_first(store):
    first, second, third = (pending(now=NOW + timedelta(seconds=each)) for each in range(3))
    other = pending(TableIdentifier("lake", ("sales", "é.u"), "order"))
    for record in (second, third, first, other):
        store.put(record)
    assert list(store.of_table("POLARIS", TABLE, 2)) == [third, second]
    assert list(store.of_table("OTHER", TABLE, 2)) == []


def test_all_records_are_listed_newest_first_in_pages(store):
    made = [
        pending(TABLE if n % 2 else TableIdentifier("b", ("n",), str(n)), NOW + timedelta(hours=n)) for n in range(5)
    ]
    for record in made:
        store.put(record)
    found, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        page = store.newest(2, cursor)
        found, cursor, pages = [*found, *page.tombstones], page.cursor, pages + 1
    assert found == made[::-1]
    assert pages == 3


def test_those_of_one_caller_are_listed_newest_first_in_pages(store):
    mine = [pending(now=NOW + timedelta(hours=each)) for each in range(3)]
    theirs = [pending(now=NOW + timedelta(hours=each), caller="principal:bob") for each in range(2)]
    for record in (*mine, *theirs):
        store.put(record)
    first = store.newest(2, caller="principal:ann")
    rest = store.newest(2, first.cursor, caller="principal:ann")
    assert [*first.tombstones, *rest.tombstones] == mine[::-1]
    assert store.newest(9, caller="principal:a").tombstones == ()


def test_what_is_to_be_checked_is_found_the_earliest_first_until_it_ends(store):
    late, early = pending(now=NOW), pending(now=NOW - timedelta(minutes=1))
    for record in (late, early):
        store.put(record)
    assert list(store.due(NOW, 10).tombstones) == []
    at = NOW + records.CHECK_AFTER
    assert list(store.due(at, 10).tombstones) == [early, late]
    assert list(store.due(at, 1).tombstones) == [early]
    store.replace(records.cleared(early, NOW, "404"), early)
    moved = records.checked(late, NOW, at + timedelta(minutes=1))
    store.replace(moved, late)
    assert (list(store.due(at, 10).tombstones), moved.state) == ([], TombstoneState.PENDING)
    assert list(store.due(at + timedelta(minutes=1), 10).tombstones) == [moved]


def test_a_troubled_and_a_dismissed_record_come_back_whole(store):
    record = pending()
    store.put(record)
    late = records.troubled(records.troubled(record, NOW, "403"), NOW, "403 again")
    store.replace(late, record)
    assert (store.get(record.tombstone_id), late.attempts) == (late, 2)
    assert list(store.due(NOW + records.backoff(2), 9).tombstones) == [late]
    assert list(store.due(NOW + records.backoff(1), 9).tombstones) == []
    ended = records.dismissed(late, NOW, "its files stay", drops_entry=False)
    store.replace(ended, late)
    assert store.get(record.tombstone_id) == ended
    assert list(store.due(NOW + timedelta(days=9), 9).tombstones) == []


@pytest.mark.parametrize("store", ["memory", LOCAL], indirect=True)
def test_one_of_many_threads_writes_the_next_version(store):
    record = pending()
    store.put(record)
    won: list[Tombstone] = []

    def write() -> None:
        mine = renamed(record)
        with contextlib.suppress(TombstoneConflict):
            store.replace(mine, record)
            won.append(mine)

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [store.get(record.tombstone_id)]


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
def test_a_write_whose_answer_was_lost_is_recognized(in_moto, lost):
    client = LosesAnswers(in_moto, lost=lost, applied=True)
    store = DynamoDbTombstoneStore(TombstoneTable(client, tries=2, sleep=no_wait), create_tombstone_table(in_moto))
    record = pending()
    store.put(record)
    assert store.get(record.tombstone_id) == record


def test_a_write_that_never_arrived_is_an_unknown_outcome(in_moto):
    client = LosesAnswers(in_moto, lost=2, applied=False)
    store = DynamoDbTombstoneStore(TombstoneTable(client, tries=2, sleep=no_wait), create_tombstone_table(in_moto))
    with pytest.raises(TombstoneOutcomeUnknown):
        store.put(pending())


def test_a_record_of_a_newer_release_is_not_read(in_moto):
    table = create_tombstone_table(in_moto)
    store = DynamoDbTombstoneStore(TombstoneTable(in_moto, tries=2, sleep=no_wait), table)
    record = pending()
    store.put(record)
    key = to_item({"table_key": record.tombstone_id[:16], "tombstone_id": record.tombstone_id})
    in_moto.update_item(
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
