"""A removal keeps what tables need that no catalog lists; only an approval that names one deletes it."""

import json
from typing import Any

import pytest

from delegation.removal.attempt import PlanHead
from delegation.removal.errors import PlanTampered
from delegation.removal.foreign.tables import METADATA_UNREADABLE
from delegation.removal.index import store_index
from delegation.removal.orphans.context import OrphanResult
from delegation.removal.orphans.details import ApprovalLimits
from delegation.removal.orphans.errors import LocationShared
from delegation.removal.orphans.index import load_plan
from delegation.removal.orphans.run import remove_orphan_files
from delegation.storage.locations import FOREIGN_TABLE
from delegation.storage.memory import Faults, Killed
from tests.effort import apart
from tests.kit.stories.orphans import SweptTables
from tests.kit.stories.tables import PathTable, StoryTable
from tests.unit.removal.orphans.test_orders import OLD, at_look, run

T = "s3://lake/wh/t/"

pytestmark = pytest.mark.usefixtures("engine")


def beach() -> tuple[SweptTables, StoryTable]:
    """Return a table with one orphan file that is four days old."""
    world = SweptTables()
    table = world.table()
    world.orphan(OLD)
    return world, table


def unlisted(world: SweptTables, name: str = "t/below", kind: type[StoryTable] = StoryTable) -> set[str]:
    """Write a table with a history, and take it out of the catalog; return what it reaches."""
    table = kind.create(world.lake, name)
    table.append(2)
    table.delete(table.live()[0])
    table.statistics(table.ids[-1])
    found = world.unlist(name)
    world.lake.pass_days(4)
    return found


def foreign(result: OrphanResult) -> list[tuple[int, tuple[str, ...]]]:
    return [(one.count, one.sample) for one in result.findings if one.code == FOREIGN_TABLE]


def parts(world: SweptTables) -> list[dict[str, Any]]:
    return [one.model_dump(exclude={"parts"}) for one in world.plan().foreign_tables]


@pytest.mark.parametrize("kind", [StoryTable, PathTable])
@pytest.mark.parametrize("name", ["t/below", "t/data/deep/er", "t"])
def test_an_unregistered_table_stays_and_is_a_finding(kind: type[StoryTable], name: str) -> None:
    """Below the location, among its data, or at it: of an engine's own catalog too."""
    world = SweptTables()
    theirs = unlisted(world, name, kind)
    table = world.table()
    world.orphan(OLD)
    world.lake.pass_days(4)
    result = world.sweep(table)
    assert theirs <= world.lake.uris()
    assert OLD not in world.lake.uris()
    assert not world.missing()
    [(count, [sample])] = foreign(result)
    [part] = parts(world)
    place = f"s3://lake/wh/{name}/"
    assert (part["place"], part["why"], sample) == (place, "", f"{part['uuid']} at {place}")
    assert count == part["files"] > 5
    assert part["bytes"] > count
    receipt = json.loads(world.plans.get(str(result.receipt)))
    assert receipt["foreign_tables"] == [part]
    assert (receipt["status"], receipt["files_deleted"]) == ("SWEPT", 1)
    assert world.sweep(table).status == "NOTHING"


def test_a_hidden_table_is_as_it_was_when_it_comes_back() -> None:
    """Soft delete hides a table from lists and loads, and keeps its name; it is restored after the sweep."""
    world, table = beach()
    hidden = StoryTable.create(world.lake, "t/hidden")
    hidden.append(3)
    pointer = world.lake.pointers.pop("t/hidden")
    world.lake.pass_days(4)
    assert world.sweep(table).files_deleted == 1
    world.lake.pointers["t/hidden"] = pointer
    assert not world.missing()


@pytest.mark.parametrize("number", [0, 1])
def test_a_second_catalogs_table_that_takes_an_orphan_file_meanwhile_keeps_it(number: int) -> None:
    """It is at the same location, and its metadata is younger than any orphan file."""
    world, table = beach()
    other = StoryTable.create(world.lake, "other")
    other.folder = "s3://lake/wh/t"
    world.lake.pass_days(4)
    other.append(1)
    elsewhere = {"other": world.lake.pointers.pop("other")}

    def commit() -> None:
        world.lake.pointers.update(elsewhere)
        other.append(paths=[OLD])
        elsewhere["other"] = world.lake.pointers.pop("other")

    more = world.orphan(f"{T}data/more.parquet")
    world.lake.modified["lake", "wh/t/data/more.parquet"] = 0
    run(world, table, at_look(world, number, commit))
    assert world.reach(elsewhere["other"]) <= world.lake.uris()
    # With a plan from before its commit the folder is listed again, and after it nothing is left but what nobody needs.
    assert more not in world.lake.uris()
    assert not world.missing()


