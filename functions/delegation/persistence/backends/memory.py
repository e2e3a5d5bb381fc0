"""A store in memory for tests, benchmarks and a single process: atomic under threads, with seams for faults."""

import bisect
import threading
from collections.abc import Callable, Iterable, Iterator

from delegation.persistence.backends.base import (
    Locator,
    ObjectKey,
    Reference,
    ReferenceKey,
    Refused,
    ScannedRow,
    ScanPage,
    StoredObject,
    distinct,
    fits_one_row,
    hints,
    part_count,
)

Hook = Callable[[str], None]


def _nothing(_operation: str) -> None:
    pass


class MemoryBackend:
    """Backend in dictionaries.

    `before` and `after` are called with the method's name around each call, outside the lock: to raise there is a call
    that was not applied, or was applied without the caller learning it; to block there is a slow network. put_many and
    delete_many also call them with "put_row" and "delete_row" around each row, because a store may stop half-way.
    """

    def __init__(self, *, before: Hook = _nothing, after: Hook = _nothing) -> None:
        self.before = before
        self.after = after
        self._objects: dict[ObjectKey, StoredObject] = {}
        self._references: dict[ReferenceKey, Reference] = {}
        self._order: list[ObjectKey] | None = None
        self._lock = threading.Lock()

    def fetch_many(self, wanted: Iterable[Locator], *, consistent: bool = True) -> dict[ObjectKey, StoredObject]:
        del consistent
        keys = hints(wanted)
        self.before("fetch_many")
        with self._lock:
            found = {key: self._objects[key] for key in keys if key in self._objects}
        self.after("fetch_many")
        return found

    def put_many(self, objects: Iterable[StoredObject]) -> None:
        new = distinct(objects)
        for one in new:
            part_count(len(one.value))
        self.before("put_many")
        for one in new:
            self.before("put_row")
            with self._lock:
                self._put(one)
            self.after("put_row")
        self.after("put_many")

    def delete_many(self, doomed: Iterable[Locator]) -> None:
        keys = hints(doomed)
        self.before("delete_many")
        for key in keys:
            self.before("delete_row")
            with self._lock:
                self._objects.pop(key, None)
            self.after("delete_row")
        self.after("delete_many")

    def insert(self, new: StoredObject) -> Refused[StoredObject] | None:
        fits_one_row(new)
        self.before("insert")
        with self._lock:
            stored = self._objects.get(new.key)
            if stored is None:
                self._put(new)
        self.after("insert")
        return Refused(stored) if stored else None

    def update(self, new: StoredObject, *, expected: str) -> Refused[StoredObject] | None:
        fits_one_row(new)
        self.before("update")
        with self._lock:
            stored = self._objects.get(new.key)
            applied = stored is not None and stored.token == expected
            if applied:
                self._put(new)
        self.after("update")
        return None if applied else Refused(stored)

    def delete(self, key: ObjectKey, *, expected: str) -> Refused[StoredObject] | None:
        self.before("delete")
        with self._lock:
            stored = self._objects.get(key)
            applied = stored is not None and stored.token == expected
            if applied:
                del self._objects[key]
        self.after("delete")
        return None if applied else Refused(stored)

    def scan(self, *, realm: str | None = None, after: str | None = None, limit: int = 1_000) -> ScanPage:
        self.before("scan")
        with self._lock:
            if self._order is None:
                self._order = sorted(self._objects, key=repr)
            order = self._order
            start = bisect.bisect_right(order, after, key=repr) if after is not None else 0
            page = order[start : start + limit]
            rows = tuple(
                ScannedRow(key, part_count(len(one.value)), one.created_at, one.token)
                for key in page
                if (realm is None or key.realm == realm) and (one := self._objects.get(key))
            )
            more = start + limit < len(order)
        self.after("scan")
        return ScanPage(rows, repr(page[-1]) if more else None)

    def read_reference(self, key: ReferenceKey) -> Reference | None:
        self.before("read_reference")
        with self._lock:
            stored = self._references.get(key)
        self.after("read_reference")
        return stored

    def create_reference(self, new: Reference) -> Refused[Reference] | None:
        self.before("create_reference")
        with self._lock:
            stored = self._references.get(new.key)
            if stored is None:
                self._references[new.key] = new
        self.after("create_reference")
        return Refused(stored) if stored else None

    def replace_reference(self, new: Reference, *, expected: Reference) -> Refused[Reference] | None:
        self.before("replace_reference")
        with self._lock:
            stored = self._references.get(new.key)
            applied = stored is not None and stored.version == expected.version and stored.heads == expected.heads
            if applied:
                self._references[new.key] = new
        self.after("replace_reference")
        return None if applied else Refused(stored)

    def references(self, *, realm: str | None = None) -> Iterator[Reference]:
        self.before("references")
        with self._lock:
            found = [one for key, one in self._references.items() if realm is None or key.realm == realm]
        self.after("references")
        return iter(found)

    def delete_reference(self, key: ReferenceKey) -> None:
        self.before("delete_reference")
        with self._lock:
            self._references.pop(key, None)
        self.after("delete_reference")

    def _put(self, one: StoredObject) -> None:
        if one.key not in self._objects:
            self._order = None
        self._objects[one.key] = one
