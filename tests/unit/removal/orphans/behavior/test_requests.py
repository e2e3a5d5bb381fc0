"""Requests for removals of orphan files: when two of them are one task, and what is refused at once."""

from datetime import timedelta
from typing import Any

import pytest

from delegation.edge.answers import problem_of
from delegation.edge.outlook import outlook_of
from delegation.errors import GuardRefused
from delegation.removal.orphans.details import ApprovalLimits
from delegation.removal.orphans.errors import OperatorRoleRequired
from delegation.removal.orphans.options import options_of
from delegation.removal.orphans.place import MismatchMode
from delegation.removal.orphans.requests import OrphanLimits, TableOrphans
from delegation.removal.orphans.task_type import ORPHANS, TASK_TYPE
from delegation.tasks.life.declared import Measured
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.policy import InvalidProperty
from delegation.tasks.options import InvalidOption
from delegation.wiring.types import TYPES, policies_of
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.lakes.lake import filled
from tests.kit.worlds.service import World

ROLES = "delegation.orphan-files.roles"
LOCATIONS = "delegation.orphan-files.locations"
PLAN = "01234567-89ab-cdef-0123-456789abcdef/1/ab"
DETAILS = {
    "plan_segments": [{"id": "plan-1", "sha256": "ab"}],
    "files_planned": 7,
    "files_deleted": 5,
    "files_listed": 40,
    "waiting_plan": {"id": "plan-1", "sha256": "ab"},
    "waits": "first-run",
    "of_a_newer_release": 1,
}


@pytest.fixture
def world() -> World:
    return filled(World(), "orders")


def body(world: World, **properties: str) -> dict[str, Any]:
    named = {one.replace("_", "-"): value for one, value in properties.items()}
    return world.request(TASK_TYPE, "orders", **named)


def asked(world: World, **properties: str) -> Task:
    return world.accepted(body(world, **properties))


def ended(world: World, task: Task, status: Status, *, began: bool = False) -> Task:
    """End a task's first attempt, after its first delete or before."""

    code = None if status is Status.SUCCESS else "STORAGE_ACCESS_DENIED"
    return world.ended(task, code=code, began=began, details=DETAILS)


def next_step(world: World, task: Task) -> str | None:
    found: str | None = outlook_of(world.tasks.reads.get(task.task_id), world.clock(), TYPES)["next_step"]
    return found


def test_after_a_success_the_same_request_runs_again_and_keeps_the_plan_that_waits(world: World) -> None:
    first = asked(world)
    done = ended(world, first, Status.SUCCESS)
    assert (ORPHANS.measured(done), ORPHANS.receipt_key(done)) == (Measured(5, 7, "files"), "plan-1/receipt.json")
    world.clock.advance(timedelta(hours=1))
    again = asked(world)
    assert (again.task_id, again.status) == (first.task_id, Status.SUBMITTED)
    assert again.details == {
        "of_a_newer_release": 1,
        "waiting_plan": {"id": "plan-1", "sha256": "ab"},
        "waits": "first-run",
    }


def test_the_api_says_how_a_plan_that_waits_is_approved(world: World) -> None:
    removal, plan = asked(world), asked(world, dry_run="true")
    assert next_step(world, removal) is None
    for task in (removal, plan):
        ended(world, task, Status.SUCCESS)
        step = next_step(world, task)
        assert step is not None
        assert "`delegation orphans show plan-1`" in step
        assert "`delegation orphans approve plan-1`" in step
        assert "removed" not in step, "the plan may be one that tags files"
    again = asked(world)
    assert next_step(world, again) is None, "the plan is another one's once the table is looked at again"


@pytest.mark.parametrize(
    "details",
    [{"files_planned": 0}, {"waiting_plan": None, "waits": None}, {"waiting_plan": 3}],
    ids=["nothing planned", "nothing waits", "of a newer release"],
)
def test_a_removal_without_a_waiting_plan_has_no_next_step(world: World, details: dict[str, Any]) -> None:
    done = ended(world, asked(world), Status.SUCCESS).with_details(details)
    assert ORPHANS.next_step(done) is None