@pytest.mark.parametrize("root", ["_delta_log", ".hoodie"])
def test_tables_of_other_formats_stay_whole_and_at_the_same_root_refuse(root: str) -> None:
    world, table = beach()
    theirs = {world.orphan(f"{T}delta/{path}") for path in (f"{root}/0.json", "a.parquet", "p=1/b.parquet")}
    world.lake.pass_days(4)
    result = world.sweep(table)
    assert (result.files_deleted, theirs <= world.lake.uris()) == (1, True)
    assert foreign(result)[0][0] == 2
    assert parts(world)[0]["why"].startswith("it is a table of ")
    world.orphan(OLD)
    world.orphan(f"{T}{root}/0.json")
    world.lake.pass_days(4)
    with pytest.raises(LocationShared, match="UniForm"):
        world.sweep(table)
    assert OLD in world.lake.uris()


def test_busy_tables_have_no_finding() -> None:
    """Writers lose commits at every version, and others are under way: their files are orphans, or young."""
    world, table = beach()
    lost: list[str] = []
    for number in range(12):
        before = table.pointer
        table.append(1)
        mine = world.lake.pointers["t"]
        lost.append(world.lake.put(f"{T}metadata/{number:05d}-lost.metadata.json", world.lake.get(mine)))
        assert before in str(world.lake.document(mine)["metadata-log"])
    table.rewrite_manifests()
    table.remove_snapshots(*table.ids[:5])
    world.lake.pass_days(4)
    for number in range(3):
        world.lake.put(f"{T}metadata/{number:05d}-now.metadata.json", world.lake.get(table.pointer))
    result = world.sweep(table)
    assert [one.code for one in result.findings] == []
    assert not set(lost) & world.lake.uris()
    assert not world.missing()


def test_a_second_registration_that_moved_on_stays_with_all_that_it_reaches() -> None:
    """The clone is in no catalog any more; its base is in the log, and two of its versions are not."""
    world, table = beach()
    clone = StoryTable(world.lake, "clone")
    world.lake.pointers["clone"] = table.pointer
    table.append(1)
    clone.append(paths=[OLD])
    clone.delete(OLD)
    theirs = world.unlist("clone")
    table.remove_snapshots(table.ids[0])
    orphan = world.orphan(f"{T}data/orphan.parquet")
    world.lake.pass_days(4)
    result = world.sweep(table)
    assert theirs <= world.lake.uris()
    assert orphan not in world.lake.uris()
    assert parts(world)[0]["uuid"] == table.document["table-uuid"]
    assert foreign(result)


def test_a_registration_of_version_1_without_a_uuid_that_moved_on_stays_with_all_that_it_reaches() -> None:
    """As tables of HadoopTables are, which is committed to by its path while a catalog has an older version."""
    world, table = beach()
    clone = StoryTable(world.lake, "clone")
    world.lake.pointers["clone"] = table.pointer
    clone.append(paths=[OLD])
    clone.append(1)
    orphan = world.orphan(f"{T}data/orphan.parquet")
    for uri in (uri for uri in world.lake.uris() if uri.endswith(".metadata.json")):
        document = world.lake.document(uri) | {"format-version": 1}
        world.lake.put(uri, json.dumps({name: one for name, one in document.items() if name != "table-uuid"}).encode())
    theirs = world.unlist("clone")
    world.lake.pass_days(4)
    result = world.sweep(table)
    assert theirs <= world.lake.uris()
    assert orphan not in world.lake.uris()
    assert foreign(result)


def test_a_single_commit_by_path_after_the_version_that_the_catalog_has_stays_with_all_that_it_reaches() -> None:
    world = SweptTables()
    table = PathTable.create(world.lake, "t")
    table.append(2)
    registered = table.pointer
    table.append(paths=[world.orphan(OLD)])
    theirs = world.lake.read_by(table.document)
    world.lake.pointers["t"] = registered
    orphan = world.orphan(f"{T}data/orphan.parquet")
    world.lake.pass_days(4)
    assert foreign(world.sweep(table))
    assert {OLD, *theirs} <= world.lake.uris()
    assert orphan not in world.lake.uris()


