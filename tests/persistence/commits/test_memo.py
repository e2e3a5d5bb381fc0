"""What a memoised computation wrote belongs to its memo, which is not reused once maintenance may have run."""

from collections.abc import Callable
from typing import Any

import pytest

from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.committer import CommitRetries, Committer
from polaris_persistence.commits.entities import EntityHead, seal
from polaris_persistence.iceberg.layout import TABLE, Json
from polaris_persistence.iceberg.metadata import ManagedMetadata
from polaris_persistence.iceberg.objects import IcebergMetadata
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.objects.objects import ObjectRef, PersistedModel
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectType, ObjectTypes
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import Entity, Head, put
from tests.persistence.commits.commit_world import CommitWorld
from tests.persistence.worlds import ENTITY_TYPES, Catalogs, entity_change, read_entities

POLICY = IndexPolicy(min_embedded=200, max_embedded=2_000, stripe=1_000)
NAME = IndexKey.of("ns", "t")


class Album(PersistedModel):
    """An entity in several parts."""

    songs: tuple[ObjectRef, ...] = ()


TYPES = ObjectTypes([*ENTITY_TYPES, ObjectType("album", Album)])


class Process:
    """One process that commits named entities."""

    def __init__(self, store: CatalogStore, clock: MicrosecondClock) -> None:
        self.store = store
        self.committer: Committer[EntityHead] = Committer(
            store, "main", EntityHead, seal=seal(POLICY), sleep=clock.sleep, clock=clock.seconds, draw=lambda: 0.5
        )

    def create(self, key: IndexKey, make: Any) -> None:
        self.committer.commit(entity_change(lambda entities, at: entities.put(key, make(at))))

    def update(self, key: IndexKey, make: Any, model: type[PersistedModel]) -> None:
        self.committer.commit(
            entity_change(lambda entities, at: entities.update(key, lambda old: make(at, old), model))
        )


class Races(Catalogs):
    """A store on which another process commits before each of the next swaps."""

    types = TYPES

    def __init__(self) -> None:
        super().__init__()
        self.first = self.process()

    def process(self) -> Process:
        return Process(self.store_of(), self.clock)

    def lose(self, count: int) -> None:
        rival = self.process()
        self.lose_swaps(
            count,
            lambda number: rival.create(IndexKey.of("rival", str(number)), lambda _attempt: Entity(name="rival")),
        )


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
    found = read_entities(reader.store)["t"]
    assert ManagedMetadata(found, reader.store.fetch_many).document() == {**a_table(), "properties": {"c": "d"}}


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
    inner, outer = reader.store.fetch_many(read_entities(reader.store)["t"].songs)
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
    songs = reader.store.fetch_many(read_entities(reader.store)["t"].songs)
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


@pytest.mark.parametrize(
    ("wall", "monotonic", "computed"),
    [(30, 0, 1), (61, 0, 2), (-61, 0, 2), (0, 61, 2)],
    ids=["within a minute", "set ahead", "set back", "frozen, and thawed with the wall clock of before"],
)
def test_a_memo_is_reused_after_a_lost_race_within_a_minute_of_both_clocks(
    wall: float, monotonic: float, computed: int
) -> None:
    frozen = Frozen()

    def meanwhile() -> None:
        frozen.world.clock.advance(wall)
        frozen.monotonic.advance(monotonic)

    assert frozen.computed(meanwhile) == computed


def test_a_memo_is_not_reused_once_the_reference_was_fenced() -> None:
    """A suspended machine's clocks may both stop; the fence of maintenance is seen whatever they say."""
    frozen = Frozen()

    def fence() -> None:
        stored = frozen.world.store.current_reference("main")
        frozen.world.backend.replace_reference(stored.fenced(), expected=stored)

    assert frozen.computed(fence, rival=False) == 2
    assert frozen.computed(fence) == 2
