"""What policies ask for is done: in the order of events, by passes that may die, beside other processes."""

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.polaris.answers import (
    NoSuchNamespace,
    NoSuchTable,
    PolarisForbidden,
    PolarisUnavailable,
    PoliciesNotSupported,
)
from delegation.polaris.policies import PolicyTarget
from delegation.removal.errors import POLICY_WITHDRAWN
from delegation.removal.expiry.requests import TableExpiry
from delegation.removal.expiry.task_type import PLAN_TASK_TYPE, TASK_TYPE
from delegation.tasks.life.model import Status
from delegation.upkeep.execution.expiries import PolicyExpiries
from delegation.upkeep.execution.kinds import UpkeepCounts
from delegation.upkeep.execution.passes import run_kinds
from delegation.upkeep.rules.limits import DAY_MS, UpkeepLimits, UpkeepSettings
from delegation.upkeep.schedule import PolicyTerms, Waits, Window
from tests.unit.upkeep.execution.catalogs import (
    ALLOWED,
    NOW,
    WEEK,
    Killed,
    UpkeepWorld,
    killing,
    named,
    without_history,
)

OLD = [30.0, 20.0, 1.0]


CLOSED = UpkeepSettings(PolicyTerms(Window("0 1 1 1 *", timedelta(hours=1))))
"""Settings by which no run begins."""


def world_of(*names: str, content: Any = WEEK) -> UpkeepWorld:
    """Return tables with old snapshots, and a policy on their namespace."""
    world = UpkeepWorld()
    for name in names:
        world.write(name, OLD)
    world.policies.attach(content, "ns")
    return world


def tables(world: UpkeepWorld) -> list[str]:
    """Return the tables that have a task."""
    return [TableExpiry.of(task).identifier.name for task in world.all_tasks()]


def test_where_the_operator_allows_no_type_no_policy_is_read_and_without_one_no_table_loaded() -> None:
    world = world_of("a", "b")
    assert world.run(limits=UpkeepLimits()) == UpkeepCounts()
    assert not world.policies.asked
    world.policies.detach("ns")
    assert world.run() == UpkeepCounts(tables=2)
    assert not world.loads
    assert world.all_tasks() == []


def test_a_policy_of_a_namespace_has_its_tables_expired_with_its_values() -> None:
    world = world_of("a", content={"enable": True, "config": {"max_snapshot_age_days": 7, "min_snapshot_to_keep": 2}})
    assert world.run().started == 1
    [task] = world.all_tasks()
    wanted = TableExpiry.of(task)
    assert (task.task_type, task.status, task.payload_version) == (TASK_TYPE, Status.SUBMITTED, 2)
    assert (wanted.identifier, wanted.policy, wanted.is_dry_run) == (named("a"), "lake.gov.keep", False)
    assert wanted.properties["max-snapshot-age-ms"] == str(7 * DAY_MS)
    assert wanted.properties["retain-last"] == "2"
    assert wanted.table.table_uuid == world.documents["a"]["table-uuid"]
    assert world.tasks.types.traits(task).is_background
    assert world.health("a").expirable == 1
    plan = world_of("a")
    plan.run(limits=replace(ALLOWED, dry_run_only=True))
    [task] = plan.all_tasks()
    assert (task.task_type, TableExpiry.of(task).is_dry_run) == (PLAN_TASK_TYPE, True)


def test_a_table_that_needs_nothing_gets_no_task_until_its_snapshots_are_old_enough() -> None:
    world = UpkeepWorld()
    world.write("a", [5.0, 1.0])
    world.policies.attach(WEEK, "ns")
    assert world.run().started == 0
    world.later(days=1)
    assert world.run().started == 0
    world.loads.clear()
    world.later(days=1, hours=1)
    assert world.run().computed == 1
    assert world.loads == {"a": 1}  # by the submission alone
    assert len(world.all_tasks()) == 1


def test_a_second_pass_while_the_first_ones_task_runs_submits_nothing() -> None:
    world = world_of("a")
    assert world.run().started == 1
    world.later(minutes=15)
    counts = world.run()
    assert (counts.started, counts.waiting) == (0, {Waits.RUNS.value: 1})
    assert world.submissions() == 1