def test_an_unreadable_metadata_file_stays_alone_in_the_own_folder_and_with_its_folder_elsewhere() -> None:
    world, table = beach()
    own = world.orphan(f"{T}metadata/00007-x.metadata.json")
    theirs = {world.orphan(f"{T}x/{path}") for path in ("metadata/v1.metadata.json", "data/a.parquet")}
    world.lake.pass_days(4)
    result = world.sweep(table)
    assert {own, *theirs} <= world.lake.uris()
    assert OLD not in world.lake.uris()
    codes = {one.code: (one.count, one.sample) for one in result.findings}
    assert codes[METADATA_UNREADABLE] == (1, (own,))
    assert parts(world)[0]["place"] == f"{T}x/"


@pytest.mark.parametrize("damaged", ["manifest", "list"])
@pytest.mark.parametrize("how", ["gone", "corrupt"])
def test_a_damaged_foreign_table_keeps_its_place_unless_the_file_is_gone(damaged: str, how: str) -> None:
    """What only a manifest names that is gone nobody can read; one that is there some other reader may."""
    world, table = beach()
    theirs = unlisted(world)
    names = world.lake.manifests if damaged == "manifest" else world.lake.lists
    broken = min(uri for uri in theirs if uri in names)
    stray = world.orphan(f"{T}below/data/stray.parquet")
    if how == "gone":
        del world.lake.objects["lake", broken.removeprefix("s3://lake/")]
    else:
        world.lake.objects["lake", broken.removeprefix("s3://lake/")] = b"Obj\x01"
    world.lake.pass_days(4)
    world.sweep(table)
    assert OLD not in world.lake.uris()
    assert (stray in world.lake.uris()) == (how == "corrupt")
    [part] = parts(world)
    assert (part["why"] != "") == (how == "corrupt")


def test_a_foreign_table_that_moves_while_it_is_read_keeps_its_place() -> None:
    """Its expiry deletes a manifest list after the listing, and what replaces it is not in the listing."""
    world, table = beach()
    unlisted(world)
    stray = world.orphan(f"{T}below/data/stray.parquet")
    world.lake.pass_days(4)
    [newest] = sorted(key for _, key in world.lake.objects if key.startswith("wh/t/below/metadata/0"))[-1:]

    def expire() -> None:
        document = json.loads(world.lake.objects["lake", newest])
        lists = [one["manifest-list"] for one in document["snapshots"]]
        world.lake.put(f"{T}below/metadata/99999-x.metadata.json", json.dumps({**document, "snapshots": []}).encode())
        del world.lake.objects["lake", lists[0].removeprefix("s3://lake/")]

    run(world, table, at_look(world, 0, expire), dry_run=True)
    assert stray not in world.planned()
    assert OLD in world.planned()


def committed(world: SweptTables, table: StoryTable, pointers: dict[str, str], *, keeps: int, paths: list[str]) -> None:
    """Commit to a table of another catalog, which deletes all metadata files but so many."""
    world.lake.pointers[table.name] = pointers[table.name]
    table.append(paths=paths)
    pointers[table.name] = world.lake.pointers.pop(table.name)
    metadata = sorted(uri for uri in world.lake.uris() if uri.startswith(f"{table.folder}/metadata/0"))
    for uri in metadata[: -keeps - 1]:
        del world.lake.objects["lake", uri.removeprefix("s3://lake/")]


def test_a_foreign_table_whose_metadata_files_are_replaced_while_they_are_read_is_listed_again() -> None:
    """It keeps one former version, and commits with a file of the plan between the listing and the first read."""
    world, table = beach()
    below = StoryTable.create(world.lake, "t/below")
    below.append(2)
    pointers = {"t/below": world.lake.pointers.pop("t/below")}
    world.lake.pass_days(4)
    ctx = world.context(table)
    theirs, usual = set[str](), world.store.read

    def read(location: Any, *, limit: int) -> bytes:
        if world.passes.renewed > 1 and location.key.startswith("wh/t/below/metadata/0") and not theirs:
            for _ in range(3):
                committed(world, below, pointers, keeps=1, paths=[OLD])
            theirs.update(world.reach(pointers["t/below"]) & world.lake.uris())
        return usual(location, limit=limit)

    object.__setattr__(ctx.store, "read", read)
    remove_orphan_files(ctx)
    assert OLD in theirs
    assert theirs <= world.lake.uris()


