"""A pass over a catalog finds every table that references another's files, and loads each changed table once."""

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchTable, PolarisForbidden, PolarisUnavailable
from delegation.polaris.model import LoadedTable
from delegation.references import refresh
from delegation.references.errors import PassLost, ReferencesNotKnown
from delegation.references.model import CONTINUED_FOR, SERVES_FOR, PassNeeded, TableEntry
from delegation.references.owned_pass import OWNED_FOR, TABLES_A_WRITE
from delegation.references.reading import read_references
from delegation.references.refresh import Refresher
from delegation.storage.base import BucketNotFound, ReadableStore
from delegation.storage.memory import Faults, MemoryObjectStore
from tests.contract.task_tables import moto
from tests.contract.test_reference_store import reference_store
from tests.kit.dynamodb import MemoryReferenceStore
from tests.kit.lakes.lake import Lake, LakeSource, busy_table, rows
from tests.kit.lakes.listing import LakeListing

MAX_AGE = timedelta(minutes=15)


@dataclass
class Scene:
    """Two namespaces over the same objects, a clock that a test moves, and as many refreshing processes as it wants."""

    one: Lake = field(default_factory=Lake)
    two: Lake = field(default_factory=Lake)
    store: MemoryReferenceStore = field(default_factory=MemoryReferenceStore)
    now: datetime = datetime(2026, 11, 22, 12, tzinfo=UTC)

    def __post_init__(self) -> None:
        self.two.objects, self.two.io.objects = self.one.objects, self.one.objects
        self.listing = LakeListing({("ns",): self.one, ("ns", "inner"): self.two})

    def create(self, names: Iterable[str]) -> None:
        for name in names:
            self.one.create(name)

    def pass_again(self) -> None:
        """Make another pass, as soon as the one before is too old."""
        self.now += MAX_AGE + timedelta(seconds=1)
        self.refresher().ensure_fresh("cat", MAX_AGE)

    def refresher(self, owner: str = "me", **fields: object) -> Refresher:
        return Refresher(
            self.store, self.listing, self._opened, owner, clock=lambda: self.now, **{"eager": True, **fields}
        )

    def _opened(self, table: LoadedTable) -> MemoryObjectStore:
        objects = MemoryObjectStore()
        objects.objects = self.one.objects
        return objects

    def concerned(self, area: str) -> set[str]:
        return {".".join((*one.namespace, one.name)) for one in self.store.overlapping("cat", [area])}


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_clone_registered_in_another_namespace_is_found(scene):
    busy_table(scene.one, "t")
    scene.two.pointers["clone"] = scene.one.pointers["t"]
    scene.refresher().ensure_fresh("cat", MAX_AGE)
    assert scene.concerned("s3://lake/wh/t/") == {"ns.t", "ns.inner.clone"}


def test_a_moved_clone_is_found_by_the_files_that_it_left(scene):
    table = busy_table(scene.one, "t")
    scene.two.pointers["moved"] = scene.one.pointers["t"]
    with scene.two.table("moved").transaction() as change:
        change.set_properties({"owner": "other"})  # a commit gives the clone a metadata file of its own
    scene.two.rewrite_metadata("moved", {"location": "s3://other/moved"})
    scene.refresher().ensure_fresh("cat", MAX_AGE)
    assert "ns.inner.moved" in scene.concerned(f"{table.location()}/data/")


def test_a_pass_loads_each_table_once_on_its_etag(scene):
    for number in range(5):
        busy_table(scene.one, f"t{number}")
    scene.refresher().ensure_fresh("cat", MAX_AGE)
    scene.listing.asked.clear()
    scene.now += MAX_AGE + timedelta(seconds=1)
    scene.one.table("t3").append(rows(9))
    scene.refresher().ensure_fresh("cat", MAX_AGE)
    assert (scene.listing.asked["conditional"], scene.listing.asked["full"]) == (5, 0)


def test_a_fresh_index_costs_nothing(scene):
    busy_table(scene.one, "t")
    scene.refresher().ensure_fresh("cat", MAX_AGE)
    scene.listing.asked.clear()
    scene.now += MAX_AGE
    scene.refresher("other").ensure_fresh("cat", MAX_AGE)
    assert scene.listing.asked.total() == 0


def test_a_table_dropped_between_its_listing_and_its_load_is_forgotten(scene):
    busy_table(scene.one, "t")
    scene.listing.broken["t"] = NoSuchTable("no table", status=404)
    assert scene.refresher().ensure_fresh("cat", MAX_AGE).tables == 0


