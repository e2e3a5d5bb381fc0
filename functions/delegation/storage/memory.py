"""Object stores in memory, for tests, with injected faults; thread-safe."""

import hashlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from delegation.storage.base import BatchResult, FileTooLarge, KeyFailure, ObjectNotFound
from delegation.storage.listing.model import (
    CHANGED,
    GONE,
    MOST_TAGS,
    PAGE,
    TAG,
    TAGS_FULL,
    KeyVersions,
    ListedFolder,
    ListedObject,
    ListedPage,
    StoredVersion,
    TagFound,
    UnchangedResult,
)
from delegation.storage.locations import ObjectLocation, uri_of

_MARKERS = itertools.count(1)


class Killed(BaseException):
    """Simulates the death of the process; not an Exception, so that no handler catches it."""


class Faults:
    """Counts the calls of all stores that share it, and raises Killed from call `kill_at` (counted from 1) on. With
    `after`, that call still takes effect."""

    def __init__(self, *, kill_at: int | None = None, after: bool = False) -> None:
        self._lock = threading.Lock()
        self._kill_at = kill_at
        self._after = after
        self.calls = 0
        self.names: list[str] = []

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        with self._lock:
            self.calls += 1
            self.names.append(name)
            number = self.calls
        killed = self._kill_at is not None and number >= self._kill_at
        if killed and not (self._after and number == self._kill_at):
            raise Killed(name)
        yield
        if killed:
            raise Killed(name)


