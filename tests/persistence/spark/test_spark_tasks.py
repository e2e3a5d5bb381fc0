"""What executors call, in this process: what cannot be read keeps what it names, and stops nothing else."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import cbor2
import pyarrow as pa
import pytest

from polaris_persistence.backends.base import SYSTEM, Backend, ObjectKey, StoredObject
from polaris_persistence.backends.dynamodb import DynamoDbBackend
from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.catalogs.process import PersistenceProcess
from polaris_persistence.errors import BackendUnavailable
from polaris_persistence.iceberg.objects import IcebergProperties
from polaris_persistence.maintenance.keys import KeyChunk
from polaris_persistence.maintenance.spark_tasks import FollowLinks, ReadKeys, ScanSegments
from polaris_persistence.objects.objects import ObjectRef
from tests.persistence.contract.backends import damage_row, moto_backend
from tests.persistence.maintenance.test_damaged import BAD_OBJECTS


@dataclass(frozen=True)
class StoresHere:
    backend: Backend

    def open(self) -> PersistenceProcess:
        return PersistenceProcess(self.backend)


def batch(*rows: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pylist(list(rows))])


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for one in batches for row in one.to_pylist()]


def damage(backend: MemoryBackend, key: ObjectKey, value: bytes = b"\xff") -> None:
    backend._objects[key] = replace(backend._objects[key], value=value)


GROUP = {"realm": "r", "catalog": "c", "type": "entity", "parts": {}}


@pytest.mark.parametrize(
    "value",
    [
        b"\xff",
        b"",
        cbor2.dumps([]),
        cbor2.dumps({"groups": 7}),
        cbor2.dumps({"groups": [{**GROUP, "ids": b"\x01\xff"}]}),
    ],
    ids=["no cbor", "empty", "a list", "no groups", "no ids"],
)
def test_a_chunk_of_keys_that_cannot_be_read_names_nothing_and_the_others_are_read(value: bytes) -> None:
    """What it names is kept for one run more: nothing is deleted that no chunk names."""
    backend = MemoryBackend()
    stores = StoresHere(backend)
    system = stores.open().uncached_store(SYSTEM, SYSTEM)
    chunks = []
    for number in range(3):
        chunk = KeyChunk()
        chunk.add(ObjectKey("r", "c", "entity", number))
        chunks += system.write([chunk.value()])
    damage(backend, system.key(chunks[1]), value)
    found = rows_of(ReadKeys(stores)(batch(*(one._asdict() for one in chunks))))
    assert [row["id"] for row in found] == [0, 2]


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_an_object_that_cannot_be_read_refuses_its_catalog_and_no_other(how: str) -> None:
    backend = MemoryBackend()
    stores = StoresHere(backend)
    refs: list[tuple[str, ObjectRef]] = []
    for catalog in ("a", "b"):
        store = stores.open().uncached_store("r", catalog)
        refs += [(catalog, ref) for ref in store.write([IcebergProperties(value=1)])]
    bad = refs[0][1].locator("r", "a").key
    damage(backend, bad) if how == "damaged" else backend._objects.pop(bad)
    keys = batch(*({"realm": "r", "catalog": one, **ref._asdict()} for one, ref in refs))
    found = rows_of(FollowLinks(stores)(keys))
    assert [(row["catalog"], bool(row["refused"])) for row in found if row["refused"]] == [("a", True)]


def test_a_store_without_an_answer_is_no_catalogs_error(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = MemoryBackend()

    def fetch_many(*_: Any, **__: Any) -> Any:
        raise BackendUnavailable("no answer", code="PERSISTENCE_UNAVAILABLE")

    monkeypatch.setattr(backend, "fetch_many", fetch_many)
    key = {"realm": "r", "catalog": "c", "type": "iceberg-properties", "id": 1, "parts": 1}
    with pytest.raises(BackendUnavailable):
        rows_of(FollowLinks(StoresHere(backend))(batch(key)))


@pytest.mark.parametrize("bad", BAD_OBJECTS, ids=str)
def test_a_row_that_cannot_be_read_is_no_key_to_delete(bad: dict[str, Any]) -> None:
    with moto_backend() as backend:
        assert isinstance(backend, DynamoDbBackend)
        stores = StoresHere(backend)
        kind = stores.open().types.of(IcebergProperties).name
        keys = [ObjectKey("r", "c", kind, number) for number in (1, 2)]
        backend.put_many(StoredObject(key, cbor2.dumps({"value": 1}), 1) for key in keys)
        damage_row(backend._calls.client, backend._objects, lambda key: key.endswith("/1"), bad)
        [result] = rows_of(ScanSegments(stores, 1, 100, 10)(batch({"number": 0})))
        scanned = json.loads(result["result"])
        assert (scanned["scanned"], scanned["unknown"]) == (2, 1)
        chunks = [ObjectRef(*one)._asdict() for one in scanned["chunks"]]
        assert [one["id"] for one in rows_of(ReadKeys(stores)(batch(*chunks)))] == [2]