def test_a_table_that_is_made_in_a_new_folder_at_the_location_after_the_plan_keeps_what_it_takes() -> None:
    world, table = beach()
    world.lake.pass_days(4)
    taken: list[set[str]] = []

    def make() -> None:
        fresh = PathTable.create(world.lake, "t/fresh")
        fresh.append(paths=[OLD])
        taken.append(world.unlist("t/fresh"))

    run(world, table, at_look(world, 1, make))
    assert taken[0] <= world.lake.uris()


def test_a_log_that_names_another_tables_metadata_does_not_make_it_history() -> None:
    world = SweptTables()
    theirs = unlisted(world)
    table = world.table()
    world.orphan(OLD)
    newest = max(uri for uri in theirs if uri.endswith(".metadata.json"))
    assert all(uri in world.lake.uris() for uri in theirs)
    document = table.document
    document["metadata-log"] = [*document["metadata-log"], {"timestamp-ms": 1, "metadata-file": newest}]
    table._write(document)
    world.lake.pass_days(4)
    world.sweep(table)
    assert OLD not in world.lake.uris()
    assert theirs <= world.lake.uris()


def test_a_path_table_whose_metadata_has_the_path_of_the_tables_own_but_for_a_slash_stays() -> None:
    """Keys with // are other objects."""
    world, table = beach()
    other = StoryTable.create(world.lake, "other")
    other.folder = T
    other.append(paths=[OLD])
    world.lake.put(f"{T}/metadata/{table.pointer.rpartition('/')[2]}", json.dumps(other.document).encode())
    theirs = world.lake.read_by(other.document)
    del world.lake.objects["lake", other.pointer.removeprefix("s3://lake/")], world.lake.pointers["other"]
    world.lake.pass_days(4)
    result = world.sweep(table)
    assert {OLD, *theirs} <= world.lake.uris()
    assert foreign(result)


REPORT = ApprovalLimits(max_share=1.0)


def waiting(world: SweptTables, table: StoryTable) -> tuple[str, str]:
    """Return a plan that waits for a person, and the uuid of the table that it keeps files of."""
    result = world.sweep(table, limits=REPORT)
    assert result.status == "WAITING"
    [part] = world.plan().foreign_tables
    return result.plan_ids[-1], part.uuid


def executed(world: SweptTables, table: StoryTable, plan: str, **more: Any) -> OrphanResult:
    world.head = PlanHead()
    return remove_orphan_files(world.context(table, task_id="next", execute_plan=plan, limits=REPORT, **more))


def test_an_approval_deletes_a_foreign_table_only_if_it_names_it() -> None:
    world, table = beach()
    theirs = unlisted(world)
    other = unlisted(world, "t/other")
    plan = world.sweep(table, limits=REPORT).plan_ids[-1]
    [uuid] = [one.uuid for one in world.plan().foreign_tables if one.place == f"{T}below/"]
    world.approve(plan)
    assert executed(world, table, plan).files_deleted == 1
    assert {*theirs, *other} <= world.lake.uris()

    world.orphan(OLD)
    world.lake.pass_days(4)
    plan = world.sweep(table, limits=REPORT).plan_ids[-1]
    world.approve(plan, including=(uuid,))
    result = executed(world, table, plan)
    assert not theirs & world.lake.uris()
    assert other <= world.lake.uris()
    assert result.files_deleted == result.files_planned == len(theirs) + 1
    receipt = json.loads(world.plans.get(str(result.receipt)))
    assert [one["uuid"] for one in receipt["included"]] == [uuid]
    assert [one["place"] for one in receipt["foreign_tables"]] == [f"{T}other/"]
    assert not world.missing()
    assert world.sweep(table).status == "NOTHING"


