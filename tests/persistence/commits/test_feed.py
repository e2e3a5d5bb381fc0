"""The change feed: every commit once, in order, from a cursor; and an error where some are no longer kept."""

import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from polaris_persistence.commits.directories import Directory, entity_committer
from polaris_persistence.commits.entities import EntityChanges
from polaris_persistence.commits.feed import Feed, FeedCursor, FeedEntry
from polaris_persistence.errors import PersistenceError
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.maintenance.recovery import reset
from tests.kit.errors import coded
from tests.persistence.builders import Entity
from tests.persistence.worlds import Catalogs, entity_change


class FedEntities(Catalogs):
    """Entities of a reference that keeps a feed, and maintenance."""

    policy: ClassVar[dict[str, Any]] = {"grace": 100.0, "lost_after": 10.0}

    def __init__(self) -> None:
        super().__init__()
        self.names = self.process()
        self.feed = self.fresh_feed()
        self.start = self.feed.now()

    def fresh_feed(self) -> Feed:
        """Return the feed as a new process reads it."""
        return Feed(self.store_of(), "main")

    def read_all(self, feed: Callable[[], Feed], limit: int) -> tuple[list[FeedEntry], str]:
        """Read pages from the start on, each with another call of `feed`; return the entries and the last cursor."""
        found: list[FeedEntry] = []
        cursor, more = self.start, True
        while more:
            page = feed().read(cursor, limit=limit)
            assert len(page.entries) <= limit
            assert len(page.cursor) < 500
            found += page.entries
            cursor, more = page.cursor, page.more
        return found, cursor

    def process(self, **more: Any) -> Directory[Entity]:
        store = self.store_of()
        return Directory(store, entity_committer(store, "main", feed=True, sleep=self.clock.sleep, **more), Entity)

    def create(self, *names: str) -> None:
        for name in names:
            self.clock.advance(1)
            self.names.create(name, Entity(name=name))


@pytest.fixture
def world() -> FedEntities:
    return FedEntities()


def names(entries: Iterable[FeedEntry]) -> list[str]:
    return [key.elements()[0] for one in entries for key, _ in one.names or ()]


def test_every_commit_is_read_once_in_order(world: FedEntities) -> None:
    world.create(*(f"t{number}" for number in range(75)))
    for limit in (1, 7, 100):
        found, cursor = world.read_all(lambda: world.feed, limit)
        assert [one.seq for one in found] == list(range(1, 76))
        assert names(found) == [f"t{number}" for number in range(75)]
        assert world.feed.read(cursor).entries == ()
        assert world.feed.read(cursor).cursor == cursor
    world.create("later")
    assert names(world.feed.read(cursor).entries) == ["later"]


def test_an_entry_has_what_was_changed(world: FedEntities) -> None:
    ref = world.names.create("a", Entity(name="a"))
    world.names.remove("a")
    first, second = world.feed.read(world.start).entries
    assert first.names == ((IndexKey.of("a"), ref),)
    assert first.operations == ("create a",)
    assert second.names == ((IndexKey.of("a"), None),)
    assert first.created_at <= second.created_at


def test_who_follows_closely_reads_little(world: FedEntities) -> None:
    world.create(*(f"t{number}" for number in range(200)))
    cursor = world.feed.now()
    world.create("new")
    feed = world.fresh_feed()
    world.backend.calls.clear()
    assert names(feed.read(cursor).entries) == ["new"]
    assert len(world.backend.calls) <= 4


def test_who_is_far_behind_reads_about_as_much_as_there_is(world: FedEntities) -> None:
    """Each page in another process: all went back from the newest commit, which is quadratic in the distance."""
    world.create(*(f"t{number}" for number in range(600)))
    for limit in (5, 25):
        world.backend.calls.clear()
        found, _ = world.read_all(world.fresh_feed, limit)
        assert [one.seq for one in found] == list(range(1, 601))
        pages = 600 // limit
        # The reference, heads and names of a page; and a few heads on the way back.
        assert len(world.backend.calls) <= 8 * pages + 600 / 20


