"""Requests for expiries: when two of them are one task, what is refused at once, and behind whom they wait."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from delegation.edge.answers import problem_of
from delegation.idempotency.keys import IdempotencyError
from delegation.identifiers import TableIdentifier
from delegation.removal.details import table_labels
from delegation.removal.expiry.behavior import ExpiryBehavior
from delegation.removal.expiry.requests import TableExpiry
from delegation.removal.expiry.task_type import (
    EXPIRY,
    TASK_TYPE,
    UPKEEP_PRIORITY,
    ExpiryDetails,
)
from delegation.tasks.life.declared import Measured, runs
from delegation.tasks.life.lanes import Caps, Lane, Queued, Running, Traits, admitted
from delegation.tasks.life.model import Labels, Status, Task
from delegation.tasks.life.policy import InvalidProperty
from delegation.tasks.options import InvalidOption
from delegation.tasks.work.behaviors import Behaviors
from delegation.wire.requests import TableState
from delegation.wiring.types import TYPES, policies_of
from infra import api_schemas
from tests.kit.errors import coded
from tests.kit.lakes.lake import filled
from tests.kit.worlds.expiring import ExpiringWorld
from tests.kit.worlds.service import World


@pytest.fixture
def world() -> World:
    return filled(World(), "orders")


def body(world: World, name: str = "orders", **properties: str) -> dict[str, Any]:
    named = {one.replace("_", "-"): value for one, value in properties.items()}
    return world.request(TASK_TYPE, name, **named)


def asked(world: World, name: str = "orders", **properties: str) -> Task:
    return world.accepted(body(world, name, **properties))


DETAILS = {
    "plan_segments": [{"id": "plan-1", "sha256": "ab"}],
    "files_planned": 7,
    "files_deleted": 5,
    "of_a_newer_release": 1,
}


def ended(
    world: World, task: Task, status: Status, *, began: bool = False, code: str = "STORAGE_ACCESS_DENIED"
) -> Task:
    """End a task's first attempt, after its commit or before."""

    return world.ended(task, code=None if status is Status.SUCCESS else code, began=began, details=DETAILS)


def test_a_dry_run_of_other_options_or_of_a_later_state_is_another_task(world: World) -> None:
    first = asked(world, dry_run="true", older_than="now")
    assert asked(world, dry_run="true", older_than="now").task_id == first.task_id
    assert asked(world, dry_run="true", retain_last="2").task_id != first.task_id
    world.lake.pointers["orders"] += ".later"
    world.tables.lake.objects.update(
        {
            (bucket, key + ".later"): data
            for (bucket, key), data in list(world.lake.objects.items())
            if key.endswith(".metadata.json")
        }
    )
    assert asked(world, dry_run="true", older_than="now").task_id != first.task_id


def test_after_a_success_the_same_request_runs_again(world: World) -> None:
    """The properties are ages, so each day other snapshots are too old."""
    first = asked(world)
    done = ended(world, first, Status.SUCCESS)
    assert (EXPIRY.measured(done), EXPIRY.receipt_key(done)) == (Measured(5, 7, "files"), "plan-1/receipt.json")
    world.clock.advance(timedelta(hours=1))
    again = asked(world)
    assert (again.task_id, again.status) == (first.task_id, Status.SUBMITTED)
    assert again.version > first.version
    # Nothing of the former plan is left, or this run would take it for its own.
    assert ExpiryDetails.of(again) == ExpiryDetails()
    assert again.details == {"of_a_newer_release": 1}


def test_an_expiry_that_failed_after_its_commit_is_finished_before_another_one(world: World) -> None:
    first = asked(world, retain_last="2")
    ended(world, first, Status.FAILURE, began=True)
    world.clock.advance(timedelta(hours=1))
    with pytest.raises(IdempotencyError, match="failed after its commit", check=coded("TASK_EXISTS")) as refused:
        world.submit(body(world, retain_last="3"))
    assert problem_of(refused.value).status == 409
    assert asked(world, retain_last="2").task_id == first.task_id


@pytest.mark.parametrize(("began", "code"), [(False, "STORAGE_ACCESS_DENIED"), (True, "COMMITS_FORESTALLED")])
def test_an_expiry_that_committed_nothing_gives_way(world: World, began: bool, code: str) -> None:
    """Its changed policy must not be answered with 409 until a person retries what changed nothing."""
    first = asked(world, retain_last="2")
    ended(world, first, Status.FAILURE, began=began, code=code)
    world.clock.advance(timedelta(hours=1))
    assert TableExpiry.of(asked(world, retain_last="3")).properties == {"retain-last": "3"}


def test_a_wrong_option_gets_no_task_and_no_load(world: World) -> None:
    future = (world.clock() + timedelta(seconds=1)).isoformat().replace("+00:00", "Z")
    for properties in ({"older_than": future}, {"retain_last": "0"}, {"snapshot_ids": "x"}):
        with pytest.raises(InvalidOption):
            world.submit(body(world, **properties))
    assert (world.tables.loads, world.queue.sent) == (0, [])


