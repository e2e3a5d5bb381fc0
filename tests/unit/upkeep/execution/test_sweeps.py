"""Policies of orphan files become tasks: once a week for each table, within the operator's limits, and never twice."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.errors import GuardRefused
from delegation.polaris.answers import NoSuchTable, PolarisForbidden, PolarisUnavailable, PoliciesNotSupported
from delegation.polaris.policies import PolicyTarget, StoredPolicy
from delegation.removal.details import purge_id
from delegation.removal.errors import NeighbourChanged
from delegation.removal.orphans.requests import Approvers, TableOrphans, approve
from delegation.removal.orphans.task_type import PLAN_TASK_TYPE, POLICY, TASK_TYPE
from delegation.storage.memory import Killed, MemoryPlanStore
from delegation.tasks.life.model import Caller, Task
from delegation.tasks.life.policy import Lease
from delegation.upkeep.execution.asked import REMOVAL
from delegation.upkeep.execution.kinds import KeptTables
from delegation.upkeep.execution.passes import run_kinds
from delegation.upkeep.execution.permissions import PolicyPermissions
from delegation.upkeep.execution.sweeps import OrphanSweeps
from delegation.upkeep.health.model import LastRun
from delegation.upkeep.rules.limits import UpkeepLimits, UpkeepSettings
from delegation.upkeep.schedule import PolicyTerms, Window
from delegation.wire.requests import TableState
from delegation.wire.tables import PlanApproval
from tests.kit.errors import coded
from tests.unit.upkeep.execution.catalogs import NOW, WEEK, UpkeepWorld, killing, named

ALLOWED = UpkeepLimits(types=frozenset({REMOVAL}))
OFF = {"delegation.policy.orphan-file-removal.enable": "false"}
DAYS: dict[str, Any] = {"enable": True, "max_orphan_file_age_in_days": 9}


class Coast(UpkeepWorld):
    """Tables with policies of orphan files."""

    def attach(self, content: Any = DAYS, *levels: str, table: str | None = None, name: str = "sweep") -> None:
        document = content if isinstance(content, str) else json.dumps(content)
        self.policies.attached[PolicyTarget("lake", levels, table)] = StoredPolicy(REMOVAL.value, name, document, 0)

    def sweeps(self, **changes: Any) -> OrphanSweeps:
        return OrphanSweeps(**{**self.parts(), "tasks": self.tasks, "limits": ALLOWED, **changes})

    def sweep(self, **changes: Any) -> int:
        return run_kinds((self.sweeps(**changes),), "lake").started

    def asked(self) -> TableOrphans:
        [task] = self.all_tasks()
        return TableOrphans.of(task)

    def end(self, name: str = "t", *, error: str | None = None, details: Any = None) -> Task:
        return self.finish(name, error=error, details=details, task_type=TASK_TYPE)


@pytest.fixture
def world() -> Coast:
    world = Coast()
    world.write("t", [1.0])
    world.attach(DAYS, "ns")
    return world


def test_a_policy_becomes_a_task_with_its_age_and_its_name(world: Coast) -> None:
    assert world.sweep() == 1
    asked = world.asked()
    assert asked.properties == {"file-age": "777600s", "prefix-mismatch-mode": "error", POLICY: "lake.gov.sweep"}
    assert (asked.identifier, asked.task_type) == (named("t"), TASK_TYPE)
    assert world.health("t").runs[TASK_TYPE].policy == "lake.gov.sweep"


def test_a_table_is_swept_once_a_week(world: Coast) -> None:
    world.sweep()
    for _ in range(3):
        world.later(minutes=15)
        assert world.sweep() == 0
    world.end(details={"files_deleted": 3, "bytes_deleted": 7})
    world.later(days=6)
    assert world.sweep() == 0
    run = world.health("t").runs[TASK_TYPE]
    assert (run.outcome, run.used.files, run.used.bytes) == ("SUCCESS", 3, 7)
    [past] = world.health("t").past
    assert (past.task_type, past.outcome, past.files, past.snapshots) == (TASK_TYPE, "SUCCESS", 3, None)
    world.later(days=1)
    assert world.sweep() == 1
    assert world.submissions() == 2


def test_the_longest_wait_of_a_table_that_was_swept_before_is_counted(world: Coast) -> None:
    waits: list[tuple[timedelta, str]] = []
    counting = world.sweeps(waited=lambda wait, table: waits.append((wait, str(table))))
    world.sweep()
    world.end()
    world.later(days=7, hours=5)
    closed = replace(counting, settings=CLOSED)
    assert run_kinds((closed,), "lake").started == 0
    assert waits == [(timedelta(hours=5), "lake.ns.t")]
    assert run_kinds((counting,), "lake").started == 1
    assert len(waits) == 1, "nothing waits any more"


CLOSED = UpkeepSettings(PolicyTerms(Window("0 1 1 1 *", timedelta(hours=1))))
"""Settings by which no run begins."""


def test_the_time_since_when_a_removal_was_wanted_ends_when_one_is_begun(world: Coast) -> None:
    world.sweep(settings=CLOSED)
    assert world.health("t").wanted == {TASK_TYPE: NOW}
    world.later(hours=1)
    assert world.sweep() == 1
    assert world.health("t").wanted == {}


@pytest.mark.parametrize(
    ("content", "limits", "age"),
    [
        ({"enable": True}, ALLOWED, "259200s"),
        ({"enable": True, "max_orphan_file_age_in_days": 0}, ALLOWED, "259200s"),
        ({"enable": True, "max_orphan_file_age_in_days": 0}, replace(ALLOWED, least_orphan_age_ms=0), "86400s"),
        ({"enable": True, "max_orphan_file_age_in_days": 1e8}, ALLOWED, "864000000s"),
    ],
)
def test_the_age_is_within_the_limits_of_the_operator_and_of_removals(content, limits, age):
    world = Coast()
    world.write("t", [1.0])
    world.attach(content)
    assert world.sweep(limits=limits) == 1
    assert world.asked().properties["file-age"] == age


def test_an_operator_who_allows_plans_alone_gets_a_dry_run(world: Coast) -> None:
    assert world.sweep(limits=replace(ALLOWED, dry_run_only=True)) == 1
    assert world.asked().task_type == PLAN_TASK_TYPE


@pytest.mark.parametrize(
    "content",
    [{"enable": True, "locations": ["s3://b/other"]}, "no json", {"enable": True, "max_orphan_file_age_in_days": -1}],
)
def test_a_policy_that_names_locations_or_is_not_valid_is_named_and_not_executed(world: Coast, content: Any) -> None:
    world.attach(content, "ns")
    counts = run_kinds((world.sweeps(),), "lake")
    assert (counts.started, world.all_tasks()) == (0, [])
    [invalid] = counts.invalid
    assert "lake.gov.sweep" in invalid


PLACES = ("s3://b/first/", "s3://b/second/x/")
WITH_PLACES = replace(ALLOWED, orphan_locations=("s3://b/first/", "s3://b/second/"))


def test_locations_that_the_operator_allows_are_swept_in_turn(world: Coast) -> None:
    world.attach({"enable": True, "locations": ["s3://b/first", "s3a://b/second/x"]}, "ns")
    found = []
    for _ in range(4):
        assert world.sweep(limits=WITH_PLACES) == 1
        found.append(world.asked().properties["location"])
        world.end()
        world.later(days=7)
    assert found in ([*PLACES, *PLACES], [*PLACES[::-1], *PLACES[::-1]])


def test_a_removal_stops_when_its_policy_names_another_location(world: Coast) -> None:
    world.attach({"enable": True, "locations": ["s3://b/first"]}, "ns")
    assert world.sweep(limits=WITH_PLACES) == 1
    permitted = PolicyPermissions(world.policies, WITH_PLACES).of_removal(world.asked())
    assert permitted(world.loaded("t")) is None
    for other, reason in ((["s3://b/second"], "another location"), ([], "another location"), (["s3://c/x"], "allow")):
        world.attach({"enable": True, "locations": other}, "ns")
        assert reason in (permitted(world.loaded("t")) or "")


def test_a_table_turns_it_off_by_its_property_and_is_not_loaded_in_each_pass(world: Coast) -> None:
    world.write("t", [1.0], properties=OFF)
    for _ in range(3):
        assert world.sweep() == 0
        world.later(minutes=15)
    assert (world.health("t").runs[TASK_TYPE].outcome, world.loads["t"]) == ("OFF", 1)
    world.write("t", [1.0])
    world.later(days=7)
    assert world.sweep() == 1


PLANNED = {"id": "01234567-89ab-cdef-0123-456789abcdef/1/ab", "sha256": "ab"}


def waits(world: Coast, **details: Any) -> Task:
    """End the run with a plan that waits for a person."""
    plan = {"waiting_plan": PLANNED, "waits": "first-run", "plan_segments": [PLANNED], "files_planned": 3}
    return world.end(details={**plan, **details})


def approve_plan(world: Coast, task: Task) -> None:
    wanted, by = PlanApproval(plan=PLANNED["id"]), Caller(client_id="alice")
    approve(world.tasks.writes, MemoryPlanStore, Approvers(), task.task_id, wanted, by=by, is_operator=True)


def test_an_approved_plan_is_taken_up_by_the_next_run_without_the_weeks_wait(world: Coast) -> None:
    world.sweep()
    task = waits(world)
    world.later(days=30)
    assert world.sweep() == 0, "no other run replaces it"
    run = world.health("t").runs[TASK_TYPE]
    assert (run.outcome, run.waiting, world.submissions()) == ("WAITING", PLANNED["id"], 1)
    approve_plan(world, task)
    assert world.sweep() == 1
    assert world.submissions() == 2
    world.end(details={"waiting_plan": None, "waits": None})
    world.later(days=1)
    assert world.sweep() == 0
    run = world.health("t").runs[TASK_TYPE]
    assert (run.outcome, run.waiting) == ("SUCCESS", "")
    assert [one.outcome for one in world.health("t").past] == ["SUCCESS", "WAITING"]


def test_an_approval_that_has_ended_starts_no_run(world: Coast) -> None:
    world.sweep()
    approve_plan(world, waits(world))
    world.later(days=14)
    assert world.sweep() == 0


def test_a_plan_that_a_caller_had_executed_waits_no_more(world: Coast) -> None:
    world.sweep()
    task = waits(world)
    world.later(days=1)
    world.sweep()
    again = world.tasks.submission.first(task_id=task.task_id, task_type=TASK_TYPE, payload=task.task_payload)
    world.tasks.submission.create(again, rerun=True)
    world.end(details={"waiting_plan": None, "waits": None})
    assert world.sweep() == 0
    assert world.health("t").runs[TASK_TYPE].waiting == ""
    assert len(world.health("t").past) == 1


def test_the_waiting_plan_of_a_caller_is_not_replaced_and_is_shown(world: Coast) -> None:
    own = TableOrphans(realm="R", identifier=named("t"), table=TableState.of(world.loaded("t")), properties={})
    first = world.tasks.submission.first(task_id=own.task_id, task_type=TASK_TYPE, payload=own.to_payload())
    world.tasks.submission.create(first)
    held = world.tasks.leases.acquire(own.task_id, "w", lambda now: Lease.lasting(timedelta(minutes=5), now))
    details = {"waiting_plan": PLANNED, "waits": "first-run", "files_planned": 3}
    task = world.tasks.leases.succeed(held.task_id, held.attempt_count, "done", details=details)
    for _ in range(2):
        assert world.sweep() == 0
        world.later(days=8)
    assert world.health("t").runs[TASK_TYPE].waiting == PLANNED["id"]
    approve_plan(world, task)
    assert world.sweep() == 1


def test_the_run_after_an_approval_is_for_the_place_of_its_plan(world: Coast) -> None:
    """A policy with several places takes them in turn, one a week."""
    places = ["s3://lake/a/", "s3://lake/b/", "s3://lake/c/"]
    world.attach({**DAYS, "locations": places}, "ns")
    allowed = replace(ALLOWED, orphan_locations=("s3://lake/",))
    for _ in range(3):
        assert world.sweep(limits=allowed) == 1
        place = world.asked().properties["location"]
        task = waits(world, waiting_location=place)
        world.later(days=8)
        approve_plan(world, task)
        assert world.sweep(limits=allowed) == 1
        assert world.asked().properties["location"] == place
        world.end(details={"waiting_plan": None, "waits": None, "waiting_location": None, "approval": None})
        world.later(days=7)


def test_a_run_of_a_policy_has_no_requester(world: Coast) -> None:
    """Who submitted the table's task before may approve what the policy finds."""
    world.sweep()
    task = world.end()
    by = Caller(client_id="alice")
    again = world.tasks.submission.first(
        task_id=task.task_id, task_type=TASK_TYPE, payload=task.task_payload, requested_by=by
    )
    assert world.tasks.submission.create(again, rerun=True)[0].requested_by == by
    world.end()
    world.later(days=8)
    assert world.sweep() == 1
    [task] = world.all_tasks()
    assert task.requested_by is None
    approve_plan(world, waits(world))


