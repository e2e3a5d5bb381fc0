"""Attacks on refs: made, moved and lost while an expiry runs."""

import dataclasses
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from delegation.polaris.answers import PolarisError, PolarisOutcomeUnknown
from delegation.polaris.model import LoadedTable
from delegation.references.errors import ReferencesNotKnown
from delegation.removal.expiry.context import ExpiryResult
from delegation.removal.expiry.errors import RefLost, RefsUnknown
from delegation.removal.expiry.retention import Retention
from delegation.removal.expiry.run import expire_snapshots
from delegation.removal.neighbourhood import Neighbour
from delegation.storage.locations import Roots
from tests.kit.stories.tables import StoryTable
from tests.unit.removal.expiry.test_orders import (
    COMMIT,
    COMPARE_REFS,
    SUBTRACT,
    Story,
    check,
    tag_old,
)

REFS_TOO = Retention(older_than_ms=2**62, retain_last=1, max_ref_age_ms=1)
"""Expires every tag and branch but main, too."""


def test_a_new_tag_that_is_too_old_already_keeps_its_snapshot_until_the_next_expiry() -> None:
    story = Story()
    result = story.expire({COMMIT - 1: tag_old}, retention=REFS_TOO)

    assert result.status == "EXPIRED"
    assert story.table.refs["new"] == story.old
    assert story.old not in result.snapshot_ids
    check(story, result)
    again = story.world.expire(story.table, REFS_TOO, task_id="next")
    assert (again.refs, again.snapshot_ids) == (("new",), (story.old,))


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_an_old_ref_that_was_moved_to_another_old_snapshot_is_not_removed_by_a_plan_from_before(kind: str) -> None:
    story = Story()
    table = story.table
    other = table.append()
    table.append()
    move = table.branch if kind == "branch" else table.tag
    move("aside", other)

    def moved(_: Story) -> None:
        move("aside", story.old)
        story.promise(story.old)

    result = story.expire({COMMIT - 1: moved}, retention=REFS_TOO)

    assert result.status == "EXPIRED"
    assert table.refs["aside"] == story.old
    assert other not in table.ids
    check(story, result)


def test_a_branch_that_moved_keeps_as_much_of_its_history_as_the_rule_says() -> None:
    story = Story()
    table = story.table
    second, third = table.append(), table.append()
    table.append()
    table.branch("aside", third, **{"min-snapshots-to-keep": 2})

    def moved(_: Story) -> None:
        table.branch("aside", second, **{"min-snapshots-to-keep": 2})
        story.promise(second)

    result = story.expire({COMMIT - 1: moved}, retention=REFS_TOO)

    parent = next(one for one in sorted(story.ids, reverse=True) if one in table.ids and one != table.refs["main"])
    assert {second, parent, table.refs["main"]} == set(table.ids)
    check(story, result)


def lose_another_tag(story: Story) -> None:
    """Drop the tag that saved the old snapshot, and lose another one to an engine's expiry that keeps the files."""
    story.table.drop_ref("new")
    del story.tagged["new"]
    story.table.tag("lost", story.old)
    story.table.remove_snapshots(story.old)


@pytest.mark.parametrize("at", [COMPARE_REFS, SUBTRACT])
def test_a_tag_that_another_expiry_removes_after_the_refs_were_compared_is_found_too(at: int) -> None:
    story = Story()
    before = story.lake.uris()

    with pytest.raises(RefLost, match="lost at snapshot") as raised:
        story.expire({COMMIT - 1: tag_old, at: lose_another_tag})

    assert before - story.lake.uris() == set()
    check_receipt(story, "REF_LOST", raised.value.metadata_file)
    story.lake.pointers["t_restored"] = raised.value.metadata_file
    assert story.lake.readable()["t_restored"] == set()