@pytest.mark.parametrize("began", [False, True])
def test_one_that_failed_is_resumed_by_its_own_request_alone(world: World, began: bool) -> None:
    first = asked(world)
    ended(world, first, Status.FAILURE, began=began)
    held = world.tasks.reads.get(first.task_id)
    assert TableOrphans.of(held).of_the_work() == {}
    world.clock.advance(timedelta(hours=1))
    assert (asked(world).effects_began_ts is not None) == began
    ended(world, world.tasks.reads.get(first.task_id), Status.FAILURE, began=began)
    world.clock.advance(timedelta(hours=1))
    again = asked(world, file_age="9d")
    assert (again.task_id, again.effects_began_ts) == (first.task_id, None)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"properties": {"delegation.orphan-files.older-than": "soon"}}, "AGE_INVALID"),
        ({"location": "s3://lake"}, "LOCATION_TOO_WIDE"),
    ],
)
def test_a_table_that_a_guard_refuses_gets_no_task(world: World, changes: Any, code: str) -> None:
    world.lake.rewrite_metadata("orders", changes)
    with pytest.raises(GuardRefused, check=coded(code)) as refused:
        world.submit(body(world))
    assert problem_of(refused.value).status == 409
    assert world.queue.sent == []


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"file_age": "23h"}, "AGE_TOO_SHORT"),
        ({"file_age": "99999999d"}, "INVALID_REQUEST"),
        ({"file_age": "yesterday"}, "INVALID_REQUEST"),
        ({"location": "s3://lake/wh/orders/data"}, "PROPERTY_NOT_ALLOWED"),
        ({"location": "s3://lake/wh/../x"}, "INVALID_REQUEST"),
        ({"locations": "[]"}, "INVALID_REQUEST"),
        ({"quarantine": "delete"}, "INVALID_REQUEST"),
        ({"prefix_mismatch_mode": "delete"}, "PROPERTY_NOT_ALLOWED"),
        ({"equal_schemes": "s3a=hdfs"}, "INVALID_REQUEST"),
        ({"equal_schemes": "s3a"}, "INVALID_REQUEST"),
        ({"plan": "x"}, "INVALID_REQUEST"),
        ({"plan": PLAN, "file_age": "7d"}, "INVALID_REQUEST"),
        ({"plan": PLAN, "dry_run": "true"}, "INVALID_REQUEST"),
        ({"inventory": "s3://reports/lake/daily/x/manifest.json"}, "INVALID_REQUEST"),
    ],
)
def test_a_wrong_option_gets_no_task_and_no_load(world: World, properties: dict[str, str], code: str) -> None:
    with pytest.raises(DelegationError, check=coded(code)):
        world.submit(body(world, **properties))
    assert (world.tables.loads, world.queue.sent) == (0, [])


def test_options_are_read_as_iceberg_means_them() -> None:
    found = options_of({"equal-schemes": "oss,cos=store;s3n,s3a=s3", "equal-authorities": "a,b=c", "file-age": "PT48H"})
    assert found.equal.prefix("cos", "b") == "store://c"
    assert found.equal.prefix("s3n", "x") == "s3://x"
    assert found.older_than == timedelta(days=2)
    assert (found.mismatch, found.limits) == (MismatchMode.ERROR, ApprovalLimits())


def test_a_quarantine_takes_a_role_of_the_operator_for_the_bucket(world: World) -> None:
    with pytest.raises(OperatorRoleRequired, match=r"in the bucket lake .*delegation\.orphan-files\.roles") as refused:
        world.submit(body(world, quarantine="tag"))
    assert (problem_of(refused.value).status, world.queue.sent) == (409, [])