def test_a_callers_removal_under_way_is_left_alone(world: Coast) -> None:
    own = TableOrphans(realm="R", identifier=named("t"), table=TableState.of(world.loaded("t")), properties={})
    first = world.tasks.submission.first(task_id=own.task_id, task_type=TASK_TYPE, payload=own.to_payload())
    world.tasks.submission.create(first)
    assert world.sweep() == 0
    assert world.asked().properties == {}
    assert TASK_TYPE not in world.health("t").runs


def test_a_table_with_an_expiry_under_way_waits(world: Coast) -> None:
    health = world.health("t")
    world.healths.put(replace(health, runs={"EXPIRY": LastRun("EXPIRY", "task", "p", NOW)}))
    counts = run_kinds((world.sweeps(),), "lake")
    assert (counts.started, sum(counts.waiting.values())) == (0, 1)


def test_a_pass_that_is_killed_anywhere_submits_once(world: Coast) -> None:
    for at in range(1, 30):
        world = Coast()
        for name in ("a", "b"):
            world.write(name, [1.0])
        world.attach()
        try:
            world.sweep(checkpoint=killing(at))
            break
        except Killed:
            world.sweep()
        for _ in range(3):
            world.sweep()
        assert world.submissions() == 2, at
    else:
        pytest.fail("it was never killed late enough")


