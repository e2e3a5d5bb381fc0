"""What happens between the steps of a removal of orphan files, by several actors, never costs a table a file."""

import dataclasses
import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delegation.errors import GuardRefused
from delegation.iceberg.errors import CorruptMetadata, ManifestMissing
from delegation.references.errors import ReferencesNotKnown, recorded_problem
from delegation.removal.attempt import PlanHead, PlanSegment, receipt_key
from delegation.removal.errors import (
    ComparisonTooOld,
    FilesNotDeleted,
    FilesNotDeletedYet,
    NeighbourUnreadable,
    PlanTampered,
)
from delegation.removal.expiry.run import expire_snapshots
from delegation.removal.index import store_index
from delegation.removal.marks import Marks
from delegation.removal.orphans.details import ApprovalLimits
from delegation.removal.orphans.errors import AgeTooShort, AreaLeftAlone, LocationShared, PrefixMismatch
from delegation.removal.orphans.index import CandidateWriter, read_candidates
from delegation.removal.orphans.place import Equal, MismatchMode, Place
from delegation.removal.orphans.run import remove_orphan_files
from delegation.removal.task_attempt import error_class
from delegation.storage.memory import Faults, Killed, MemoryObjectStore
from delegation.tasks.life.outcomes import ErrorClass
from polaris_common.errors import DelegationError
from tests.effort import apart
from tests.kit.errors import coded
from tests.kit.stories.expiries import ExpiringTables
from tests.kit.stories.orphans import AT_ONCE, SweptTables, hours
from tests.kit.stories.tables import StoryTable

OLD = "s3://lake/wh/t/data/old.parquet"

pytestmark = pytest.mark.usefixtures("engine")


def beach(**properties: str) -> tuple[SweptTables, StoryTable]:
    """Return a table with one orphan file, old enough to be removed."""
    world = SweptTables()
    table = world.table(**properties)
    world.orphan(OLD)
    world.lake.pass_days(4)
    return world, table


def kept_all(world: SweptTables) -> bool:
    return not world.missing()


def test_a_file_stays_that_only_an_entry_with_status_deleted_names() -> None:
    """Its snapshots are gone without their files, as after an expiry that kept them."""
    world, table = beach()
    gone, former = table.live()[0], table.ids
    table.delete(gone)
    table.remove_snapshots(*former)
    world.lake.pass_days(4)
    assert gone not in table.live()

    result = remove_orphan_files(world.context(table))

    assert (result.status, OLD in world.lake.uris(), gone in world.lake.uris()) == ("SWEPT", False, True)


def test_orphans_of_every_kind_are_removed_and_nothing_else() -> None:
    world, table = beach()
    table.statistics(table.ids[0])
    table.delete(table.live()[0])
    world.lake.pass_days(4)
    orphans = [
        world.orphan(f"s3://lake/wh/t/{name}")
        for name in ("data/p=1/a.parquet", "metadata/x.avro", "metadata/x.json", "z", "data/a b%", "é/ü")
    ]
    beside = [
        world.orphan(uri) for uri in ("s3://lake/wh/t2/a", "s3://lake/wh/t", "s3://lake/wh/a", "s3://other/wh/t/a")
    ]
    hidden = [world.orphan(f"s3://lake/wh/t/{name}") for name in ("_x/a", "data/.b", "data/_SUCCESS", "dir/")]
    world.lake.pass_days(4)
    young = world.orphan("s3://lake/wh/t/data/young.parquet")
    before = world.lake.uris()

    result = world.sweep(table)

    assert before - world.lake.uris() == {OLD, *orphans}
    assert result.status == "SWEPT"
    assert (result.files_planned, result.files_deleted, result.files_changed) == (7, 7, 0)
    assert result.files_listed == len([uri for uri in before if uri.startswith("s3://lake/wh/t/")])
    assert {young, *hidden, *beside} <= world.lake.uris()
    assert kept_all(world)
    receipt = json.loads(world.plans.get(str(result.receipt)))
    assert (receipt["status"], receipt["files_deleted"], receipt["bytes_deleted"]) == ("SWEPT", 7, 42)
    assert (receipt["location"], receipt["older_than_seconds"]) == ("s3://lake/wh/t/", 3 * 86_400)
    assert receipt["references"] == [{"catalog": "cat", "tables": 1}]
    assert world.sweep(table).status == "NOTHING"


