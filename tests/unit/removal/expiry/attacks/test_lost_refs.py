"""What becomes of the files of a tag that an expiry lost: nothing deletes them before an operator could restore it."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.references.model import KEPT_FOR, MOST_OF_TABLE, LostRefs, restore_statement
from delegation.removal.lost_refs import LostRefsKeeper
from delegation.tasks.life.model import Status, Task
from polaris_common.dynamodb import to_item
from tests.kit.lakes.lake import busy_table, filled, rows
from tests.kit.worlds.expiring import ExpiringWorld
from tests.kit.worlds.indexed import IndexedWorld
from tests.kit.worlds.sweeping import SweepingWorld


@pytest.fixture
def world() -> ExpiringWorld:
    return filled(ExpiringWorld(), "t")


def first_snapshot(world: ExpiringWorld) -> int:
    return min(world.lake.table("t").snapshots(), key=lambda one: one.sequence_number or 0).snapshot_id


def lose_a_tag(world: ExpiringWorld, old: int | None = None) -> tuple[Task, str]:
    """Expire `t` while somebody tags its first snapshot, or another one that goes.

    Returns the task, and the metadata file that has the tag.
    """
    old, commit, found = old or first_snapshot(world), world.commits.commit_table, list[str]()

    def tag_first(*call: Any) -> LoadedTable:
        world.commits.commit_table = commit
        world.lake.table("t").manage_snapshots().create_tag(old, "new").commit()
        found.append(world.lake.pointers["t"])
        return commit(*call)

    world.commits.commit_table = tag_first
    task = world.expire("t")
    assert (task.status, task.error_code) == (Status.FAILURE, "REF_LOST")
    world.pause = timedelta(hours=1)
    return task, found[0]


def restore(world: ExpiringWorld, metadata_file: str) -> set[str]:
    """Register the file under another name, as the message says; return what is missing of it then."""
    world.other.pointers["t_restored"] = metadata_file
    try:
        return world.other.needed("t_restored") - set(world.lake.uris())
    except FileNotFoundError as error:
        return {str(error)}


def test_the_next_expiry_leaves_the_files_of_a_lost_tag(world: ExpiringWorld) -> None:
    lost, metadata_file = lose_a_tag(world)
    use_no_more(world)

    task = world.expire("t", **{"retain-last": "1"})

    assert (task.task_id, task.status, world.commits.made) == (lost.task_id, Status.SUCCESS, 2)
    assert restore(world, metadata_file) == set()


def use_no_more(world: ExpiringWorld) -> None:
    """Have the table give up all that the lost tag reads, so that its next expiry could delete it."""
    world.lake.table("t").overwrite(rows(7))
    if "kept" in world.lake.table("t").refs():
        world.lake.table("t").manage_snapshots().remove_tag("kept").commit()


def held(world: IndexedWorld) -> LostRefs:
    [lost] = world.index.lost_refs("cat")
    return lost


def test_what_is_kept_is_recorded_before_the_task_ends_and_its_error_says_until_when(world: ExpiringWorld) -> None:
    task, metadata_file = lose_a_tag(world)

    lost = held(world)

    assert (lost.metadata_file, list(lost.refs), lost.task_id) == (metadata_file, ["new"], task.task_id)
    assert lost.until - lost.at == KEPT_FOR
    assert f"{lost.until:%Y-%m-%d}" in str(task.result_summary)
    assert restore_statement(lost.identifier, metadata_file) in str(task.result_summary)
    assert world.plans.get(lost.copy) == world.lake.io.new_input(metadata_file).open().read()


def test_its_areas_are_recorded_and_none_if_they_cannot_be_read(world: ExpiringWorld) -> None:
    busy_table(world.lake, "u")
    _, metadata_file = lose_a_tag_with_files_of(world, "u")
    assert set(held(world).areas or ()) >= {"s3://lake/wh/t/", "s3://lake/wh/u/data/part=a/"}
    document = json.loads(world.plans.get(held(world).copy))
    missing = document["snapshots"][-1]
    world.lake.io.delete(missing["manifest-list"])
    keep(world, "t", {"new": missing["snapshot-id"]}, metadata_file)
    assert held(world).areas is None


@pytest.mark.parametrize("ended", ["dismissed", "over"])
def test_what_is_dismissed_or_over_is_deleted_by_the_next_expiry(world: ExpiringWorld, ended: str) -> None:
    _, metadata_file = lose_a_tag(world)
    use_no_more(world)
    if ended == "dismissed":
        world.index.remove_lost_refs(held(world))
    else:
        world.clock.advance(KEPT_FOR)

    assert world.expire("t", **{"retain-last": "1"}).status is Status.SUCCESS

    assert restore(world, metadata_file) != set()
    assert world.index.lost_refs("cat") == []


def test_a_metadata_file_that_a_writer_deletes_still_protects_by_its_copy(world: ExpiringWorld) -> None:
    _, metadata_file = lose_a_tag(world)
    use_no_more(world)
    bucket, _, key = metadata_file.removeprefix("s3://").partition("/")
    del world.lake.objects[bucket, key]

    assert world.expire("t", **{"retain-last": "1"}).status is Status.SUCCESS

    world.lake.objects[bucket, key] = world.plans.get(held(world).copy)
    assert restore(world, metadata_file) == set()


@pytest.mark.parametrize("kept", ["table_uuid metadata_file", "metadata_file", "table_uuid", ""])
def test_a_damaged_record_protects_by_its_copy_or_holds_work_back(world: ExpiringWorld, kept: str) -> None:
    """It stopped all work of the catalog with an error that is none of the service's own."""
    _, metadata_file = lose_a_tag(world)
    use_no_more(world)
    lost = held(world)
    item = {"pk": "lost-refs:cat", "sk": lost.key, **{name: getattr(lost, name) for name in kept.split()}}
    world.index._items.calls.client.put_item(Item=to_item(item))
    assert held(world).record == lost.key

    task = world.expire("t", **{"retain-last": "1"})

    assert restore(world, metadata_file) == set()
    if "metadata_file" in kept:
        assert task.status is Status.SUCCESS, task.result_summary
    else:
        assert task.error_code == "NEIGHBOUR_UNREADABLE"
        assert "Restore this record" in str(task.result_summary)
        assert f"`delegation references dismiss cat {lost.key}`" in str(task.result_summary)
        assert "exempt" not in str(task.result_summary)


