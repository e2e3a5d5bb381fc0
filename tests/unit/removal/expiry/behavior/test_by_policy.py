"""Expiries that a policy asks for, as tasks: read by releases that know policies, behind everybody else's."""

from datetime import UTC, datetime

from delegation.identifiers import TableIdentifier
from delegation.removal.expiry.behavior import ExpiryBehavior
from delegation.removal.expiry.requests import TableExpiry
from delegation.removal.expiry.task_type import EXPIRY
from delegation.tasks.life.declared import runs
from delegation.tasks.life.lanes import Caps, Lane, Queued, Running, Traits, admitted
from delegation.tasks.life.model import Task
from delegation.tasks.work.behaviors import Behaviors
from delegation.wire.requests import TableState
from delegation.wiring.types import TYPES
from tests.kit.worlds.expiring import ExpiringWorld

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
