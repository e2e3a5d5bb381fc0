"""Who consents to a plan of orphan files: a recorded approval or a setting of the operator, never a repetition."""

from dataclasses import replace

import pytest

from delegation.operations.orphans.approval import ApprovalLimits
from delegation.operations.orphans.phases import remove_orphan_files
from tests.kit.stories.orphans import SweptTables
from tests.kit.stories.tables import StoryTable

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


def test_a_plan_that_replaces_a_lost_one_asks_for_what_the_limits_ask() -> None:
    """Of 223 files 30 were a share that needs nobody; the plan is lost while they go, and 153 are found instead."""
    limits = ApprovalLimits(first_run_deletes=True)
    world, table, _ = beach(30)
    for number in range(193 - sum(1 for _ in world.lake.uris()) + 30):
        world.orphan(f"s3://lake/wh/t/_kept/{number}")
    world.lake.pass_days(4)
    ctx = world.context(table, limits=limits)
    usual, deletes = ctx.store.delete_unchanged, list[str]()

    def delete(bucket: str, listed: object) -> object:
        deletes.append(bucket)
        if len(deletes) > 1:
            raise RuntimeError("the process ends")
        return usual(bucket, listed)  # type: ignore[arg-type]

    ctx.store.delete_unchanged = delete  # type: ignore[method-assign, assignment]
    with pytest.raises(RuntimeError):
        remove_orphan_files(ctx)
    more = {world.orphan(f"s3://lake/wh/t/data/n{number:03d}.parquet") for number in range(126)}
    world.lake.pass_days(4)
    del world.plans.objects[f"{world.plan().plan_id}/index.json"]
    waiting = remove_orphan_files(replace(world.context(table, limits=limits), began=True))
    assert (waiting.status, waiting.waits) == ("WAITING", "max-share")
    assert more <= world.lake.uris()