def test_a_pass_killed_at_any_table_and_repeated_submits_each_task_once() -> None:
    names = ["a", "b", "c"]
    for at in range(1, 30):
        world = world_of(*names)
        try:
            world.run(checkpoint=killing(at))
        except Killed:
            world.later(seconds=30)
            world.run()
        else:
            assert at > len(names)
            break
        assert (world.submissions(), sorted(tables(world))) == (len(names), names), at
        assert all(world.health(name).runs[TASK_TYPE].ended is None for name in names)
    else:
        pytest.fail("the pass never ended")


def test_a_task_of_a_killed_pass_that_ended_before_the_next_one_is_not_submitted_again() -> None:
    world = world_of("a")
    with pytest.raises(Killed):
        # The last checkpoint: the run is reserved, and not submitted.
        world.run(checkpoint=killing(3))
    assert world.all_tasks() == []
    world.run()
    world.finish("a")
    world.later(minutes=15)
    assert world.run().started == 0
    run = world.health("a").runs[TASK_TYPE]
    assert (run.outcome, run.failures) == ("SUCCESS", 0)
    assert run.ended is not None
    assert world.submissions() == 1


def test_every_ended_run_is_once_in_the_past_of_its_table_although_its_task_says_only_the_last() -> None:
    world = world_of("a")
    for removed in (2, 5):
        world.write("a", OLD)
        assert world.run().started == 1
        began = world.now
        world.later(minutes=1)
        world.finish("a", details={"files_deleted": 7, "bytes_deleted": 700, "snapshots_expired": removed})
        for _ in range(3):
            world.later(minutes=15)
            world.run()
        newest = world.health("a").past[0]
        assert (newest.task_type, newest.outcome, newest.files, newest.bytes) == (TASK_TYPE, "SUCCESS", 7, 700)
        run = world.health("a").runs[TASK_TYPE]
        assert (newest.began, newest.task_id, run.used.files, run.used.bytes) == (began, run.task_id, 7, 700)
        assert (world.health("a").expirable, world.health("a").since) == (0, None)
        world.write("a", OLD)
        assert world.run().waiting == {Waits.RAN_TODAY.value: 1}
        world.later(days=1)
    assert [one.snapshots for one in world.health("a").past] == [5, 2]
    world.write("a", OLD, properties={"gc.enabled": "false"})
    world.run()
    refusal = world.health("a").past[0]
    assert (refusal.outcome, refusal.task_id, refusal.files) == ("GC_DISABLED", "", 0)


def test_a_table_that_changes_all_the_time_keeps_the_start_of_its_need() -> None:
    world = world_of("a")
    world.run(settings=CLOSED)
    first = world.now
    for _ in range(5):
        world.later(hours=1)
        world.documents["a"]["snapshots"][-1]["timestamp-ms"] += 1
        world.look("a")
        world.run(settings=CLOSED)
    assert world.health("a").since == first


def test_a_failed_run_is_tried_again_after_ever_longer_pauses() -> None:
    world = world_of("a")
    starts = []
    for hour in range(24 * 40):
        if world.run().started:
            starts.append(hour)
            world.finish("a", error="NO")
        world.later(hours=1)
    pauses = [later - before for before, later in itertools.pairwise(starts)]
    assert pauses == sorted(pauses)
    assert max(pauses) >= 24 * 7
    assert world.health("a").runs[TASK_TYPE].outcome == "NO"


@pytest.mark.parametrize(("failed_at", "again_at"), [("12:00", "00:00"), ("23:45", "00:45")])
def test_a_failed_run_is_tried_again_on_the_next_day_an_hour_later_at_the_earliest(failed_at, again_at):
    world = world_of("a")
    while f"{world.now:%H:%M}" != failed_at:
        world.later(minutes=15)
    world.run()
    world.finish("a", error="NO")
    world.later(minutes=15)
    while not world.run().started:
        world.later(minutes=15)
    assert (f"{world.now:%H:%M}", world.now.day) == (again_at, 24)


def test_a_table_that_a_guard_refuses_is_not_loaded_in_each_pass() -> None:
    world = UpkeepWorld()
    world.write("a", OLD, properties={"gc.enabled": "false"})
    world.policies.attach(WEEK, "ns")
    for _ in range(10):
        assert world.run().started == 0
        world.later(minutes=15)
    assert world.loads["a"] == 1
    assert world.health("a").runs[TASK_TYPE].outcome == "GC_DISABLED"
    assert world.all_tasks() == []