def test_a_table_that_may_not_be_loaded_is_recorded_with_its_reason_and_tried_again(scene):
    busy_table(scene.one, "t")
    scene.refresher().ensure_fresh("cat", MAX_AGE)
    scene.listing.broken["t"] = PolarisForbidden("no privilege", status=403)
    scene.pass_again()
    (unreadable,) = scene.store.unreadable("cat")
    assert "no privilege" in unreadable.problem
    assert scene.concerned("s3://lake/wh/t/") == {"ns.t"}
    scene.listing.broken.clear()
    scene.pass_again()
    assert list(scene.store.unreadable("cat")) == []


def test_a_table_with_a_lost_manifest_is_recorded(scene):
    table = busy_table(scene.one, "t")
    manifest = table.current_snapshot().manifests(scene.one.io)[0].manifest_path
    scene.one.io.delete(manifest)
    scene.refresher().ensure_fresh("cat", MAX_AGE)
    (unreadable,) = scene.store.unreadable("cat")
    assert unreadable.problem.startswith("MANIFEST_MISSING")


def test_one_process_at_a_time_has_the_pass(scene):
    busy_table(scene.one, "t")

    def another() -> None:
        with pytest.raises(ReferencesNotKnown, match="cat"):
            scene.refresher("other").ensure_fresh("cat", MAX_AGE)

    scene.refresher("me", checkpoint=another).ensure_fresh("cat", MAX_AGE)


def stopping_after(visits: int) -> Callable[[], None]:
    """Return a checkpoint that ends a pass after so many visits."""
    counted = Counter[str]()

    def checkpoint() -> None:
        counted["visits"] += 1
        if counted["visits"] > visits:
            raise PolarisUnavailable("overloaded", status=503)

    return checkpoint


def test_a_pass_that_stopped_is_continued_where_it_stopped_by_another_process(scene):
    scene.create(f"t{number:03}" for number in range(2 * TABLES_A_WRITE))
    scene.refresher("me").ensure_fresh("cat", MAX_AGE)
    scene.now += MAX_AGE + timedelta(seconds=1)
    with pytest.raises(PolarisUnavailable):
        scene.refresher("me", checkpoint=stopping_after(60)).ensure_fresh("cat", MAX_AGE)
    assert scene.store.pass_of("cat").checked == 60
    began = scene.now
    scene.now += timedelta(seconds=5)
    scene.listing.asked.clear()
    state = scene.refresher("other").ensure_fresh("cat", MAX_AGE)
    assert scene.listing.asked["conditional"] == 2 * TABLES_A_WRITE - 60
    assert (state.complete_as_of, state.tables) == (began, 2 * TABLES_A_WRITE)


def test_a_first_pass_that_stopped_loads_each_table_twice_at_most(scene):
    scene.create(f"t{number:03}" for number in range(100))
    with pytest.raises(PolarisUnavailable):
        scene.refresher("me", checkpoint=stopping_after(60)).ensure_fresh("cat", MAX_AGE)
    loads = Counter[str]()
    load = scene.listing.load_if_changed

    def counted(identifier: TableIdentifier, etag: str | None) -> LoadedTable | None:
        loads[identifier.name] += 1
        return load(identifier, etag)

    scene.listing.load_if_changed = counted
    assert scene.refresher("other").ensure_fresh("cat", MAX_AGE).tables == 100
    assert {loads[f"t{number:03}"] for number in range(60)} == {1}
    assert max(loads.values()) == 2


def test_a_pass_left_for_too_long_is_replaced_by_a_new_one(scene):
    scene.create("abc")
    with pytest.raises(PolarisUnavailable):
        scene.refresher(checkpoint=stopping_after(1)).ensure_fresh("cat", MAX_AGE)
    scene.now += CONTINUED_FOR + timedelta(seconds=1)
    scene.listing.asked.clear()
    state = scene.refresher().ensure_fresh("cat", MAX_AGE)
    assert scene.listing.asked["conditional"] == 3 + 2  # a table that no pass saw yet may have been renamed meanwhile
    assert (state.complete_as_of, state.number, state.complete) == (scene.now, 2, 2)


def test_a_process_that_was_paused_beyond_its_ownership_writes_nothing_more(scene):
    scene.create("abc")

    def pause() -> None:
        if scene.listing.asked["conditional"] == 1:
            scene.now += OWNED_FOR + timedelta(seconds=1)
            assert scene.refresher("other").ensure_fresh("cat", MAX_AGE).tables == 3

    with pytest.raises(PassLost):
        scene.refresher("me", checkpoint=pause).ensure_fresh("cat", MAX_AGE)
    assert scene.store.pass_of("cat").owner is None
    assert scene.store.pass_of("cat").complete_as_of is not None