def test_only_the_operator_names_roles_and_may_forbid_to_delete() -> None:
    arn = "arn:aws:iam::123456789012:role/lake/quarantine"
    limits = OrphanLimits.from_properties({ROLES: f"lake={arn}, other.bucket={arn}"})
    assert limits.roles == {"lake": arn, "other.bucket": arn}
    assert not options_of({}, limits).quarantine
    assert options_of({"quarantine": "tag"}, limits).quarantine
    tags = OrphanLimits.from_properties({"delegation.orphan-files.quarantine": "tag", ROLES: f"lake={arn}"})
    assert options_of({}, tags).quarantine
    with pytest.raises(DelegationError, check=coded("PROPERTY_NOT_ALLOWED")):
        options_of({"quarantine": "none"}, tags)
    assert options_of({"quarantine": "none"}, tags, accepted=True).quarantine


@pytest.mark.parametrize(
    "roles", ["", "lake", "lake=role", "lake=arn:aws:iam::1:role/x", "=arn:aws:iam::123456789012:role/x"]
)
def test_roles_are_named_by_bucket_and_arn(roles: str) -> None:
    with pytest.raises(InvalidProperty, match="roles"):
        policies_of({ROLES: roles})
    arn = "lake=arn:aws:iam::123456789012:role/x"
    with pytest.raises(InvalidProperty, match="twice"):
        policies_of({ROLES: f"{arn},{arn}"})


def test_only_the_operator_sets_where_else_orphan_files_may_be_searched() -> None:
    limits = OrphanLimits.from_properties({"delegation.orphan-files.locations": "s3://lake/elsewhere/, s3://other/"})
    for text, found in (
        ("s3a://lake/elsewhere/orders", "s3://lake/elsewhere/orders/"),
        ("s3://lake/elsewhere", "s3://lake/elsewhere/"),
    ):
        assert options_of({"location": text}, limits).location == found
    for other in ("s3://lake/elsewhere2", "s3://lake/wh/orders", "s3://others/x"):
        with pytest.raises(
            DelegationError, check=coded("PROPERTY_NOT_ALLOWED"), match=r"delegation\.orphan-files\.locations"
        ) as refused:
            options_of({"location": other}, limits)
        assert problem_of(refused.value).status == 403
    with pytest.raises(InvalidOption):
        options_of({"location": "s3://other/x", "plan": PLAN}, limits)
    with pytest.raises(DelegationError, check=coded("PROPERTY_NOT_ALLOWED")):
        options_of({"location": "s3://other/x"}, accepted=True)


@pytest.mark.parametrize(
    "places",
    ["", "reports", "s3://reports", "s3://reports/lake", "s3://re*/", "s3://lake/${x}/", "s3://reports/?/", "none,"],
)
def test_an_allowed_place_ends_in_a_slash_and_has_no_wildcard(places: str) -> None:
    with pytest.raises(InvalidProperty, match="locations"):
        policies_of({LOCATIONS: places})
    with pytest.raises(InvalidProperty, match="more than 20"):
        policies_of({LOCATIONS: ",".join(["s3://reports/a-b/"] * 21)})


def test_an_accepted_request_is_bounded_by_the_limits_of_today() -> None:
    freer = OrphanLimits.from_properties({"delegation.orphan-files.prefix-mismatch-mode": "delete"})
    wanted = {"prefix-mismatch-mode": "delete"}
    assert options_of(wanted, freer).mismatch is MismatchMode.DELETE
    assert options_of(wanted, accepted=True).mismatch is MismatchMode.IGNORE


def test_the_operators_properties_are_checked_when_the_service_starts() -> None:
    prefix = "delegation.orphan-files."
    assert policies_of({prefix + "max-share": "0.5", prefix + "max-files": "5", prefix + "first-run": "delete"})
    limits = OrphanLimits.from_properties({prefix + "max-share": "1", prefix + "max-files": "0"})
    assert limits.approval == ApprovalLimits(1.0, 0, first_run_deletes=False)
    for name in ("max-share", "max-files", "first-run", "colour", "prefix-mismatch-mode"):
        with pytest.raises(InvalidProperty, match=name):
            policies_of({prefix + name: "-1"})
