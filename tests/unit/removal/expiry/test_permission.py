"""A policy that is taken back or made stricter while its expiry runs: it stops at the next point, or removes less."""

from dataclasses import asdict, dataclass, field, replace

import pytest

from delegation.polaris.answers import PolarisOutcomeUnknown, PolarisUnavailable
from delegation.polaris.model import LoadedTable
from delegation.removal.errors import POLICY_WITHDRAWN
from delegation.removal.expiry.behavior import success
from delegation.removal.expiry.context import ExpiryResult
from delegation.removal.expiry.retention import Permission, Retention, Withdrawn, keeps_more, stricter
from delegation.removal.expiry.run import expire_snapshots
from delegation.storage.memory import Faults, Killed
from tests.kit.stories.expiries import EVERYTHING
from tests.unit.removal.expiry.test_orders import SUBTRACT, Story, bring_file_back

PLAN, COMMIT, DELETE = 1, 2, 3
GONE = Withdrawn("the policy is detached")


@dataclass
class Policy:
    """What is permitted at each call, by its number: everything, unless `at` says otherwise from there on."""

    at: dict[int, Permission | Exception] = field(default_factory=dict)
    calls: int = 0

    def __call__(self, _table: LoadedTable) -> Permission:
        self.calls += 1
        now = [one for number, one in sorted(self.at.items()) if number <= self.calls]
        found = now[-1] if now else EVERYTHING
        if isinstance(found, Exception):
            raise found
        return found


def run(story: Story, policy: Policy, faults: Faults | None = None) -> ExpiryResult:
    return expire_snapshots(replace(story.world.context(story.table, faults=faults), permitted=policy))


def test_the_permission_is_read_before_plan_commit_and_first_delete() -> None:
    story, policy = Story(), Policy()
    assert run(story, policy).status == "EXPIRED"
    assert policy.calls == DELETE


@pytest.mark.parametrize("point", [PLAN, COMMIT])
def test_before_its_commit_it_stops_and_changes_nothing(point: int) -> None:
    story = Story()
    before = set(story.lake.uris())
    found = run(story, Policy({point: GONE}))
    summary, details, _ = success(found)
    assert (found.status, story.world.commits()) == ("STOPPED", 0)
    assert set(story.lake.uris()) == before
    assert story.old in story.table.ids
    assert summary.startswith("the policy is detached, ")
    assert summary.endswith("nothing changed")
    assert POLICY_WITHDRAWN in [one["code"] for one in details["findings"]]


def test_between_commit_and_first_delete_it_stops_and_deletes_nothing() -> None:
    story = Story()
    before = set(story.lake.uris())
    found = run(story, Policy({DELETE: GONE}))
    assert (found.status, story.world.commits(), found.files_deleted) == ("STOPPED", 1, 0)
    assert before <= set(story.lake.uris())
    assert found.receipt is not None
    assert "before its first delete" in success(found)[0]


def test_a_plan_made_again_is_carried_out_if_it_is_permitted_although_the_lost_one_was_not() -> None:
    story, policy = Story(), Policy({DELETE: GONE, DELETE + 1: EVERYTHING})

    def permitted(table: LoadedTable) -> Permission:
        found = policy(table)
        if found is GONE:
            story.world.plans.objects.clear()
        return found

    ctx = replace(story.world.context(story.table), permitted=permitted)
    story.world.catalogs[-1].before[SUBTRACT] = lambda: bring_file_back(story)
    found = expire_snapshots(ctx)

    assert (found.status, found.withdrawn, story.world.commits()) == ("EXPIRED", None, 2)
    assert story.world.planned() & story.lake.uris() == set()
    assert story.promised <= story.lake.uris()


def test_a_stricter_policy_before_the_commit_reduces_what_is_removed() -> None:
    story = Story()
    two = replace(EVERYTHING, retain_last=2)
    found = run(story, Policy({COMMIT: two}))
    assert found.status == "EXPIRED"
    assert len(set(story.table.ids)) == 2
    assert set(found.snapshot_ids) == story.ids - set(story.table.ids)
    assert story.lake.read_by(story.table.document, story.table.ids) <= set(story.lake.uris())