def test_who_is_far_behind_follows_over_a_reset(world: FedEntities) -> None:
    world.create(*(f"t{number}" for number in range(100)))
    page = world.feed.read(world.start, limit=10)
    kept = world.store.current_reference("main").heads[19]
    reset(world.store, "main", kept)
    world.create("after")
    found: list[FeedEntry] = list(page.entries)
    while page.more:
        page = world.fresh_feed().read(page.cursor, limit=10)
        found += page.entries
    assert names(found) == [*(f"t{number}" for number in range(81)), "after"]


def test_the_log_is_kept_as_long_as_the_policy_says(world: FedEntities) -> None:
    world.create(*(f"t{number}" for number in range(60)))
    world.sweep(3, log_kept=10_000.0)
    assert len(world.feed.read(world.start).entries) == 60
    stored = len(world.backend.stored_ids("catalog-head"))
    assert stored == 60
    world.sweep(3, log_kept=50.0)
    assert len(world.backend.stored_ids("catalog-head")) == len(world.backend.stored_ids("commit-names")) == 20
    with pytest.raises(PersistenceError, check=coded("FEED_EXPIRED"), match="new cursor"):
        world.fresh_feed().read(world.start)
    # The newest 20 commits stay anyway.
    cursor = FeedCursor(world.store.current_reference("main").created_at, 41, heads_of(world)[41]).encode()
    found = world.fresh_feed().read(cursor).entries
    assert names(found) == [f"t{number}" for number in range(41, 60)]


def heads_of(world: FedEntities) -> dict[int, int]:
    return {one.value.seq: one.key.id for one in world.names._committer.log()}


def test_a_log_of_which_a_part_is_old_ends_there(world: FedEntities) -> None:
    world.create(*(f"old{number}" for number in range(30)))
    between = world.feed.now()
    world.clock.advance(5_000)
    world.create(*(f"new{number}" for number in range(30)))
    world.sweep(3, log_kept=2_000.0)
    feed = world.fresh_feed()
    with pytest.raises(PersistenceError, check=coded("FEED_EXPIRED")):
        feed.read(world.start)
    # The commit of the cursor is gone, but all after it are there.
    assert names(feed.read(between).entries) == [f"new{number}" for number in range(30)]


def test_a_reset_reference_is_noticed(world: FedEntities) -> None:
    world.create("a", "b", "c")
    first = world.feed.read(world.start, limit=1).cursor
    last = world.feed.now()
    reset(world.store, "main", heads_of(world)[1], even_if_incomplete=True)
    world.process().create("other", Entity(name="other"))
    feed = world.fresh_feed()
    assert names(feed.read(first).entries) == ["other"]
    world.process().create("third", Entity(name="third"))
    with pytest.raises(PersistenceError, check=coded("FEED_EXPIRED"), match="reset"):
        feed.read(last)


def test_a_reference_made_anew_is_noticed(world: FedEntities) -> None:
    world.create("a")
    cursor = world.feed.now()
    world.backend.delete_reference(world.store.reference_key("main"))
    world.clock.advance(1)
    world.store.create_reference("main")
    with pytest.raises(PersistenceError, check=coded("FEED_EXPIRED"), match="created again"):
        world.feed.read(cursor)


@pytest.mark.parametrize("cursor", ["", "x", "e30", "WzEsMiwzLDRd", "WzEsMiwtM10", "WzEsMix0cnVlXQ", "é"])
def test_an_altered_cursor_is_refused(world: FedEntities, cursor: str) -> None:
    with pytest.raises(PersistenceError, check=coded("INVALID_PAGE_TOKEN")):
        world.feed.read(cursor)


