"""What a catalog of many tables costs: round trips one after another, and read and write units of DynamoDB.

    PYTHONPATH=functions:. python tests/bench/bench_persistence.py [--tables 100000] [--commits 1000]

On a store in memory that counts. A call is one round trip, whose batches go out at the same time. Units are those that
DynamoDB bills: a write unit for each started KB of a row, a read unit for each started 4 KB (Amazon DynamoDB, Read and
write capacity mode). "Cold" is a new process, with `open` and the lease of its node id. Trips of the lease are beside
the others.
"""

import math
import sys
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Any

from polaris_persistence.backends.base import Locator, ObjectKey, Reference, ReferenceKey, Refused, StoredObject
from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.catalogs.process import OWN_TYPES, PersistenceProcess
from polaris_persistence.catalogs.realms import MAIN
from polaris_persistence.commits.directories import Directory, entity_committer
from polaris_persistence.commits.retries import CommitRetries
from polaris_persistence.ids.nodes import LEASING
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectTypes
from tests.bench.bench_commits import change_of, key_of, loading
from tests.bench.frame import options
from tests.persistence.builders import ENTITY, Entity

TYPES = ObjectTypes([*OWN_TYPES, ENTITY])
PATIENT = CommitRetries(tries=10_000, seconds=600)
_KEYS_AND_NAMES = 120


class CountingStore(MemoryBackend):
    """Counts calls and units."""

    def __init__(self) -> None:
        self.reset()
        super().__init__(before=self._count)

    def reset(self) -> None:
        self.trips, self.beside, self.reads, self.writes = 0, 0, 0.0, 0

    def _count(self, operation: str) -> None:
        if operation.endswith("_row"):
            return
        if threading.current_thread().name == LEASING:
            self.beside += 1
        else:
            self.trips += 1

    def fetch_many(self, wanted: Iterable[Locator], *, consistent: bool = True) -> dict[ObjectKey, StoredObject]:
        keys = list(wanted)
        found = super().fetch_many(keys, consistent=consistent)
        units = sum(-(-(len(one.value) + _KEYS_AND_NAMES) // 4_096) for one in found.values()) + len(keys) - len(found)
        self.reads += units if consistent else units / 2
        return found

    def read_reference(self, key: ReferenceKey) -> Reference | None:
        found = super().read_reference(key)
        self.reads += _size(found) / 4_096 if found and _size(found) > 4_096 else 1
        return found

    def _put(self, one: StoredObject) -> None:
        self.writes += -(-(len(one.value) + _KEYS_AND_NAMES) // 1_024)
        super()._put(one)

    def replace_reference(self, new: Reference, *, expected: Reference) -> Refused[Reference] | None:
        self.writes += math.ceil(_size(new) / 1_024)
        return super().replace_reference(new, expected=expected)

    def add_waiting(self, ids: Collection[int], *, expected: Reference) -> Refused[Reference] | None:
        self.writes += math.ceil(_size(expected) / 1_024)
        return super().add_waiting(ids, expected=expected)


def _size(one: Reference) -> int:
    copies = (len(one.copy.value) if one.copy else 0) + sum(len(each.value) + 16 for each in one.copies)
    return _KEYS_AND_NAMES + 8 * len(one.heads) + copies


def directory(store: CatalogStore) -> Directory[Entity]:
    return Directory(store, entity_committer(store, MAIN, retry=PATIENT), Entity)


def main() -> None:
    given = options(__doc__, tables=100_000, commits=1_000)
    backend = CountingStore()
    setup = PersistenceProcess(backend, types=TYPES)
    realms = setup.realms()
    realms.create("acme", {})
    warm = directory(realms.create_catalog("acme", "sales", {}))
    committer, new_id = warm._committer, warm._store.new_id
    for start in range(0, given.tables, 50_000):
        committer.commit(loading(range(start, min(start + 50_000, given.tables)), new_id))
    numbers = [number * 7_919 % given.tables for number in range(given.commits + given.commits // 4)]
    for number in numbers[given.commits :]:
        committer.commit(change_of(number))

    def line(what: str, act: Callable[[], Any], of: int = 1) -> None:
        backend.reset()
        act()
        beside = f" (and {backend.beside} beside them)" if backend.beside else ""
        units = f"{backend.reads / of:6.1f} read and {backend.writes / of:5.2f} write units"
        sys.stdout.write(f"{what:<30} {backend.trips / of:5.2f} trips{beside}, {units}\n")
        sys.stdout.flush()

    def cold() -> PersistenceProcess:
        return PersistenceProcess(backend, types=TYPES)

    def opened(process: PersistenceProcess) -> Directory[Entity]:
        return directory(process.realms().open("acme", "sales"))

    name = numbers[0]
    key = change_of(name)
    sys.stdout.write(f"{given.tables} tables in one catalog\n")
    line("warm commit", lambda: [committer.commit(change_of(one)) for one in numbers[: given.commits]], given.commits)
    process = cold()
    line("cold open", lambda: process.realms().open("acme", "sales"))
    line("cold load, with open", lambda: _load(opened(cold()), name))
    line("cold commit, with open", lambda: opened(cold())._committer.commit(key))
    names = opened(cold())
    line("list 1,000 names, after open", lambda: names.names(limit=1_000))
    head = committer.head()
    sys.stdout.write(f"the head has {head.size if head else 0} bytes\n")


def _load(names: Directory[Entity], number: int) -> None:
    head = names._committer.head()
    assert head is not None
    ref = head.value.working_index(names._store.fetch_many).get(key_of(number))
    assert ref is not None
    assert names._store.fetch(ref, Entity) is not None


if __name__ == "__main__":
    main()