def test_a_table_whose_policies_cannot_be_read_is_counted_and_an_outage_ends_the_pass(world: Coast) -> None:
    world.policies.broken[PolicyTarget.of(named("t"))] = PolarisForbidden("no", status=403)
    counts = run_kinds((world.sweeps(),), "lake")
    assert (counts.unread, counts.started) == (1, 0)
    assert world.health("t").asides[OrphanSweeps.unread].error == "POLARIS_FORBIDDEN: no"
    world.policies.broken.clear()
    assert world.sweep() == 1
    assert not world.health("t").asides
    for number in range(30):
        world.write(f"t{number}", [1.0])
    for target in (PolicyTarget("lake"), *(PolicyTarget.of(name) for name in KeptTables(world.healths, "lake").names)):
        world.policies.broken[target] = PolarisUnavailable("no", status=503)
    with pytest.raises(PolarisUnavailable):
        world.sweep()


def test_no_removal_and_no_expiry_begins_on_a_table_that_is_purged(world: Coast) -> None:
    uuid = world.documents["t"]["table-uuid"]
    submission = world.tasks.submission
    submission.create(
        submission.first(task_id=purge_id("R", "lake", uuid), task_type="TABLE_PURGE", payload="{}"), resumes=False
    )
    world.policies.attach(WEEK, "ns")
    world.write("t", [30.0, 1.0])
    assert world.sweep() == 0
    assert world.run().started == 0
    assert [one.task_type for one in world.all_tasks()] == ["TABLE_PURGE"]