def test_a_commit_of_very_many_names_says_so(world: FedEntities) -> None:
    def change(entities: EntityChanges, _attempt: object) -> None:
        ref = entities.put(IndexKey.of("x"), Entity(name="x"))
        for number in range(1_000):
            entities.name(IndexKey.of("y", str(number)), ref)

    world.names._committer.commit(entity_change(change))
    [entry] = world.feed.read(world.start).entries
    assert entry.names is None


def test_followers_among_random_commits_of_several_processes(world: FedEntities) -> None:
    draw = random.Random(3)
    processes = [world.process() for _ in range(3)]
    cursor, seen = world.start, []
    for number in range(150):
        draw.choice(processes).create(f"t{number}", Entity(name="t"))
        if draw.random() < 0.2:
            page = world.feed.read(cursor, limit=draw.choice([1, 3, 50]))
            seen += names(page.entries)
            cursor = page.cursor
    while (page := world.feed.read(cursor)).entries:
        seen += names(page.entries)
        cursor = page.cursor
    assert seen == [f"t{number}" for number in range(150)]


def test_a_commit_whose_names_cannot_be_read_is_one_entry_without_names(world: FedEntities) -> None:
    world.create("a", "b", "c")
    [_, bad, _] = world.feed.read(world.start).entries
    [key] = [one for one in world.backend._objects if one.id == bad.commit_id and one.type == "commit-names"]
    world.backend._objects[key] = replace(world.backend._objects[key], value=b"\xff")
    found = world.fresh_feed().read(world.start)
    assert [(one.commit_id, one.seq) for one in found.entries] == [
        (one.commit_id, one.seq) for one in world.feed.read(world.start).entries
    ]
    assert found.entries[1].names is None
    assert names(found.entries) == ["a", "c"]


def damage(world: FedEntities, seqs: set[int]) -> None:
    for seq, id_ in heads_of(world).items():
        if seq in seqs:
            [key] = [one for one in world.backend._objects if one.id == id_ and one.type == "catalog-head"]
            world.backend._objects[key] = replace(world.backend._objects[key], value=b"\xff")


SETS_OF_BAD = [{35, 15}, {35, 36, 37, 17, 16}, {1}, set(range(17, 36)), set(range(1, 20))]


@pytest.mark.parametrize(
    ("bad", "limit"), [*(({seq}, 7) for seq in range(1, 55)), *itertools.product(SETS_OF_BAD, [1, 7, 100])]
)
def test_heads_that_cannot_be_read_end_no_feed(world: FedEntities, bad: set[int], limit: int) -> None:
    """The heads at every twentieth commit name those before them: one damaged one ended the feed."""
    world.create(*(f"t{number}" for number in range(1, 56)))
    damage(world, bad)
    found, _ = world.read_all(world.fresh_feed, limit)
    assert [one.seq for one in found] == list(range(1, 56))
    assert [one.seq for one in found if one.names is None] == sorted(bad)
    assert names(found) == [f"t{number}" for number in range(1, 56) if number not in bad]


def test_behind_a_later_commit_that_cannot_be_read_the_feed_continues(world: FedEntities) -> None:
    """A cursor of one who is far behind names later commits."""
    world.create(*(f"t{number}" for number in range(1, 301)))
    page = world.feed.read(world.start, limit=5)
    ahead = FeedCursor.decode(page.cursor).ahead
    assert ahead
    damage(world, {seq for seq, _ in ahead})
    page = world.fresh_feed().read(page.cursor, limit=5)
    assert names(page.entries) == [f"t{number}" for number in range(6, 11)]


def test_what_is_before_twenty_heads_that_cannot_be_read_is_no_longer_kept(world: FedEntities) -> None:
    world.create(*(f"t{number}" for number in range(1, 56)))
    last = world.feed.read(world.start, limit=40).cursor
    damage(world, set(range(12, 36)))
    feed = world.fresh_feed()
    with pytest.raises(PersistenceError, check=coded("FEED_EXPIRED")):
        feed.read(world.start)
    assert names(feed.read(last).entries) == [f"t{number}" for number in range(41, 56)]
