"""Objects written before the commit that names them: used while they exist for certain, refused afterwards."""

import pytest

from polaris_persistence.commits.commits import PreparedHandle
from polaris_persistence.commits.committer import CommitRetries, Committer
from polaris_persistence.commits.entities import EntityHead, seal
from polaris_persistence.errors import PreparedExpired, ValueNotStorable
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.objects.objects import ObjectRef
from polaris_persistence.objects.store import CatalogStore
from tests.persistence.builders import ENTITY, Entity
from tests.persistence.commits.commit_world import LOST
from tests.persistence.worlds import Catalogs, Change, entity_change, naming, read_entities

NAME = IndexKey.of("a")


class NamedEntities(Catalogs):
    """A catalog of named entities under maintenance."""

    def __init__(self) -> None:
        super().__init__()
        self.committer = self.process()[1]
        self.committer.commit(naming("first", "new"))

    def process(self, reference: str = "main") -> tuple[CatalogStore, Committer[EntityHead]]:
        store = self.store_of()
        committer = Committer(
            store, reference, EntityHead, seal=seal(IndexPolicy()), retry=CommitRetries(seconds=1e9),
            sleep=self.clock.sleep, clock=self.clock.seconds,
        )  # fmt: skip
        return store, committer

    def named(self) -> Entity | None:
        """Return the entity under NAME as a new process reads it; None if there is no such name."""
        found = read_entities(self.store_of())
        assert None not in found.values(), "acknowledged, but the object is gone"
        return found.get("a")


def linking(handle: PreparedHandle | ObjectRef) -> Change[None]:
    return entity_change(lambda entities, _attempt: entities.link(NAME, handle))


def removing(key: IndexKey) -> Change[bool]:
    return entity_change(lambda entities, _attempt: entities.remove(key))


@pytest.fixture
def world() -> NamedEntities:
    return NamedEntities()


@pytest.mark.parametrize("while_writing", [0, 1, 2])
@pytest.mark.parametrize("before", [0, 1, 2, 3])
@pytest.mark.parametrize("commits", [0, 30])
@pytest.mark.parametrize("during", [0, 1, 2])
def test_what_is_acknowledged_is_there(
    world: NamedEntities, while_writing: int, before: int, commits: int, during: int
) -> None:
    """Issue 32, line 7: linked after two sweeps, it was acknowledged and loaded as None."""
    world.sweep()
    world.backend.meanwhile["put_many"] = [lambda: world.sweep(while_writing)]
    [handle] = world.committer.prepare([Entity(name="prepared", number=7)])
    world.sweep(before)
    for number in range(commits):
        world.process()[1].commit(naming(f"other{number}"))
    world.backend.meanwhile["replace_reference"] = [lambda: world.sweep(during)]
    try:
        world.committer.commit(linking(handle))
    except PreparedExpired:
        assert while_writing + before + during >= 2
        assert world.named() is None
        world.backend.meanwhile.clear()
        [handle] = world.committer.prepare([Entity(name="prepared", number=7)])
        world.committer.commit(linking(handle))
    world.sweep(3)
    assert world.named() == Entity(name="prepared", number=7)


def test_what_two_sweeps_may_have_deleted_is_refused(world: NamedEntities) -> None:
    [handle] = world.committer.prepare([Entity(name="prepared")])
    world.sweep(2)
    with pytest.raises(PreparedExpired, match="Prepare it again"):
        world.committer.commit(linking(handle))


def test_a_lost_answer_and_a_sweep_leave_one_commit(world: NamedEntities) -> None:
    [handle] = world.committer.prepare([Entity(name="prepared")])
    world.backend.fail_after["replace_reference"] = [LOST]
    world.backend.meanwhile["read_reference"] = [lambda: world.sweep(2)]
    world.committer.commit(linking(handle))
    assert world.named() == Entity(name="prepared")


def test_what_is_prepared_belongs_to_its_reference(world: NamedEntities) -> None:
    [handle] = world.committer.prepare([Entity(name="prepared")])
    world.store.create_reference("other")
    with pytest.raises(ValueError, match="not for the reference of this commit"):
        world.process("other")[1].commit(linking(handle))
    world.backend.delete_reference(world.store.reference_key("main"))
    world.clock.advance(1)
    store, committer = world.process()
    store.create_reference("main")
    with pytest.raises(PreparedExpired):
        committer.commit(linking(handle))


def test_what_is_not_used_is_swept(world: NamedEntities) -> None:
    handles = world.committer.prepare([Entity(name="a"), Entity(name="b")])
    world.sweep(2)
    assert not {one.ref.id for one in handles} & world.backend.stored_ids(ENTITY.name)


def test_what_cannot_be_stored_is_not_prepared(world: NamedEntities) -> None:
    before = world.backend.stored_ids(ENTITY.name)
    with pytest.raises(ValueNotStorable):
        world.committer.prepare([Entity(name="good"), Entity(name="\ud800")])
    assert world.backend.stored_ids(ENTITY.name) == before


@pytest.mark.parametrize("sweeps", [0, 1, 2, 3])
def test_an_object_that_nothing_names_is_not_linked(world: NamedEntities, sweeps: int) -> None:
    """Issue 32, line 7: written by a store, not by an attempt, it was linked, acknowledged, and loaded as None."""
    [ref] = world.store.write([Entity(name="bare")])
    world.sweep(sweeps)
    with pytest.raises(PreparedExpired, match="Prepare it with"):
        world.committer.commit(linking(ref))
    assert world.named() is None


@pytest.mark.parametrize("removed", [False, True])
def test_an_object_from_another_head_is_linked_while_the_head_names_it(world: NamedEntities, *, removed: bool) -> None:
    """A ref that was read long ago, of an entity that may have been removed since."""
    key = IndexKey.of("first")
    head = world.committer.head()
    assert head is not None
    ref = head.value.working_index(world.store.fetch_many).get(key)
    assert ref is not None
    if removed:
        world.process()[1].commit(removing(key))
        world.sweep(2)
        with pytest.raises(PreparedExpired):
            world.committer.commit(linking(ref))
    else:
        world.sweep(2)
        world.committer.commit(linking(ref))
        world.process()[1].commit(removing(key))
        world.sweep(3)
        assert world.named() == Entity(name="new")
