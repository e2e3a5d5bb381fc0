"""Orphan files are tagged instead of deleted: only those that are as they were listed, and a restore untags them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from delegation.removal.attempt import PlanHead, receipt_key
from delegation.removal.choice import EngineChoice
from delegation.removal.deletes import Tally, Work
from delegation.removal.errors import FilesNotDeleted, PlanTampered
from delegation.removal.orphans.context import OrphanContext
from delegation.removal.orphans.errors import OperatorRoleRequired
from delegation.removal.orphans.index import load_plan
from delegation.removal.orphans.planning import InlineOrphans
from delegation.removal.orphans.quarantine import UntagRun
from delegation.removal.orphans.run import OrphanRun, remove_orphan_files
from delegation.storage.listing.model import TAG
from delegation.storage.memory import Faults, Killed
from tests.effort import apart
from tests.kit.stories.orphans import SweptTables
from tests.kit.stories.tables import StoryTable
from tests.unit.removal.orphans.quarantine.world import NAMES, Lagoon, lagoon, restored_files


def test_orphan_files_are_tagged_and_stay_and_the_receipt_says_so() -> None:
    world, table, planted = lagoon()
    before = dict(world.lake.objects)
    result = world.sweep(table)
    assert (result.status, result.files_quarantined, result.files_deleted) == ("SWEPT", 5, 0)
    assert (result.bytes_quarantined, result.bytes_deleted, result.bytes_freed) == (
        sum(len(name.encode()) for name in NAMES),
        0,
        0,
    )
    assert world.lake.objects == before
    assert world.tagged() == planted
    receipt = world.receipt(result)
    assert (receipt["quarantine"], receipt["files_quarantined"], receipt["files_deleted"]) == (
        "delegation-quarantine=orphan",
        5,
        0,
    )
    # The next removal finds them again, and changes nothing.
    assert world.sweep(table).files_quarantined == 5
    assert world.tagged() == planted


def test_a_restore_takes_the_tag_away_and_no_other_tag() -> None:
    world, table, planted = lagoon()
    world.context(table)
    [one] = world.store.page("lake", "wh/t/data/a.parquet").objects
    world.tags["lake", one] = {"team": "a"}
    result = world.sweep(table)
    assert world.tags["lake", one] == {"team": "a", TAG[0]: TAG[1]}
    world.lake.put("s3://lake/wh/t/data/b.parquet", b"new")
    del world.lake.objects["lake", "wh/t/data/e.parquet"]  # the lifecycle rule
    looked = world.restore(result, dry_run=True)
    assert restored_files(looked) == {"restored": 3, "rewritten": 1, "gone": 1}
    assert len(world.tagged()) == 3
    assert restored_files(world.restore(result)) == restored_files(looked)
    assert world.tagged() == set()
    assert world.tags["lake", one] == {"team": "a"}
    assert restored_files(world.restore(result)) == {"present": 3, "rewritten": 1, "gone": 1}
    assert len(planted) == 5


def test_what_was_written_again_or_is_gone_since_the_listing_gets_no_tag() -> None:
    world, table, planted = lagoon()
    head = world.head
    with pytest.raises(Killed):
        remove_orphan_files(world.context(table, faults=_killed_before_the_first_tag(world, table)))
    again = world.lake.put("s3://lake/wh/t/data/a.parquet", b"new")
    del world.lake.objects["lake", "wh/t/data/b.parquet"]
    world.head = head
    result = remove_orphan_files(world.context(table))
    assert (result.files_quarantined, result.files_changed, result.files_absent) == (3, 1, 1)
    assert world.tagged() == planted - {again, "s3://lake/wh/t/data/b.parquet"}
    [changed] = [world.plans.get(key).decode() for key in world.receipt(result)["changed"]]
    assert json.loads(changed) == again


def _killed_before_the_first_tag(world: Lagoon, table: StoryTable) -> Faults:
    before, same, _ = lagoon()
    remove_orphan_files(before.context(same))
    return Faults(kill_at=before.store.faults.names.index("tag") + 1)


def test_an_object_with_ten_tags_of_others_stays_and_is_listed() -> None:
    world, table, planted = lagoon()
    world.context(table)
    full = {one.key: one for one in world.store.page("lake", "wh/t/data/").objects}["wh/t/data/a.parquet"]
    world.tags["lake", full] = {f"k{number}": "v" for number in range(10)}
    result = world.sweep(table)
    assert (result.status, result.files_quarantined, result.files_untagged) == ("SWEPT", 4, 1)
    assert world.tagged() == planted - {"s3://lake/wh/t/data/a.parquet"}
    receipt = world.receipt(result)
    [listed] = [world.plans.get(key).decode() for key in receipt["untagged"]]
    assert (json.loads(listed), receipt["files_untagged"]) == ("s3://lake/wh/t/data/a.parquet", 1)
    assert len(world.tags["lake", full]) == 10


def test_without_a_role_for_the_bucket_nothing_is_listed() -> None:
    world = SweptTables()
    table = world.table()
    world.orphan("s3://lake/wh/t/data/a.parquet")
    world.lake.pass_days(4)
    with pytest.raises(OperatorRoleRequired, match=r"lake.*delegation\.orphan-files\.roles to lake=ARN") as refused:
        world.sweep(table, quarantine=True)
    assert refused.value.bucket == "lake"
    assert "list" not in world.store.faults.names


def test_the_plan_of_a_quarantine_is_never_deleted_by_anybody() -> None:
    world, table, planted = lagoon()
    plan = world.sweep(table, dry_run=True)
    result = world.sweep(table, execute_plan=plan.plan_ids[0], quarantine=False)
    assert (result.files_quarantined, result.files_deleted) == (5, 0)
    assert world.tagged() == planted
    assert world.receipt(result)["quarantine"] == "delegation-quarantine=orphan"


class InJob(InlineOrphans):
    """The executors of a job, which have vended credentials alone and so can only delete."""

    name: EngineChoice = "spark"

    def delete(self, ctx: OrphanContext, work: Sequence[Work], report: Callable[[Tally], None]) -> None:
        super().delete(replace(ctx, options=replace(ctx.options, quarantine=False)), work, report)


@pytest.mark.parametrize("wanted_by_the_operator", [True, False])
def test_a_job_that_meets_a_quarantine_tags_and_deletes_nothing(wanted_by_the_operator: bool) -> None:
    world, table, planted = lagoon()
    plan = world.sweep(table, dry_run=True)
    ctx = world.context(table, execute_plan=plan.plan_ids[0], quarantine=wanted_by_the_operator)
    result = OrphanRun(replace(ctx, spark_above=0), InJob()).run()
    assert (result.files_quarantined, result.files_deleted, result.engine) == (5, 0, "inline")
    assert world.tagged() == planted


def test_a_plan_to_delete_is_tagged_if_the_operator_wants_so_by_now() -> None:
    world, table, planted = lagoon()
    plan = world.sweep(table, dry_run=True, quarantine=False)
    assert not load_plan(world.plans, world.head.read()[-1]).quarantine
    assert world.sweep(table, execute_plan=plan.plan_ids[0]).files_quarantined == 5
    assert world.tagged() == planted


def test_a_quarantine_can_be_killed_at_every_call_and_tags_every_file_in_the_end() -> None:
    kills = 0
    for after in (False, True):
        for at in range(1 + after, 400, 2 * apart(4)):
            world, table, planted = lagoon()
            world.head = PlanHead()
            try:
                remove_orphan_files(world.context(table, faults=Faults(kill_at=at, after=after)))
            except Killed:
                kills += 1
                result = remove_orphan_files(world.context(table))
                if result.status != "NOTHING":
                    assert (result.files_quarantined, result.files_deleted) == (5, 0), at
                assert world.tagged() == planted, at
                assert world.lake.readable()
                assert world.restore(result).files == 5
                assert world.tagged() == set()
                continue
            break
    assert kills > 40 / apart(4)


def test_what_an_attempt_that_died_tagged_is_restored_too() -> None:
    world, table, _ = lagoon()
    world.head = PlanHead()
    faults = _killed_before_the_first_tag(world, table)
    faults._kill_at = (faults._kill_at or 0) + 2
    with pytest.raises(Killed):
        remove_orphan_files(world.context(table, faults=faults))
    assert world.tagged()
    world.context(table)  # a store without faults
    plan = world.head.read()[-1].id
    found = UntagRun(world.store, world.plans, [plan], "s3://lake/wh/t").run()
    assert found.files == 5
    assert world.tagged() == set()


def test_failures_to_tag_fail_the_attempt_and_are_listed() -> None:
    world, table, _ = lagoon()
    ctx = world.context(table)
    world.store._denied = ("s3://lake/wh/t/data/a",)
    world.head = ctx.attempt.head
    with pytest.raises(FilesNotDeleted):
        remove_orphan_files(ctx)
    receipt = json.loads(world.plans.get(receipt_key(world.plan().plan_id)))
    assert (receipt["status"], receipt["files_failed"], receipt["failures"]["sample"]) == (
        "INCOMPLETE",
        1,
        [{"path": "s3://lake/wh/t/data/a.parquet", "code": "AccessDenied"}],
    )


def test_a_restore_of_files_elsewhere_is_refused() -> None:
    world, table, _ = lagoon()
    result = world.sweep(table)
    with pytest.raises(PlanTampered):
        UntagRun(world.store, world.plans, result.plan_ids, "s3://lake/wh/t/data/p=1").run()
