"""A changed table is loaded and read once in a pass, for the reference index and for its health."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from delegation.identifiers import TableIdentifier
from delegation.references.model import PassNeeded
from delegation.references.reading import read_references
from delegation.storage.locations import ObjectLocation, uri_of
from delegation.storage.memory import MemoryObjectStore
from delegation.upkeep.health.refresh import HealthCounts, HealthRefresher
from delegation.upkeep.health.store import MemoryHealthStore
from tests.kit.lakes.lake import busy_table, rows
from tests.unit.references.test_refresh import Scene


@dataclass
class CountedReads(MemoryObjectStore):
    """A lake's files; `each` is called before each read."""

    reads: Counter[str] = field(default_factory=Counter)
    each: Callable[[str], object] = lambda _uri: None

    def __post_init__(self) -> None:
        MemoryObjectStore.__init__(self)

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        uri = uri_of(location.bucket, location.key)
        self.each(uri)
        self.reads[uri] += 1
        return super().read(location, limit=limit)


class VisitedScene:
    """A catalog, its index and its healths; each pass is followed by the run of the task of healths."""

    def __init__(self, *tables: str) -> None:
        self.scene = Scene()
        self.healths = MemoryHealthStore()
        self.store = CountedReads()
        self.store.objects = self.scene.one.objects
        self.numbers = count()
        for name in tables:
            busy_table(self.scene.one, name)

    @property
    def asked(self) -> Counter[str]:
        return self.scene.listing.asked

    def refresher(self, **fields: Any) -> HealthRefresher:
        scene = self.scene
        given = {"open_store": lambda _table: self.store, "clock": lambda: scene.now, **fields}
        return HealthRefresher(self.healths, scene.store, scene.listing, **given)  # type: ignore[arg-type]

    def one_pass(self, **fields: Any) -> None:
        self.scene.now += timedelta(seconds=1)
        read = lambda table, known: read_references(table, self.store, known)  # noqa: E731
        replace(self.scene.refresher(**fields), read=read).ensure("cat", PassNeeded(next(self.numbers)))

    def follow(self) -> HealthCounts:
        return self.refresher().refresh("cat")

    def location(self, name: str) -> str | None:
        found = self.healths.health(named(name))
        return None if found is None else found.metadata_location

    def current(self, name: str) -> str:
        return self.scene.one.table(name).metadata_location

    def commit(self, name: str) -> None:
        self.scene.one.table(name).append(rows(7))


def named(name: str) -> TableIdentifier:
    return TableIdentifier("cat", ("ns",), name)


@pytest.mark.xfail(strict=True, reason="issue 51, line 3")
def test_a_changed_table_is_loaded_once_in_a_pass_and_each_of_its_files_is_read_once() -> None:
    here = VisitedScene("a", "b")
    here.one_pass()
    assert here.follow().read == 0
    assert (here.asked["conditional"], here.asked["full"]) == (2, 0)
    here.commit("b")
    here.asked.clear()
    here.store.reads.clear()
    here.one_pass()
    assert here.follow() == HealthCounts(tables=2)
    assert (here.asked["conditional"], here.asked["full"]) == (2, 0)
    assert here.location("b") == here.current("b")
    kinds = Counter("list" if "/snap-" in uri else "manifest" for uri in here.store.reads if uri.endswith(".avro"))
    assert kinds == {"list": kinds["list"], "manifest": 1}
    assert set(here.store.reads.values()) == {1}
