"""Managed metadata in a catalog: committed in two round trips, complete under threads and sweeps."""

import itertools
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import CommitRetries, Committer
from polaris_persistence.commits.entities import HEAD_TYPE, EntityChanges, EntityHead, seal
from polaris_persistence.errors import InvalidIcebergMetadata, InvalidIcebergUpdate
from polaris_persistence.iceberg import layout
from polaris_persistence.iceberg.layout import TABLE, Json, _pieces, parse, serialise
from polaris_persistence.iceberg.log import same
from polaris_persistence.iceberg.metadata import ManagedMetadata
from polaris_persistence.iceberg.objects import ICEBERG_TYPES, IcebergMetadata
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.index.stripes import STRIPES
from polaris_persistence.maintenance.run import SweepPolicy
from polaris_persistence.maintenance.sweep import MAINTENANCE_TYPES, RealmMaintenance
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectTypes
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import CountingBackend, store_on
from tests.persistence.iceberg.iceberg_fixtures import (
    adding,
    apply,
    as_json,
    document_of,
    pointing,
    pyiceberg_table,
    snapshot_of,
)

TYPES = ObjectTypes([HEAD_TYPE, STRIPES, *MAINTENANCE_TYPES, *ICEBERG_TYPES])
POLICY = IndexPolicy(min_embedded=200, max_embedded=2_000, stripe=1_000)
NAME = IndexKey.of("ns", "t")
Change = Any


