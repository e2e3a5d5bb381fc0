"""A changed table is loaded and read once in a pass, for the reference index and for its health."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from delegation.identifiers import TableIdentifier
from delegation.references.concurrent_visits import AdaptiveWidth
from delegation.references.errors import ReferencesUnavailable
from delegation.references.model import PassNeeded
from delegation.references.reading import ReadOnce
from delegation.storage.locations import ObjectLocation, uri_of
from delegation.storage.memory import Killed, MemoryObjectStore
from delegation.upkeep.errors import HealthUnavailable
from delegation.upkeep.health.refresh import MOST_FAILED, HealthCounts, HealthRefresher
from tests.kit.dynamodb import MemoryHealthStore
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
        self.scene.now += timedelta(hours=1)
        fields = {"visited": self.refresher().visited(), "open_store": lambda _table: self.store, **fields}
        replace(self.scene.refresher(), **fields).ensure("cat", PassNeeded(next(self.numbers)))

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


def test_a_changed_table_is_loaded_once_in_a_pass_and_each_of_its_files_is_read_once() -> None:
    here = VisitedScene("a", "b")
    here.one_pass()
    assert here.follow() == HealthCounts(tables=2)
    assert here.asked["full"] == 0
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


def failing(error: BaseException) -> Callable[..., Any]:
    def fails(*_args: object, **_options: object) -> Any:
        raise error

    return fails


@pytest.mark.parametrize("error", [HealthUnavailable("no answer"), ValueError("a mistake of ours")])
def test_a_health_that_cannot_be_stored_neither_loses_nor_delays_the_references(error, monkeypatch):
    here = VisitedScene("a", "b")
    with monkeypatch.context() as broken:
        broken.setattr(here.healths, "put", failing(error))
        here.one_pass()
    assert here.scene.store.pass_of("cat").complete == 1
    assert here.scene.concerned("s3://lake/wh/a/") == {"ns.a"}
    assert here.location("a") is None
    assert here.follow() == HealthCounts(tables=2, read=2), "the task of healths reads what the visits left"


def test_a_process_that_dies_while_it_reads_a_health_has_recorded_the_references(monkeypatch):
    here = VisitedScene("a", "b")
    with monkeypatch.context() as broken:
        broken.setattr(here.healths, "read_state", failing(Killed()))
        for number in range(2):
            with pytest.raises(Killed):
                here.one_pass(owner=f"process {number}")
            here.scene.now += timedelta(minutes=2)
        here.one_pass(owner="last")
    state = here.scene.store.pass_of("cat")
    assert state.complete == state.number, "a table that kills its reader stops no pass for ever"
    assert here.follow().read == 2


def test_references_that_cannot_be_stored_leave_no_health(monkeypatch: pytest.MonkeyPatch) -> None:
    here = VisitedScene("a")
    monkeypatch.setattr(here.scene.store, "put", failing(ReferencesUnavailable("slow down")))
    with pytest.raises(ReferencesUnavailable):
        here.one_pass()
    assert here.location("a") is None


def test_an_outage_of_the_healths_costs_a_pass_a_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    here = VisitedScene()
    for number in range(MOST_FAILED + 4):
        here.scene.one.create(f"t{number}")
    calls = Counter[str]()

    def unavailable(identifier: TableIdentifier) -> None:
        calls[identifier.name] += 1
        raise HealthUnavailable("no answer")

    monkeypatch.setattr(here.healths, "health", unavailable)
    here.one_pass()
    assert calls.total() == MOST_FAILED
    assert here.scene.store.pass_of("cat").tables == MOST_FAILED + 4


@pytest.mark.parametrize(("most", "amount"), [("MOST_VISITED", 1), ("MOST_VISITED_BYTES", 1_000)])
def test_a_table_with_much_to_read_is_left_to_the_task(most: str, amount: int, monkeypatch: pytest.MonkeyPatch) -> None:
    here = VisitedScene("a", "b", "c", "d")
    monkeypatch.setattr(f"delegation.upkeep.health.refresh.{most}", amount)
    here.scene.one.create("small")
    here.one_pass()
    assert [one.identifier.name for one in here.healths.healths("cat")] == ["small"]
    assert here.follow() == HealthCounts(tables=5, read=4)
    assert {one.problem for one in here.healths.healths("cat")} == {None}


def test_the_health_of_an_unchanged_table_that_cannot_be_read_is_read_again_after_a_day() -> None:
    here = VisitedScene("a", "b")
    lost = next(each for each in here.store.objects if each[1].startswith("wh/a/") and "-m0" in each[1])
    del here.store.objects[lost]
    here.one_pass()
    first = here.healths.health(named("a"))
    assert first.problem
    for _ in range(3):
        here.one_pass()
    assert here.healths.health(named("a")) == first
    here.scene.now += timedelta(days=1)
    here.one_pass()
    assert here.healths.health(named("a")).as_of == here.scene.now


def test_a_health_of_a_later_load_stays() -> None:
    here = VisitedScene("a")
    here.one_pass()
    older = here.scene.listing.load_table(named("a"))
    asked = here.scene.now
    here.scene.now += timedelta(seconds=1)
    here.commit("a")
    here.refresher().refresh_table(named("a"))
    here.refresher().visited()(older, here.store, asked)
    assert here.location("a") == here.current("a")


def test_a_table_that_was_replaced_between_two_passes_has_the_health_of_the_new_one() -> None:
    here = VisitedScene("a", "b")
    here.one_pass()
    here.scene.one.pointers["a"] = here.scene.one.pointers.pop("b")
    for _ in range(3):
        here.one_pass()
        here.follow()
    assert [one.identifier.name for one in here.healths.healths("cat")] == ["a"]
    assert here.location("a") == here.current("a")
    assert here.healths.health(named("a")).table_uuid == str(here.scene.one.table("a").metadata.table_uuid)


def test_a_table_that_is_dropped_while_its_health_is_read_keeps_no_health() -> None:
    here = VisitedScene("a", "b")

    def drop(_uri: str) -> None:
        if here.healths.health(named("b")) is None:
            here.scene.one.pointers.pop("b", None)

    here.store.each = drop
    for _ in range(3):
        here.one_pass()
        here.follow()
    assert [one.identifier.name for one in here.healths.healths("cat")] == ["a"]


def test_several_visits_at_a_time_read_every_health() -> None:
    here = VisitedScene("a", "b", "c")
    here.one_pass(at_once=4)
    assert here.follow() == HealthCounts(tables=3)


def test_the_time_of_a_health_does_not_make_a_pass_load_fewer_tables_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    here = VisitedScene("a", "b")
    now, taken = [0.0], list[float]()
    monkeypatch.setattr(AdaptiveWidth, "answered", lambda _width, seconds: taken.append(seconds))

    def slow(*_visit: object) -> None:
        now[0] += 30

    here.one_pass(visited=slow, seconds=lambda: now[0])
    assert now == [60.0]
    assert set(taken) == {0.0}


def test_files_that_memory_has_no_room_for_are_read_again() -> None:
    here = VisitedScene("a")
    files = sorted(here.store.objects, key=lambda one: len(here.store.objects[one]))
    small, large = (ObjectLocation(*files[place]) for place in (0, -1))
    once = ReadOnce(here.store, most=len(here.store.objects[files[0]]))
    for _ in range(2):
        for one in (small, large):
            assert once.read(one, limit=10**9) == here.store.objects[one.bucket, one.key]
    assert sorted(here.store.reads.values()) == [1, 2]