def test_a_manifest_is_read_once(scene):
    table = busy_table(scene.one, "t")
    store = MemoryObjectStore()
    store.objects = scene.one.objects
    loaded = LakeSource(scene.one, "t", Faults()).load()
    first = read_references(loaded, store, None)
    for path in {one.manifest_path for snapshot in table.snapshots() for one in snapshot.manifests(scene.one.io)}:
        scene.one.io.delete(path)
    assert read_references(loaded, store, first) == first


def test_an_entry_that_another_process_wrote_meanwhile_is_not_replaced_by_an_older_one(scene):
    busy_table(scene.one, "t")
    files = sorted(uri for uri in scene.one.below("s3://lake/wh/t/data/") if uri.endswith(".parquet"))
    scene.two.create("taking", location="s3://other/far/taking").append(rows(1))
    slow = scene.refresher("slow")
    finished = []

    def read(table: LoadedTable, store: ReadableStore, known: TableEntry | None) -> TableEntry:
        entry = read_references(table, store, known)
        if table.identifier.name == "taking" and not finished:
            # Paused here, before its write; meanwhile the table takes files, and another process completes a pass.
            finished.append(True)
            scene.two.table("taking").add_files(files[:1], check_duplicate_files=False)
            scene.now += OWNED_FOR + timedelta(seconds=1)
            scene.refresher("other").ensure_fresh("cat", MAX_AGE)
        return entry

    with pytest.raises(PassLost):
        replace(slow, read=read).ensure_fresh("cat", MAX_AGE)
    assert scene.concerned("s3://lake/wh/t/") == {"ns.t", "ns.inner.taking"}


def test_a_pass_ends_although_tables_are_created_all_the_time(scene):
    scene.one.create("t")

    def create() -> None:
        scene.one.create(f"new{scene.listing.asked['conditional']:03}")

    assert scene.refresher(checkpoint=create).ensure_fresh("cat", MAX_AGE).complete_as_of == scene.now
    assert 3 <= scene.listing.asked["conditional"] <= 50


def test_a_table_whose_bucket_is_gone_is_recorded_and_the_others_are_visited(scene):
    scene.create("abc")

    def opened(table: LoadedTable) -> MemoryObjectStore:
        if table.identifier.name == "b":
            raise BucketNotFound("the object store has no bucket")
        return scene._opened(table)

    assert replace(scene.refresher(), open_store=opened).ensure_fresh("cat", MAX_AGE).tables == 3
    (unreadable,) = scene.store.unreadable("cat")
    assert unreadable.problem.startswith("BUCKET_NOT_FOUND")


def test_a_pass_is_kept_while_many_namespaces_without_tables_are_listed(scene):
    scene.one.create("t")
    scene.listing.lakes |= {(f"empty{number}",): Lake() for number in range(20)}

    def slow() -> None:
        scene.now += OWNED_FOR / 4
        with pytest.raises(ReferencesNotKnown):
            scene.refresher("other").ensure_fresh("cat", MAX_AGE)

    assert scene.refresher(pace=slow).ensure_fresh("cat", MAX_AGE).tables == 1


def test_a_pass_is_kept_while_the_entries_of_a_large_index_are_read(scene, monkeypatch):
    monkeypatch.setattr(refresh, "_TABLES_A_RENEWAL", 1)
    scene.create(f"t{number}" for number in range(3))
    scene.refresher().ensure("cat", PassNeeded(0))
    entries, kept = scene.store.entries, []

    def slowly(catalog: str) -> Iterator[TableEntry]:
        for entry in entries(catalog):
            scene.now += OWNED_FOR * 0.7
            kept.append(scene.store.pass_of("cat").is_owned(scene.now))
            yield entry

    scene.store.entries = slowly
    scene.refresher().ensure("cat", PassNeeded(1))
    assert kept == [True] * 3


def test_a_table_that_replaces_a_dropped_and_visited_one_during_a_pass_is_found(scene):
    scene.create("amz")
    scene.refresher().ensure_fresh("cat", MAX_AGE)
    scene.now += MAX_AGE + timedelta(seconds=1)

    def replaced() -> None:
        if scene.listing.asked["conditional"] == 5 and "z" in scene.one.pointers:
            scene.one.pointers["a"] = scene.one.pointers.pop("z")

    scene.refresher(checkpoint=replaced).ensure_fresh("cat", MAX_AGE)
    assert "ns.a" in scene.concerned("s3://lake/wh/z/")
    scene.pass_again()
    assert scene.concerned("s3://lake/wh/z/") == {"ns.a"}