def test_a_stricter_policy_after_the_commit_deletes_nothing() -> None:
    story = Story()
    before = set(story.lake.uris())
    found = run(story, Policy({DELETE: replace(EVERYTHING, retain_last=9)}))
    assert (found.status, found.files_deleted) == ("STOPPED", 0)
    assert before <= set(story.lake.uris())


def test_a_policy_that_cannot_be_read_changes_nothing_and_a_later_attempt_completes() -> None:
    story = Story()
    # The third attempt has the second one's plan, so that its first delete is its second question.
    for question in (PLAN, COMMIT, DELETE - 1):
        before = set(story.lake.uris())
        with pytest.raises(PolarisUnavailable):
            run(story, Policy({question: PolarisUnavailable("no", status=503)}))
        assert before <= set(story.lake.uris())
    assert run(story, Policy()).status == "EXPIRED"
    assert story.world.commits() == 1


def test_killed_at_any_call_and_withdrawn_then_the_next_attempt_deletes_nothing() -> None:
    """Whatever the killed attempt had done, the next one deletes no further file."""
    for at in range(1, 200):
        story = Story()
        faults = Faults(kill_at=at)
        try:
            run(story, Policy(), faults)
        except Killed:
            pass
        else:
            assert at > 10
            break
        before = set(story.lake.uris())
        try:
            status = run(story, Policy({1: GONE})).status
        except PolarisOutcomeUnknown:
            # The commit that was to be sent may still be applied: its plan is kept for the attempt that knows.
            status = "RETRIED"
        assert status in {"STOPPED", "EXPIRED", "RETRIED"}
        assert before <= set(story.lake.uris()), at
        assert status != "EXPIRED" or story.old not in story.table.ids
    else:
        pytest.fail("the run never ended")


@pytest.mark.parametrize(
    ("now", "before", "more"),
    [
        (Retention(), Retention(), False),
        (Retention(older_than_ms=5), Retention(older_than_ms=5), False),
        (Retention(older_than_ms=4), Retention(older_than_ms=5), True),
        (Retention(older_than_ms=6), Retention(older_than_ms=5), False),
        (Retention(retain_last=2), Retention(retain_last=1), True),
        (Retention(max_ref_age_ms=2), Retention(max_ref_age_ms=1), True),
        (Retention(least_age_ms=2), Retention(), True),
        (Retention(least_snapshots=2), Retention(least_snapshots=1), True),
        (Retention(least_ref_age_ms=2), Retention(least_ref_age_ms=1), True),
        (Retention(least_ref_age_ms=1), Retention(least_ref_age_ms=2), False),
    ],
)
def test_which_of_two_keeps_more(now: Retention, before: Retention, more: bool) -> None:
    assert keeps_more(asdict(now), asdict(before)) is more


def test_the_stricter_of_two_keeps_what_either_keeps() -> None:
    first = Retention(older_than_ms=5, retain_last=1, max_ref_age_ms=9, least_age_ms=1, snapshot_ids=(1, 2))
    second = Retention(older_than_ms=9, retain_last=4, least_snapshots=3, least_ref_age_ms=7, snapshot_ids=(2,))
    expected = Retention(
        older_than_ms=5,
        retain_last=4,
        snapshot_ids=(2,),
        max_ref_age_ms=9,
        least_age_ms=1,
        least_snapshots=3,
        least_ref_age_ms=7,
    )
    assert stricter(first, second) == stricter(second, first) == expected
    assert stricter(Retention(), Retention()) == Retention()


def test_the_stricter_of_two_removes_schemas_and_specs_only_if_both_do() -> None:
    cleans = Retention(clean_expired_metadata=True)
    assert stricter(cleans, cleans) == cleans
    assert stricter(cleans, Retention()) == stricter(Retention(), cleans) == Retention()