CHANGES: list[tuple[str, Callable[[Coast], object], UpkeepLimits]] = [
    ("no longer requires this", lambda world: world.policies.detach("ns"), ALLOWED),
    ("no longer requires this", lambda world: world.attach({"enable": False}, "ns"), ALLOWED),
    ("applies now instead of", lambda world: world.attach(DAYS, "ns", name="other"), ALLOWED),
    ("requires older files", lambda world: world.attach({**DAYS, "max_orphan_file_age_in_days": 10}, "ns"), ALLOWED),
    ("no longer requires this", lambda world: world.write("t", [1.0], properties=OFF), ALLOWED),
    ("requires older files", lambda _world: None, replace(ALLOWED, least_orphan_age_ms=20 * 86_400_000)),
    ("allows only plans", lambda _world: None, replace(ALLOWED, dry_run_only=True)),
    ("no longer requires this", lambda _world: None, UpkeepLimits()),
]


@pytest.mark.parametrize(("reason", "change", "limits"), CHANGES)
def test_a_removal_stops_when_its_policy_does_not_ask_for_it_any_more(world, reason, change, limits) -> None:
    world.sweep()
    asked = world.asked()
    assert PolicyPermissions(world.policies, ALLOWED).of_removal(asked)(world.loaded("t")) is None
    change(world)
    assert reason in PolicyPermissions(world.policies, limits).of_removal(asked)(world.loaded("t"))