class Tables:
    """One process with tables in a catalog."""

    def __init__(self, backend: CountingBackend, clock: MicrosecondClock, ids: Any) -> None:
        self.backend = backend
        self.clock = clock
        self.store = store_on(backend, clock, ids=ids, types=TYPES)
        self.committer: Committer[EntityHead] = Committer(
            self.store, "main", EntityHead, seal=seal(POLICY), retry=CommitRetries(tries=100, seconds=1e9),
            sleep=clock.sleep, clock=clock.seconds, draw=lambda: 0.5,
        )  # fmt: skip

    def create(self, key: IndexKey, document: Json) -> None:
        def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
            entities = EntityChanges(attempt)
            new = ManagedMetadata.of(document, TABLE, attempt.fetch_many)
            entities.put(key, new.finish(POLICY, attempt.write))
            return Changed(entities.head, None)

        self.committer.commit(change)

    def update(self, key: IndexKey, change: Change) -> None:
        def changed(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
            entities = EntityChanges(attempt)
            found = entities.fetch(key, IcebergMetadata)
            assert found is not None
            table = ManagedMetadata(found.value, attempt.fetch_many)
            change(table)
            entities.put(key, table.finish(POLICY, attempt.write))
            return Changed(entities.head, None)

        self.committer.commit(changed)

    def document(self, key: IndexKey) -> Json:
        head = self.committer.head()
        assert head is not None
        ref = head.value.working_index(self.store.fetch_many).get(key)
        assert ref is not None
        found = self.store.fetch(ref, IcebergMetadata)
        assert found is not None
        return ManagedMetadata(found.value, self.store.fetch_many).document()


@pytest.fixture
def tables() -> Tables:
    first = process(CountingBackend(), MicrosecondClock(), itertools.count(1 << 40).__next__)
    first.store.create_reference("main")
    return first


def process(backend: CountingBackend, clock: MicrosecondClock, ids: Any) -> Tables:
    return Tables(backend, clock, ids)


def appended(table: ManagedMetadata, *, snapshot_id: int) -> None:
    """Append a snapshot, for which the catalog assigns the sequence number and the parent."""
    current = table.field("current-snapshot-id")
    snapshot = {
        "snapshot-id": snapshot_id,
        **({"parent-snapshot-id": current} if current not in (None, -1) else {}),
        "sequence-number": table.field("last-sequence-number") + 1,
        "timestamp-ms": 1_800_000_000_000,
        "manifest-list": f"s3://lake/{snapshot_id}.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
    }
    apply(table, adding(snapshot), pointing("main", snapshot_id))


def test_a_snapshot_is_added_in_two_round_trips(tables: Tables) -> None:
    tables.create(NAME, document_of(pyiceberg_table(2, 100)))
    tables.update(NAME, lambda table: appended(table, snapshot_id=1))
    tables.backend.calls.clear()
    tables.update(NAME, lambda table: appended(table, snapshot_id=2))
    assert tables.backend.calls == ["put_many", "replace_reference"]


def test_appends_of_many_threads_and_processes_are_all_kept_in_one_line(tables: Tables) -> None:
    tables.create(NAME, document_of(pyiceberg_table(2, 0)))
    ids = itertools.count(1 << 50)
    others = [tables, process(tables.backend, tables.clock, ids.__next__)]
    with ThreadPoolExecutor(8) as pool:
        jobs = [
            pool.submit(others[number % 2].update, NAME, lambda table, n=number + 1: appended(table, snapshot_id=n))
            for number in range(64)
        ]
        for job in jobs:
            job.result()
    document = others[0].document(NAME)
    assert {one["snapshot-id"] for one in document["snapshots"]} == set(range(1, 65))
    assert [one["sequence-number"] for one in document["snapshots"]] == list(range(1, 65))
    line = [one["snapshot-id"] for one in document["snapshots"]]
    assert [one.get("parent-snapshot-id") for one in document["snapshots"]] == [None, *line[:-1]]
    assert [entry["snapshot-id"] for entry in document["snapshot-log"]] == line


def test_several_tables_change_in_one_commit_or_none_does(tables: Tables) -> None:
    other = IndexKey.of("ns", "u")
    for key in (NAME, other):
        tables.create(key, document_of(pyiceberg_table(2, 1)))
    before = as_json(tables.document(NAME))

    def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
        entities = EntityChanges(attempt)
        for key, snapshot_id in ((NAME, 5), (other, snapshot_of(0).snapshot_id)):
            found = entities.fetch(key, IcebergMetadata)
            assert found is not None
            table = ManagedMetadata(found.value, attempt.fetch_many)
            appended(table, snapshot_id=snapshot_id)
            entities.put(key, table.finish(POLICY, attempt.write))
        return Changed(entities.head, None)

    with pytest.raises(InvalidIcebergUpdate, match="already exists"):
        tables.committer.commit(change)
    assert as_json(tables.document(NAME)) == before


def test_a_sweep_deletes_what_was_expired_and_nothing_that_is_needed(tables: Tables) -> None:
    tables.create(NAME, document_of(pyiceberg_table(2, 120)))
    removed = [snapshot_of(number).snapshot_id for number in range(1, 100)]
    tables.update(NAME, lambda table: apply(table, {"action": "remove-snapshots", "snapshot-ids": removed}))
    expected = tables.document(NAME) | {"last-updated-ms": 29}
    # Of all snapshots, and of the 21 that are left.
    assert len(tables.backend.stored_ids("iceberg-pack")) == 2
    # More commits than a reference keeps recent heads, all before the grace period.
    for number in range(30):
        tables.clock.advance(10)
        tables.update(NAME, lambda table, now=number: table.set_field("last-updated-ms", now))
    tables.backend.now_us = tables.clock.now_us  # type: ignore[method-assign]
    ids = itertools.count(1 << 50).__next__

    def store_of(realm: str, catalog: str) -> CatalogStore:
        return store_on(tables.backend, tables.clock, ids=ids, realm=realm, catalog=catalog, types=TYPES)

    for _ in range(2):
        RealmMaintenance(tables.backend, store_of, policy=SweepPolicy(grace=100)).run()
        tables.clock.advance(1_000)
    fresh = process(tables.backend, tables.clock, itertools.count(1 << 55).__next__)
    assert as_json(fresh.document(NAME)) == as_json(expected)
    # Up to a spill, stripes name the pack that the embedded index hides.
    assert len(tables.backend.stored_ids("iceberg-pack")) <= 2


def nested_structs(count: int) -> Json:
    """Return a schema of structs within each other, three levels of JSON each."""
    type_: Any = "string"
    for id_ in range(count, 0, -1):
        type_ = {"type": "struct", "fields": [{"id": id_, "name": f"f{id_}", "required": False, "type": type_}]}
    return {**type_, "schema-id": 7}


@pytest.mark.parametrize("structs", [132, 133, 140, 166])
def test_a_schema_within_the_bound_is_read_back_by_another_process(tables: Tables, structs: int) -> None:
    """Issue 32, line 3: from about 130 structs on it was acknowledged, and no process could read the table any more."""
    schema = nested_structs(structs)
    tables.create(NAME, document_of(pyiceberg_table(2, 1)))
    tables.update(NAME, lambda table: table.put("schemas", 7, schema))
    other = process(tables.backend, tables.clock, itertools.count(1 << 50).__next__)
    [*_, found] = other.document(NAME)["schemas"]
    assert same(found, schema)


def test_a_schema_that_nests_deeper_is_refused_and_the_table_stays(tables: Tables) -> None:
    tables.create(NAME, document_of(pyiceberg_table(2, 1)))
    before = tables.document(NAME)
    for change in (
        lambda table: table.put("schemas", 7, nested_structs(167)),
        lambda table: table.put("schemas", 7, nested_structs(50_000)),
        lambda table: table.set_properties(nested_structs(167)),
        lambda table: table.set_field("x", nested_structs(167)),
        lambda table: table.log("metadata-log").append(nested_structs(167)),
        lambda table: table.replace_with({**before, "x": nested_structs(50_000)}),
    ):
        with pytest.raises(InvalidIcebergMetadata, match="more than 500 objects and arrays within each other"):
            tables.update(NAME, change)
    assert process(tables.backend, tables.clock, itertools.count(1 << 50).__next__).document(NAME) == before


def test_deep_parts_are_packed_and_read_back(tables: Tables) -> None:
    deep = nested_structs(166)
    tables.create(NAME, document_of(pyiceberg_table(2, 1)))

    def many(table: ManagedMetadata) -> None:
        for number in range(1, 80):
            table.put("statistics", number, {"snapshot-id": number, "deep": deep["fields"]})

    tables.update(NAME, many)
    other = process(tables.backend, tables.clock, itertools.count(1 << 50).__next__)
    found = other.document(NAME)["statistics"]
    assert len(found) == 80
    assert same(found[-1]["deep"], deep["fields"])


def under(frames: int, work: Callable[[], Any]) -> Any:
    """Run work below so many frames more."""
    return work() if frames == 0 else under(frames - 1, work)


@pytest.mark.parametrize("frames", [0, 50, 400])
def test_the_depth_that_is_accepted_does_not_depend_on_the_frames_of_the_caller(tables: Tables, frames: int) -> None:
    """Issue 47, line 16: 943 levels were accepted under 50 frames, and 998 ended in a bare RecursionError."""
    deepest = {**document_of(pyiceberg_table(2, 1)), "x": nested_structs(166)["fields"]}
    read = under(frames, lambda: parse(serialise(deepest)))
    under(frames, lambda: tables.create(NAME, read))
    assert same(under(frames, lambda: parse(serialise(tables.document(NAME)))), deepest)
    for levels in (167, 332, 333, 50_000):
        with pytest.raises(InvalidIcebergMetadata, match="more than 500 objects and arrays within each other"):
            under(
                frames,
                lambda levels=levels: tables.update(NAME, lambda table: table.set_field("x", nested_structs(levels))),
            )
    for text in ("[" * 1_100 + "]" * 1_100, '{"a":' * 1_100 + "1" + "}" * 1_100):
        with pytest.raises(InvalidIcebergMetadata, match="more than 500 objects and arrays within each other"):
            under(frames, partial(parse, text))


def test_a_document_deeper_than_the_bound_that_a_former_release_stored_is_served(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = ["", '\u20ac"\\\n', 10**40, -0.0, 1e300, None, True, [], {}, {"": [{}]}, {"a": 1, "b": [1, [2]]}]
    deep = {**document_of(pyiceberg_table(2, 1)), "x": [nested_structs(280)["fields"], hostile]}
    with monkeypatch.context() as former:
        former.setattr(layout, "MAX_JSON_NESTING", 1_000)
        tables.create(NAME, deep)
    other = process(tables.backend, tables.clock, itertools.count(1 << 50).__next__)
    stored = other.document(NAME)
    assert same(stored, deep)
    shallow = {**stored, "x": hostile}
    assert "".join(_pieces(shallow)).encode() == serialise(shallow)
    assert (
        under(400, lambda: serialise(stored)) == json.dumps(stored, ensure_ascii=False, separators=(",", ":")).encode()
    )
