"""Managed metadata in a catalog: committed in two round trips, complete under threads and sweeps."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar

import pytest

from polaris_persistence.commits.commits import CommitAttempt
from polaris_persistence.commits.committer import CommitRetries, Committer
from polaris_persistence.commits.entities import EntityChanges, EntityHead, seal
from polaris_persistence.errors import InvalidIcebergMetadata, InvalidIcebergUpdate
from polaris_persistence.iceberg import layout
from polaris_persistence.iceberg.layout import TABLE, Json, _pieces, parse, serialise
from polaris_persistence.iceberg.log import same
from polaris_persistence.iceberg.metadata import ManagedMetadata
from polaris_persistence.iceberg.objects import IcebergMetadata
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from tests.persistence.iceberg.iceberg_fixtures import (
    adding,
    apply,
    as_json,
    document_of,
    nested_structs,
    pointing,
    pyiceberg_table,
    snapshot_of,
)
from tests.persistence.worlds import Catalogs, entity_change, read_entities

POLICY = IndexPolicy(min_embedded=200, max_embedded=2_000, stripe=1_000)
NAME = IndexKey.of("ns", "t")


class Tables(Catalogs):
    """A catalog with tables, and processes that commit to it."""

    policy: ClassVar[dict[str, Any]] = {"grace": 100.0}

    def __init__(self) -> None:
        super().__init__()
        self.committer = self.process()

    def process(self) -> Committer[EntityHead]:
        return Committer(
            self.store_of(), "main", EntityHead, seal=seal(POLICY), retry=CommitRetries(tries=100, seconds=1e9),
            sleep=self.clock.sleep, clock=self.clock.seconds, draw=lambda: 0.5,
        )  # fmt: skip

    def create(self, key: IndexKey, document: Json) -> None:
        def change(entities: EntityChanges, attempt: CommitAttempt[EntityHead]) -> None:
            new = ManagedMetadata.of(document, TABLE, attempt.fetch_many)
            entities.put(key, new.finish(POLICY, attempt.write))

        self.committer.commit(entity_change(change))

    def update(
        self, change: Callable[[ManagedMetadata], object], committer: Committer[EntityHead] | None = None
    ) -> None:
        """Change the table of NAME."""
        (committer or self.committer).commit(
            entity_change(lambda entities, attempt: changed(entities, attempt, NAME, change))
        )

    def document(self) -> Json:
        """Return the table of NAME as a new process reads it."""
        store = self.store_of()
        return ManagedMetadata(read_entities(store)["t"], store.fetch_many).document()


def changed(
    entities: EntityChanges,
    attempt: CommitAttempt[EntityHead],
    key: IndexKey,
    change: Callable[[ManagedMetadata], object],
) -> None:
    found = entities.fetch(key, IcebergMetadata)
    assert found is not None
    table = ManagedMetadata(found.value, attempt.fetch_many)
    change(table)
    entities.put(key, table.finish(POLICY, attempt.write))


@pytest.fixture
def tables() -> Tables:
    return Tables()


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
    tables.update(lambda table: appended(table, snapshot_id=1))
    tables.backend.calls.clear()
    tables.update(lambda table: appended(table, snapshot_id=2))
    assert tables.backend.calls == ["put_many", "replace_reference"]


def test_appends_of_many_threads_and_processes_are_all_kept_in_one_line(tables: Tables) -> None:
    tables.create(NAME, document_of(pyiceberg_table(2, 0)))
    processes = [tables.committer, tables.process()]
    with ThreadPoolExecutor(8) as pool:
        jobs = [
            pool.submit(
                tables.update, lambda table, n=number + 1: appended(table, snapshot_id=n), processes[number % 2]
            )
            for number in range(64)
        ]
        for job in jobs:
            job.result()
    document = tables.document()
    assert {one["snapshot-id"] for one in document["snapshots"]} == set(range(1, 65))
    assert [one["sequence-number"] for one in document["snapshots"]] == list(range(1, 65))
    line = [one["snapshot-id"] for one in document["snapshots"]]
    assert [one.get("parent-snapshot-id") for one in document["snapshots"]] == [None, *line[:-1]]
    assert [entry["snapshot-id"] for entry in document["snapshot-log"]] == line


def test_several_tables_change_in_one_commit_or_none_does(tables: Tables) -> None:
    other = IndexKey.of("ns", "u")
    for key in (NAME, other):
        tables.create(key, document_of(pyiceberg_table(2, 1)))
    before = as_json(tables.document())

    def change(entities: EntityChanges, attempt: CommitAttempt[EntityHead]) -> None:
        for key, snapshot_id in ((NAME, 5), (other, snapshot_of(0).snapshot_id)):
            changed(entities, attempt, key, partial(appended, snapshot_id=snapshot_id))

    with pytest.raises(InvalidIcebergUpdate, match="already exists"):
        tables.committer.commit(entity_change(change))
    assert as_json(tables.document()) == before


def test_a_sweep_deletes_what_was_expired_and_nothing_that_is_needed(tables: Tables) -> None:
    tables.create(NAME, document_of(pyiceberg_table(2, 120)))
    removed = [snapshot_of(number).snapshot_id for number in range(1, 100)]
    tables.update(lambda table: apply(table, {"action": "remove-snapshots", "snapshot-ids": removed}))
    expected = tables.document() | {"last-updated-ms": 29}
    # Of all snapshots, and of the 21 that are left.
    assert len(tables.backend.stored_ids("iceberg-pack")) == 2
    # More commits than a reference keeps recent heads, all before the grace period.
    for number in range(30):
        tables.clock.advance(10)
        tables.update(lambda table, now=number: table.set_field("last-updated-ms", now))
    tables.sweep(2)
    assert as_json(tables.document()) == as_json(expected)
    # Up to a spill, stripes name the pack that the embedded index hides.
    assert len(tables.backend.stored_ids("iceberg-pack")) <= 2


def schema_of(structs: int) -> Json:
    return {"type": "struct", "fields": [nested_structs(structs)], "schema-id": 7}


@pytest.mark.parametrize("structs", [132, 133, 140, 166])
def test_a_schema_within_the_bound_is_read_back_by_another_process(tables: Tables, structs: int) -> None:
    """Issue 32, line 3: from about 130 structs on it was acknowledged, and no process could read the table any more."""
    schema = schema_of(structs)
    tables.create(NAME, document_of(pyiceberg_table(2, 1)))
    tables.update(lambda table: table.put("schemas", 7, schema))
    [*_, found] = tables.document()["schemas"]
    assert same(found, schema)


def test_a_schema_that_nests_deeper_is_refused_and_the_table_stays(tables: Tables) -> None:
    tables.create(NAME, document_of(pyiceberg_table(2, 1)))
    before = tables.document()
    for change in (
        lambda table: table.put("schemas", 7, schema_of(167)),
        lambda table: table.put("schemas", 7, schema_of(50_000)),
        lambda table: table.set_properties(schema_of(167)),
        lambda table: table.set_field("x", schema_of(167)),
        lambda table: table.log("metadata-log").append(schema_of(167)),
        lambda table: table.replace_with({**before, "x": schema_of(50_000)}),
    ):
        with pytest.raises(InvalidIcebergMetadata, match="more than 500 objects and arrays within each other"):
            tables.update(change)
    assert tables.document() == before


def under(frames: int, work: Callable[[], Any]) -> Any:
    """Run work below so many frames more."""
    return work() if frames == 0 else under(frames - 1, work)


@pytest.mark.parametrize("frames", [0, 50, 400])
def test_the_depth_that_is_accepted_does_not_depend_on_the_frames_of_the_caller(tables: Tables, frames: int) -> None:
    """Issue 47, line 16: 943 levels were accepted under 50 frames, and 998 ended in a bare RecursionError."""
    deepest = {**document_of(pyiceberg_table(2, 1)), "x": schema_of(166)["fields"]}
    read = under(frames, lambda: parse(serialise(deepest)))
    under(frames, lambda: tables.create(NAME, read))
    assert same(under(frames, lambda: parse(serialise(tables.document()))), deepest)
    for levels in (167, 332, 333, 50_000):
        with pytest.raises(InvalidIcebergMetadata, match="more than 500 objects and arrays within each other"):
            under(
                frames,
                lambda levels=levels: tables.update(lambda table: table.set_field("x", schema_of(levels))),
            )
    for text in ("[" * 1_100 + "]" * 1_100, '{"a":' * 1_100 + "1" + "}" * 1_100):
        with pytest.raises(InvalidIcebergMetadata, match="more than 500 objects and arrays within each other"):
            under(frames, partial(parse, text))


def test_a_document_deeper_than_the_bound_that_a_former_release_stored_is_served(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = ["", '\u20ac"\\\n', 10**40, -0.0, 1e300, None, True, [], {}, {"": [{}]}, {"a": 1, "b": [1, [2]]}]
    deep = {**document_of(pyiceberg_table(2, 1)), "x": [schema_of(280)["fields"], hostile]}
    with monkeypatch.context() as former:
        former.setattr(layout, "MAX_JSON_NESTING", 1_000)
        tables.create(NAME, deep)
    stored = tables.document()
    assert same(stored, deep)
    shallow = {**stored, "x": hostile}
    assert "".join(_pieces(shallow)).encode() == serialise(shallow)
    assert (
        under(400, lambda: serialise(stored)) == json.dumps(stored, ensure_ascii=False, separators=(",", ":")).encode()
    )