def test_a_looser_policy_and_a_callers_removal_continue(world: Coast) -> None:
    world.sweep()
    asked = world.asked()
    world.attach({**DAYS, "max_orphan_file_age_in_days": 4}, "ns")
    assert PolicyPermissions(world.policies, ALLOWED).of_removal(asked)(world.loaded("t")) is None
    own = asked.model_copy(update={"properties": {}})
    assert PolicyPermissions(world.policies, UpkeepLimits()).of_removal(own)(world.loaded("t")) is None


@pytest.mark.parametrize("limits", [ALLOWED, UpkeepLimits()])
def test_the_age_of_a_policy_counts_for_removals_that_it_did_not_ask_for(world: Coast, limits: UpkeepLimits) -> None:
    """The limits of an operator who executes no policies are the default."""
    permissions = PolicyPermissions(world.policies, limits)
    world.attach({"enable": True, "max_orphan_file_age_in_days": 30}, "ns")
    assert permissions.age_of(world.loaded("t")) == timedelta(days=30)
    stricter = {"delegation.policy.orphan-file-removal.max_orphan_file_age_in_days": "40"}
    world.write("t", [1.0], properties=stricter)
    assert permissions.age_of(world.loaded("t")) == timedelta(days=40)
    world.policies.detach("ns")
    assert permissions.age_of(world.loaded("t")) == timedelta(0)


def test_an_unreadable_age_is_an_error_and_a_catalog_without_policies_requires_none(world):
    permissions = PolicyPermissions(world.policies, ALLOWED)
    world.attach("no json", "ns")
    with pytest.raises(GuardRefused, match=r"lake\.ns\.t .*lake\.gov\.sweep.*not JSON", check=coded("AGE_INVALID")):
        permissions.age_of(world.loaded("t"))
    world.attach(DAYS, "ns")
    name = "delegation.policy.orphan-file-removal.max_orphan_file_age_in_days"
    world.write("t", [1.0], properties={name: "soon"})
    with pytest.raises(
        GuardRefused, match=rf"{name}.*Correct or remove the table property", check=coded("AGE_INVALID")
    ):
        permissions.age_of(world.loaded("t"))
    target = PolicyTarget.of(named("t"))
    world.policies.broken[target] = NoSuchTable("no", status=404)
    with pytest.raises(NeighbourChanged):
        permissions.age_of(world.loaded("t"))
    world.policies.broken[target] = PolarisForbidden("no", status=403)
    with pytest.raises(PolarisForbidden):
        permissions.age_of(world.loaded("t"))
    world.policies.broken[target] = PoliciesNotSupported("no", status=404)
    assert permissions.age_of(world.loaded("t")) == timedelta(0)


def test_a_table_that_a_guard_refuses_is_tried_again_on_another_day(world: Coast) -> None:
    world.write("t", [1.0], properties={"gc.enabled": "false"})
    assert world.sweep() == 0
    assert world.health("t").runs[TASK_TYPE].outcome == "GC_DISABLED"
    loads = world.loads["t"]
    world.later(minutes=45)
    world.sweep()
    assert world.loads["t"] == loads
    world.later(days=1)
    world.sweep()
    assert (world.loads["t"], world.health("t").runs[TASK_TYPE].failures) == (loads + 1, 2)


def test_a_table_that_is_gone_is_skipped(world: Coast) -> None:
    del world.documents["t"]
    assert world.sweep() == 0
    world.policies.broken[PolicyTarget.of(named("t"))] = NoSuchTable("no", status=404)
    counts = run_kinds((world.sweeps(),), "lake")
    assert (counts.started, counts.unread) == (0, 0)