def test_a_damaged_record_without_its_copy_names_the_object_to_restore(world: ExpiringWorld) -> None:
    """The message advised to load the record in an engine, to drop it without purge, or to exempt it."""
    lose_a_tag(world)
    use_no_more(world)
    lost = held(world)
    item = {"pk": "lost-refs:cat", "sk": lost.key, "metadata_file": lost.metadata_file}
    world.index._items.calls.client.put_item(Item=to_item(item))
    del world.plans.objects[lost.copy]

    summary = str(world.expire("t", **{"retain-last": "1"}).result_summary)

    assert "OBJECT_NOT_FOUND" in summary
    assert f"Restore this object in the plan bucket: {lost.copy}" in summary
    assert f"`delegation references dismiss cat {lost.key}`" in summary
    assert not any(word in summary for word in ("an engine", "without purge", "exempt"))


def test_what_another_program_deleted_of_it_stops_no_expiry(world: ExpiringWorld) -> None:
    lose_a_tag(world)
    use_no_more(world)
    lists = {one.manifest_list for one in world.lake.table("t").snapshots()}
    gone = next(one["manifest-list"] for one in json.loads(world.plans.get(held(world).copy))["snapshots"])
    assert gone not in lists
    world.lake.io.delete(gone)

    task = world.expire("t", **{"retain-last": "1"})

    assert task.status is Status.SUCCESS, task.result_summary
    assert "LOST_REFS_DAMAGED" in str(world.receipt(task)["findings"])


