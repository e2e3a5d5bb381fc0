"""What a written value names is kept already, or written or used by its commit: otherwise maintenance may delete it."""

import itertools
from collections.abc import Callable

import pytest

from polaris_persistence.catalogs.process import OWN_TYPES
from polaris_persistence.commits.commits import Changed, CommitAttempt
from polaris_persistence.commits.directories import entity_committer
from polaris_persistence.commits.entities import EntityChanges, EntityHead
from polaris_persistence.commits.retries import CommitRetries
from polaris_persistence.errors import PreparedExpired
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.maintenance.run import SweepPolicy
from polaris_persistence.maintenance.sweep import RealmMaintenance
from polaris_persistence.objects.objects import ObjectRef, PersistedModel
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectType, ObjectTypes
from tests.kit.clocks import MicrosecondClock
from tests.persistence.builders import ENTITY, CountingBackend, Entity, store_on

GRACE = 1_000.0
Names = Callable[[CommitAttempt[EntityHead]], tuple[ObjectRef, ...]]


class Playlist(PersistedModel):
    """An entity that names objects of its own."""

    songs: tuple[ObjectRef, ...] = ()


TYPES = ObjectTypes([*OWN_TYPES, ENTITY, ObjectType("playlist", Playlist, links=lambda value, _fetch: value.songs)])


class Music:
    """Playlists of one reference, with an index of several stripes, and maintenance."""

    def __init__(self) -> None:
        self.backend = CountingBackend()
        self.clock = MicrosecondClock()
        self.backend.now_us = self.clock.now_us  # type: ignore[method-assign]
        self._ids = itertools.count(1)
        self.store = self.store_of("r", "c")
        self.store.create_reference("main")
        policy = IndexPolicy(min_embedded=100, max_embedded=200, stripe=300)
        # On a loaded machine 20 ms pass between two commits, and the reference would be read again.
        retry = CommitRetries(known_for=60.0)
        self.committer = entity_committer(self.store, "main", policy=policy, retry=retry, sleep=self.clock.sleep)
        for number in range(30):
            self.write(f"playlist {number}", lambda at, number=number: (at.write(Entity(name=f"song {number}")),))

    def store_of(self, realm: str, catalog: str) -> CatalogStore:
        return store_on(self.backend, self.clock, ids=self._ids.__next__, realm=realm, catalog=catalog, types=TYPES)

    def write(self, name: str, songs: Names) -> None:
        def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
            entities = EntityChanges(attempt)
            entities.put(IndexKey.of(name), Playlist(songs=songs(attempt)))
            return Changed(entities.head, None)

        self.committer.commit(change)

    def songs(self, name: str) -> tuple[ObjectRef, ...]:
        """Return what a playlist names, read apart from any commit."""
        store = self.store_of("r", "c")
        head = entity_committer(store, "main").head()
        assert head is not None
        ref = head.value.working_index(store.fetch_many).get(IndexKey.of(name))
        assert ref is not None
        found = store.fetch(ref, Playlist)
        assert found is not None
        return found.value.songs

    def titles(self, name: str) -> list[str]:
        found = self.store_of("r", "c").fetch_many(self.songs(name))
        return [one.value.name if one and isinstance(one.value, Entity) else "gone" for one in found]

    def sweep(self, runs: int) -> None:
        for _ in range(runs):
            self.clock.advance(GRACE + 2)
            policy = SweepPolicy(grace=GRACE, lost_after=100.0)
            report = RealmMaintenance(self.backend, self.store_of, policy=policy, clock=self.clock.seconds).run()
            assert report.complete
            assert not report.refused


def test_a_value_that_names_what_was_written_apart_is_refused() -> None:
    """It was acknowledged, and the song was gone after two sweeps."""
    music = Music()
    [song] = music.store.write([Entity(name="apart")])
    with pytest.raises(PreparedExpired, match="a written value names"):
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

    def change(attempt: CommitAttempt[EntityHead]) -> Changed[EntityHead, None]:
        entities = EntityChanges(attempt)
        more = attempt.write(Entity(name="more"))
        entities.update(IndexKey.of("playlist 7"), lambda old: Playlist(songs=(*old.songs, more)), Playlist)
        return Changed(entities.head, None)

    music.committer.commit(change)
    music.backend.calls.clear()
    music.committer.commit(change)
    assert music.backend.calls == ["put_many", "replace_reference"]
    assert music.titles("playlist 7") == ["song 7", "more", "more"]
