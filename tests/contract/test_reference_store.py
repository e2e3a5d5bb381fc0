"""One contract for every ReferenceStore: in memory, DynamoDB in moto, DynamoDB Local."""

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delegation.identifiers import TableIdentifier
from delegation.references.blocking import DIGEST_BYTES
from delegation.references.errors import PassLost, ReferencesUnavailable
from delegation.references.model import MOST_AREAS, MOST_DISPLACED, fold, overlap
from delegation.references.store import ReferenceStore, ReferenceTable
from delegation.testing.references import ReferenceStoreContract, entry, names, put
from tests.contract.task_tables import client_by, keys, moto, no_wait
from tests.contract.where import LOCAL, MOTO
from tests.effort import examples
from tests.kit.dynamodb import MemoryReferenceStore


def reference_store(client: Any, *, tries: int = 6) -> ReferenceStore:
    """A store over a new table, as infra declares it."""
    table = f"references-{uuid.uuid4()}"
    client.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
        KeySchema=keys("pk", "sk"),
    )
    return ReferenceStore(ReferenceTable(client, tries=tries, sleep=no_wait), table)


@pytest.fixture(params=["memory", MOTO, LOCAL])
def store_of_each_kind(request: pytest.FixtureRequest) -> Iterator[ReferenceStore]:
    if request.param == "memory":
        yield MemoryReferenceStore()
        return
    with client_by(request) as client:
        yield reference_store(client)


class TestReferenceStore(ReferenceStoreContract):
    @pytest.fixture
    def store(self, store_of_each_kind: ReferenceStore) -> ReferenceStore:
        return store_of_each_kind


PART = st.sampled_from(["a", "b", "", "", "é", "x" * 300, "y\x00"])
AREA = st.builds(
    lambda bucket, parts: f"s3://{bucket}/{''.join(f'{part}/' for part in parts)}",
    st.sampled_from(["one", "two"]),
    st.lists(PART, max_size=4),
)


@settings(max_examples=examples(90), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(tables=st.lists(st.lists(AREA, max_size=3, unique=True), max_size=4), asked=st.lists(AREA, max_size=2))
def test_exactly_the_overlapping_tables_are_found(store_of_each_kind, tables, asked):
    store, catalog = store_of_each_kind, str(uuid.uuid4())
    folded = [fold(areas) for areas in tables]
    for number, areas in enumerate(folded):
        put(store, entry(str(number), *areas, catalog=catalog))
    within = [one for area in asked for one in fold([area])]
    expected = {
        str(number) for number, areas in enumerate(folded) if any(overlap(one, two) for one in areas for two in within)
    }
    assert names(store.overlapping(catalog, asked)) == expected


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[ReferenceStore, ReferenceStore]]:
    with moto() as client:
        yield MemoryReferenceStore(), reference_store(client)


CHANGE = st.tuples(st.sampled_from("tuvw"), st.lists(AREA, max_size=3) | st.none())