def test_a_purge_needs_a_pass_that_began_after_its_moment(scene):
    busy_table(scene.one, "t")
    first = scene.refresher().ensure("cat", PassNeeded(0))
    assert (first.number, first.complete) == (1, 1)
    scene.listing.asked.clear()
    assert scene.refresher().ensure("cat", PassNeeded(0)) == first
    assert scene.listing.asked.total() == 0
    assert scene.refresher().ensure("cat", PassNeeded(1)).complete == 2


def test_a_purge_whose_moment_is_in_a_pass_needs_the_next_one(scene):
    scene.create("abc")
    with pytest.raises(PolarisUnavailable):
        scene.refresher("me", checkpoint=stopping_after(1)).ensure("cat", PassNeeded(0))
    moment = scene.store.pass_of("cat").number
    assert moment == 1
    # The pass that was left is completed first, because others wait for it.
    assert scene.refresher("other").ensure("cat", PassNeeded(moment)).complete == 2


def test_a_complete_pass_serves_for_an_hour_after_it_began(scene):
    busy_table(scene.one, "t")
    scene.refresher().ensure("cat", PassNeeded(0))
    scene.now += SERVES_FOR
    assert scene.refresher().ensure("cat", PassNeeded(0)).complete == 1
    scene.now += timedelta(seconds=1)
    assert scene.refresher().ensure("cat", PassNeeded(0)).complete == 2


def test_a_pass_that_took_longer_than_an_hour_serves_too(scene):
    scene.create(f"t{number:02}" for number in range(30))

    def slow() -> None:
        scene.now += timedelta(minutes=5)

    state = scene.refresher(pace=slow).ensure("cat", PassNeeded(0))
    assert state.duration > 2 * SERVES_FOR
    assert state.complete == 1


def test_an_age_that_the_operator_accepts_is_enough(scene):
    busy_table(scene.one, "t")
    scene.refresher().ensure("cat", PassNeeded(0))
    needed = PassNeeded(1, MAX_AGE)
    scene.now += MAX_AGE
    assert scene.refresher().ensure("cat", needed).complete == 1
    scene.now += timedelta(seconds=1)
    assert scene.refresher().ensure("cat", needed).complete == 2


def test_purges_that_no_caller_waits_for_gather_for_as_long_as_a_pass_took(scene):
    scene.create(f"t{number}" for number in range(10))

    def slow() -> None:
        scene.now += timedelta(seconds=1)

    took = scene.refresher(pace=slow).ensure("cat", PassNeeded(0)).duration
    assert took >= timedelta(seconds=10)
    with pytest.raises(ReferencesNotKnown) as waits:
        scene.refresher(eager=False).ensure("cat", PassNeeded(1))
    assert waits.value.wait == took
    scene.now += took
    assert scene.refresher(eager=False).ensure("cat", PassNeeded(1)).complete == 2


def test_a_waiting_purge_learns_when_the_pass_should_be_complete(scene):
    scene.create(f"t{number}" for number in range(10))

    def slow() -> None:
        scene.now += timedelta(seconds=1)

    took = scene.refresher(pace=slow).ensure("cat", PassNeeded(0)).duration
    waits = []

    def another() -> None:
        for after in (1, 2):
            with pytest.raises(ReferencesNotKnown) as error:
                scene.refresher("other").ensure("cat", PassNeeded(after))
            waits.append(error.value.wait)

    scene.now += took
    scene.refresher(checkpoint=another).ensure("cat", PassNeeded(1))
    assert waits[:2] == [took, 3 * took]


def test_a_pass_is_left_when_its_time_is_over_and_continued(scene):
    scene.create(f"t{number}" for number in range(10))
    passed = Counter[str]()

    def seconds() -> float:
        return float(passed["visits"])

    def visit() -> None:
        passed["visits"] += 1

    with pytest.raises(ReferencesNotKnown, match="5 tables are checked") as left:
        scene.refresher(checkpoint=visit, seconds=seconds, until=6.0).ensure("cat", PassNeeded(0))
    assert left.value.wait == timedelta(0)
    assert scene.refresher("other").ensure("cat", PassNeeded(0)).tables == 10