@pytest.mark.parametrize("how", ["expired", "purged"])
def test_a_clone_that_goes_takes_nothing_of_it_along(world: ExpiringWorld, how: str) -> None:
    world.lake.pointers["clone"] = world.lake.pointers["t"]
    _, metadata_file = lose_a_tag(world)
    use_no_more(world)
    assert world.expire("t", **{"retain-last": "1"}).status is Status.SUCCESS

    if how == "expired":
        world.lake.table("clone").overwrite(rows(8))
        world.lake.table("clone").manage_snapshots().remove_tag("kept").commit()
        ended = world.expire("clone", **{"retain-last": "1"})
    else:
        ended = world.purge("clone")
        del world.lake.pointers["clone"]

    assert ended.status is Status.SUCCESS, ended.result_summary
    assert restore(world, metadata_file) == set()


def test_a_purge_of_the_table_itself_deletes_its_lost_refs_with_it(world: ExpiringWorld) -> None:
    lose_a_tag(world)
    reached = world.lake.needed("t")

    assert world.purge("t").status is Status.SUCCESS

    assert reached & set(world.lake.uris()) == set()


def test_as_many_as_can_be_kept_refuse_further_expiries_before_their_plan(world: ExpiringWorld) -> None:
    lose_a_tag(world)
    lost = held(world)
    for number in range(MOST_OF_TABLE - 1):
        world.index.put_lost_refs(replace(lost, metadata_file=f"{lost.metadata_file}{number}"))
    use_no_more(world)
    before = world.lake.pointers["t"]

    task = world.expire("t", **{"retain-last": "1"})

    assert (task.status, task.error_code) == (Status.FAILURE, "TOO_MANY_LOST_REFS")
    assert "delegation references lost cat" in str(task.result_summary)
    assert world.lake.pointers["t"] == before

    world.index.remove_lost_refs(lost)
    assert world.expire("t", **{"retain-last": "1"}).status is Status.SUCCESS


def keep(world: IndexedWorld, name: str, refs: dict[str, int], metadata_file: str) -> None:
    """Keep what a lost ref of a table needs, as its expiry does."""
    uuid = str(world.lake.table(name).metadata.table_uuid)
    keeper = LostRefsKeeper(world.index, world.plans, TableIdentifier("cat", ("ns",), name), uuid, "task", world.clock)
    keeper.keep(refs, metadata_file, world.lake.io.new_input(metadata_file).open().read(), world.objects)


def without_the_past(world: SweepingWorld, name: str) -> None:
    """Leave a table its newest snapshot and its newest metadata file, whose log names no former one."""
    document = world.lake.metadata(name)
    newest = document["current-snapshot-id"]
    document["snapshots"] = [one for one in document["snapshots"] if one["snapshot-id"] == newest]
    document |= {"metadata-log": [], "snapshot-log": [], "refs": {"main": {"snapshot-id": newest, "type": "branch"}}}
    for one in world.lake.metadata(name)["metadata-log"]:
        world.lake.objects.pop(("lake", one["metadata-file"].removeprefix("s3://lake/")), None)
    world.lake.rewrite_metadata(name, document)


def test_a_removal_of_orphan_files_leaves_them_and_removes_others() -> None:
    world = filled(SweepingWorld(), "t")
    table = world.lake.table("t")
    needs, metadata_file = world.lake.needed("t", named=True), world.lake.pointers["t"]
    keep(world, "t", {"new": 1}, metadata_file)
    table.overwrite(rows(7))
    without_the_past(world, "t")
    needs &= world.files()
    planted = world.plant("data/a.parquet")

    task = world.ask()

    assert task.status is Status.SUCCESS, task.result_summary
    assert needs - world.files() == set()
    assert planted & world.files() == set()

    world.index.remove_lost_refs(held(world))
    assert world.ask().status is Status.SUCCESS
    assert needs - world.files() != set()


def data_of(world: IndexedWorld, name: str) -> set[str]:
    return {one.file.file_path for one in world.lake.table(name).scan().plan_files()}


def lose_a_tag_with_files_of(world: ExpiringWorld, name: str) -> tuple[set[str], str]:
    """Have `t` take another table's files, and lose a tag at them before any pass over the catalog saw them."""
    taken = data_of(world, name)
    world.lake.table("t").add_files(sorted(taken), check_duplicate_files=False)
    old = world.lake.table("t").metadata.current_snapshot_id
    world.lake.table("t").overwrite(rows(9))
    _, metadata_file = lose_a_tag(world, old)
    return taken, metadata_file