def test_a_changed_rule_has_the_need_computed_again_without_a_load() -> None:
    world = world_of("a", content={"enable": True, "config": {"max_snapshot_age_days": 100}})
    assert (world.run().started, world.health("a").expirable) == (0, 0)
    world.policies.attach({"enable": True, "config": {"max_snapshot_age_days": 25}}, "ns", version=1)
    assert world.run(settings=CLOSED).computed == 1
    assert (world.loads.total(), world.health("a").expirable) == (0, 1)
    assert world.run(settings=CLOSED).computed == 0
    world.policies.detach("ns")
    world.run(settings=CLOSED)
    assert (world.health("a").expirable, world.health("a").rule) == (None, "")


def test_a_policy_attached_to_an_unchanged_table_itself_is_seen_by_the_next_pass() -> None:
    world = world_of("a", "b")
    world.policies.detach("ns")
    world.run()
    world.policies.attach(WEEK, "ns", table="a")
    world.later(minutes=15)
    assert world.run().started == 1
    assert tables(world) == ["a"]
    world.policies.attach({"enable": False}, "ns", table="a")
    world.later(minutes=15)
    world.run()
    assert world.health("a").expirable is None


def test_own_policies_of_many_tables_are_read_in_turn() -> None:
    names = [f"t{n}" for n in range(7)]
    world = world_of(*names)
    world.policies.detach("ns")
    for _ in range(4):
        world.policies.asked.clear()
        world.run(most_asked=2)
        world.later(minutes=15)
        assert world.policies.asked[PolicyTarget("lake", ("ns",))] == 1
        assert sum(count for target, count in world.policies.asked.items() if target.table) == 2
    assert all(world.health(name).own is not None for name in names)
    world.write("t3", OLD)
    world.policies.asked.clear()
    world.run(most_asked=1)
    assert world.policies.asked[PolicyTarget("lake", ("ns",), "t3")] == 1


def test_a_history_that_is_too_large_to_be_kept_is_loaded_for_a_bounded_number_of_tables() -> None:
    world = world_of("a", "b", "c")
    for name in ("a", "b", "c"):
        without_history(world, name)
    assert world.run(settings=CLOSED, loads=2).computed == 2
    assert world.loads.total() == 2
    assert world.run(settings=CLOSED, loads=2).computed == 1


def test_a_history_of_another_metadata_file_than_the_health_s_decides_nothing() -> None:
    # A process that read an earlier state of the table, and was paused, stores what it read last.
    world = world_of("a")
    earlier = world.healths.read_state(named("a"))
    world.write("a", [30.0, 25.0, 20.0, 1.0])
    world.healths.put(world.health("a"), replace(earlier, metadata_location="s3://b/a/3.metadata.json"))
    world.policies.attach(WEEK, "ns")
    world.run()
    assert (world.health("a").expirable, world.loads["a"] > 0) == (3, True)


@pytest.mark.parametrize(
    ("problem", "started"), [("HEALTH_TABLE_TOO_LARGE: 30,000 manifests", 1), ("MANIFEST_MISSING: m0.avro", 0)]
)
def test_of_a_table_that_cannot_be_read_nothing_is_decided_unless_its_manifests_alone_are_too_many(problem, started):
    world = world_of("a")
    world.healths.put(replace(world.health("a"), problem=problem))
    world.policies.attach(WEEK, "ns")
    assert world.run().started == started


@pytest.mark.parametrize("content", ["no JSON", "{}", '{"enable": true, "config": {"max_snapshot_age_days": "soon"}}'])
def test_a_policy_that_is_not_valid_stops_itself_alone_and_is_named(content: str) -> None:
    world = world_of("a", "b")
    world.policies.attach(content, "ns", table="a", name="broken")
    counts = world.run()
    assert counts.started == 1
    assert tables(world) == ["b"]
    [invalid] = counts.invalid
    assert "lake.gov.broken" in invalid