def test_a_pass_makes_headway_although_listing_the_catalog_takes_all_of_its_time(scene):
    scene.create(f"t{number:02}" for number in range(12))
    passed = Counter[str]()

    def seconds() -> float:
        return float(passed["visits"] + 1000 * scene.listing.asked["listings"])

    def visit() -> None:
        passed["visits"] += 1

    checked = []
    for owner in "abc":
        slow = scene.refresher(owner, checkpoint=visit, seconds=seconds, until=seconds() + 30)
        with contextlib.suppress(ReferencesNotKnown):
            slow.ensure("cat", PassNeeded(0))
        checked.append(scene.store.pass_of("cat").checked)
    assert 0 < checked[0] < checked[1] < checked[2]


def test_several_tables_are_loaded_at_a_time_and_each_is_found(scene):
    scene.create(f"t{number:02}" for number in range(60))
    assert scene.refresher(at_once=8).ensure("cat", PassNeeded(0)).tables == 60
    assert scene.concerned("s3://lake/wh/t59/") == {"ns.t59"}
    assert len(scene.concerned("s3://lake/")) == 60


def test_a_pass_completes_while_a_table_a_second_is_created_dropped_and_swapped(scene):
    """Two loads for each table at most, and every table that was there all the time is found."""
    stay = [f"t{number:03}" for number in range(60)]
    scene.create(stay)
    scene.refresher().ensure("cat", PassNeeded(0))
    lasting = {scene.one.table(name).metadata.table_uuid: scene.one.table(name).location() for name in stay}
    random_ = random.Random(7)
    changes = Counter[str]()

    def change() -> None:
        scene.now += timedelta(seconds=1)
        changes["all"] += 1
        pointers = scene.one.pointers
        match changes["all"] % 3:
            case 0:
                scene.one.create(f"t{random_.randrange(60):03}new{changes['all']}")
            case 1:
                one, other = random_.sample(sorted(pointers), 2)
                pointers[one], pointers[other] = pointers[other], pointers[one]
            case 2:
                pointers[random_.choice(stay) + f"moved{changes['all']}"] = pointers.pop(
                    random_.choice(sorted(pointers))
                )

    before = scene.listing.asked["conditional"]
    state = scene.refresher(checkpoint=change).ensure("cat", PassNeeded(1))
    assert state.complete == 2
    assert scene.listing.asked["conditional"] - before <= 2 * (len(scene.one.pointers) + changes["all"])
    for location in lasting.values():
        assert scene.concerned(f"{location}/"), location


@pytest.mark.parametrize("uuid", ["u" * 500_000, "\ud800", "é" * 50, "", 7])
def test_whatever_text_is_a_tables_uuid_the_others_are_found(scene, uuid):
    """Iceberg takes any text; an item of DynamoDB has room for 400 KB, and no lone surrogate."""
    scene.create(("a", "hostile", "z"))
    scene.one.rewrite_metadata("hostile", {"table-uuid": uuid})
    with moto() as client:
        scene.store = reference_store(client)
        scene.refresher().ensure("cat", PassNeeded(0))
        assert scene.refresher().ensure("cat", PassNeeded(1)).complete == 2
        assert scene.concerned("s3://lake/wh/") == {"ns.a", "ns.hostile", "ns.z"}
        (entry,) = scene.store.unreadable("cat")
    assert (entry.identifier.name, len(entry.table_uuid) <= 100) == ("hostile", True)


def test_a_commit_to_a_table_of_many_snapshots_costs_a_few_reads(scene):
    table = scene.one.create("t")
    for number in range(30):
        table.append(rows(number))
        table = scene.one.table("t")
    store = MemoryObjectStore()
    store.objects = scene.one.objects

    def read(known: TableEntry | None) -> TableEntry:
        return read_references(LakeSource(scene.one, "t", Faults()).load(), store, known)

    first = read(None)
    whole = store.faults.names.count("read")
    table.append(rows(99))
    entry = read(first)
    assert store.faults.names.count("read") - whole <= 3  # the former metadata file, a list and a manifest
    assert first.seen < entry.seen


def test_files_that_are_taken_by_the_newest_of_many_snapshots_are_found(scene):
    busy_table(scene.one, "t")
    files = sorted(uri for uri in scene.one.below("s3://lake/wh/t/data/") if uri.endswith(".parquet"))
    taking = scene.two.create("taking", location="s3://other/far/taking")
    for number in range(12):
        taking.append(rows(number))
        taking = scene.two.table("taking")
    state = scene.refresher().ensure("cat", PassNeeded(0))
    assert (state.complete_as_of, state.tables) == (scene.now, 2)
    assert scene.concerned("s3://lake/wh/t/") == {"ns.t"}
    taking.add_files(files[:1], check_duplicate_files=False)
    scene.refresher().ensure("cat", PassNeeded(1))
    assert scene.concerned("s3://lake/wh/t/") == {"ns.t", "ns.inner.taking"}
