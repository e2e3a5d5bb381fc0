"""What becomes of the files of a tag that an expiry lost: nothing deletes them before an operator could restore it."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.identifiers import TableIdentifier
from delegation.keeping.lost import LostRefsKeeper
from delegation.polaris.model import LoadedTable
from delegation.references.lost import KEPT_FOR, MOST_OF_TABLE, LostRefs, restore_statement
from delegation.tasks.life.model import Status, Task
from tests.kit.lakes.lake import filled, rows
from tests.kit.worlds.expiring import ExpiringWorld
from tests.kit.worlds.indexed import IndexedWorld
from tests.kit.worlds.sweeping import SweepingWorld


@pytest.fixture
def world() -> ExpiringWorld:
    return filled(ExpiringWorld(), "t")


def first_snapshot(world: ExpiringWorld) -> int:
    return min(world.lake.table("t").snapshots(), key=lambda one: one.sequence_number or 0).snapshot_id


def lose_a_tag(world: ExpiringWorld) -> tuple[Task, str]:
    """Expire `t` while somebody tags its first snapshot; return the task, and the metadata file that has the tag."""
    old, commit, found = first_snapshot(world), world.commits.commit_table, list[str]()

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
    assert f"Its files stay until {lost.until:%Y-%m-%d}" in str(task.result_summary)
    assert restore_statement(lost.identifier, metadata_file) in str(task.result_summary)
    assert world.plans.get(lost.copy) == world.lake.io.new_input(metadata_file).open().read()


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


def test_what_another_program_deleted_of_it_stops_no_expiry(world: ExpiringWorld) -> None:
    lose_a_tag(world)
    use_no_more(world)
    lists = {one.manifest_list for one in world.lake.table("t").snapshots()}
    gone = next(one["manifest-list"] for one in json.loads(world.plans.get(held(world).copy))["snapshots"])
    assert gone not in lists
    bucket, _, key = gone.removeprefix("s3://").partition("/")
    del world.lake.objects[bucket, key]

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


def test_a_removal_of_orphan_files_leaves_them_and_removes_others() -> None:
    world = filled(SweepingWorld(), "t")
    table = world.lake.table("t")
    needs, metadata_file = world.lake.needed("t", named=True), world.lake.pointers["t"]
    keeper = LostRefsKeeper(
        world.index,
        world.plans,
        TableIdentifier("cat", ("ns",), "t"),
        str(table.metadata.table_uuid),
        "task",
        world.clock,
    )
    keeper.keep({"new": 1}, metadata_file, world.lake.io.new_input(metadata_file).open().read())
    # The same table with one snapshot, and a log that does not name the file any more.
    table.overwrite(rows(7))
    document = world.lake.metadata("t")
    newest = document["current-snapshot-id"]
    document["snapshots"] = [one for one in document["snapshots"] if one["snapshot-id"] == newest]
    document |= {"metadata-log": [], "snapshot-log": [], "refs": {"main": {"snapshot-id": newest, "type": "branch"}}}
    bucket, _, key = world.lake.pointers["t"].removeprefix("s3://").partition("/")
    world.lake.objects[bucket, key] = json.dumps(document).encode()
    planted = world.plant("data/a.parquet")

    task = world.ask()

    assert task.status is Status.SUCCESS, task.result_summary
    assert needs - world.files() == set()
    assert planted & world.files() == set()

    world.index.remove_lost_refs(held(world))
    assert world.ask().status is Status.SUCCESS
    assert needs - world.files() != set()