def test_a_plan_of_nothing_but_a_foreign_table_can_be_approved() -> None:
    world, table = beach()
    theirs = unlisted(world)
    world.sweep(table)
    result = world.sweep(table, dry_run=True)
    assert (result.status, result.files_planned) == ("PLANNED", 0)
    world.approve(result.plan_ids[-1], including=(world.plan().foreign_tables[0].uuid,))
    assert executed(world, table, result.plan_ids[-1]).files_deleted == len(theirs)
    assert not theirs & world.lake.uris()
    assert not world.missing()


def test_a_foreign_table_that_changed_since_the_plan_stays_whole_although_it_was_approved() -> None:
    world, table = beach()
    below = StoryTable.create(world.lake, "t/below")
    below.append(2)
    pointer = world.lake.pointers.pop("t/below")
    world.lake.pass_days(4)
    plan, uuid = waiting(world, table)
    world.lake.pointers["t/below"] = pointer
    below.append(1)
    theirs = world.unlist("t/below")
    world.approve(plan, including=(uuid,))
    result = executed(world, table, plan)
    assert (result.files_deleted, theirs <= world.lake.uris()) == (1, True)
    assert "despite the approval" in parts(world)[0]["why"]
    assert [one["uuid"] for one in json.loads(world.plans.get(str(result.receipt)))["foreign_tables"]] == [uuid]


@pytest.mark.parametrize("changes", [False, True])
def test_an_approved_removal_of_a_foreign_table_is_finished_after_a_crash_at_any_call(changes: bool) -> None:
    """Between two attempts a writer may use the table that is half deleted: what its new version reaches stays."""
    for kill in range(1, 400, 7 * apart(4)):
        world, table = beach()
        below = StoryTable.create(world.lake, "t/below")
        below.append(3)
        pointer = world.lake.pointers.pop("t/below")
        world.lake.pass_days(4)
        plan, uuid = waiting(world, table)
        world.approve(plan, including=(uuid,))
        world.head = PlanHead()
        try:
            remove_orphan_files(
                world.context(table, task_id="next", execute_plan=plan, limits=REPORT, faults=Faults(kill_at=kill))
            )
        except Killed:
            pass
        else:
            break
        if changes and pointer in world.lake.uris():
            document = world.lake.document(pointer)
            world.lake.put(f"{T}below/metadata/99999-x.metadata.json", json.dumps(document).encode())
        left = world.reach(pointer) & world.lake.uris() if pointer in world.lake.uris() else set()
        remove_orphan_files(world.context(table, task_id="next", execute_plan=plan, limits=REPORT))
        assert not world.missing()
        assert OLD not in world.lake.uris()
        assert left & world.lake.uris() == (left if changes else set())


def test_a_plan_of_a_release_that_searched_no_such_tables_is_not_executed() -> None:
    world, table = beach()
    theirs = unlisted(world)
    plan, _ = waiting(world, table)
    segment = world.approve(plan)
    index = load_plan(world.plans, segment)
    chunks = (*index.chunks, *(chunk for one in index.foreign_tables for part in one.parts for chunk in part.chunks))
    world.plans.put(f"{index.plan_id}/before", b"")
    old = store_index(world.plans, index.model_copy(update={"signs": None, "foreign_tables": (), "chunks": chunks}))
    assert old.id == plan
    world.approve(plan)
    with pytest.raises(PlanTampered, match="earlier release"):
        executed(world, table, plan)
    assert {OLD, *theirs} <= world.lake.uris()


def test_what_a_release_listed_that_noted_no_such_tables_is_listed_again() -> None:
    """An attempt of that release ended after its listing; the next one is of this release."""
    killed: list[int] = []

    def kill() -> None:
        if not killed:
            killed.append(1)
            raise Killed("listed")

    world, table = beach()
    theirs = unlisted(world)
    with pytest.raises(Killed):
        run(world, table, at_look(world, 0, kill))
    listed = world.plan()
    records = list(world.plans.keys("task/listed/"))
    assert (listed.stage, len(records) > 2) == ("listed", True)
    for key in records:
        world.plans.put(key, json.dumps({**json.loads(world.plans.get(key)), "signs": None}).encode())
    old = store_index(world.plans, listed.model_copy(update={"signs": None}))
    world.head.replace(old, seen=world.head.read(), files_planned=0)
    remove_orphan_files(world.context(table))
    assert OLD not in world.lake.uris()
    assert theirs <= world.lake.uris()
