"""Tables that are renamed while a pass runs, by the order of events: a pass finds each, or does not count."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.references.model import CatalogPass, PassNeeded
from delegation.references.owned_pass import MOST_UNCOUNTED
from delegation.storage.memory import Killed
from tests.kit.lakes.lake import rows
from tests.unit.references.test_refresh import Scene


@dataclass
class Events:
    """Calls a function just before the load with a number, of one name, and notes the order of all loads."""

    scene: Scene
    before: dict[tuple[str, int], Callable[[], None]]
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        load = self.scene.listing.load_if_changed

        def noted(identifier: TableIdentifier, etag: str | None) -> LoadedTable | None:
            self.loads.append(identifier.name)
            self.before.get((identifier.name, self.loads.count(identifier.name)), lambda: None)()
            return load(identifier, etag)

        self.scene.listing.load_if_changed = noted  # type: ignore[method-assign]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def rename(scene: Scene, source: str, target: str) -> None:
    """Rename a table; one that has the name is dropped before."""
    scene.one.pointers[target] = scene.one.pointers.pop(source)


def stopped(scene: Scene, **before: int) -> Callable[[], None]:
    """Return a checkpoint that ends a process before the load of a name with a number."""
    events = Events(scene, {})
    (name, number), *_ = before.items()

    def checkpoint() -> None:
        if events.loads.count(name) == number:
            raise Killed

    return checkpoint


def known(scene: Scene, *names: str) -> None:
    """Create tables and make a pass, so that the index knows them."""
    scene.create(names)
    scene.refresher().ensure("cat", PassNeeded(0))


def test_a_table_whose_name_another_took_while_a_first_pass_ran_is_found(scene):
    scene.create("amz")

    def staging_becomes_prod() -> None:
        rename(scene, "z", "a")
        scene.one.create("z", location="s3://lake/wh/next")

    events = Events(scene, {("z", 1): staging_becomes_prod})
    state = scene.refresher().ensure("cat", PassNeeded(0))
    assert scene.concerned("s3://lake/wh/z/") == {"ns.a"}
    assert state.complete == 1
    assert max(map(events.loads.count, events.loads)) <= 2


def test_a_new_table_whose_name_another_took_is_found_among_many_known_ones(scene):
    known(scene, *(f"k{number:02}" for number in range(30)))
    scene.create(("a", "z"))

    def staging_becomes_prod() -> None:
        rename(scene, "z", "a")
        scene.one.create("z", location="s3://lake/wh/next")

    events = Events(scene, {("z", 1): staging_becomes_prod})
    scene.refresher().ensure("cat", PassNeeded(1))
    assert scene.concerned("s3://lake/wh/z/") == {"ns.a"}
    assert len(events.loads) == 34


def test_a_known_table_renamed_to_a_new_name_and_from_there_to_a_loaded_one_is_found(scene):
    known(scene, *"abmy")
    events = Events(scene, {("b", 1): lambda: rename(scene, "b", "new"), ("new", 1): lambda: rename(scene, "new", "y")})
    scene.refresher().ensure("cat", PassNeeded(1))
    assert "ns.y" in scene.concerned("s3://lake/wh/b/")
    assert max(map(events.loads.count, events.loads)) <= 2


def test_a_new_table_renamed_twice_each_time_to_a_loaded_name_is_found_before_a_purge_runs(scene):
    """Seed 6219 of `make histories`: f replaces e, which was loaded; in the second visits e replaces a, which was."""
    scene.create("aefx")
    Events(scene, {("f", 1): lambda: rename(scene, "f", "e"), ("e", 2): lambda: rename(scene, "e", "a")})
    state = scene.refresher().ensure("cat", PassNeeded(0))
    assert "ns.a" in scene.concerned("s3://lake/wh/f/")
    assert state.complete == 2


def test_a_pass_counts_at_last_although_new_tables_disappear_and_names_change_in_each(scene):
    known(scene, *"abc")
    scene.one.create("new")
    pointers, load, write = scene.one.pointers, scene.listing.load_if_changed, scene.store.write_pass

    def loaded(identifier: TableIdentifier, etag: str | None) -> LoadedTable | None:
        if identifier.name == "new":
            pointers.pop("new")
        elif identifier.name == "a" and scene.store.pass_of("cat").again:
            pointers["b"], pointers["c"] = pointers["c"], pointers["b"]
        return load(identifier, etag)

    def written(before: CatalogPass, after: CatalogPass) -> CatalogPass:
        if after.began_at is None:
            pointers["new"] = pointers["a"]
        return write(before, after)

    scene.listing.load_if_changed, scene.store.write_pass = loaded, written
    state = scene.refresher().ensure("cat", PassNeeded(1))
    assert (state.complete, state.uncounted) == (1 + MOST_UNCOUNTED + 1, 0)


def test_a_new_table_whose_name_another_took_is_found_by_the_process_that_continues_the_pass(scene):
    """The names that are loaded before all others are loaded once more, in whatever process the pass ends."""
    known(scene, *(f"k{number:02}" for number in range(30)))
    scene.create(("a", "b"))

    def staging_becomes_prod() -> None:
        rename(scene, "b", "a")
        scene.one.create("b", location="s3://lake/wh/next")

    Events(scene, {("b", 1): staging_becomes_prod})
    with pytest.raises(Killed):
        scene.refresher(checkpoint=stopped(scene, k20=1)).ensure("cat", PassNeeded(1))
    assert scene.refresher("other").ensure("cat", PassNeeded(1)).complete == 2
    assert scene.concerned("s3://lake/wh/b/") == {"ns.a"}


def test_a_table_renamed_twice_is_found_although_nobody_had_the_pass_at_the_second_rename(scene):
    """f replaces e, which was loaded; e replaces a, loaded twice by the process that ended after that."""
    scene.create("aefx")
    Events(scene, {("f", 1): lambda: rename(scene, "f", "e")})
    with pytest.raises(Killed):
        scene.refresher(checkpoint=stopped(scene, a=2)).ensure("cat", PassNeeded(0))
    rename(scene, "e", "a")
    scene.refresher("other").ensure("cat", PassNeeded(0))
    assert "ns.a" in scene.concerned("s3://lake/wh/f/")


def test_a_table_that_a_first_pass_has_not_met_and_that_takes_a_visited_name_meanwhile_is_found(scene):
    """Nobody had the pass at the rename: its former name is in no listing of the process that continues."""
    scene.create("amz")
    with pytest.raises(Killed):
        scene.refresher(checkpoint=stopped(scene, m=1)).ensure("cat", PassNeeded(0))
    rename(scene, "z", "m")
    scene.refresher("other").ensure("cat", PassNeeded(0))
    assert scene.concerned("s3://lake/wh/z/") == {"ns.m"}


def cloned(scene: Scene, *clones: str) -> Callable[[], None]:
    """Have a pass know `a`, `lender` and `t` and its clones; return a function by which `t` alone takes a file."""
    for name in ("a", "lender", "t"):
        scene.one.create(name).append(rows(1))
    for clone in clones:
        scene.one.pointers[clone] = scene.one.pointers["t"]
    scene.refresher().ensure("cat", PassNeeded(0))
    (file,) = [uri for uri in scene.one.below("s3://lake/wh/lender/") if uri.endswith(".parquet")]
    return lambda: scene.one.table("t").add_files([file])


def swap(scene: Scene, one: str, other: str) -> None:
    pointers = scene.one.pointers
    pointers[one], pointers[other] = pointers[other], pointers[one]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("new", [True, False])
def test_a_table_that_changes_names_with_its_clone_behind_a_pass_is_found(scene, known, new):
    """Seed 2812 of `make histories`: a clone has the same uuid, so neither name shows another table than before."""
    take = cloned(scene, "clone", *([] if new else ["b"]))
    take()
    if known:
        scene.refresher().ensure("cat", PassNeeded(1))
    if new:
        rename(scene, "clone", "b")
    last = scene.store.pass_of("cat").number
    Events(scene, {("t", 1): lambda: swap(scene, "b", "t")})
    scene.refresher().ensure("cat", PassNeeded(last))
    assert "ns.b" in scene.concerned("s3://lake/wh/lender/data/")


def test_a_table_that_changes_names_with_its_clone_is_found_by_the_process_that_continues_the_pass(scene):
    """The first process knows alone which names share a table, and ends before it loads them again."""
    scene.one.create("z")
    cloned(scene, "b")()
    Events(scene, {("t", 1): lambda: swap(scene, "b", "t")})
    with pytest.raises(Killed):
        scene.refresher(checkpoint=stopped(scene, t=1)).ensure("cat", PassNeeded(1))
    scene.refresher("other").ensure("cat", PassNeeded(1))
    assert "ns.b" in scene.concerned("s3://lake/wh/lender/data/")


@pytest.mark.parametrize("vacated", ["without a table", "with another table"])
def test_a_table_whose_name_its_clone_takes_behind_a_pass_is_found(scene, vacated):
    cloned(scene, "b")()

    def moves() -> None:
        rename(scene, "t", "a")
        rename(scene, "b", "t")
        if vacated == "with another table":
            scene.one.create("b", location="s3://lake/wh/next")

    events = Events(scene, {("t", 1): moves})
    scene.refresher().ensure("cat", PassNeeded(1))
    assert "ns.a" in scene.concerned("s3://lake/wh/lender/data/")
    assert max(map(events.loads.count, events.loads)) <= 3


def test_a_table_counts_as_cloned_after_its_clone_was_dropped(scene):
    """Its entry keeps areas that may be the clone's: by then the clone may have another name."""
    cloned(scene, "b")()
    scene.refresher().ensure("cat", PassNeeded(1))
    del scene.one.pointers["b"]
    for number in (2, 3, 4):
        scene.one.table("t").append(rows(1))
        scene.refresher().ensure("cat", PassNeeded(number))
    assert {entry.identifier.name for entry in scene.store.entries("cat")} == {"a", "lender", "t"}
    assert {entry.identifier.name for entry in scene.store.entries("cat") if entry.cloned} == {"t"}