class MemoryObjectStore:
    """A table's files in memory.

    `refuse(bucket, key, nth)` returns the error code of a key's nth delete (from 1), None to allow it. Deletes below
    `denied` (canonical URIs) fail with AccessDenied. With `versioning_denied` only reads of objects show whether a
    bucket keeps versions. `clock` returns the store's time in seconds since 1970; `modified` has the times of writing,
    1970 by default. In `versioned_buckets` a delete of unchanged objects writes delete markers; `hidden` has the
    objects below them, newest last. `tags` belong to objects, not to keys.
    """

    def __init__(
        self,
        objects: Mapping[tuple[str, str], bytes] | None = None,
        *,
        faults: Faults | None = None,
        refuse: Callable[[str, str, int], str | None] | None = None,
        denied: Sequence[str] = (),
        versioned_buckets: Sequence[str] = (),
        versioning_denied: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._lock = threading.Lock()
        self.objects: dict[tuple[str, str], bytes] = dict(objects or {})
        self.faults = faults or Faults()
        self._refuse = refuse
        self._denied = tuple(denied)
        self._versioned = frozenset(versioned_buckets)
        self.versioning_denied = versioning_denied
        self.tries: Counter[tuple[str, str]] = Counter()
        self.deleted: list[str] = []
        self.clock = clock
        self.modified: dict[tuple[str, str], int] = {}
        self.hidden: dict[tuple[str, str], list[tuple[StoredVersion, bytes]]] = {}
        self.tags: dict[tuple[str, ListedObject], dict[str, str]] = {}

    def put(self, location: ObjectLocation, data: bytes) -> None:
        """Store an object. Counts no call and never fails."""
        with self._lock:
            self.objects[location.bucket, location.key] = data
            self.modified[location.bucket, location.key] = int(self.clock())

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        with self.faults.call("read"), self._lock:
            data = self.objects.get((location.bucket, location.key))
            if data is None:
                raise ObjectNotFound(f"there is no object {location.uri}")
            if len(data) > limit:
                raise FileTooLarge(f"{location.uri} has {len(data)} bytes, more than the limit of {limit}")
            return data

    def part(self, location: ObjectLocation, *, start: int, length: int) -> bytes:
        with self.faults.call("part"), self._lock:
            data = self.objects.get((location.bucket, location.key))
            if data is None:
                raise ObjectNotFound(f"there is no object {location.uri}")
            return data[start : start + length]

    def exists(self, location: ObjectLocation) -> bool:
        with self.faults.call("exists"), self._lock:
            return (location.bucket, location.key) in self.objects

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        with self.faults.call("delete"), self._lock:
            deleted: list[str] = []
            failed: list[KeyFailure] = []
            for key in keys:
                code = self._error_code(bucket, key)
                if code is not None:
                    failed.append(KeyFailure(key, code))
                    continue
                self.objects.pop((bucket, key), None)
                deleted.append(key)
                self.deleted.append(uri_of(bucket, key))
            return BatchResult(
                tuple(deleted), tuple(failed), delete_markers=bool(deleted) and bucket in self._versioned
            )

    def probe_delete(self, prefix: str) -> str | None:
        with self.faults.call("probe"):
            return "AccessDenied" if prefix.startswith(self._denied) else None

    def versioned(self, bucket: str, *, seen: ObjectLocation | None = None) -> bool | None:
        with self.faults.call("versioned"), self._lock:
            if self.versioning_denied and (seen is None or (seen.bucket, seen.key) not in self.objects):
                return None
            return bucket in self._versioned

    def page(self, bucket: str, prefix: str, *, after: str = "") -> ListedPage:
        with self.faults.call("list"), self._lock:
            keys = [key for key in self._keys(bucket, prefix) if key > after]
            objects = tuple(self._listed(bucket, key) for key in keys[:PAGE])
            return ListedPage(objects, int(self.clock()), len(keys) <= PAGE)

    def folder(self, bucket: str, prefix: str) -> ListedFolder:
        with self.faults.call("list"), self._lock:
            keys = self._keys(bucket, prefix)
            below = [key.removeprefix(prefix).partition("/") for key in keys]
            objects = tuple(self._listed(bucket, f"{prefix}{name}") for name, slash, _ in below if not slash)
            folders = dict.fromkeys(f"{prefix}{name}/" for name, slash, _ in below if slash)
            return ListedFolder(objects, tuple(folders), int(self.clock()), is_whole=True)

    def delete_unchanged(self, bucket: str, listed: Sequence[ListedObject]) -> UnchangedResult:
        with self.faults.call("delete"), self._lock:
            absent = [before.key for before in listed if (bucket, before.key) not in self.objects]
            deleted, failed = list(absent), []
            markers: dict[str, str] = {}
            for before in (before for before in listed if before.key not in absent):
                code = self._error_code(bucket, before.key)
                if code is None and self._listed(bucket, before.key) != before:
                    code = CHANGED
                if code is not None:
                    failed.append(KeyFailure(before.key, code))
                    continue
                data = self.objects.pop((bucket, before.key))
                if bucket in self._versioned:
                    markers[before.key] = self._hide(bucket, before, data)
                deleted.append(before.key)
                self.deleted.append(uri_of(bucket, before.key))
            result = BatchResult(tuple(deleted), tuple(failed), bool(markers), tuple(absent))
            return UnchangedResult(result, markers=markers)

    def tag(self, bucket: str, listed: ListedObject) -> str | None:
        """Tag an unchanged object. Here another object never gets the tag."""
        with self.faults.call("tag"), self._lock:
            if (bucket, listed.key) not in self.objects:
                return GONE
            code = self._error_code(bucket, listed.key)
            if code is not None or self._listed(bucket, listed.key) != listed:
                return code or CHANGED
            tags = self.tags.setdefault((bucket, listed), {})
            if len(tags.keys() - {TAG[0]}) >= MOST_TAGS:
                return TAGS_FULL
            tags[TAG[0]] = TAG[1]
            return None

    def untag(self, bucket: str, listed: ListedObject, *, dry_run: bool = False) -> TagFound:
        with self.faults.call("untag"), self._lock:
            if (bucket, listed.key) not in self.objects:
                return TagFound.ABSENT
            if self._listed(bucket, listed.key) != listed:
                return TagFound.CHANGED
            tags = self.tags.get((bucket, listed), {})
            if tags.get(TAG[0]) != TAG[1]:
                return TagFound.UNTAGGED
            if not dry_run:
                del tags[TAG[0]]
            return TagFound.TAGGED

    def versions(self, bucket: str, key: str) -> KeyVersions:
        """Return the versions of a key. A visible object has the version `now`."""
        with self.faults.call("versions"), self._lock:
            below = self.hidden.get((bucket, key), [])
            objects = [version for version, _ in below if version.object is not None]
            if (bucket, key) in self.objects:
                objects.append(StoredVersion("now", self._listed(bucket, key)))
                return KeyVersions(objects[-1], objects[-1])
            return KeyVersions(below[-1][0] if below else None, objects[-1] if objects else None)

    def remove_version(self, bucket: str, key: str, version_id: str) -> None:
        with self.faults.call("remove version"), self._lock:
            below = self.hidden.get((bucket, key), [])
            below[:] = [version for version in below if version[0].version_id != version_id]
            if below and (bucket, key) not in self.objects and (was := below[-1][0].object) is not None:
                _, self.objects[bucket, key] = below.pop()
                self.modified[bucket, key] = was.modified

    def _hide(self, bucket: str, listed: ListedObject, data: bytes) -> str:
        """Put a delete marker above an object; return its version id."""
        below = self.hidden.setdefault((bucket, listed.key), [])
        name = f"marker-{next(_MARKERS)}"
        below += [(StoredVersion(f"below-{name}", listed), data), (StoredVersion(name, None), b"")]
        return name

    def _keys(self, bucket: str, prefix: str) -> list[str]:
        return sorted(key for where, key in self.objects if where == bucket and key.startswith(prefix))

    def _listed(self, bucket: str, key: str) -> ListedObject:
        data = self.objects[bucket, key]
        etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
        return ListedObject(key, len(data), f'"{etag}"', self.modified.get((bucket, key), 0))

    def _error_code(self, bucket: str, key: str) -> str | None:
        self.tries[bucket, key] += 1
        if uri_of(bucket, key).startswith(self._denied):
            return "AccessDenied"
        return None if self._refuse is None else self._refuse(bucket, key, self.tries[bucket, key])


class MemoryPlanStore:
    def __init__(self, *, faults: Faults | None = None) -> None:
        self._lock = threading.Lock()
        self.objects: dict[str, bytes] = {}
        self.faults = faults or Faults()

    def put(self, key: str, data: bytes) -> None:
        with self.faults.call("plan put"), self._lock:
            self.objects[key] = data

    def get(self, key: str) -> bytes:
        with self.faults.call("plan get"), self._lock:
            if key not in self.objects:
                raise ObjectNotFound(f"there is no object {key}")
            return self.objects[key]

    def keys(self, prefix: str) -> Iterator[str]:
        with self.faults.call("plan list"), self._lock:
            keys = sorted(key for key in self.objects if key.startswith(prefix))
        return iter(keys)

    def where(self, key: str) -> str:
        return f"memory:{key}"
