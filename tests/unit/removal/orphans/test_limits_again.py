"""The limits of a removal are those of the moment when it deletes: what an operator forbids after the plan holds."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.errors import GuardRefused
from delegation.references.errors import ReferencesNotKnown
from delegation.removal.orphans.details import ApprovalLimits
from delegation.removal.orphans.errors import PrefixMismatch
from delegation.removal.orphans.place import MismatchMode
from delegation.removal.orphans.run import remove_orphan_files
from delegation.removal.path_guard import ORPHAN_AGE
from delegation.storage.memory import Killed
from tests.kit.errors import coded
from tests.kit.stories.orphans import AT_ONCE, SweptTables, hours
from tests.kit.stories.tables import StoryTable

REPORT = ApprovalLimits()


def beach(*paths: str) -> tuple[SweptTables, StoryTable, list[str]]:
    """Return a table with orphan files that are four days old."""
    world = SweptTables()
    table = world.table()
    planted = [world.orphan(f"s3://lake/wh/t/data/{path}") for path in paths]
    world.lake.pass_days(4)
    return world, table, planted


@pytest.mark.parametrize("allowed", list(MismatchMode))
def test_an_approved_plan_deletes_mismatched_files_only_if_the_operator_still_allows_it(allowed: MismatchMode) -> None:
    world, table, [named, orphan] = beach("named.parquet", "orphan.parquet")
    table.append(paths=["oss://lake/wh/t/data/named.parquet"])
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
    world, table, [young] = beach("young.parquet")
    world.lake.pass_days(-10)
    old = world.orphan("s3://lake/wh/t/data/old.parquet")
    world.lake.pass_days(10)
    plan = world.sweep(table, limits=REPORT).plan_ids[-1]
    assert world.planned() == {young, old}
    table.apply({"action": "set-properties", "updates": {"delegation.orphan-files.older-than": "7d"}})

    done = world.sweep(table, execute_plan=plan)

    assert (done.status, done.files_deleted) == ("SWEPT", 1)
    assert [(one.code, one.count) for one in done.findings] == [("AGE_TOO_SHORT", 1)]
    assert (young in world.lake.uris(), old in world.lake.uris()) == (True, False)


def test_an_age_that_is_lengthened_while_files_are_deleted_keeps_the_rest() -> None:
    world, table, planted = beach(*(f"p{number}.parquet" for number in range(9)))
    ctx = world.context(table)
    usual = ctx.store.delete_unchanged

    def delete(bucket: str, listed: Any) -> Any:
        ctx.store.delete_unchanged = usual  # type: ignore[method-assign]
        table.apply({"action": "set-properties", "updates": {"delegation.orphan-files.older-than": "7d"}})
        return usual(bucket, listed)

    ctx.store.delete_unchanged = delete  # type: ignore[method-assign]
    assert remove_orphan_files(ctx).files_deleted == 3
    assert len(set(planted) & world.lake.uris()) == 6


def test_an_age_that_is_no_duration_any_more_stops_it() -> None:
    world, table, [orphan] = beach("orphan.parquet")
    plan = world.sweep(table, limits=REPORT).plan_ids[-1]
    table.apply({"action": "set-properties", "updates": {"delegation.orphan-files.older-than": "a while"}})
    with pytest.raises(GuardRefused, check=coded("AGE_INVALID")):
        world.sweep(table, execute_plan=plan)
    assert orphan in world.lake.uris()


def test_a_plan_with_a_shorter_age_is_executed_as_it_was_approved() -> None:
    world, table, _ = beach()
    young = world.orphan("s3://lake/wh/t/data/young.parquet")
    world.lake.pass_days(2)
    plan = world.sweep(table, limits=REPORT, older_than=hours(24)).plan_ids[-1]
    assert world.sweep(table, execute_plan=plan).files_deleted == 1
    assert young not in world.lake.uris()


def interrupted(world: SweptTables, table: StoryTable) -> None:
    """Have an attempt plan what needs no person, and end while it waits for the references before the first delete."""
    renew = world.passes.renew

    def late() -> None:
        world.passes.late = world.passes.renewed
        renew()

    world.passes.renew = late  # type: ignore[method-assign]
    with pytest.raises(ReferencesNotKnown):
        remove_orphan_files(world.context(table))
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
    world, table, planted = beach("a.parquet", "b.parquet")
    interrupted(world, table)
    waiting = remove_orphan_files(world.context(table, limits=limits))
    assert (waiting.status, waiting.waits) == ("WAITING", why)
    assert set(planted) <= world.lake.uris()
    world.approve(waiting.plan_ids[-1])
    assert world.sweep(table, limits=limits, execute_plan=waiting.plan_ids[-1]).files_deleted == 2


def test_a_removal_that_began_to_delete_ends_under_the_limits_that_it_began_with() -> None:
    """Otherwise its task would end as if nothing had been deleted."""
    world, table, planted = beach("a.parquet", "b.parquet")
    interrupted(world, table)
    stricter = replace(AT_ONCE, max_files=1)
    killed = world.context(table)

    def delete(bucket: str, listed: Any) -> Any:
        raise Killed

    killed.store.delete_unchanged = delete  # type: ignore[method-assign]
    with pytest.raises(Killed):
        remove_orphan_files(killed)
    ctx = replace(world.context(table, limits=stricter), began=True)
    assert remove_orphan_files(ctx).status == "SWEPT"
    assert not set(planted) & world.lake.uris()


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
