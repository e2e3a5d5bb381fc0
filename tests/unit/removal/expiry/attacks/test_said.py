"""What an expiry says of itself beside others' acts: what it removed is gone, and what it leaves is named."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from delegation.removal.attempt import PlanHead
from delegation.removal.chunks import Phase
from delegation.removal.errors import PlanLost
from delegation.removal.expiry.behavior import success
from delegation.removal.expiry.context import ExpiryContext, ExpiryResult
from delegation.removal.expiry.errors import ExpiryError, RefLost, check_table
from delegation.removal.expiry.planning import metadata_of
from delegation.removal.expiry.retention import Withdrawn
from delegation.removal.expiry.run import expire_snapshots
from delegation.removal.index import planned_paths
from delegation.storage.memory import Faults, Killed
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.stories.expiries import EVERYTHING
from tests.kit.stories.tables import identifier
from tests.unit.removal.expiry.test_orders import (
    COMMIT,
    COMPARE_REFS,
    FIRST_DELETE,
    SUBTRACT,
    Story,
    rename,
    tag_old,
    until_it_ends,
)
from tests.unit.removal.expiry.test_orders import replace as replace_table

COMMITS_LOAD = COMMIT - 1
REFS_TOO = replace(EVERYTHING, max_ref_age_ms=1)


def receipt(story: Story) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(story.world.plans.objects[f"{story.world.plan().plan_id}/receipt.json"])
    return found


def with_an_old_tag(story: Story) -> ExpiryContext:
    story.table.tag("stale", story.old)
    return story.world.context(story.table, REFS_TOO)


def move_the_tag(story: Story) -> None:
    story.table.tag("stale", story.table.refs["main"])


def test_a_tag_that_was_moved_before_the_commit_is_not_said_to_be_removed() -> None:
    story = Story()
    ctx = with_an_old_tag(story)
    story.world.catalogs[-1].before[COMMITS_LOAD] = lambda: move_the_tag(story)

    result = expire_snapshots(ctx)

    assert "stale" in story.table.refs
    assert (result.status, result.refs, receipt(story)["refs_removed"]) == ("EXPIRED", (), {})
    assert not success(result)[1]["refs_expired"]


def test_a_schema_that_is_used_again_before_the_commit_is_not_said_to_be_removed() -> None:
    story = Story()
    story.table.apply({"action": "add-schema", "schema": {"type": "struct", "fields": [FIELD]}})
    other = max(one["schema-id"] for one in story.table.document["schemas"])

    result = story.expire(
        {COMMITS_LOAD: lambda _: story.table.apply({"action": "set-current-schema", "schema-id": other})},
        retention=replace(EVERYTHING, clean_expired_metadata=True),
    )

    assert other in {one["schema-id"] for one in story.table.document["schemas"]}
    assert (result.status, other in receipt(story)["schemas_removed"]) == ("EXPIRED", False)


FIELD = {"id": 1, "name": "a", "required": False, "type": "long"}


def test_what_was_removed_is_said_by_an_attempt_after_the_one_that_committed_too() -> None:
    story = Story()
    ctx = with_an_old_tag(story)
    story.world.catalogs[-1].lost.add(1)
    story.world.catalogs[-1].before[COMPARE_REFS + 1] = lambda: (_ for _ in ()).throw(InterruptedError)
    with pytest.raises(InterruptedError):
        expire_snapshots(ctx)

    result = expire_snapshots(story.world.context(story.table, REFS_TOO))

    assert (result.status, result.refs) == ("EXPIRED", ("stale",))
    assert receipt(story)["refs_removed"] == {"stale": str(story.old)}


def test_an_expiry_that_stopped_before_its_commit_names_no_ref_as_removed() -> None:
    story = Story()
    ctx = with_an_old_tag(story)
    calls: list[int] = []

    def permitted(_table: object) -> Any:
        calls.append(1)
        return REFS_TOO if len(calls) == 1 else Withdrawn("the policy is detached")

    result = expire_snapshots(replace(ctx, permitted=permitted))

    assert "stale" in story.table.refs
    assert (result.status, result.refs) == ("STOPPED", ())


def test_a_stop_after_a_commit_that_removed_refs_alone_is_not_said_to_have_changed_nothing() -> None:
    result = ExpiryResult(
        status="STOPPED",
        identifier=identifier("t"),
        table_uuid="uuid",
        metadata_location="",
        refs=("stale",),
        withdrawn="the policy is detached",
    )
    summary, details, _ = success(result)
    assert "nothing changed" not in summary
    assert details["refs_expired"] == 1


def forbid(story: Story) -> None:
    story.table.set(**{"gc.enabled": "false"})


AFTER_COMMIT = {"NO_SUCH_TABLE": rename, "TABLE_UUID_MISMATCH": replace_table, "GC_DISABLED": forbid}


@pytest.mark.parametrize("at", [COMPARE_REFS, SUBTRACT, FIRST_DELETE, FIRST_DELETE + 1])
@pytest.mark.parametrize(("code", "event"), list(AFTER_COMMIT.items()))
def test_what_an_error_after_the_commit_leaves_is_named_in_a_receipt(
    code: str, event: Callable[[Story], None], at: int
) -> None:
    story = Story()
    uuid = str(story.table.document["table-uuid"])
    ctx = with_an_old_tag(story)
    ctx = replace(ctx, check=lambda table: check_table(metadata_of(table), table_uuid=uuid))
    story.world.catalogs[-1].before[at] = lambda: event(story)

    with pytest.raises(DelegationError) as raised:
        expire_snapshots(ctx)

    assert (raised.value.code, raised.value.retryable) == (code, False)
    story.world.plans.faults = Faults()
    found = receipt(story)
    planned = set(planned_paths(story.world.plans, [story.world.plan()], (Phase.DATA, Phase.META)))
    assert (found["status"], found["findings"][-1]["code"]) == ("INCOMPLETE", code)
    assert found["findings"][-1]["count"] == len(planned & story.lake.uris()) > 0
    assert str(story.old) in found["snapshots_removed"]
    assert found["refs_removed"] == {"stale": str(story.old)}


@pytest.mark.parametrize("at", [COMMIT, COMPARE_REFS, SUBTRACT, FIRST_DELETE, FIRST_DELETE + 1])
def test_a_plan_of_which_a_part_is_lost_is_made_again_so_that_the_task_ends(at: int) -> None:
    story = Story()

    def lose_a_part(_: Story) -> None:
        for key in [key for key in story.world.plans.objects if "META-" in key and "/done/" not in key]:
            del story.world.plans.objects[key]

    ended = story.expire({at: lose_a_part})

    assert "EARLIER_PLAN_LOST" in {finding.code for finding in ended.findings}
    assert story.world.commits() == 1
    assert story.lake.readable() == {"t": set()}
    # The task can be asked for again, too.
    assert isinstance(until_it_ends(story), ExpiryResult)


def test_a_lost_ref_is_reported_although_a_clone_with_the_snapshot_took_the_tables_name() -> None:
    story = Story()

    def rename_and_clone(_: Story) -> None:
        rename(story)
        story.lake.pointers["t"] = story.old_pointer

    with pytest.raises(RefLost):
        story.expire({COMMIT: tag_old, COMPARE_REFS: rename_and_clone})

    assert story.promised <= story.lake.uris()


def test_a_ref_that_an_operator_brought_back_after_the_commit_is_not_lost() -> None:
    story = Story()
    ctx = story.world.context(story.table)
    catalog = story.world.catalogs[-1]
    pointers: list[str] = []

    def tag_and_remember() -> None:
        tag_old(story)
        pointers.append(story.table.pointer)

    def restore() -> None:
        story.lake.pointers["t"] = pointers[0]

    catalog.before.update({COMMIT: tag_and_remember, COMPARE_REFS: restore})

    assert expire_snapshots(ctx).status == "EXPIRED"
    assert story.lake.readable() == {"t": set()}


def lose_parts(story: Story, *names: str) -> None:
    """Remove the stored objects of the plan with one of these texts in their keys, but no mark of a deleted chunk."""
    for key in list(story.world.plans.objects):
        if "/done/" not in key and any(name in key for name in names):
            del story.world.plans.objects[key]


@pytest.mark.parametrize("at", [at - 1 for at in (COMPARE_REFS, SUBTRACT, FIRST_DELETE)])
def test_an_approved_plan_that_loses_a_part_after_its_commit_says_what_stays_and_is_replaced_by_none(at: int) -> None:
    story = Story()
    dry = story.world.expire(story.table, dry_run=True, task_id="dry")
    approved = set(story.world.planned())
    before = story.lake.uris()
    story.world.head = PlanHead()

    with pytest.raises(ExpiryError, check=coded("EARLIER_PLAN_LOST")) as raised:
        story.expire({at: lambda _: lose_parts(story, "META-")}, execute_plan=dry.plan_ids[0])

    assert "delegation orphans scan" in str(raised.value)
    assert (raised.value.code, raised.value.retryable) == ("EARLIER_PLAN_LOST", False)
    gone = before - story.lake.uris()
    assert gone <= approved
    found = receipt(story)
    left = [one["count"] for one in found["findings"] if one["code"] == "EARLIER_PLAN_LOST"]
    assert (found["status"], left) == ("INCOMPLETE", [len(approved - gone)])
    assert str(story.old) in found["snapshots_removed"]


# An approved plan needs no load to decide, so each call is one earlier.
LOAD, SEND, LOOK = (at - 1 for at in (COMMIT - 1, COMMIT, COMPARE_REFS))


@pytest.mark.parametrize("at", [LOAD, SEND, LOOK])
def test_an_approved_plan_whose_index_is_lost_is_known_by_the_notes_of_its_commit(at: int) -> None:
    story = Story()
    dry = story.world.expire(story.table, dry_run=True, task_id="dry")
    story.world.head = PlanHead()
    before = story.lake.uris()

    def die(_: Story) -> None:
        raise Killed("load")

    with pytest.raises(Killed):
        story.expire({at: die}, execute_plan=dry.plan_ids[0])
    lose_parts(story, "index.json")

    with pytest.raises(DelegationError) as raised:
        expire_snapshots(story.world.context(story.table, execute_plan=dry.plan_ids[0]))

    said = {LOAD: "new plan", SEND: "may be removed", LOOK: "are removed"}[at]
    assert said in str(raised.value)
    assert isinstance(raised.value, PlanLost) == (at == LOAD)
    assert raised.value.code == (PlanLost.code if at == LOAD else "EARLIER_PLAN_LOST")
    assert before - story.lake.uris() == set()
    assert story.world.commits() == (at == LOOK)