def test_a_known_table_that_changes_names_twice_each_time_behind_a_pass_is_found(scene):
    known(scene, *"aby")
    Events(scene, {("y", 1): lambda: swap(scene, "b", "y"), ("b", 2): lambda: swap(scene, "a", "b")})
    scene.refresher().ensure("cat", PassNeeded(1))
    assert "ns.a" in scene.concerned("s3://lake/wh/y/")


def onto(scene: Scene, *moves: tuple[str, str]) -> Callable[[], None]:
    """Return what renames tables, each to the name of one that is dropped."""

    def moved() -> None:
        for source, target in moves:
            rename(scene, source, target)

    return moved


def test_a_known_table_that_is_renamed_behind_both_visits_is_remembered_under_its_former_name(scene):
    """Its new names were of tables that are dropped, so no name shows that it is there: the next pass finds it."""
    known(scene, *"0aby")
    uuid = scene.store.get(TableIdentifier("cat", ("ns",), "y")).table_uuid
    Events(scene, {("y", 1): onto(scene, ("y", "a"), ("b", "y")), ("a", 2): onto(scene, ("a", "0"))})
    number = scene.refresher().ensure("cat", PassNeeded(1)).number
    assert scene.store.get(TableIdentifier("cat", ("ns",), "y")).displaced == {uuid}
    assert "ns.y" in scene.concerned("s3://lake/wh/y/")
    scene.refresher().ensure("cat", PassNeeded(number))
    assert scene.concerned("s3://lake/wh/y/") == {"ns.0"}