def test_it_waits_in_a_lane_behind_every_purge(world: World) -> None:
    traits = EXPIRY.traits(asked(world).task_payload)
    assert traits == Traits(tenant="cat", bucket="lake", priority=UPKEEP_PRIORITY)
    purge = Lane.of("TABLE_PURGE", Traits(tenant="zoo", bucket="zoo"))
    assert purge.text < Lane.of(TASK_TYPE, traits).text


def test_it_is_listed_by_its_table(world: World) -> None:
    task = asked(world)
    assert table_labels(task.task_payload) == Labels("cat.ns.orders", None, "POLARIS")
    for payload in ("", "[]", "{}", '{"operation_parameters": {"table_identity": {}}}'):
        assert table_labels(payload) == Labels()
        assert EXPIRY.traits(payload).priority == UPKEEP_PRIORITY


def test_the_documents_have_it() -> None:
    schemas = api_schemas.schemas()
    members = schemas["PropertiesMap"]["properties"]
    assert members["older-than"]["pattern"].startswith("^(now|")
    assert members["retain-last"]["pattern"] == "^[1-9][0-9]{0,8}$"
    assert "outside" in members
    # The dry run of either operation has no plan to execute.
    assert schemas["PropertiesMap"]["not"] == {
        "required": ["plan", "dry-run"],
        "properties": {"dry-run": {"enum": ["true"]}},
    }


def test_the_operators_properties_are_checked_when_the_service_starts() -> None:
    assert policies_of({"delegation.expiry.least-snapshot-age": "7d", "delegation.expiry.least-snapshots": "5"})
    for name in ("delegation.expiry.least-snapshots", "delegation.expiry.colour"):
        with pytest.raises(InvalidProperty, match=name):
            policies_of({name: "-1"})


STATE = TableState(metadata_location="s3://b/t/m.json", location="s3://b/t", table_uuid="u-1", format_version=2)
POLICY = "lake.gov.keep-a-week"
NOW = datetime(2026, 11, 23, tzinfo=UTC)


def expiry(policy: str | None = POLICY, **properties: str) -> TableExpiry:
    table = TableIdentifier("lake", ("sales",), "orders")
    return TableExpiry(realm="R", identifier=table, table=STATE, properties=properties, policy=policy)


def task_of(wanted: TableExpiry) -> Task:
    world = ExpiringWorld()
    return world.tasks.submission.first(
        task_id=wanted.task_id,
        task_type=wanted.task_type,
        payload=wanted.to_payload(),
        payload_version=wanted.payload_version,
    )


def test_the_policy_is_stored_and_read_again() -> None:
    wanted = expiry(**{"retain-last": "3"})
    assert TableExpiry.of(task_of(wanted)) == wanted
    assert TableExpiry.of(task_of(expiry(None))).policy is None


def test_a_release_that_reads_no_policies_leaves_it_alone() -> None:
    assert not runs(frozenset(TYPES), task_of(expiry()))
    assert runs(frozenset(TYPES), task_of(expiry(None)))
    assert runs(TYPES.known, task_of(expiry()))
    behaviors = Behaviors([one for one in (ExpiringWorld().expiry,) if isinstance(one, ExpiryBehavior)])
    assert runs(behaviors.task_types, task_of(expiry()))


def test_a_request_with_the_same_options_does_not_join_what_a_policy_may_stop() -> None:
    by_policy, by_caller = expiry(), expiry(None)
    assert by_policy.task_id == by_caller.task_id
    assert by_policy.obstacle(task_of(by_policy)) is None
    assert "the policy" in str(by_caller.obstacle(task_of(by_policy)))
    assert "the policy" in str(by_policy.obstacle(task_of(by_caller)))


def test_no_drop_waits_for_the_work_of_a_policy() -> None:
    """The upkeep has waited for longer, and the caps have room for one."""
    kind = "TABLE_EXPIRE_SNAPSHOTS"
    upkeep = Lane.of(kind, EXPIRY.traits(expiry().to_payload()))
    asked = Lane.of(kind, EXPIRY.traits(expiry(None).to_payload()))
    drop = Lane.of("TABLE_DROP_WITH_PURGE", Traits(priority=0))
    assert (upkeep.is_background, asked.is_background) == (True, False)
    waiting = [Queued("upkeep", upkeep, NOW), Queued("drop", drop, NOW.replace(hour=5))]
    assert [one.task_id for one in admitted(waiting, [], Caps(everything=1))] == ["drop"]
    running = [Running(f"r{n}", upkeep, is_held=True) for n in range(16)]
    assert [one.task_id for one in admitted(waiting, running, Caps(everything=16))] == ["drop"]
