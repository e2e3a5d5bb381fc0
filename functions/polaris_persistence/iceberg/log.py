"""Logs that grow by one entry per commit: the newest entries in the metadata state, older ones in chunks.

A full tail becomes a chunk, merged with the chunks before it that are not larger. So there are about log2(n) chunks,
and an entry is written about log2(n) times. Dropping the oldest entries writes nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import cbor2

from polaris_persistence.errors import CorruptObject
from polaris_persistence.iceberg.layout import Json, check_nesting
from polaris_persistence.iceberg.objects import IcebergLog, LogChunk, LogState
from polaris_persistence.objects.objects import ObjectRef, PersistedModel
from polaris_persistence.objects.types import Fetch

TAIL_BYTES: Final = 512
MOST_ENTRIES: Final = 2_048

WriteObject = Callable[[PersistedModel], ObjectRef]


class Log:
    """A working copy of a log."""

    def __init__(self, state: LogState, fetch: Fetch) -> None:
        self._state = state
        self._fetch = fetch
        self._chunks = list(state.chunks)
        self._skip = state.skip
        self._tail = [_entry(row, state.names) for row in state.tail]
        self.changed = False

    def __len__(self) -> int:
        return sum(chunk.entries for chunk in self._chunks) - self._skip + len(self._tail)

    @property
    def refs(self) -> list[ObjectRef]:
        return [chunk.ref for chunk in self._chunks]

    def entries(self) -> list[Json]:
        """Return all entries, oldest first, after reading the chunks. Raises CorruptObject."""
        return _read(self._chunks, self._fetch)[self._skip :] + self._tail

    def newest(self) -> Json | None:
        """Return the newest entry, after reading the newest chunk if necessary; None for an empty log."""
        entries = self._tail or _read(self._chunks[-1:], self._fetch)
        return entries[-1] if entries else None

    def append(self, entry: Json) -> None:
        self._tail.append(entry)
        self.changed = True

    def drop_oldest(self, count: int) -> None:
        """Remove the `count` oldest entries, all if there are fewer."""
        self.changed |= count > 0
        self._skip += count
        while self._chunks and self._skip >= self._chunks[0].entries:
            self._skip -= self._chunks.pop(0).entries
        if not self._chunks:
            del self._tail[: self._skip]
            self._skip = 0

    def replace(self, entries: Sequence[Json]) -> None:
        """Replace all entries, but keep stored chunks if only old entries are dropped and new ones added."""
        old = self.entries()
        if same(old, list(entries)):
            return
        # The new log may start within the old one and continue after its end.
        for dropped in range(len(old)):
            kept = len(old) - dropped
            if kept <= len(entries) and same(old[dropped:], list(entries[:kept])):
                self.drop_oldest(dropped)
                for entry in entries[kept:]:
                    self.append(entry)
                return
        self._chunks, self._skip, self._tail = [], 0, list(entries)
        self.changed = True

    def finish(self, write: WriteObject) -> LogState:
        """Return the state to store, after passing a full tail to `write`. Raises InvalidIcebergMetadata (nesting)."""
        if not self.changed:
            return self._state
        check_nesting("a log", self._tail, 1)
        names = self._state.names or tuple(self._tail[0] if self._tail else ())
        tail = [_row(entry, names) for entry in self._tail]
        chunks, skip = list(self._chunks), self._skip
        if len(cbor2.dumps(tail)) > TAIL_BYTES:
            # The newest entry stays, because every commit reads it, unless it fills the tail alone.
            stays = 1 if len(tail) > 1 and len(cbor2.dumps(tail[-1:])) <= TAIL_BYTES else 0
            moved, tail = self._tail[: len(tail) - stays], tail[len(tail) - stays :]
            merged: list[LogChunk] = []
            total = len(moved)
            while chunks and chunks[-1].entries <= total and chunks[-1].entries + total <= MOST_ENTRIES:
                merged.insert(0, chunks.pop())
                total += merged[0].entries
            entries = _read(merged, self._fetch) + moved
            if not chunks:
                entries, skip = entries[skip:], 0
            for start in range(0, len(entries), MOST_ENTRIES):
                rows = [_row(entry, names) for entry in entries[start : start + MOST_ENTRIES]]
                chunks.append(LogChunk(write(IcebergLog(names=names, rows=rows)), len(rows)))
        return LogState(names=names, skip=skip, chunks=tuple(chunks), tail=tuple(tail))


def same(left: Any, right: Any) -> bool:
    """Return whether two values are the same JSON; unlike with ==, 1, 1.0 and true differ."""
    pending = [(left, right)]
    while pending:
        first, second = pending.pop()
        if isinstance(first, dict) and isinstance(second, dict):
            if first.keys() != second.keys():
                return False
            pending += [(value, second[name]) for name, value in first.items()]
        elif isinstance(first, list | tuple) and isinstance(second, list | tuple):
            if len(first) != len(second):
                return False
            pending += zip(first, second, strict=True)
        elif type(first) is not type(second) or first != second:
            return False
    return True


def _read(chunks: Iterable[LogChunk], fetch: Fetch) -> list[Json]:
    refs = [chunk.ref for chunk in chunks]
    entries: list[Json] = []
    for ref, loaded in zip(refs, fetch(refs) if refs else [], strict=True):
        if loaded is None or not isinstance(loaded.value, IcebergLog):
            raise CorruptObject(f"the entries {ref.id} of a metadata log are missing")
        entries += [_entry(row, loaded.value.names) for row in loaded.value.rows]
    return entries


def _row(entry: Json, names: tuple[str, ...]) -> Any:
    return [entry[name] for name in names] if names and tuple(entry) == names else entry


def _entry(row: Any, names: tuple[str, ...]) -> Json:
    if isinstance(row, dict):
        return row
    if not isinstance(row, list | tuple) or len(row) != len(names):
        raise CorruptObject("an entry of a metadata log does not have the fields of the log")
    return dict(zip(names, row, strict=True))