def test_a_known_table_renamed_behind_a_process_that_ends_is_remembered_for_the_next_one(scene):
    known(scene, *"0abkyz")
    Events(scene, {("y", 1): onto(scene, ("y", "a"), ("b", "y"))})
    with pytest.raises(Killed):
        scene.refresher(checkpoint=stopped(scene, z=0)).ensure("cat", PassNeeded(1))
    assert "ns.y" in scene.concerned("s3://lake/wh/y/")


def test_a_table_that_is_dropped_and_created_again_elsewhere_is_not_remembered(scene):
    """Nothing else changed its name, so it is under none: a purge where it was needs no other pass."""
    known(scene, *"aby")

    def replaced() -> None:
        del scene.one.pointers["y"]
        scene.one.create("y", location="s3://lake/wh/next")

    Events(scene, {("y", 1): replaced})
    scene.refresher().ensure("cat", PassNeeded(1))
    assert scene.concerned("s3://lake/wh/y/") == set()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("drops", [False, True])
def test_a_pass_in_a_catalog_that_renames_a_table_with_each_load_ends_and_forgets_none(scene, seed, drops):
    """Whatever has no entry of its own then is in that of another name, which a purge has looked at once more."""
    choose = random.Random(seed)
    names = [f"n{number:02}" for number in range(20)]
    known(scene, *names)
    load, loads = scene.listing.load_if_changed, list[str]()

    def moving(identifier: TableIdentifier, etag: str | None) -> LoadedTable | None:
        loads.append(identifier.name)
        source, target = choose.sample(sorted(scene.one.pointers), 2)
        if drops and len(loads) % 10 == 0:
            rename(scene, source, target)
        else:
            swap(scene, source, target)
        scene.now += timedelta(seconds=1)
        return load(identifier, etag)

    scene.listing.load_if_changed = moving  # type: ignore[method-assign]
    state = scene.refresher().ensure("cat", PassNeeded(1))
    assert state.complete == 2
    assert len(loads) <= 8 * len(names)
    entries = {one.identifier.name: one for one in scene.store.entries("cat")}
    found = {one.table_uuid for one in entries.values()} | {uuid for one in entries.values() for uuid in one.displaced}
    live = {str(scene.one.metadata(name)["table-uuid"]) for name in scene.one.pointers}
    assert live <= found
    for name in scene.one.pointers:
        assert scene.concerned(f"{scene.one.metadata(name)['location']}/"), name
