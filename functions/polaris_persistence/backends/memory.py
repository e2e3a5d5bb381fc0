"""Backend in memory for tests, benchmarks and single processes: atomic under threads, with hooks for faults."""

import bisect
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from polaris_persistence.backends.base import (
    WHOLE,
    Locator,
    ObjectKey,
    Reference,
    ReferenceKey,
    Refused,
    ScannedRow,
    ScanPage,
    Segment,
    StoredObject,
    check_fits_one_row,
    check_key,
    distinct,
    hints,
    part_count,
)

Hook = Callable[[str], None]


def _no_hook(_operation: str) -> None:
    pass


class MemoryBackend:
    """Backend in dictionaries.

    `before` and `after` are called with the method's name around each call, outside the lock. A hook that raises
    simulates a call that failed before or after it was applied; one that blocks simulates a slow network. put_many and
    delete_many also call them with "put_row" and "delete_row" around each row, because a store may stop half-way.
    `now_us` is the store's clock.
    """

    longest_call = 0.0

    def __init__(
        self,
        *,
        before: Hook = _no_hook,
        after: Hook = _no_hook,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
    ) -> None:
        self.before = before
        self.after = after
        self.now_us = now_us
        self._objects: dict[ObjectKey, StoredObject] = {}
        self._references: dict[ReferenceKey, Reference] = {}
        self._order: list[ObjectKey] | None = None
        self._lock = threading.Lock()

    def fetch_many(self, wanted: Iterable[Locator], *, consistent: bool = True) -> dict[ObjectKey, StoredObject]:
        del consistent
        keys = hints(wanted)
        with self._call("fetch_many"):
            return {key: self._objects[key] for key in keys if key in self._objects}

    def put_many(self, objects: Iterable[StoredObject]) -> None:
        new = distinct(objects)
        for stored in new:
            part_count(len(stored.value))
        self.before("put_many")
        for stored in new:
            with self._call("put_row"):
                self._put(stored)
        self.after("put_many")

    def delete_many(self, locators: Iterable[Locator]) -> None:
        keys = hints(locators)
        self.before("delete_many")
        for key in keys:
            with self._call("delete_row"):
                self._objects.pop(key, None)
        self.after("delete_many")

    def insert(self, new: StoredObject) -> Refused[StoredObject] | None:
        check_fits_one_row(new)
        with self._call("insert"):
            if stored := self._objects.get(new.key):
                return Refused(stored)
            self._put(new)
            return None

    def update(self, new: StoredObject, *, expected: str) -> Refused[StoredObject] | None:
        check_fits_one_row(new)
        with self._call("update"):
            stored = self._objects.get(new.key)
            if stored is None or stored.token != expected:
                return Refused(stored)
            self._put(new)
            return None

    def delete(self, key: ObjectKey, *, expected: str) -> Refused[StoredObject] | None:
        with self._call("delete"):
            stored = self._objects.get(key)
            if stored is None or stored.token != expected:
                return Refused(stored)
            del self._objects[key]
            return None

    def scan(
        self, *, realm: str | None = None, after: str | None = None, limit: int = 1_000, segment: Segment = WHOLE
    ) -> ScanPage:
        with self._call("scan"):
            if self._order is None:
                self._order = sorted(self._objects, key=repr)
            order = self._order
            start = bisect.bisect_right(order, after, key=repr) if after is not None else 0
            page = order[start : start + limit]
            rows = tuple(
                ScannedRow(key, part_count(len(stored.value)), stored.created_at, stored.token)
                for key in page
                if (realm is None or key.realm == realm)
                and zlib.crc32(repr(key).encode()) % segment.of == segment.number
                and (stored := self._objects.get(key))
            )
            return ScanPage(rows, repr(page[-1]) if start + limit < len(order) else None)

    def read_reference(self, key: ReferenceKey) -> Reference | None:
        with self._call("read_reference"):
            return self._references.get(key)

    def create_reference(self, new: Reference) -> Refused[Reference] | None:
        check_key(new.key)
        with self._call("create_reference"):
            if stored := self._references.get(new.key):
                return Refused(stored)
            self._references[new.key] = new
            return None

    def replace_reference(self, new: Reference, *, expected: Reference) -> Refused[Reference] | None:
        with self._call("replace_reference"):
            stored = self._references.get(new.key)
            if stored is None or (stored.version, stored.heads) != (expected.version, expected.heads):
                return Refused(stored)
            done = set(expected.waiting) - set(new.waiting)
            self._references[new.key] = replace(new, waiting=tuple(id_ for id_ in stored.waiting if id_ not in done))
            return None

    def add_waiting(self, ids: Collection[int], *, expected: Reference) -> Refused[Reference] | None:
        with self._call("add_waiting"):
            stored = self._references.get(expected.key)
            if stored is None or stored.version != expected.version:
                return Refused(stored)
            self._references[stored.key] = replace(stored, waiting=tuple(sorted({*stored.waiting, *ids})))
            return None

    def withdraw(self, key: ReferenceKey, waiting: int, *, fenced: bool = True) -> Refused[Reference] | None:
        with self._call("withdraw"):
            stored = self._references.get(key)
            if stored is None or waiting not in stored.waiting:
                return Refused(stored)
            left = tuple(id_ for id_ in stored.waiting if id_ != waiting)
            self._references[key] = replace(stored.fenced() if fenced else stored, waiting=left)
            return None

    def references(self, *, realm: str | None = None) -> Iterator[Reference]:
        with self._call("references"):
            return iter([found for key, found in self._references.items() if realm is None or key.realm == realm])

    def delete_reference(self, key: ReferenceKey) -> None:
        with self._call("delete_reference"):
            self._references.pop(key, None)

    def time(self) -> int:
        with self._call("time"):
            return self.now_us()

    def estimated_time(self) -> int | None:
        return self.now_us()

    @contextmanager
    def _call(self, operation: str) -> Iterator[None]:
        self.before(operation)
        with self._lock:
            yield
        self.after(operation)

    def _put(self, stored: StoredObject) -> None:
        if stored.key not in self._objects:
            self._order = None
        self._objects[stored.key] = stored
