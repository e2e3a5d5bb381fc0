"""Objects that are gone: swept while a warm process still lists, reads or commits on what named them."""

import pytest

from polaris_persistence.backends.base import Reference
from polaris_persistence.errors import EntityNotFound, PersistenceError
from polaris_persistence.objects.objects import ObjectRef
from tests.kit.clocks import MicrosecondClock
from tests.kit.errors import coded
from tests.persistence.builders import Entity, store_on
from tests.persistence.commits.test_entities import IndexedEntities, changing


@pytest.fixture
def world() -> IndexedEntities:
    return IndexedEntities()


def swept(world: IndexedEntities, ref: ObjectRef) -> None:
    """Delete an object as a sweep of another process does: the caches of this one keep what they have."""
    world.backend.delete_many([ref.locator("r", "c")])


def test_a_listing_older_than_the_grace_in_a_warm_process_ends_in_an_error(world: IndexedEntities) -> None:
    listing, writing = world.directory(), world.directory()
    for number in range(6):
        writing.create(f"e{number}", Entity(name=f"e{number}"))
    first = listing.page(limit=2)
    for number in range(6):
        writing.update(f"e{number}", lambda old: old.model_copy(update={"number": 1}))
    # More commits than the recent heads that a reference keeps.
    for _ in range(25):
        world.clock.advance(10)
        writing.update("e0", lambda old: old.model_copy(update={"number": old.number + 1}))
    assert world.sweep(2) > 6
    for reading in (listing, world.directory()):
        with pytest.raises(PersistenceError, check=coded("INVALID_PAGE_TOKEN")):
            reading.page(limit=4, token=first.next_token)


def test_a_missing_object_is_reported_the_same_way_and_can_be_removed(world: IndexedEntities) -> None:
    directory = world.directory()
    directory.create("kept", Entity(name="kept"))
    swept(world, directory.create("lost", Entity(name="lost")))
    fresh = world.directory()
    page = fresh.page(limit=10)
    assert [one.value.name for _, one in page.entities] == ["kept"]
    assert [(key.elements(), error.code) for key, error in page.damaged] == [(("lost",), "OBJECT_MISSING")]
    seen = []
    for call in (
        lambda: fresh.get("lost"),
        lambda: fresh.create("lost", Entity(name="lost")),
        lambda: fresh.update("lost", lambda old: old),
    ):
        with pytest.raises(PersistenceError, match="lost") as caught:
            call()
        seen.append(caught.value.code)
    assert seen == ["OBJECT_MISSING"] * 3
    fresh.remove("lost")
    with pytest.raises(EntityNotFound):
        fresh.get("lost")
    fresh.create("lost", Entity(name="found"))
    assert fresh.get("lost").value.name == "found"


def test_a_blind_put_on_a_swept_head_reads_the_current_one(world: IndexedEntities) -> None:
    world.committer.commit(changing(**{f"t{number}": number for number in range(40)}))
    victim, other = (world.committer_of(world.store_of()) for _ in range(2))
    assert victim.head() is not None
    for turn in range(25):
        world.clock.advance(10)
        other.commit(changing(**{f"t{number}": turn for number in range(40)}))
    world.sweep(2)
    # The head is in the victim's cache, its stripes are not.
    victim.commit(changing(**{f"u{number}": number for number in range(40)}))
    assert set(world.content()) >= {"t1", "t39"}


def test_a_slow_read_of_a_reference_does_not_replace_a_newer_one(world: IndexedEntities) -> None:
    clock = MicrosecondClock()
    store = store_on(world.backend, clock, references_cached_for=5.0)
    first = store.current_reference("main")
    newer = first.moved_to(77)

    def meanwhile() -> None:
        world.backend.replace_reference(newer, expected=first)
        store.remember_reference(newer)

    world.backend.after = lambda operation: meanwhile() if operation == "read_reference" and not moved() else None

    def moved() -> bool:
        found: Reference | None = world.backend._references.get(first.key)
        return found is not None and found.version > first.version

    assert store.current_reference("main") == first
    assert store.reference("main") == newer