@pytest.mark.parametrize("minutes", [-59, 59])
def test_a_writers_clock_and_that_of_the_service_change_nothing_within_an_hour(minutes: int) -> None:
    """Only the store's clock counts, of its listing and of its objects."""
    world, table = beach()
    world.lake.pass_days(-1)
    ctx = world.context(table)
    late = dataclasses.replace(ctx, clock=lambda: ctx.clock() + timedelta(minutes=minutes))
    assert remove_orphan_files(late).status == "NOTHING"
    assert OLD in world.lake.uris()


FAR = datetime(9999, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("wrong", [FAR, timedelta(minutes=61), timedelta(minutes=-61)])
def test_a_store_whose_clock_is_more_than_an_hour_from_ours_stops_it(wrong: Any) -> None:
    """A store answered with the year 9999, and each file was old."""
    world, table = beach()
    fresh = world.orphan("s3://lake/wh/t/data/fresh.parquet")
    ctx = world.context(table)
    now = ctx.clock()
    there = wrong if wrong is FAR else now + wrong
    ctx.store.clock = there.timestamp  # type: ignore[attr-defined]
    with pytest.raises(DelegationError, match="s3://lake/", check=coded("STORE_CLOCK_OFF")) as error:
        remove_orphan_files(ctx)
    assert all(one.isoformat(timespec="seconds")[:19] in str(error.value) for one in (there, now))
    assert {OLD, fresh} <= world.lake.uris()
    assert remove_orphan_files(world.context(table)).files_deleted == 1


def test_a_single_page_with_a_wrong_date_stops_it() -> None:
    """One server of the store has another clock; the first answer was from another server."""
    world, table = beach()
    fresh = [world.orphan(f"s3://lake/wh/t/data/f{number}.parquet") for number in range(9)]
    ctx = world.context(table)
    usual = ctx.store.page

    def page(bucket: str, prefix: str, *, after: str = "") -> Any:
        found = usual(bucket, prefix, after=after)
        return dataclasses.replace(found, at=int(FAR.timestamp())) if fresh[4] in map(uri_in, found.objects) else found

    def uri_in(one: Any) -> str:
        return f"s3://lake/{one.key}"

    ctx.store.page = page  # type: ignore[method-assign]
    ctx.store.folder = lambda bucket, prefix: dataclasses.replace(  # type: ignore[method-assign]
        MemoryObjectStore.folder(ctx.store, bucket, prefix),  # type: ignore[arg-type]
        is_whole=False,
    )
    with pytest.raises(DelegationError, check=coded("STORE_CLOCK_OFF")):
        remove_orphan_files(ctx)
    assert {OLD, *fresh} <= world.lake.uris()


def test_a_store_that_lists_an_object_of_its_future_stops_it() -> None:
    """Its clock was set back, or objects have the times of another one: no age is known."""
    world, table = beach()
    world.lake.now_ms += 120_000
    late = world.orphan("s3://lake/wh/t/data/late.parquet")
    world.lake.now_ms -= 120_000
    with pytest.raises(DelegationError, match=r"late\.parquet", check=coded("STORE_CLOCK_OFF")):
        world.sweep(table)
    assert {OLD, late} <= world.lake.uris()


def at_look(world: SweptTables, number: int, act: Callable[[], object]) -> Callable[[Any], None]:
    """Return a function that makes `act` run once, before the pass with this number is asked for."""

    def prepare(ctx: Any) -> None:
        at_renew = ctx.references.renew

        def renew() -> None:
            if world.passes.renewed == number:
                act()
            at_renew()

        world.passes.renew = renew  # type: ignore[method-assign]

    return prepare


def during_listing(world: SweptTables, act: Callable[[], object]) -> Callable[[Any], None]:
    """Let `act` run after the last page of the listing."""
    return at_look(world, 0, act)


def before_deleting(world: SweptTables, act: Callable[[], object]) -> Callable[[Any], None]:
    """Let `act` run after the plan was made and before the second look."""
    return at_look(world, 1, act)


def at_delete(ctx: Any, number: int, act: Callable[[], object]) -> None:
    """Let `act` run once, when the delete with this number is sent."""
    usual, sent = ctx.store.delete_unchanged, itertools.count(1)

    def delete(bucket: str, listed: Any) -> Any:
        if next(sent) == number:
            act()
        return usual(bucket, listed)

    ctx.store.delete_unchanged = delete


def at_first_delete(_world: SweptTables, act: Callable[[], object]) -> Callable[[Any], None]:
    """Let `act` run after the last look."""
    return lambda ctx: at_delete(ctx, 1, act)


def die() -> None:
    raise Killed


WHENS = [during_listing, before_deleting]


def run(world: SweptTables, table: StoryTable, prepare: Callable[[Any], None], **more: Any) -> Any:
    ctx = world.context(table, **more)
    prepare(ctx)
    return remove_orphan_files(ctx)


def test_a_commit_that_takes_all_that_was_planned_leaves_nothing_to_delete() -> None:
    world, table = beach()
    result = run(world, table, before_deleting(world, lambda: table.append(paths=[OLD])))
    assert (result.status, result.files_deleted) == ("SWEPT", 0)
    assert kept_all(world)


@pytest.mark.parametrize("when", WHENS)
def test_another_table_takes_a_file_with_add_files(when: Any) -> None:
    world, table = beach()
    other = world.table("other")
    world.lake.pass_days(4)
    run(world, table, when(world, lambda: other.append(paths=[OLD])))
    assert OLD in world.lake.uris()
    assert kept_all(world)


@pytest.mark.parametrize("when", WHENS)
def test_a_clone_that_is_registered_meanwhile_refuses(when: Any) -> None:
    world, table = beach()

    def register() -> None:
        world.lake.pointers["clone"] = table.pointer

    with pytest.raises(LocationShared, match=r"cat\.ns\.clone"):
        run(world, table, when(world, register))
    assert OLD in world.lake.uris()


@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize("inside", ["s3://lake/wh/t/in", "s3a://lake/wh/t", "s3://lake/wh", "s3://lake/wh//t/x"])
def test_a_table_that_is_created_inside_meanwhile_refuses(inside: str, when: Any) -> None:
    world, table = beach()

    def create() -> None:
        other = StoryTable.create(world.lake, "inside")
        document = {**other.document, "location": inside}
        metadata_file = "s3://lake/wh/inside/metadata/9-z.metadata.json"
        world.lake.pointers["inside"] = world.lake.put(metadata_file, json.dumps(document).encode())

    with pytest.raises(LocationShared):
        run(world, table, when(world, create))
    assert OLD in world.lake.uris()


@pytest.mark.parametrize("when", WHENS)
def test_a_view_or_a_namespace_inside_refuses(when: Any) -> None:
    for kind, location in (("view", "s3://lake/wh"), ("namespace", "s3://lake/wh/t/ns")):
        world, table = beach()
        place = Place(kind, "x", location)  # type: ignore[arg-type]
        with pytest.raises(LocationShared):
            run(world, table, when(world, lambda: world.places.append(place)))  # noqa: B023 - run at once
        assert OLD in world.lake.uris()


@pytest.mark.parametrize("when", WHENS)
def test_a_tombstone_at_the_same_location_refuses(when: Any) -> None:
    """The table's predecessor was dropped and is in the tombstone namespace: it is in the catalog still."""
    world, table = beach()

    def dropped_before() -> None:
        world.lake.pointers["tombstone"] = table.pointer

    with pytest.raises(LocationShared, match="tombstone"):
        run(world, table, when(world, dropped_before))
    assert OLD in world.lake.uris()


@pytest.mark.parametrize("when", [None, *WHENS])
def test_a_file_of_the_plan_of_an_unfinished_task_stays(when: Any) -> None:
    """An expiry has published its plan, and its snapshots are gone; what becomes of its files, that task decides."""
    world, table = beach()
    names = table.data(2)
    table.append(paths=names)
    table.delete(*names)
    loose = table.ids[:-1]
    other = ExpiringTables(lake=world.lake, plans=world.plans)
    assert expire_snapshots(other.context(table, task_id="expiry", dry_run=True)).status == "PLANNED"
    planned = other.planned()
    assert {*names} < planned
    table.remove_snapshots(*loose)
    table.rewrite_manifests()
    table.remove_snapshots(*table.ids[:-1])
    world.lake.pass_days(4)
    if when is None:
        assert world.sweep(table).files_deleted > len(planned)
        assert not planned & world.lake.uris()
        return
    assert run(world, table, when(world, lambda: world.claim(other.head))).files_deleted
    assert planned <= world.lake.uris()
    assert OLD not in world.lake.uris()


@pytest.mark.parametrize("again", [b"another", b"orphan"])
def test_an_object_that_is_written_again_under_its_key_stays(again: bytes) -> None:
    """Also with the same content: its ETag is the same, and its time is not."""
    world, table = beach()
    result = run(world, table, at_first_delete(world, lambda: world.orphan(OLD, again)))
    assert (result.status, result.files_deleted, result.files_changed) == ("SWEPT", 0, 1)
    assert OLD in world.lake.uris()
    receipt = json.loads(world.plans.get(result.receipt))
    [changed] = receipt["changed"]
    assert json.loads(world.plans.get(changed)) == OLD


@pytest.mark.parametrize(
    "spelled",
    ["s3a://lake/wh/t/data/a b.parquet", "s3n://lake/wh/t/data/a b.parquet", "s3://lake/wh/t//data/a b.parquet",
     "s3://lake/wh/t/data/a%20b.parquet", "s3a://lake/wh/t/./data//a b.parquet"],
)  # fmt: skip
def test_a_needed_file_stays_however_its_path_is_spelled(spelled: str) -> None:
    world, table = beach()
    real = world.orphan("s3://lake/wh/t/data/a b.parquet")
    table.append(paths=[spelled])
    world.lake.pass_days(4)
    world.sweep(table)
    assert real in world.lake.uris()
    assert OLD not in world.lake.uris()


def test_other_schemes_and_authorities_are_an_error_kept_or_deleted_as_said() -> None:
    world, table = beach()
    table.append(paths=["oss://lake/wh/t/data/old.parquet"])
    with pytest.raises(PrefixMismatch, match="equal-schemes"):
        world.sweep(table)
    ignored = world.sweep(table, mismatch=MismatchMode.IGNORE)
    assert (ignored.status, [one.code for one in ignored.findings]) == ("NOTHING", ["PREFIX_MISMATCH"])
    same = world.sweep(table, equal=Equal.of({"oss": "s3"}, {}))
    assert (same.status, OLD in world.lake.uris()) == ("NOTHING", True)
    assert world.sweep(table, mismatch=MismatchMode.DELETE).files_deleted == 1


def test_a_location_that_another_table_has_or_that_is_a_bucket_is_refused_before_anything_is_listed() -> None:
    world, table = beach()
    document = {**table.document, "location": "s3://lake"}
    world.lake.pointers["t"] = world.lake.put("s3://lake/m/1-z.metadata.json", json.dumps(document).encode())
    with pytest.raises(GuardRefused, check=coded("LOCATION_TOO_WIDE")):
        world.sweep(table)
    assert "list" not in world.store.faults.names


@pytest.mark.parametrize(
    ("properties", "code"),
    [({"gc.enabled": "false"}, "GC_DISABLED"), ({"delegation.protected": "true"}, "TABLE_PROTECTED")],
)
def test_tables_that_want_no_deletes_are_refused_also_if_they_say_so_late(properties: Any, code: str) -> None:
    world, table = beach(**properties)
    with pytest.raises(GuardRefused, check=coded(code)):
        world.sweep(table)
    world, table = beach()
    late = before_deleting(world, lambda: table.apply({"action": "set-properties", "updates": properties}))
    with pytest.raises(GuardRefused, check=coded(code)):
        run(world, table, late)
    assert OLD in world.lake.uris()


def test_metadata_of_the_table_that_does_not_validate_refuses() -> None:
    world, table = beach()
    lost = table.manifests_of(table.ids[0])[0]
    data = world.lake.objects.pop(("lake", lost.removeprefix("s3://lake/")))
    with pytest.raises(ManifestMissing):
        world.sweep(table)
    world.lake.put(lost, data)
    former = table.document["metadata-log"][0]["metadata-file"]
    world.lake.put(former, b"{")
    with pytest.raises(CorruptMetadata):
        world.sweep(table)
    assert OLD in world.lake.uris()


def unreadable(areas: tuple[str, ...], *, exempt: bool, other_format: bool = False) -> NeighbourUnreadable:
    why = recorded_problem("CORRUPT: it is torn")
    return NeighbourUnreadable("cat.ns.torn", why, areas=areas, exempt=exempt, is_other_format=other_format)


def test_a_table_that_cannot_be_read_holds_the_removal_back_and_an_exemption_leaves_its_areas_alone() -> None:
    for one, error in [
        (unreadable(("s3://lake/wh/t/data/",), exempt=False), NeighbourUnreadable),
        (unreadable((), exempt=True), NeighbourUnreadable),
        (unreadable(("s3://lake/wh/",), exempt=True), AreaLeftAlone),
        (unreadable(("",), exempt=True), AreaLeftAlone),
        (unreadable(("s3://lake/wh/t/in/",), exempt=False, other_format=True), LocationShared),
    ]:
        world, table = beach()
        world.unreadable = [one]
        with pytest.raises(error):
            world.sweep(table)
        assert OLD in world.lake.uris()
    world, table = beach()
    apart = world.orphan("s3://lake/wh/t/x/old")
    world.lake.pass_days(4)
    world.unreadable = [unreadable(("s3://lake/wh/t/data/", "s3://lake/elsewhere/"), exempt=True)]
    result = world.sweep(table)
    assert (OLD in world.lake.uris(), apart in world.lake.uris()) == (True, False)
    assert [(one.code, one.count) for one in result.findings] == [("AREA_LEFT_ALONE", 1)]


def test_an_exempted_table_that_can_be_loaded_never_counts_as_read() -> None:
    world, table = beach()
    world.table("torn")
    world.exempt["torn"] = ("s3://lake/wh/torn/", "s3://lake/wh/t/data/")
    world.sweep(table)
    assert OLD in world.lake.uris()


def test_it_waits_for_the_references_and_lists_only_once() -> None:
    world, table = beach()
    world.passes.late = 2
    for _ in range(2):
        with pytest.raises(ReferencesNotKnown):
            remove_orphan_files(world.context(table))
        assert world.plan().stage == "listed"
    ctx = world.context(table)
    world.passes.late = 1
    world.passes.wanted = False
    with pytest.raises(ReferencesNotKnown):
        remove_orphan_files(ctx)
    assert "list" not in world.store.faults.names
    assert world.plan().stage == "planned"
    assert world.passes.renewed == 2
    assert remove_orphan_files(world.context(table)).files_deleted == 1
    assert world.passes.renewed == 2


def test_a_run_that_finds_nothing_is_not_the_first_report() -> None:
    world = SweptTables()
    table = world.table()
    limits = ApprovalLimits(max_share=1.0)
    assert world.sweep(table, limits=limits).status == "NOTHING"
    world.orphan(OLD)
    world.lake.pass_days(4)
    assert world.sweep(table, limits=limits).waits == "first-run"
    assert OLD in world.lake.uris()


def test_a_first_run_that_is_repeated_after_a_crash_still_only_reports() -> None:
    for at in range(1, 200):
        world, table = beach()
        limits = ApprovalLimits(max_share=1.0)
        ctx = world.context(table, limits=limits, faults=Faults(kill_at=at, after=True))
        try:
            remove_orphan_files(ctx)
        except Killed:
            assert remove_orphan_files(world.context(table, limits=limits)).status == "WAITING"
            assert OLD in world.lake.uris()
            continue
        return
    pytest.fail("it was never killed late enough")


def test_an_unlikely_share_waits_and_an_approved_plan_is_only_reduced() -> None:
    world, table = beach()
    more = [world.orphan(f"s3://lake/wh/t/data/p{number}.parquet") for number in range(5)]
    world.lake.pass_days(4)
    limits = ApprovalLimits(max_share=0.1, first_run_deletes=True)
    waiting = world.sweep(table, limits=limits)
    assert (waiting.status, waiting.waits) == ("WAITING", "max-share")
    world.approve(waiting.plan_ids[-1])
    later = world.orphan("s3://lake/wh/t/data/later.parquet")
    world.lake.pass_days(9)
    table.append(paths=more[:2])
    StoryTable.create(world.lake, "other").append(paths=more[2:3])

    done = world.sweep(table, limits=limits, execute_plan=waiting.plan_ids[-1])

    assert (done.status, done.files_deleted, done.files_planned) == ("SWEPT", 3, 6)
    assert len(done.plan_ids) == 2, "the plan was reduced"
    assert world.plans.get(receipt_key(waiting.plan_ids[-1])) == world.plans.get(receipt_key(done.plan_ids[-1]))
    assert {later, *more[:3]} <= world.lake.uris()
    assert kept_all(world)


def test_a_plan_of_another_table_or_of_where_the_table_was_is_refused() -> None:
    world, table = beach()
    other = world.table("other")
    waiting = world.sweep(table, limits=ApprovalLimits())
    with pytest.raises(GuardRefused, check=coded("PLAN_OF_ANOTHER_TABLE")):
        world.sweep(other, execute_plan=waiting.plan_ids[-1])
    table.apply({"action": "set-location", "location": "s3://lake/wh/moved"})
    with pytest.raises(GuardRefused, check=coded("PLAN_OF_ANOTHER_TABLE"), match="moved"):
        world.sweep(table, execute_plan=waiting.plan_ids[-1])
    assert OLD in world.lake.uris()


def test_paths_are_checked_again_before_they_are_deleted_although_every_hash_matches() -> None:
    """Write access to the plan bucket and to the task is not enough to delete files outside the plan's location."""
    world, table = beach()
    victim = world.orphan("s3://lake/wh/sibling/data/old.parquet")
    world.lake.pass_days(4)
    world.sweep(table, dry_run=True)
    index = world.plan()
    [chunk] = index.chunks
    [planned] = read_candidates(world.plans, index.plan_id, chunk)
    written = CandidateWriter(world.plans, index.plan_id, "forged", chunk_paths=1)
    written.extend([planned._replace(path=victim, modified=planned.modified + 4 * 86_400)])
    forged = index.model_copy(update={"chunks": tuple(written.chunks)})
    world.head = PlanHead()
    world.head._segments = (store_index(world.plans, forged),)

    with pytest.raises(PlanTampered, match="outside"):
        remove_orphan_files(world.context(table))

    assert {victim, OLD} <= world.lake.uris()


def test_a_table_that_moved_while_the_removal_waited_is_listed_again() -> None:
    world, table = beach()
    world.passes.late = 1
    with pytest.raises(ReferencesNotKnown):
        remove_orphan_files(world.context(table))
    moved = world.orphan("s3://lake/wh/moved/old")
    world.lake.pass_days(4)
    table.apply({"action": "set-location", "location": "s3://lake/wh/moved"})
    result = remove_orphan_files(world.context(table))
    assert (result.location, result.files_deleted) == ("s3://lake/wh/moved/", 1)
    assert (OLD in world.lake.uris(), moved in world.lake.uris()) == (True, False)
    assert kept_all(world)


def test_less_than_a_day_is_refused_and_a_table_may_ask_for_more() -> None:
    world, table = beach()
    with pytest.raises(AgeTooShort):
        world.sweep(table, older_than=hours(23))
    table.apply({"action": "set-properties", "updates": {"delegation.orphan-files.older-than": "30d"}})
    assert world.sweep(table).status == "NOTHING"
    assert world.sweep(table, dry_run=True).status == "PLANNED"


def test_a_sweep_can_be_killed_at_every_call() -> None:
    """Whatever call was the last of a process, also if it took effect: the next attempt finishes, nothing is lost.

    Every ninth call, and all of them in a thorough run.
    """
    calls = 0
    for after in (False, True):
        for at in range(1 + after, 500, apart(9)):
            world, table = beach()
            more = {world.orphan(f"s3://lake/wh/t/data/p={number}/a.parquet") for number in range(7)}
            world.lake.pass_days(4)
            try:
                remove_orphan_files(world.context(table, faults=Faults(kill_at=at, after=after)))
            except Killed:
                result = remove_orphan_files(world.context(table))
                assert result.status == "SWEPT"
                assert result.files_deleted == 8
                assert not {OLD, *more} & world.lake.uris()
                assert kept_all(world)
                calls += 1
                continue
            break
        else:
            pytest.fail("it was never killed late enough")
    assert calls > 60 / apart(9)


def test_a_table_that_is_created_between_two_attempts_keeps_what_it_took() -> None:
    """The first attempt dies while it deletes; the next one does not rely on the references of the first."""
    world, table = beach()
    more = [world.orphan(f"s3://lake/wh/t/data/p{number}.parquet") for number in range(9)]
    world.lake.pass_days(4)
    with pytest.raises(Killed):
        run(world, table, at_first_delete(world, die))
    StoryTable.create(world.lake, "fresh").append(paths=[more[-1]])
    assert remove_orphan_files(world.context(table)).files_deleted == 9
    assert more[-1] in world.lake.uris()
    assert kept_all(world)


def test_what_an_executor_that_outlived_its_attempt_marks_after_the_plan_was_reduced_counts_once() -> None:
    """It deletes and marks a chunk of the former plan, whose files the reduced plan has as well and finds absent."""
    world, table = beach()
    orphans = {OLD} | {world.orphan(f"s3://lake/wh/t/data/p{number}.parquet") for number in range(9)}
    taken = sorted(orphans)[4]
    world.lake.pass_days(4)
    ctx = world.context(table)
    usual, late = ctx.attempt.replace_plan, list[str]()

    def replaced(segment: PlanSegment, *, files_planned: int) -> tuple[PlanSegment, ...]:
        former, found = world.plan(), usual(segment, files_planned=files_planned)
        left = [one for one in former.chunks if one.name not in Marks(world.plans, former.plan_id).done()]
        if former.stage == "planned" and left and not late:
            for one in read_candidates(world.plans, former.plan_id, left[-1]):
                del world.lake.objects["lake", one.path.removeprefix("s3://lake/")]
                late.append(one.path)
            world.plans.put(f"{former.plan_id}/changed/{left[-1].name}-1-6", b"\n")
            Marks(world.plans, former.plan_id).mark_done(left[-1])
        return found

    ctx.attempt.replace_plan = replaced  # type: ignore[method-assign]
    at_first_delete(world, lambda: table.append(paths=[taken]))(ctx)
    result = remove_orphan_files(ctx)
    assert late
    assert taken not in late
    assert (result.status, result.files_deleted, result.files_changed) == ("SWEPT", 9, 0)
    assert orphans & world.lake.uris() == {taken}


def test_two_sweeps_at_once_delete_each_orphan_and_nothing_else() -> None:
    world, table = beach()
    more = {world.orphan(f"s3://lake/wh/t/data/p{number}.parquet") for number in range(6)}
    world.lake.pass_days(4)
    other = dataclasses.replace(world, head=type(world.head)())
    other.passes = world.passes

    def second() -> None:
        world.claim(world.head)
        other.claimed = world.claimed
        assert remove_orphan_files(other.context(table, task_id="second")).status == "SWEPT"

    result = run(world, table, at_first_delete(world, second), task_id="first")
    assert result.status == "SWEPT"
    assert not {OLD, *more} & world.lake.uris()
    assert kept_all(world)


def test_what_cannot_be_deleted_is_in_the_receipt_and_a_later_attempt_finishes() -> None:
    world, table = beach()
    ctx = world.context(table)
    ctx.store._refuse = lambda _bucket, _key, nth: "AccessDenied" if nth == 1 else None  # type: ignore[attr-defined]
    with pytest.raises((FilesNotDeleted, FilesNotDeletedYet)):
        remove_orphan_files(ctx)
    receipt = json.loads(world.plans.get(f"{world.plan().plan_id}/receipt.json"))
    assert (receipt["status"], receipt["files_failed"]) == ("INCOMPLETE", 1)
    assert remove_orphan_files(world.context(table)).files_deleted == 1


def test_a_table_that_is_written_to_all_the_time_is_swept() -> None:
    world, table = beach()
    ctx = world.context(table)
    world.catalog.before = {number: (lambda: table.append(1)) for number in range(1, 100)}
    assert remove_orphan_files(ctx).files_deleted == 1
    assert kept_all(world)


def test_comparisons_that_take_too_long_end_the_attempt_and_a_later_one_deletes_the_rest() -> None:
    """Nothing is deleted with a load that is older than half a minute."""
    world, table = beach()
    seconds = itertools.count(step=31)
    ctx = dataclasses.replace(world.context(table), now=lambda: float(next(seconds)))
    with pytest.raises(ComparisonTooOld) as error:
        remove_orphan_files(ctx)
    assert error_class(error.value) is ErrorClass.HANDED_OVER
    assert OLD in world.lake.uris()
    assert remove_orphan_files(world.context(table)).files_deleted == 1


def test_a_lost_listing_is_made_again() -> None:
    world, table = beach()
    world.passes.late = 1
    with pytest.raises(ReferencesNotKnown):
        remove_orphan_files(world.context(table))
    for key in [key for key in world.plans.objects if key.endswith(".jsonl.gz")]:
        del world.plans.objects[key]
    assert remove_orphan_files(world.context(table, limits=AT_ONCE)).files_deleted == 1
