"""What a removal takes from earlier requests, from other tasks and from an approved plan, and what it must not take."""

import dataclasses
from typing import Any

import pytest

from delegation.references.errors import ReferencesNotKnown
from delegation.removal.attempt import PlanHead, PlanSegment
from delegation.removal.orphans.context import Claim
from delegation.removal.orphans.details import ApprovalLimits
from delegation.removal.orphans.errors import LocationShared, OrphansError, PrefixMismatch
from delegation.removal.orphans.place import MismatchMode
from delegation.removal.orphans.run import remove_orphan_files
from tests.kit.errors import coded
from tests.kit.stories.orphans import SMALL, SweptTables, hours
from tests.unit.removal.orphans.test_orders import OLD, beach

ELSEWHERE = "s3://lake/wh/zoo"
HERE = "s3://lake/wh/t/sub"


def asked(world: SweptTables, table: Any, at: str, **options: Any) -> Any:
    """Run the removal that a request of this time asks for, as the one task of the table."""
    world.head = PlanHead()
    return remove_orphan_files(dataclasses.replace(world.context(table, **options), submission=at))


def test_another_request_lists_again_and_only_the_attempts_of_one_share_a_listing() -> None:
    world, table = beach()
    in_pages = dataclasses.replace(SMALL, prefixes=1)
    assert asked(world, table, "09:00", settings=in_pages).files_deleted == 1
    found = world.orphan("s3://lake/wh/t/data/found.parquet")
    world.lake.modified["lake", found.removeprefix("s3://lake/")] -= 10 * 86_400
    world.lake.pass_days(hours(1).total_seconds() / 86_400)
    result = asked(world, table, "10:00", settings=in_pages)
    assert (result.status, result.files_deleted, result.files_absent) == ("SWEPT", 1, 0)
    assert found not in world.lake.uris()


def test_views_and_namespaces_are_requested_once_the_pass_is_complete() -> None:
    """A pass may take many looks, and a catalog may have many namespaces: before it only privileges are tried, once."""
    world, table = beach()
    looks: list[int] = []
    world.passes.late = 3
    for attempt in range(3):
        ctx = dataclasses.replace(world.context(table), places=lambda number=attempt: looks.append(number) or ())
        with pytest.raises(ReferencesNotKnown):
            remove_orphan_files(ctx)
    assert looks == [0]
    ctx = dataclasses.replace(world.context(table), places=lambda: looks.append(3) or ())
    assert remove_orphan_files(ctx).files_deleted == 1
    assert looks == [0, 3, 3]


@pytest.mark.parametrize("index", [None, b"{", b'{"format": 9}'], ids=["lost", "altered", "of a newer release"])
def test_a_plan_of_another_task_without_its_files_holds_back_only_removals_where_its_table_is(
    index: bytes | None,
) -> None:
    world, table = beach()
    if index is not None:
        world.plans.put("of-nobody/1/a/index.json", index)
    lost = PlanSegment("of-nobody/1/a", "00")
    world.claimed.append(Claim("purge of cat.ns.zoo", "other-uuid", ELSEWHERE, lost))
    assert world.sweep(table).files_deleted == 1
    world.orphan(OLD)
    world.lake.pass_days(4)
    world.claimed.append(Claim("purge of cat.ns.near", "other-uuid", HERE, lost))
    with pytest.raises(OrphansError, check=coded("CLAIM_UNKNOWN"), match=r"purge of cat\.ns\.near") as error:
        world.sweep(table)
    assert error.value.retryable
    assert OLD in world.lake.uris()


def test_an_unplanned_task_of_another_table_at_the_location_refuses_and_one_of_the_table_itself_does_not() -> None:
    """A dropped table is purged with a location that a new table has again: its files are that task's."""
    world, table = beach()
    own = str(table.document["table-uuid"])
    world.claimed.append(Claim("expiry", own, "s3://lake/wh/t", None))
    world.claimed.append(Claim("purge", "other", ELSEWHERE, None))
    assert world.sweep(table).files_deleted == 1
    world.orphan(OLD)
    world.lake.pass_days(4)
    world.claimed.append(Claim("purge of the former table", "other", "s3a://lake/wh//t", None))
    with pytest.raises(LocationShared, match="purge of the former table"):
        world.sweep(table)
    assert OLD in world.lake.uris()


def test_an_approved_plan_is_compared_as_it_was_planned() -> None:
    """The approval names the plan alone: what its request said of schemes and buckets still counts."""
    world, table = beach()
    table.append(paths=["s3://elsewhere/wh/t/data/old.parquet"])
    world.lake.pass_days(4)
    with pytest.raises(PrefixMismatch):
        asked(world, table, "1", task_id="first")
    waiting = asked(world, table, "2", limits=ApprovalLimits(), mismatch=MismatchMode.DELETE, task_id="second")
    assert (waiting.status, waiting.files_planned) == ("WAITING", 1)
    plan, allowed = waiting.plan_ids[-1], MismatchMode.DELETE
    world.approve(plan)
    approved = asked(world, table, "3", limits=ApprovalLimits(), execute_plan=plan, loosest=allowed, task_id="third")
    assert (approved.status, approved.files_deleted) == ("SWEPT", 1)
    assert OLD not in world.lake.uris()
