"""Who consents to a plan of orphan files: a recorded approval or a setting of the operator, never a repetition."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from delegation.removal.attempt import PlanHead
from delegation.removal.errors import PlanLost
from delegation.removal.orphans.details import ApprovalLimits, ListedAmount
from delegation.removal.orphans.run import remove_orphan_files
from delegation.storage.memory import Faults, Killed
from tests.effort import apart
from tests.kit.stories.orphans import SweptTables
from tests.kit.stories.tables import StoryTable
from tests.unit.removal.orphans.test_orders import unreadable

REPORT = ApprovalLimits(max_share=1.0)


def beach(orphans: int = 1) -> tuple[SweptTables, StoryTable, set[str]]:
    """Return a table with orphan files that are four days old."""
    world = SweptTables()
    table = world.table()
    planted = {world.orphan(f"s3://lake/wh/t/data/o{number:03d}.parquet") for number in range(orphans)}
    world.lake.pass_days(4)
    return world, table, planted


def test_the_same_request_sent_again_deletes_nothing() -> None:
    world, table, planted = beach()
    for _ in range(3):
        assert world.sweep(table, limits=REPORT).waits == "first-run"
    assert planted <= world.lake.uris()


def test_a_dry_run_is_no_consent() -> None:
    world, table, planted = beach()
    assert world.sweep(table, limits=REPORT, dry_run=True).status == "PLANNED"
    assert world.sweep(table, limits=REPORT).waits == "first-run"
    assert planted <= world.lake.uris()


def lost_while_deleting(world: SweptTables, table: StoryTable, **options: Any) -> None:
    """Have an attempt end at its second call for deletes, and its plan be lost."""
    ctx = world.context(table, **options)
    usual, deletes = ctx.store.delete_unchanged, list[str]()

    def delete(bucket: str, listed: Any) -> Any:
        deletes.append(bucket)
        if len(deletes) > 1:
            raise Killed
        return usual(bucket, listed)

    ctx.store.delete_unchanged = delete  # type: ignore[method-assign]
    with pytest.raises(Killed):
        remove_orphan_files(ctx)
    del world.plans.objects[f"{world.plan().plan_id}/index.json"]


def test_a_part_that_is_lost_of_an_approved_plan_ends_it_and_no_other_plan_takes_its_place() -> None:
    world, table, planted = beach()
    plan_id = world.sweep(table, limits=REPORT).plan_ids[-1]
    world.approve(plan_id)
    for chunk in world.plan().chunks:
        del world.plans.objects[f"{plan_id}/{chunk.name}"]
    with pytest.raises(PlanLost):
        remove_orphan_files(world.context(table, limits=REPORT))
    assert world.plan().plan_id == plan_id
    assert planted <= world.lake.uris()


def test_a_plan_that_replaces_a_lost_one_waits_for_approval_by_the_limits() -> None:
    """The lost one was within the share; the one that replaces it is 153 of 223 files."""
    limits = ApprovalLimits(first_run_deletes=True)
    world, table, planted = beach(10)
    for number in range(80 - len(list(world.lake.uris()))):
        world.orphan(f"s3://lake/wh/t/_kept/{number}")
    world.lake.pass_days(4)
    lost_while_deleting(world, table, limits=limits)
    assert len(planted - world.lake.uris()) == 3
    more = {world.orphan(f"s3://lake/wh/t/data/n{number:03d}.parquet") for number in range(146)}
    world.lake.pass_days(4)

    waiting = remove_orphan_files(replace(world.context(table, limits=limits), began=True))

    assert (waiting.status, waiting.waits) == ("WAITING", "max-share")
    assert (waiting.files_planned, waiting.files_listed) == (153, 223)
    assert more <= world.lake.uris()


def test_what_several_lost_plans_deleted_counts_with_the_present_one() -> None:
    """Each plan alone is below the limit, what they came to together is not."""
    limits = ApprovalLimits(max_files=8, max_share=1.0, first_run_deletes=True)
    world, table, planted = beach(8)
    lost_while_deleting(world, table, limits=limits)
    known = ListedAmount(len(planted - world.lake.uris()), 0)
    assert known.files == 3
    fresh = {world.orphan(f"s3://lake/wh/t/data/f{number}.parquet") for number in range(2)}
    world.lake.pass_days(4)
    ctx = replace(world.context(table, limits=limits), began=True, deleted_before=known, planned_before=8)
    assert remove_orphan_files(ctx).waits == "max-files"
    assert world.plan().deleted_before.files == 3
    assert fresh <= world.lake.uris()
    world.approve(world.plan().plan_id)
    result = remove_orphan_files(replace(world.context(table, limits=limits), began=True, deleted_before=known))
    assert (result.status, result.files_deleted, result.deleted_before.files) == ("SWEPT", 7, 3)
    assert not (fresh | planted) & world.lake.uris()


def test_a_plan_made_after_a_loss_continues_within_the_limits_without_a_person() -> None:
    limits = ApprovalLimits(max_files=8, max_share=1.0, first_run_deletes=True)
    world, table, planted = beach(8)
    lost_while_deleting(world, table, limits=limits)
    ctx = replace(world.context(table, limits=limits), began=True, deleted_before=ListedAmount(3, 0), planned_before=8)
    assert remove_orphan_files(ctx).status == "SWEPT"
    assert not planted & world.lake.uris()


def test_what_a_killed_attempt_did_not_report_is_bounded_by_its_marks() -> None:
    limits = ApprovalLimits(max_files=8, max_share=1.0, first_run_deletes=True)
    world, table, _ = beach(8)
    lost_while_deleting(world, table, limits=limits)
    world.orphan("s3://lake/wh/t/data/f1.parquet")
    world.lake.pass_days(4)
    ctx = replace(world.context(table, limits=limits), began=True, planned_before=8)
    assert remove_orphan_files(ctx).waits == "max-files"
    assert world.plan().deleted_before.files == 3


def test_the_entry_of_a_former_release_is_no_consent() -> None:
    world, table, planted = beach()
    first = world.sweep(table, limits=REPORT)
    key = f"orphans/{first.table_uuid}/{hashlib.sha256(first.location.encode()).hexdigest()[:20]}.json"
    world.plans.put(key, json.dumps({"format": 1, "plan": first.plan_ids[-1]}).encode())
    assert world.sweep(table, limits=REPORT).waits == "first-run"
    assert planted <= world.lake.uris()


def test_something_that_is_found_after_the_approval_ends_it() -> None:
    world, table, planted = beach(4)
    apart = world.orphan("s3://lake/wh/t/x/old")
    world.lake.pass_days(4)
    plan = world.sweep(table, limits=REPORT).plan_ids[-1]
    world.approve(plan)
    world.unreadable = [unreadable(("s3://lake/wh/t/x/",), exempt=True)]
    waits = world.sweep(table, limits=REPORT, execute_plan=plan)
    assert (waits.status, waits.waits, waits.receipt) == ("WAITING", "finding", None)
    assert [(one.code, one.count) for one in waits.findings] == [("AREA_LEFT_ALONE", 1)]
    assert {apart, *planted} <= world.lake.uris()
    reduced = waits.plan_ids[-1]
    assert reduced != plan
    world.approve(reduced)
    done = world.sweep(table, limits=REPORT, execute_plan=reduced)
    assert (done.status, done.files_deleted) == ("SWEPT", 4)
    assert done.approval is not None
    assert done.approval.plan == reduced
    assert apart in world.lake.uris()


def test_a_stricter_rule_ends_no_approval() -> None:
    """The table's owner wants older files to be kept: fewer files than approved go, and for that reason alone."""
    world, table, planted = beach()
    world.lake.pass_days(6)
    young = world.orphan("s3://lake/wh/t/data/young.parquet")
    world.lake.pass_days(4)
    plan = world.sweep(table, limits=REPORT).plan_ids[-1]
    world.approve(plan)
    table.apply({"action": "set-properties", "updates": {"delegation.orphan-files.older-than": "7d"}})
    done = world.sweep(table, limits=REPORT, execute_plan=plan)
    assert any(key.endswith(f"/taken/{plan}") for key in world.plans.objects)
    assert (done.status, done.files_deleted) == ("SWEPT", 1)
    assert (young in world.lake.uris(), planted & world.lake.uris()) == (True, set())


