"""What a refused commit and one without an answer lead to, in this attempt and the next ones."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from delegation.polaris.answers import (
    CommitConflict,
    NoSuchTable,
    PolarisError,
    PolarisForbidden,
    PolarisOutcomeUnknown,
    PolarisUnavailable,
    PolarisUnexpectedAnswer,
)
from delegation.polaris.model import LoadedTable
from delegation.removal.expiry.context import ExpiryResult
from delegation.removal.expiry.errors import RefLost
from delegation.removal.expiry.run import expire_snapshots
from delegation.tasks.life.model import Status
from tests.kit.lakes.lake import filled
from tests.kit.worlds.expiring import ExpiringWorld
from tests.unit.removal.expiry.attacks.test_refs import unanswered_first
from tests.unit.removal.expiry.test_orders import Story, check, tag_old, until_it_ends

REFUSALS: list[Callable[[], PolarisError]] = [
    lambda: PolarisForbidden("the principal needs TABLE_WRITE_PROPERTIES", status=403),
    lambda: PolarisUnexpectedAnswer("Polaris answered 422", status=422),
    lambda: NoSuchTable("no", status=404),
]


@pytest.fixture
def world() -> ExpiringWorld:
    return filled(ExpiringWorld(), "t")


@pytest.mark.parametrize("refusal", REFUSALS, ids=["403", "422", "404"])
def test_a_request_with_other_properties_is_accepted_after_a_commit_that_was_refused(
    world: ExpiringWorld, refusal: Callable[[], PolarisError]
) -> None:
    """Nothing was committed, so nothing has to be finished first."""
    world.commits.refused = refusal()
    before = set(world.lake.uris())
    failed = world.expire("t")
    assert (failed.status, failed.error_code) == (Status.FAILURE, "COMMIT_REFUSED")
    assert str(refusal()) in str(failed.result_summary)
    assert set(world.lake.uris()) == before

    world.commits.refused = None
    task = world.expire("t", **{"retain-last": "2"})

    assert (task.task_id, task.status, world.commits.made) == (failed.task_id, Status.SUCCESS, 1)


def refused_again(story: Story, error: PolarisError) -> Callable[[], object]:
    """Return an attempt all of whose commits are refused, as by a catalog that compares whole metadata files."""
    ctx = story.world.context(story.table)

    def refuse(*_: object) -> LoadedTable:
        raise error

    story.world.catalogs[-1].commit_table = refuse  # type: ignore[method-assign, assignment]
    return lambda: expire_snapshots(ctx)


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (CommitConflict("concurrent update", status=409), "POLARIS_OUTCOME_UNKNOWN"),
        (PolarisForbidden("no", status=403), "POLARIS_FORBIDDEN"),
    ],
    ids=["conflicts", "a refusal"],
)
def test_what_refuses_the_next_commits_does_not_end_the_plan_of_one_without_an_answer(
    refusal: PolarisError, code: str
) -> None:
    """It may be applied after the last refusal, and take a new tag with it: a later attempt has to find that."""
    story = Story()
    arrives = unanswered_first(story)
    again = refused_again(story, refusal)

    with pytest.raises(PolarisError) as raised:
        again()

    assert (raised.value.code, raised.value.retryable) == (code, code == "POLARIS_OUTCOME_UNKNOWN")
    tag_old(story)
    arrives()
    ended = until_it_ends(story)
    assert isinstance(ended, RefLost)
    check(story, ended)


def test_a_commit_without_an_answer_is_waited_for_although_nothing_of_its_plan_is_expired_any_more() -> None:
    """Every planned snapshot is tagged meanwhile, and the commit asserts none of these tags."""
    story = Story()
    arrives = unanswered_first(story)
    for snapshot_id in story.ids - {story.table.refs["main"]}:
        story.table.tag(f"new{snapshot_id}", snapshot_id)
    tag_old(story)

    with pytest.raises(PolarisUnavailable):
        expire_snapshots(story.world.context(story.table))

    arrives()
    ended = until_it_ends(story)
    assert isinstance(ended, RefLost)
    check(story, ended)


@pytest.mark.parametrize(("hours", "waits"), [(23, True), (25, False)])
def test_a_commit_without_an_answer_is_waited_for_a_day(hours: int, waits: bool) -> None:
    story = Story()
    unanswered_first(story)
    tag_old(story)
    for snapshot_id in story.ids - {story.table.refs["main"]}:
        story.table.tag(f"new{snapshot_id}", snapshot_id)
    story.lake.now_ms += hours * 3_600_000
    ctx = story.world.context(story.table)
    if waits:
        with pytest.raises(PolarisOutcomeUnknown, match="may still be applied"):
            expire_snapshots(ctx)
    else:
        assert expire_snapshots(ctx).status == "NOTHING"


def test_a_commit_without_an_answer_that_another_one_made_impossible_is_not_waited_for() -> None:
    story = Story()
    arrives = unanswered_first(story)
    for snapshot_id in story.ids - {story.table.refs["main"]}:
        story.table.tag(f"new{snapshot_id}", snapshot_id)
    story.table.append()

    ended = until_it_ends(story)

    assert isinstance(ended, ExpiryResult)
    assert ended.status == "NOTHING"
    before = story.table.refs
    with suppress(PolarisError):
        arrives()
    assert story.table.refs == before


def test_after_conflicts_alone_the_next_request_makes_a_plan_of_its_own(world: ExpiringWorld) -> None:
    world.commits.refused = CommitConflict("concurrent update", status=409)
    failed = world.expire("t")
    for _ in range(30):
        if failed.is_terminal:
            break
        world.later(24)
        failed = world.tasks.reads.get(failed.task_id)
    assert (failed.status, failed.error_code) == (Status.FAILURE, "COMMITS_FORESTALLED")

    world.commits.refused = None
    assert world.expire("t", **{"retain-last": "2"}).status is Status.SUCCESS
