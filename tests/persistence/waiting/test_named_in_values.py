"""What a written value names is kept already, or written or used by its commit: otherwise maintenance may delete it."""

from collections.abc import Callable

import pytest

from polaris_persistence.commits.commits import CommitAttempt
from polaris_persistence.commits.directories import entity_committer
from polaris_persistence.commits.entities import EntityChanges, EntityHead
from polaris_persistence.commits.retries import CommitRetries
from polaris_persistence.errors import PreparedExpired
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.objects.objects import ObjectRef, PersistedModel
from polaris_persistence.objects.types import ObjectType, ObjectTypes
from tests.persistence.builders import Entity
from tests.persistence.worlds import ENTITY_TYPES, Catalogs, entity_change, read_entities

Names = Callable[[CommitAttempt[EntityHead]], tuple[ObjectRef, ...]]


class Playlist(PersistedModel):
    """An entity that names objects of its own."""

    songs: tuple[ObjectRef, ...] = ()


TYPES = ObjectTypes([*ENTITY_TYPES, ObjectType("playlist", Playlist, links=lambda value, _fetch: value.songs)])


class Music(Catalogs):
    """Playlists of one reference, with an index of several stripes, and maintenance."""

    types = TYPES

    def __init__(self) -> None:
        super().__init__()
        policy = IndexPolicy(min_embedded=100, max_embedded=200, stripe=300)
        # On a loaded machine 20 ms pass between two commits, and the reference would be read again.
        retry = CommitRetries(known_for=60.0)
        self.committer = entity_committer(self.store, "main", policy=policy, retry=retry, sleep=self.clock.sleep)
        for number in range(30):
            self.write(f"playlist {number}", lambda at, number=number: (at.write(Entity(name=f"song {number}")),))

    def write(self, name: str, songs: Names) -> None:
        self.committer.commit(
            entity_change(lambda entities, at: entities.put(IndexKey.of(name), Playlist(songs=songs(at))))
        )

    def songs(self, name: str) -> tuple[ObjectRef, ...]:
        """Return what a playlist names, read apart from any commit."""
        songs: tuple[ObjectRef, ...] = read_entities(self.store_of())[name].songs
        return songs

    def titles(self, name: str) -> list[str]:
        found = self.store_of().fetch_many(self.songs(name))
        return [one.value.name if one and isinstance(one.value, Entity) else "gone" for one in found]


def test_a_value_that_names_what_was_written_apart_is_refused() -> None:
    """It was acknowledged, and the song was gone after two sweeps."""
    music = Music()
    [song] = music.store.write([Entity(name="apart")])
    with pytest.raises(PreparedExpired, match=f"links to {song.type}/{song.id}"):
        music.write("mine", lambda _attempt: (song,))
    music.sweep(2)
    with pytest.raises(PreparedExpired):
        music.write("mine", lambda _attempt: (song,))


def test_a_value_that_names_what_was_prepared_keeps_it() -> None:
    music = Music()
    [song] = music.committer.prepare([Entity(name="prepared")])
    music.write("mine", lambda attempt: (attempt.use(song), attempt.write(Entity(name="new"))))
    music.sweep(3)
    assert music.titles("mine") == ["prepared", "new"]


def test_a_value_may_name_what_another_one_of_the_head_names() -> None:
    """Found by reading, although the change has not read the other one."""
    music = Music()
    songs = music.songs("playlist 7") + music.songs("playlist 23")
    music.write("mine", lambda _attempt: songs)
    assert music.titles("mine") == ["song 7", "song 23"]


def test_a_value_that_is_changed_keeps_what_it_named_without_a_read() -> None:
    music = Music()

    def change(entities: EntityChanges, attempt: CommitAttempt[EntityHead]) -> None:
        more = attempt.write(Entity(name="more"))
        entities.update(IndexKey.of("playlist 7"), lambda old: Playlist(songs=(*old.songs, more)), Playlist)

    music.committer.commit(entity_change(change))
    music.backend.calls.clear()
    music.committer.commit(entity_change(change))
    assert music.backend.calls == ["put_many", "replace_reference"]
    assert music.titles("playlist 7") == ["song 7", "more", "more"]