def test_an_approval_that_ends_while_its_plan_is_executed_leaves_the_rest_to_a_person() -> None:
    world, table, planted = beach(9)
    plan = world.sweep(table, limits=REPORT).plan_ids[-1]
    segment = world.approve(plan)
    world.head = PlanHead()
    ctx = world.context(table, limits=REPORT, execute_plan=plan)
    usual, deletes = ctx.store.delete_unchanged, list[str]()

    def delete(bucket: str, listed: Any) -> Any:
        deletes.append(bucket)
        if len(deletes) > 1:
            raise Killed
        return usual(bucket, listed)

    ctx.store.delete_unchanged = delete  # type: ignore[method-assign]
    with pytest.raises(Killed):
        remove_orphan_files(ctx)
    world.lake.pass_days(14)
    waits = remove_orphan_files(replace(world.context(table, limits=REPORT, execute_plan=plan), began=True))
    assert (waits.status, waits.waits, waits.files_deleted) == ("WAITING", "first-run", 3)
    assert json.loads(world.plans.get(f"{segment.id}/receipt.json"))["status"] == "WAITING"
    assert len(planted & world.lake.uris()) == 6
    world.approve(plan)
    assert world.sweep(table, limits=REPORT, execute_plan=plan).files_deleted == 9
    assert not planted & world.lake.uris()


def test_an_approved_removal_can_be_killed_at_every_call() -> None:
    """The next run of the same request takes the plan up again, and deletes it and nothing else."""
    kills = 0
    for after in (False, True):
        for at in range(1 + after, 300, apart(5)):
            world, table, planted = beach(7)
            waiting = world.approve(world.sweep(table, limits=REPORT).plan_ids[-1])
            later = world.orphan("s3://lake/wh/t/data/later.parquet")
            world.lake.pass_days(4)
            world.head = PlanHead()
            faults = Faults(kill_at=at, after=after)
            try:
                remove_orphan_files(world.context(table, limits=REPORT, waiting=waiting, faults=faults))
                break
            except Killed:
                began = bool(planted - world.lake.uris())
                result = remove_orphan_files(replace(world.context(table, limits=REPORT, waiting=waiting), began=began))
            assert (result.status, result.files_deleted) == ("SWEPT", 7), (at, after)
            assert (planted & world.lake.uris(), later in world.lake.uris()) == (set(), True)
            kills += 1
        else:
            pytest.fail("it was never killed late enough")
    assert kills > 60 / apart(5)
