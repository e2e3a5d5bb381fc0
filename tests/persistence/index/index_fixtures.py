"""A store of stripes for index tests, keys of every kind, and one commit after another on an index."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hypothesis import strategies as st

from polaris_persistence.backends.base import ObjectKey, StoredObject
from polaris_persistence.index.index import Index
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.index.stripes import STRIPES, IndexStripe
from polaris_persistence.objects.objects import Loaded, ObjectRef, PersistedModel, decode, encode


@dataclass
class Stripes:
    """Stripes as stored bytes, with counts of batches and objects read and written."""

    stored: dict[int, bytes] = field(default_factory=dict)
    batches: list[list[int]] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    ids: Iterable[int] = field(default_factory=lambda: itertools.count(1_000))

    def fetch(self, refs: Iterable[ObjectRef]) -> list[Loaded[PersistedModel] | None]:
        wanted = list(refs)
        self.batches.append([ref.id for ref in wanted])
        return [self._loaded(ref) for ref in wanted]

    def write(self, stripe: IndexStripe) -> ObjectRef:
        number = next(iter(self.ids))
        self.stored[number] = encode(stripe)
        self.written.append(number)
        return ObjectRef(STRIPES.name, number)

    def _loaded(self, ref: ObjectRef) -> Loaded[PersistedModel] | None:
        if ref.id not in self.stored:
            return None
        key = ObjectKey("realm", "catalog", ref.type, ref.id)
        value = decode(StoredObject(key, self.stored[ref.id], 0), IndexStripe)
        return Loaded(key, value, 0, len(self.stored[ref.id]))


@dataclass
class Catalog:
    """An index from commit to commit."""

    policy: IndexPolicy = field(default_factory=IndexPolicy)
    stripes: Stripes = field(default_factory=Stripes)
    embedded: bytes = b""

    def load(self) -> Index:
        return Index.load(self.embedded, self.stripes.fetch)

    def commit(self, change: Callable[[Index], None]) -> Index:
        index = self.load()
        change(index)
        self.embedded = index.finish(self.policy, self.stripes.write).embedded
        return self.load()

    def put(self, entries: Iterable[tuple[IndexKey, ObjectRef]]) -> Index:
        def change(index: Index) -> None:
            for key, ref in entries:
                index.put(key, ref)

        return self.commit(change)


def table(number: int, kind: str = "table") -> ObjectRef:
    return ObjectRef(kind, number)


def name(number: int) -> IndexKey:
    return IndexKey.of(f"ns{number % 100:03}", f"table_{number:06}")


# What separators, escapes and prefix compression could stumble over.
PIECES = ["\x00", "\x01", "\x02", "\x00\x01", "\x01\x01", "a", "b", "é", "€", "\U0001f600", "\x7f", "\U0010ffff"]
elements = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
    st.sampled_from(["", "x" * 500, "\x00" * 500, "€" * 167, "\x01"]),
    st.text(max_size=8),
)
key_elements = st.lists(elements, min_size=1, max_size=4).map(tuple)
keys = key_elements.map(lambda parts: IndexKey.of(*parts))
refs = st.builds(
    ObjectRef,
    st.sampled_from(["table", "view", "namespace", "t"]),
    st.one_of(st.integers(0, 2**63 - 1), st.integers(0, 300)),
    st.sampled_from([1, 1, 1, 2, 1_000]),
)