def test_a_health_names_policies_that_cannot_be_read_until_they_can() -> None:
    world = world_of("a", "b")
    needs = "POLARIS_FORBIDDEN: the principal needs NAMESPACE_READ_PROPERTIES"
    world.policies.broken[PolicyTarget("lake", ("ns",))] = PolarisForbidden(needs.partition(": ")[2], status=403)
    assert (world.run().started, world.run().unread) == (0, 2)
    found = [world.health(name).asides[PolicyExpiries.unread] for name in ("a", "b")]
    assert {(one.error, one.since) for one in found} == {(needs, NOW)}
    revision = world.health("a").revision
    world.later(minutes=15)
    world.run()
    assert world.health("a").revision == revision  # one write for a reason, however many passes meet it
    world.policies.broken.clear()
    assert world.run().started == 2
    assert not world.health("a").asides


NOT_FOUND = [
    (PolicyTarget("lake", ("ns",), "a"), NoSuchTable("no table a", status=404)),
    (PolicyTarget("lake", ("ns",)), NoSuchNamespace("no namespace ns", status=404)),
]


@pytest.mark.parametrize(("target", "error"), NOT_FOUND)
def test_a_listed_table_whose_policies_are_not_found_is_named_and_is_not_one_without_policies(target, error):
    world = world_of("a")
    world.policies.broken[target] = error
    counts = world.run()
    assert (counts.started, counts.unread, world.all_tasks()) == (0, 1, [])
    assert "lake.ns.a" in str(counts.why_unread)
    assert str(error) in str(counts.why_unread)


def test_policies_that_are_not_found_when_a_run_starts_are_the_outcome_of_the_run() -> None:
    world = world_of("a")
    target, error = NOT_FOUND[0]
    made = world.making(
        checkpoint=lambda: world.policies.broken.update({target: error} if world.health("a").rule else {})
    )
    assert run_kinds((made,), "lake").started == 0
    assert (world.all_tasks(), world.health("a").runs[TASK_TYPE].outcome) == ([], "NO_SUCH_TABLE")


@pytest.mark.parametrize(("target", "error"), NOT_FOUND)
def test_a_table_that_was_dropped_since_it_was_listed_is_no_finding(target: PolicyTarget, error: Exception) -> None:
    world = world_of("a", "b", "c")
    for name in ("a", "b", "c"):
        del world.documents[name]
    world.policies.broken |= {replace(target, table=target.table and name): error for name in ("a", "b", "c")}
    world.loads.clear()
    counts = world.run()
    assert (counts.started, counts.unread, counts.why_unread) == (0, 0, None)
    assert world.loads.total() <= (3 if target.table else 1)


def test_a_catalog_that_does_not_answer_or_has_no_policies_has_nothing_done() -> None:
    names = [f"t{number}" for number in range(30)]
    world = world_of(*names)
    for target in (PolicyTarget("lake"), *(PolicyTarget("lake", ("ns",), name) for name in names)):
        world.policies.broken[target] = PolarisUnavailable("no", status=503)
    with pytest.raises(PolarisUnavailable):
        world.run()
    assert world.policies.asked.total() == 21, "twenty tables, and the catalog itself"
    for name in names:
        world.policies.broken[PolicyTarget("lake", ("ns",), name)] = PoliciesNotSupported("no", status=404)
    with pytest.raises(PoliciesNotSupported):
        world.run()
    assert world.all_tasks() == []


def test_a_policy_that_is_detached_before_the_submission_submits_nothing() -> None:
    """Between the pass's reading of the namespace and the submission; the table's own look is the last word."""
    world = world_of("a")
    made = world.making(checkpoint=lambda: world.policies.attached.clear() if world.health("a").rule else None)
    assert run_kinds((made,), "lake").started == 0
    assert world.all_tasks() == []
    assert world.health("a").expirable is None


def test_a_callers_expiry_of_the_table_is_in_the_way_and_is_left_alone() -> None:
    world = world_of("a")
    world.asked_by_a_caller("a")
    assert world.run().started == 0
    [task] = world.all_tasks()
    assert TableExpiry.of(task).policy is None
    assert TASK_TYPE not in world.health("a").runs


