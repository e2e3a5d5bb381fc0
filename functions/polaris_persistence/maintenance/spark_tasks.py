"""The executors' part of a run of maintenance on Spark: functions from Arrow batches to Arrow batches.

A task may run twice. Then chunks are written twice, and the unused ones are garbage for the next run; keys are deleted
twice, which is no error.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from polaris_persistence.backends.base import SYSTEM, Locator, ObjectKey, Segment
from polaris_persistence.catalogs.executors import ExecutorStores
from polaris_persistence.errors import CorruptObject, MaintenanceRefused
from polaris_persistence.maintenance.keys import KeyChunk, KeySet, MaintenanceKeys
from polaris_persistence.maintenance.marking import MarkedKeys, Marker, refusal
from polaris_persistence.objects.objects import ObjectRef
from polaris_persistence.objects.store import CatalogStore

KEYS: Final = "realm string, catalog string, type string, id long, parts int"
LINKS: Final = f"{KEYS}, follow boolean, refused string"
"""Linked keys; a row with `refused` states instead why its catalog cannot be swept."""
RESULTS: Final = "result string"
_ROWS: Final = 5_000
_FETCH: Final = 200

Row = dict[str, Any]


@dataclass(frozen=True)
class ScanSegments:
    """From numbers of segments: write the keys of all objects that may be deleted as chunks, and name these."""

    stores: ExecutorStores
    segments: int
    page: int
    chunk: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _results(self._scan(row["number"]) for row in _rows(batches))

    def _scan(self, number: int) -> Row:
        process = self.stores.open()
        writer = _Chunks(self.stores, self.chunk)
        scanned = unknown = 0
        after: str | None = None
        while True:
            segment = Segment(number, self.segments)
            page = process.backend.scan(after=after, limit=self.page, segment=segment)
            scanned, unknown = scanned + page.unread, unknown + page.unread
            for row in page.rows:
                scanned += 1
                if row.token is not None:
                    continue
                if process.types.get(row.key.type) is None:
                    unknown += 1
                else:
                    writer.add(Locator(row.key, row.parts))
            after = page.after
            if after is None:
                return {"chunks": writer.end(), "scanned": scanned, "unknown": unknown}


@dataclass(frozen=True)
class ReadKeys:
    """From refs of chunks (`type`, `id`, `parts`): their keys. Those of an unreadable chunk are kept longer."""

    stores: ExecutorStores

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _key_batches(self._read(_rows(batches)))

    def _read(self, refs: Iterable[Row]) -> Iterator[Row]:
        system = self.stores.open().uncached_store(SYSTEM, SYSTEM)
        for row in refs:
            try:
                found = system.fetch(ObjectRef(row["type"], row["id"], row["parts"]), MaintenanceKeys)
                keys = KeySet([found.value] if found is not None else ())
            except CorruptObject:
                continue
            yield from (_row(locator) for locator in keys.unmarked())


@dataclass(frozen=True)
class FollowLinks:
    """From keys: the keys that these objects link to."""

    stores: ExecutorStores

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _batches(self._linked(_rows(batches)), LINKS)

    def _linked(self, rows: Iterable[Row]) -> Iterator[Row]:
        process = self.stores.open()
        marker = Marker(process.types, MarkedKeys())
        for some in _several(rows, _ROWS):
            by_catalog: dict[tuple[str, str], list[ObjectRef]] = defaultdict(list)
            for row in some:
                by_catalog[row["realm"], row["catalog"]].append(ObjectRef(row["type"], row["id"], row["parts"]))
            for (realm, catalog), refs in by_catalog.items():
                store = process.uncached_store(realm, catalog)
                for few in _several(refs, _FETCH):
                    try:
                        yield from _links(marker, store, few)
                    except Exception as error:  # noqa: BLE001 - whatever a type raises, it is this catalog's alone
                        yield {**_row(Locator(store.key(few[0]))), "follow": False, "refused": refusal(error)}


@dataclass(frozen=True)
class DeleteKeys:
    """From keys: delete these objects, and count them."""

    stores: ExecutorStores

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        backend = self.stores.open().backend
        deleted = 0
        for some in _several(_rows(batches), _ROWS):
            backend.delete_many(_locator(row) for row in some)
            deleted += len(some)
        return _results([{"deleted": deleted}])


@dataclass(frozen=True)
class WriteKeys:
    """From keys: write them as chunks, name these and count the keys."""

    stores: ExecutorStores
    chunk: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = _Chunks(self.stores, self.chunk)
        written = 0
        for row in _rows(batches):
            writer.add(_locator(row))
            written += 1
        return _results([{"chunks": writer.end(), "written": written}])


class _Chunks:
    def __init__(self, stores: ExecutorStores, size: int) -> None:
        self._system = stores.open().uncached_store(SYSTEM, SYSTEM)
        self._size = size
        self._chunk = KeyChunk()
        self._written: list[ObjectRef] = []

    def add(self, locator: Locator) -> None:
        if self._chunk.count >= self._size:
            self._flush()
        self._chunk.add(locator.key, locator.parts)

    def end(self) -> list[ObjectRef]:
        if self._chunk.count:
            self._flush()
        return self._written

    def _flush(self) -> None:
        self._written += self._system.write([self._chunk.value()])
        self._chunk = KeyChunk()


def _links(marker: Marker, store: CatalogStore, refs: list[ObjectRef]) -> Iterator[Row]:
    for ref, found in zip(refs, store.fetch_many(refs), strict=True):
        if found is None:
            raise MaintenanceRefused(f"a commit links to {store.key(ref)}, which is missing")
        for linked, follow in marker.links(store, found):
            yield {**_row(Locator(store.key(linked), linked.parts)), "follow": follow, "refused": None}


def _row(locator: Locator) -> Row:
    key = locator.key
    return {"realm": key.realm, "catalog": key.catalog, "type": key.type, "id": key.id, "parts": locator.parts}


def _locator(row: Row) -> Locator:
    return Locator(ObjectKey(row["realm"], row["catalog"], row["type"], row["id"]), row["parts"])


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    return (row for batch in batches for row in batch.to_pylist())


def _results(results: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    return _batches(({"result": json.dumps(result)} for result in results), RESULTS)


def _key_batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    return _batches(rows, KEYS)


def _batches(rows: Iterable[Row], schema: str) -> Iterator[pa.RecordBatch]:
    kinds = {"string": pa.string(), "long": pa.int64(), "int": pa.int32(), "boolean": pa.bool_()}
    fields = [column.strip().split(" ") for column in schema.split(",")]
    arrow = pa.schema([(name, kinds[kind]) for name, kind in fields])
    return (pa.RecordBatch.from_pylist(some, schema=arrow) for some in _several(rows, _ROWS))


def _several(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    some: list[Any] = []
    for row in rows:
        some.append(row)
        if len(some) == size:
            yield some
            some = []
    if some:
        yield some
