"""What a memoised computation wrote belongs to its memo, which is not reused once maintenance may have run."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import CommitRetries, Committer
from polaris_persistence.commits.entities import HEAD_TYPE, EntityChanges, EntityHead, seal
from polaris_persistence.iceberg.layout import TABLE, Json
from polaris_persistence.iceberg.metadata import ManagedMetadata
from polaris_persistence.iceberg.objects import ICEBERG_TYPES, IcebergMetadata
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.index.stripes import STRIPES
from polaris_persistence.objects.objects import ObjectRef, PersistedModel
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectType, ObjectTypes
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import ENTITY, CountingBackend, Entity, Head, put, store_on
from tests.persistence.commits.commit_world import CommitWorld

POLICY = IndexPolicy(min_embedded=200, max_embedded=2_000, stripe=1_000)
NAME = IndexKey.of("ns", "t")


class Album(PersistedModel):
    """An entity in several parts."""

    songs: tuple[ObjectRef, ...] = ()


TYPES = ObjectTypes([HEAD_TYPE, STRIPES, ENTITY, ObjectType("album", Album), *ICEBERG_TYPES])


class Process:
    """One process that commits named entities."""

    def __init__(self, backend: CountingBackend, ids: Any) -> None:
        clock = MicrosecondClock()
        self.store: CatalogStore = store_on(backend, clock, ids=ids, types=TYPES)
        self.committer: Committer[EntityHead] = Committer(
            self.store, "main", EntityHead, seal=seal(POLICY), sleep=clock.sleep, clock=clock.seconds, draw=lambda: 0.5
        )

    def create(self, key: IndexKey, make: Any) -> None:
        def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
            entities = EntityChanges(attempt)
            entities.put(key, make(attempt))
            return Changed(entities.head, None)

        self.committer.commit(change)

    def update(self, key: IndexKey, make: Any, model: type[PersistedModel]) -> None:
        def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
            entities = EntityChanges(attempt)
            entities.update(key, lambda old: make(attempt, old), model)
            return Changed(entities.head, None)

        self.committer.commit(change)

    def read(self, key: IndexKey) -> Any:
        head = self.committer.head()
        assert head is not None
        ref = head.value.working_index(self.store.fetch_many).get(key)
        assert ref is not None
        return self.store.fetch_many([ref])[0]


class Races:
    """A store on which another process commits before each of the next swaps."""

    def __init__(self) -> None:
        self.backend = CountingBackend()
        self._ids = itertools.count(1 << 40).__next__
        self.first = self.process()
        self.first.store.create_reference("main")

    def process(self) -> Process:
        return Process(self.backend, self._ids)

    def lose(self, count: int) -> None:
        rival, numbers = self.process(), itertools.count()

        def meanwhile() -> None:
            queue = self.backend.meanwhile.pop("replace_reference", [])
            rival.create(IndexKey.of("rival", str(next(numbers))), lambda _attempt: Entity(name="rival"))
            self.backend.meanwhile["replace_reference"] = queue

        self.backend.meanwhile["replace_reference"] = [meanwhile] * count


def a_table() -> Json:
    return {
        "format-version": 2, "table-uuid": "u", "location": "s3://b/t", "last-sequence-number": 0,
        "last-updated-ms": 1, "last-column-id": 1, "current-schema-id": 0, "default-spec-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": []}],
        "partition-specs": [{"spec-id": 0, "fields": []}], "properties": {"a": "b"},
    }  # fmt: skip


@pytest.mark.parametrize("lost", [1, 3])
def test_a_table_updated_in_parts_can_be_loaded_after_lost_races(lost: int) -> None:
    races = Races()
    races.first.create(NAME, lambda at: ManagedMetadata.of(a_table(), TABLE, at.fetch_many).finish(POLICY, at.write))
    races.lose(lost)

    def add_properties(attempt: CommitAttempt[EntityHead], old: IcebergMetadata) -> IcebergMetadata:
        table = ManagedMetadata(old, attempt.fetch_many)
        table.set_properties({"c": "d"})
        return table.finish(POLICY, attempt.write)

    races.first.update(NAME, add_properties, IcebergMetadata)
    reader = races.process()
    found = reader.read(NAME)
    assert ManagedMetadata(found.value, reader.store.fetch_many).document() == {**a_table(), "properties": {"c": "d"}}


def test_a_memo_made_inside_another_keeps_its_parts() -> None:
    races = Races()
    races.first.create(NAME, lambda _attempt: Album())
    races.lose(2)

    def recorded(attempt: CommitAttempt[EntityHead], _old: Album) -> Album:
        def inner() -> Album:
            return Album(songs=(attempt.write(Entity(name="inner")),))

        return Album(songs=(attempt.write_once("inner", None, inner), attempt.write(Entity(name="outer"))))

    races.first.update(NAME, recorded, Album)
    reader = races.process()
    inner, outer = reader.store.fetch_many(reader.read(NAME).value.songs)
    assert outer
    assert isinstance(inner and inner.value, Album)
    assert reader.store.fetch_many(inner.value.songs)[0]


def test_the_parts_of_a_memo_that_is_not_used_are_deleted() -> None:
    """Another process changed the entity: its state is computed anew, and the former parts are garbage."""
    races = Races()
    races.first.create(NAME, lambda _attempt: Album())
    rival = races.process()
    races.backend.meanwhile["replace_reference"] = [
        lambda: rival.update(NAME, lambda at, _old: Album(songs=(at.write(Entity(name="rival")),)), Album)
    ]
    races.first.update(
        NAME, lambda at, old: Album(songs=(*old.songs, at.write(Entity(name=f"after {len(old.songs)}")))), Album
    )
    reader = races.process()
    songs = reader.store.fetch_many(reader.read(NAME).value.songs)
    assert [one and one.value.name for one in songs] == ["rival", "after 1"]
    assert len(races.backend.stored_ids("entity")) == 2


class Frozen:
    """A commit that loses its first swap, while `meanwhile` happens to its process."""

    def __init__(self) -> None:
        self.world = CommitWorld()
        self.monotonic = MicrosecondClock()
        self.world.committer.commit(put("a", 1))

    def computed(self, meanwhile: Callable[[], object], *, rival: bool = True) -> int:
        """Return how many times the memoised entity was computed."""
        made: list[Entity] = []
        other = self.world.process()[1]

        def loses() -> None:
            meanwhile()
            if rival:
                other.commit(put("rival", 0))

        def make() -> Entity:
            made.append(Entity(name="b"))
            return made[-1]

        def change(attempt: CommitAttempt[Head]) -> Changed[Head, None]:
            head = attempt.head or Head()
            ref = attempt.write_once("b", None, make)
            return Changed(head.model_copy(update={"entities": {**head.entities, "b": ref}}), None)

        store = self.world.process()[0]
        self.world.backend.meanwhile["replace_reference"] = [loses]
        retry = CommitRetries(tries=8, seconds=1e9)
        Committer(store, "main", Head, retry=retry, sleep=lambda _seconds: None, clock=self.monotonic.seconds).commit(
            change
        )
        assert self.world.numbers()["b"] == 0
        return len(made)


def test_a_memo_is_reused_after_a_lost_race() -> None:
    frozen = Frozen()
    assert frozen.computed(lambda: frozen.world.clock.advance(30)) == 1


def test_a_memo_is_not_reused_when_the_wall_clock_was_set_ahead() -> None:
    frozen = Frozen()
    assert frozen.computed(lambda: frozen.world.clock.advance(61)) == 2


def test_a_memo_is_not_reused_when_the_wall_clock_was_set_back() -> None:
    frozen = Frozen()
    assert frozen.computed(lambda: frozen.world.clock.advance(-61)) == 2


def test_a_memo_is_not_reused_after_a_minute_of_monotonic_time() -> None:
    """The process was frozen, and thawed with the wall clock of before."""
    frozen = Frozen()
    assert frozen.computed(lambda: frozen.monotonic.advance(61)) == 2


def test_a_memo_is_not_reused_once_the_reference_was_fenced() -> None:
    """A suspended machine's clocks may both stop; the fence of maintenance is seen whatever they say."""
    frozen = Frozen()

    def fence() -> None:
        stored = frozen.world.store.current_reference("main")
        frozen.world.backend.replace_reference(stored.fenced(), expected=stored)

    assert frozen.computed(fence, rival=False) == 2
    assert frozen.computed(fence) == 2