class Passes:
    """A ReferenceCheck: the other tables are known as of the last pass, which the test makes."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._known: list[Neighbour] | None = None

    def summary(self) -> list[dict[str, Any]]:
        return []

    def renew(self) -> None:
        self._known = None

    def ensure_known(self) -> None:
        self.neighbours(None)

    def make(self) -> None:
        self._known = list(self._story.world.neighbours(self._story.table.name))

    def neighbours(self, _roots: Roots | None) -> list[Neighbour]:
        if self._known is None:
            raise ReferencesNotKnown("cat", 0, 1)
        return self._known

    def expire(self, before: Callable[[], object] | None = None) -> ExpiryResult:
        ctx = self._story.world.context(self._story.table)
        if before is not None:
            self._story.world.catalogs[-1].before[COMMIT - 1] = before
        return expire_snapshots(dataclasses.replace(ctx, references=self, neighbours=self.neighbours))


def test_snapshots_that_go_while_a_pass_is_waited_for_need_a_later_pass() -> None:
    """A tag keeps a planned snapshot over the commit. After the pass the table is cloned, and the snapshot removed."""
    story = Story()
    passes = Passes(story)
    with pytest.raises(ReferencesNotKnown):
        passes.expire(lambda: tag_old(story))
    assert story.old in story.table.ids
    passes.make()
    story.lake.pointers["clone"] = story.old_pointer
    story.table.drop_ref("new")
    story.table.remove_snapshots(story.old)
    with pytest.raises(ReferencesNotKnown):
        passes.expire()
    passes.make()
    assert passes.expire().status == "EXPIRED"
    assert story.lake.readable()["clone"] == set()


def trimming() -> Story:
    """Return a story whose table keeps one former metadata file."""
    story = Story()
    keeps = {"write.metadata.previous-versions-max": "1", "write.metadata.delete-after-commit.enabled": "true"}
    story.table.apply({"action": "set-properties", "updates": keeps})
    return story


def commit_and_trim(table: StoryTable) -> None:
    """Commit as a writer does that deletes the metadata files which its log has no more."""
    before = {one["metadata-file"] for one in table.document.get("metadata-log") or ()}
    table.append()
    for uri in before - {one["metadata-file"] for one in table.document["metadata-log"]}:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        table.lake.objects.pop((bucket, key), None)


@pytest.mark.parametrize("answered", [True, False], ids=["answered", "unanswered"])
@pytest.mark.parametrize("tagged", [True, False], ids=["tagged", "untagged"])
def test_where_the_log_is_too_short_to_know_nothing_is_deleted(answered: bool, tagged: bool) -> None:
    story = trimming()
    ctx = story.world.context(story.table)
    catalog = story.world.catalogs[-1]
    if tagged:
        catalog.before[COMMIT] = lambda: tag_old(story)
    catalog.lost.update(() if answered else {1})
    # An unanswered commit is followed by a load before that which compares.

    def trim() -> None:
        for _ in range(3):
            commit_and_trim(story.table)

    catalog.before[COMPARE_REFS] = trim
    before = {uri for uri in story.lake.uris() if not uri.endswith(".metadata.json")}

    with pytest.raises(RefsUnknown) as raised:
        expire_snapshots(ctx)

    assert before - story.lake.uris() == set()
    assert "`delegation orphans scan cat.ns.t`" in str(raised.value)
    check_receipt(story, "REFS_UNKNOWN", raised.value.metadata_file)


def check_receipt(story: Story, code: str, file: str) -> None:
    """Check that the receipt says what the table lost and which plan has the files that stay."""
    plan = story.world.plan()
    receipt = json.loads(story.world.plans.get(f"{plan.plan_id}/receipt.json"))
    assert (receipt["status"], receipt["files_deleted"], receipt["plan"]) == ("INCOMPLETE", 0, [plan.plan_id])
    assert receipt["snapshots_removed"] == [str(one) for one in plan.removal.snapshot_ids]
    [finding] = [one for one in receipt["findings"] if one["code"] == code]
    assert (finding["count"], finding["sample"]) == (len(story.world.planned(plan)), [file])
    assert finding["count"] > 0


def unanswered_first(story: Story) -> Callable[[], None]:
    """Run a first attempt whose commit has no answer; return what applies that commit late, if it still holds."""
    for _ in range(8):
        # Iceberg refuses to remove more snapshots than there are.
        story.table.tag(f"keeper{story.table.lake.next()}", story.table.append())
    ctx = story.world.context(story.table)
    first = story.world.catalogs[-1]
    late: list[Callable[[], LoadedTable]] = []
    commit = first.commit_table

    def delayed(*call: Any, **_: Any) -> LoadedTable:
        late.append(lambda: commit(*call))
        raise PolarisOutcomeUnknown("Polaris did not answer", status=None)

    first.commit_table = delayed  # type: ignore[method-assign]
    with pytest.raises(PolarisOutcomeUnknown):
        expire_snapshots(ctx)

    def arrives() -> None:
        with suppress(PolarisError):
            late[0]()

    return arrives


def test_a_commit_that_arrives_after_hours_and_takes_a_new_tag_with_it_is_noticed() -> None:
    """The first commit has no answer and is applied while the second attempt is about to send its own."""
    story = Story()
    arrives = unanswered_first(story)
    before = story.lake.uris()
    again = story.world.context(story.table)

    def late() -> None:
        tag_old(story)
        arrives()
        assert "new" not in story.table.refs
        story.table.apply({"action": "set-properties", "updates": {"a": "b"}})

    story.world.catalogs[-1].before[2] = late
    with pytest.raises(RefLost):
        expire_snapshots(again)
    assert before - story.lake.uris() == set()


@pytest.mark.parametrize("at", range(3, 9))
def test_a_commit_that_arrives_while_files_are_deleted_takes_none_that_is_kept(at: int) -> None:
    """The second attempt's commit keeps a new tag's snapshot; the first attempt's commit then removes it."""
    story = Story()
    arrives = unanswered_first(story)
    tag_old(story)
    again = story.world.context(story.table)
    # The calls of an attempt that has a plan: load, commit, compare, subtract, and one before each step.
    story.world.catalogs[-1].before[at] = arrives
    with suppress(RefLost):
        expire_snapshots(again)
    assert story.promised <= story.lake.uris()
    assert story.lake.readable() == {"t": set()}