@settings(max_examples=examples(90), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(changes=st.lists(CHANGE, max_size=8), asked=st.lists(AREA, min_size=1, max_size=3))
def test_both_stores_find_the_same_tables_after_any_changes(both, changes, asked):
    """The store in memory compares texts; DynamoDB's finds the same by keys, `//` in a location included."""
    catalog = str(uuid.uuid4())
    found = []
    for store in both:
        for name, areas in changes:
            known = store.get(TableIdentifier(catalog, ("ns",), name))
            if areas is not None:
                put(store, entry(name, *fold(areas), catalog=catalog))
            elif known is not None:
                store.remove(known)
        found.append((names(store.overlapping(catalog, asked)), {one.name for one in _listed(store, catalog)}))
    assert found[0] == found[1]


def _listed(store: ReferenceStore, catalog: str) -> list[TableIdentifier]:
    return [one.identifier for one in store.entries(catalog)]


def test_an_entry_fits_into_an_item_however_often_it_changes(store_of_each_kind):
    """DynamoDB refuses an item above 400 KB: most areas of most bytes, most digests, long texts, eight times."""
    store = store_of_each_kind
    digests = frozenset(number.to_bytes(8, "big") for number in range(25_000))
    for change in range(8):
        areas = [f"s3://{'b' * 60}{number}/{change}/{'k' * 600}/" for number in range(MOST_AREAS)]
        displaced = frozenset(f"sha256:{change}-{number:056}" for number in range(5_000))
        one = entry("t", *fold(areas), seen=digests, problem=f"X: {'long ' * 5000}", etag="e" * 50_000)
        put(store, replace(one, displaced=displaced))
    stored = store.get(one.identifier)
    assert len(stored.areas) == MOST_AREAS
    # What was left out is not forgotten: a purge nearby misses a table that no name has.
    assert len(stored.displaced) == MOST_DISPLACED + 1
    assert "" in stored.displaced
    assert names(store.overlapping("cat", [areas[-1]])) == {"t"}


class Broken:
    """A DynamoDB client whose write number `at` (0 is the first) and all later ones fail."""

    def __init__(self, client: Any, at: int) -> None:
        self._client, self._left = client, at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def batch_write_item(self, **arguments: Any) -> Any:
        if self._left == 0:
            raise ClientError({"Error": {"Code": "ValidationException", "Message": ""}}, "BatchWriteItem")
        self._left -= 1
        return self._client.batch_write_item(**arguments)


@pytest.mark.parametrize("at", range(3))
def test_a_crash_while_an_entry_is_replaced_never_hides_the_table(at):
    with moto() as client:
        whole = reference_store(client)
        put(whole, entry("t", "s3://b/old/", "s3://b/kept/"))
        broken = ReferenceStore(ReferenceTable(Broken(client, at), sleep=no_wait), whole._items.table)
        new = entry("t", "s3://b/new/", "s3://b/kept/")
        with contextlib.suppress(ReferencesUnavailable):
            put(broken, new)
        stored = whole.get(new.identifier)
        assert all(names(whole.overlapping("cat", [area])) == {"t"} for area in stored.areas)
        put(whole, new)
        assert names(whole.overlapping("cat", ["s3://b/new/"])) == {"t"}
        assert whole.overlapping("cat", ["s3://b/old/"]) == frozenset()


@pytest.mark.parametrize(
    "value", [None, "x", {"NULL": True}, {"L": [{"S": "x"}]}, {"N": "0"}, {"N": "1.5"}, {"N": "1e30"}]
)
@pytest.mark.parametrize("ends", ["put", "removed"])
def test_an_entry_with_a_damaged_revision_is_replaced_and_removed(store_of_each_kind, value, ends):
    """It ended the reading of all entries of its catalog, and no write met its condition."""
    store = store_of_each_kind
    for name in ("t", "u"):
        put(store, entry(name, f"s3://b/{name}/"))
    if isinstance(store, ReferenceStore):
        _damage_revision(store, value if isinstance(value, dict) or value is None else {"S": value})
    found = {one.identifier.name: one for one in store.entries("cat")}
    assert found.keys() == {"t", "u"}
    stale = replace(found["t"], revision=0)
    with pytest.raises(PassLost):
        store.put(stale)
    store.remove(stale)
    if ends == "put":
        put(store, entry("t", "s3://b/new/"))
        assert [names(store.overlapping("cat", [f"s3://b/{area}/"])) for area in ("t", "new")] == [set(), {"t"}]
        with pytest.raises(PassLost):
            store.put(found["t"])
    store.put(replace(store.get(found["t"].identifier), absent=True))
    store.remove(store.get(found["t"].identifier))
    assert {one.identifier.name for one in store.entries("cat")} == {"u"}
    assert names(store.overlapping("cat", ["s3://b/"])) == {"u"}


def _damage_revision(store: ReferenceStore, value: dict[str, Any] | None) -> None:
    client, table = store._items.calls.client, store._items.table
    items = client.scan(TableName=table)["Items"]
    [item] = [one for one in items if one["pk"]["S"] == "catalog:cat" and one["name"]["S"] == "t"]
    item.pop("revision")
    client.put_item(TableName=table, Item=item | ({} if value is None else {"revision": value}))


def test_digests_have_the_length_that_the_store_cuts_them_by():
    assert DIGEST_BYTES == 8