def test_a_need_of_a_former_rule_starts_nothing_until_it_is_computed_by_the_present_one() -> None:
    """The history is too large to be kept, and the pass has no load left for it."""
    world = world_of("a")
    without_history(world, "a")
    world.policies.attach(WEEK, "ns")
    assert world.run(settings=CLOSED).computed == 1
    world.policies.attach({"enable": True, "config": {"max_snapshot_age_days": 100}}, "ns", version=1)
    counts = world.run(loads=0)
    assert (counts.started, counts.waiting, world.all_tasks()) == (0, {}, [])
    world.later(minutes=15)
    assert world.run().computed == 1
    assert (world.health("a").expirable, world.all_tasks()) == (0, [])


def test_a_run_whose_task_was_not_submitted_is_not_settled_by_the_end_of_the_former_run() -> None:
    world = world_of("a")
    world.run()
    world.finish("a")
    world.later(days=1)
    world.run()
    world.write("a", OLD)

    def killed_once_reserved() -> None:
        if world.health("a").runs[TASK_TYPE].ended is None:
            raise Killed

    with pytest.raises(Killed):
        world.run(checkpoint=killed_once_reserved)
    assert world.submissions() == 1
    world.later(minutes=15)
    assert world.run().started == 1
    assert (world.submissions(), len(world.health("a").past)) == (2, 1)


@pytest.mark.parametrize("failed", [False, True])
def test_a_callers_expiry_that_failed_after_its_commit_is_never_repeated_as_a_run_of_a_policy(failed: bool) -> None:
    world = world_of("a")
    world.fail(world.asked_by_a_caller("a"), effects=failed)
    assert world.run().started == (not failed)
    [task] = world.all_tasks()
    assert TableExpiry.of(task).policy == (None if failed else "lake.gov.keep")
    assert ("EXPIRY_UNFINISHED" in str(world.health("a").asides.get(TASK_TYPE))) is failed


def test_the_plan_of_a_callers_expiry_that_fails_after_its_commit_while_a_run_is_reserved_is_kept() -> None:
    world = world_of("a")

    def callers() -> None:
        if TASK_TYPE in world.health("a").runs and not world.all_tasks():
            world.fail(world.asked_by_a_caller("a"), effects=True)

    world.run(checkpoint=callers)
    [task] = world.all_tasks()
    assert task.effects_began_ts is not None


def test_after_a_run_whose_policy_was_withdrawn_its_need_is_computed_again() -> None:
    """Its commit may have removed some of the snapshots: what was to expire before it says nothing."""
    world = world_of("a")
    world.run()
    world.finish("a", details={"findings": [{"code": POLICY_WITHDRAWN, "count": 1, "sample": ["lake.gov.keep"]}]})
    world.later(minutes=15)
    world.policies.broken[PolicyTarget("lake", ("ns",))] = PolarisForbidden("no", status=403)
    world.run()
    health = world.health("a")
    assert (health.runs[TASK_TYPE].outcome, health.rule, health.expirable) == ("STOPPED", "", None)
    world.policies.broken.clear()
    world.later(days=2)
    assert world.run().computed == 1
    assert world.submissions() == 2


def test_a_run_that_failed_after_its_commit_is_resumed_with_its_plan_although_the_policy_changed() -> None:
    world = world_of("a")
    world.run()
    world.fail(world.health("a").runs[TASK_TYPE].task_id, effects=True)
    world.policies.attach({"enable": True, "config": {"max_snapshot_age_days": 8}}, "ns", version=1)
    world.later(days=2)
    assert world.run().started == 1
    [task] = world.all_tasks()
    assert task.effects_began_ts is not None
    assert TableExpiry.of(task).properties["max-snapshot-age-ms"] == str(7 * DAY_MS)


def test_a_pass_counts_the_longest_wait_of_a_table_without_a_run() -> None:
    world = world_of("a")
    waits: list[tuple[timedelta, str]] = []

    def run(settings: UpkeepSettings | None = None) -> None:
        world.run(settings=settings or UpkeepSettings(), waited=lambda wait, table: waits.append((wait, str(table))))

    run(CLOSED)
    world.later(days=1)
    world.write("b", OLD)
    run(CLOSED)
    world.later(days=1)
    run()
    world.later(days=1)
    run()
    world.finish("a")
    world.finish("b")
    run()
    day, nothing = timedelta(days=1), (timedelta(0), "None")
    assert waits == [nothing, (day, "lake.ns.a"), (2 * day, "lake.ns.a"), nothing, nothing]