def rename(world: ExpiringWorld) -> None:
    world.lake.pointers["renamed"] = world.lake.pointers.pop("t")


def of_former_release(world: ExpiringWorld) -> None:
    """Have the record of a release that knew no areas."""
    world.index.put_lost_refs(replace(held(world), areas=None))


@pytest.mark.parametrize("then", [None, rename, of_former_release])
@pytest.mark.parametrize("how", ["purged", "expired"])
def test_files_of_a_lost_tag_at_another_tables_location_stay_when_that_table_goes(
    world: ExpiringWorld, how: str, then: Callable[[ExpiringWorld], None] | None
) -> None:
    busy_table(world.lake, "u")
    taken, metadata_file = lose_a_tag_with_files_of(world, "u")
    if then is not None:
        then(world)
    if how == "purged":
        ended = world.purge("u")
    else:
        world.lake.table("u").overwrite(rows(8))
        ended = world.expire("u", **{"retain-last": "1"})
    assert ended.status is Status.SUCCESS, ended.result_summary
    assert taken
    assert taken <= set(world.lake.uris())
    assert restore(world, metadata_file) == set()


def test_files_of_a_lost_tag_at_another_tables_location_are_no_orphans() -> None:
    world = SweepingWorld()
    world.lake.create("t").append(rows(1))
    world.lake.create("v").append(rows(2))
    [taken] = world.plant("data/part=a/taken.parquet")
    world.lake.objects["lake", "wh/t/data/part=a/taken.parquet"] = _bytes_of(world, *data_of(world, "t"))
    world.lake.table("v").add_files([taken], check_duplicate_files=False)
    metadata_file = world.lake.pointers["v"]
    snapshot = world.lake.table("v").metadata.current_snapshot_id
    keep(world, "v", {"new": snapshot or 0}, metadata_file)
    world.lake.table("v").overwrite(rows(3))
    without_the_past(world, "v")
    planted = world.plant("data/a.parquet")

    task = world.ask()

    assert task.status is Status.SUCCESS, task.result_summary
    assert not planted & world.files()
    assert taken in world.files()
    world.index.remove_lost_refs(held(world))
    assert world.ask().status is Status.SUCCESS
    assert taken not in world.files()


def _bytes_of(world: IndexedWorld, path: str) -> bytes:
    return world.lake.objects["lake", path.removeprefix("s3://lake/")]


class UpkeepWorld(ExpiringWorld, SweepingWorld):
    """The service with expiries and removals of orphan files."""


def test_a_removal_of_orphan_files_deletes_what_an_expiry_left_that_could_not_compare_the_refs() -> None:
    world = filled(UpkeepWorld(), "t")
    commit = world.commits.commit_table

    def lose_the_former_file(*call: Any) -> LoadedTable:
        former = world.lake.pointers["t"]
        after = commit(*call)
        world.lake.io.delete(former)
        return after

    world.commits.commit_table = lose_the_former_file  # type: ignore[method-assign]
    before = set(world.lake.uris())
    task = world.expire("t")
    assert (task.status, task.error_code) == (Status.FAILURE, "REFS_UNKNOWN")
    planned = world.planned(task)
    assert planned <= set(world.lake.uris())
    receipt = world.receipt(task)
    assert (receipt["status"], receipt["findings"][-1]["count"]) == ("INCOMPLETE", len(planned))
    assert before - set(world.lake.uris()) <= {uri for uri in before if uri.endswith(".metadata.json")}

    # The next expiry has a plan of its own, and deletes none of these.
    world.commits.commit_table = commit  # type: ignore[method-assign]
    world.lake.table("t").append(rows(9))
    assert world.expire("t").status is Status.SUCCESS
    assert planned <= set(world.lake.uris())

    # A removal of orphan files does.
    assert world.ask().status is Status.SUCCESS
    assert planned & set(world.lake.uris()) == set()
    assert world.lake.needed("t") <= set(world.lake.uris())
