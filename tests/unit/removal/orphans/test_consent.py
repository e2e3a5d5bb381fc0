"""Who consents to a plan: a recorded approval or a setting of the operator, and only what the limits of now allow."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.errors import GuardRefused
from delegation.references.errors import ReferencesNotKnown
from delegation.removal.attempt import PlanHead
from delegation.removal.errors import PlanLost
from delegation.removal.orphans.details import ApprovalLimits, ListedAmount
from delegation.removal.orphans.errors import PrefixMismatch
from delegation.removal.orphans.place import MismatchMode
from delegation.removal.orphans.run import remove_orphan_files
from delegation.removal.path_guard import ORPHAN_AGE
from delegation.storage.memory import Faults, Killed
from tests.effort import apart
from tests.kit.errors import coded
from tests.kit.stories.orphans import AT_ONCE, SweptTables, hours
from tests.kit.stories.tables import StoryTable
from tests.unit.removal.orphans.test_orders import at_delete, before_deleting, die, unreadable

REPORT = ApprovalLimits(max_share=1.0)


def beach(orphans: int = 1) -> tuple[SweptTables, StoryTable, set[str]]:
    """Return a table with orphan files that are four days old."""
    world = SweptTables()
    table = world.table()
    return world, table, world.littered(*(f"o{number:03d}.parquet" for number in range(orphans)))


def test_neither_a_dry_run_nor_the_same_request_sent_again_is_consent() -> None:
    world, table, planted = beach()
    assert world.sweep(table, limits=REPORT, dry_run=True).status == "PLANNED"
    for _ in range(3):
        assert world.sweep(table, limits=REPORT).waits == "first-run"
    assert planted <= world.lake.uris()


def lost_while_deleting(world: SweptTables, table: StoryTable, **options: Any) -> None:
    """Have an attempt end at its second call for deletes, and its plan be lost."""
    ctx = world.context(table, **options)
    at_delete(ctx, 2, die)
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


def test_an_approval_that_ends_while_its_plan_is_executed_leaves_the_rest_to_a_person() -> None:
    world, table, planted = beach(9)
    plan = world.sweep(table, limits=REPORT).plan_ids[-1]
    segment = world.approve(plan)
    world.head = PlanHead()
    ctx = world.context(table, limits=REPORT, execute_plan=plan)
    at_delete(ctx, 2, die)
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


@pytest.mark.parametrize("allowed", list(MismatchMode))
def test_an_approved_plan_deletes_mismatched_files_only_if_the_operator_still_allows_it(allowed: MismatchMode) -> None:
    world, table, planted = beach(2)
    named, orphan = sorted(planted)
    table.append(paths=[named.replace("s3:", "oss:")])
    plan = world.sweep(table, limits=REPORT, mismatch=MismatchMode.DELETE, loosest=MismatchMode.DELETE).plan_ids[-1]
    assert world.planned() == {named, orphan}

    if allowed is MismatchMode.ERROR:
        with pytest.raises(PrefixMismatch):
            world.sweep(table, execute_plan=plan, loosest=allowed)
        assert {named, orphan} <= world.lake.uris()
        return
    done = world.sweep(table, execute_plan=plan, loosest=allowed)
    assert orphan not in world.lake.uris()
    assert (named in world.lake.uris()) == (allowed is MismatchMode.IGNORE)
    assert [one.code for one in done.findings] == (["PREFIX_MISMATCH"] if allowed is MismatchMode.IGNORE else [])


def test_an_age_that_the_table_lengthens_after_the_plan_keeps_what_is_younger() -> None:
    """Its jobs turn out to write for a week: what was listed as four days old may be committed still."""
    world, table, [young] = beach()
    world.lake.pass_days(-10)
    old = world.orphan("s3://lake/wh/t/data/old.parquet")
    world.lake.pass_days(10)
    plan = world.sweep(table, limits=REPORT).plan_ids[-1]
    assert world.planned() == {young, old}
    world.approve(plan)
    table.set(**{ORPHAN_AGE: "7d"})

    done = world.sweep(table, limits=REPORT, execute_plan=plan)

    assert (done.status, done.files_deleted) == ("SWEPT", 1), "a stricter rule ends no approval"
    assert any(key.endswith(f"/taken/{plan}") for key in world.plans.objects)
    assert [(one.code, one.count) for one in done.findings] == [("AGE_TOO_SHORT", 1)]
    assert (young in world.lake.uris(), old in world.lake.uris()) == (True, False)


def test_an_age_that_is_lengthened_while_files_are_deleted_keeps_the_rest() -> None:
    world, table, planted = beach(9)
    ctx = world.context(table)
    at_delete(ctx, 1, lambda: table.set(**{ORPHAN_AGE: "7d"}))
    assert remove_orphan_files(ctx).files_deleted == 3
    assert len(planted & world.lake.uris()) == 6


def test_an_age_that_is_no_duration_any_more_stops_it() -> None:
    world, table, [orphan] = beach()
    plan = world.sweep(table, limits=REPORT).plan_ids[-1]
    table.set(**{ORPHAN_AGE: "a while"})
    with pytest.raises(GuardRefused, check=coded("AGE_INVALID")):
        world.sweep(table, execute_plan=plan)
    assert orphan in world.lake.uris()


def test_a_plan_with_a_shorter_age_is_executed_as_it_was_approved() -> None:
    world, table, _ = beach(0)
    young = world.orphan("s3://lake/wh/t/data/young.parquet")
    world.lake.pass_days(2)
    plan = world.sweep(table, limits=REPORT, older_than=hours(24)).plan_ids[-1]
    assert world.sweep(table, execute_plan=plan).files_deleted == 1
    assert young not in world.lake.uris()


def interrupted(world: SweptTables, table: StoryTable) -> None:
    """Have an attempt plan what needs no person, and end while it waits for the references before the first delete."""
    renew, ctx = world.passes.renew, world.context(table)
    before_deleting(world, lambda: setattr(world.passes, "late", 1))(ctx)
    with pytest.raises(ReferencesNotKnown):
        remove_orphan_files(ctx)
    world.passes.renew = renew  # type: ignore[method-assign]
    assert world.plan().stage == "planned"


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (ApprovalLimits(max_share=1.0, max_files=1, first_run_deletes=True), "max-files"),
        (ApprovalLimits(max_share=0.01, first_run_deletes=True), "max-share"),
        (ApprovalLimits(max_share=1.0), "first-run"),
    ],
)
def test_a_plan_of_an_attempt_before_waits_if_the_limits_are_stricter_now(limits: ApprovalLimits, why: str) -> None:
    world, table, planted = beach(2)
    interrupted(world, table)
    waiting = remove_orphan_files(world.context(table, limits=limits))
    assert (waiting.status, waiting.waits) == ("WAITING", why)
    assert planted <= world.lake.uris()
    world.approve(waiting.plan_ids[-1])
    assert world.sweep(table, limits=limits, execute_plan=waiting.plan_ids[-1]).files_deleted == 2


def test_a_removal_that_began_to_delete_ends_under_the_limits_that_it_began_with() -> None:
    """Otherwise its task would end as if nothing had been deleted."""
    world, table, planted = beach(2)
    interrupted(world, table)
    stricter = replace(AT_ONCE, max_files=1)
    killed = world.context(table)
    at_delete(killed, 1, die)
    with pytest.raises(Killed):
        remove_orphan_files(killed)
    ctx = replace(world.context(table, limits=stricter), began=True)
    assert remove_orphan_files(ctx).status == "SWEPT"
    assert not planted & world.lake.uris()


def beside(age: str | None) -> tuple[SweptTables, StoryTable, StoryTable, str]:
    """Return a table, another one that writes below its location and asks for an age, and its file of five days."""
    world = SweptTables()
    table = world.table()
    other = world.table("u", **{"write.data.path": "s3://lake/wh/t/data/u"})
    if age is not None:
        other.set(**{ORPHAN_AGE: age})
    written = world.orphan("s3://lake/wh/t/data/u/written.parquet")
    world.lake.pass_days(5)
    return world, table, other, written


def test_the_age_of_another_table_that_writes_there_counts_and_it_commits_its_file() -> None:
    world, table, other, written = beside("30d")
    result = world.sweep(table)
    assert (result.status, world.plan().age, [one.code for one in result.findings]) == (
        "NOTHING",
        30 * 86_400,
        ["AGE_TOO_SHORT"],
    )
    other.append(paths=[written])
    assert not world.missing()


def test_another_table_that_sets_an_age_after_the_plan_keeps_its_file() -> None:
    world, table, other, written = beside(None)
    plan = world.sweep(table, limits=REPORT).plan_ids[-1]
    other.set(**{ORPHAN_AGE: "30d"})
    world.sweep(table, execute_plan=plan)
    assert written in world.lake.uris()


def test_another_table_whose_age_is_no_duration_stops_the_removal_and_is_named() -> None:
    world, table, _, written = beside("a while")
    with pytest.raises(GuardRefused, match=r"ns\.u's property delegation\.orphan-files", check=coded("AGE_INVALID")):
        world.sweep(table)
    assert written in world.lake.uris()


def test_the_age_of_the_policy_of_another_table_counts_and_so_does_the_tables_own() -> None:
    """A caller asks for the usual three days; who attached a policy knows how long jobs write."""
    for asks in ("u", "t"):
        world, table, _, written = beside(None)
        ctx = world.context(table)
        asked = {asks: timedelta(days=30)}
        ctx = replace(ctx, asked_age=lambda one, asked=asked: asked.get(one.identifier.name, timedelta(0)))
        assert remove_orphan_files(ctx).status == "NOTHING"
        assert written in world.lake.uris()
