"""Stories of expiries of snapshots, played as those of `stories`: their tasks, plans, notes and receipts."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from delegation.edge.answers import ApiResponse
from delegation.orchestration.sweep import sweep
from delegation.polaris.answers import PolarisForbidden
from delegation.polaris.model import LoadedTable
from delegation.removal.expiry.behavior import PermissionsOf, no_policies
from delegation.removal.expiry.task_type import TASK_TYPE
from delegation.storage.memory import Killed
from delegation.wiring.types import TYPES
from tests.kit.lakes.commits import LakeCommits
from tests.kit.tasks.builders import MINUTE
from tests.kit.worlds.expiring import expiries_of
from tests.kit.worlds.service import World

COMMITTED_AT = 1_795_262_400_000
"""The time of every commit in milliseconds: later than all of the tables' snapshots."""
_DIES_AT = 2
"""The call that deletes the manifest lists, after that of the metadata files."""


def with_expiries(world: World, permissions: PermissionsOf = no_policies) -> LakeCommits:
    """Have the service run expiries, too; return what commits them."""
    commits = LakeCommits(world.lake, COMMITTED_AT)
    world.deploy(expiry=expiries_of(world, commits, permissions=permissions))
    return commits


def sweep_and_drive(world: World) -> None:
    """Have the sweeper dispatch what is due, and run it."""
    for swept in sweep(world.tasks, TYPES.known, deadline=world.deadline(), clock=world.clock):
        assert swept.error is None, swept.error
    world.drive()


def expire(world: World, name: str, key: str | None = None, **properties: str) -> ApiResponse:
    """Send a request for an expiry of a table."""
    return world.submit(world.request(TASK_TYPE, name, **{"older-than": "now", **properties}), key)


def expiry(world: World) -> list[ApiResponse]:
    """An expiry: replayed, attached to while it waits, asked for again after its end, when nothing is left to do."""
    with_expiries(world)
    answers = [expire(world, "moved", "key-1"), expire(world, "moved", "key-1"), expire(world, "moved")]
    world.drive()
    again = expire(world, "moved", "key-2")
    world.drive()
    return [*answers, again, expire(world, "moved", "key-1")]


def expiry_submitted(world: World) -> list[ApiResponse]:
    """Two expiries are accepted, and nothing ran yet."""
    return [expire(world, "moved", **{"retain-last": "2"}), expire(world, "orders", **{"snapshot-ids": "1,2"})]


def expiry_dry_run(world: World) -> list[ApiResponse]:
    """A dry run, then the very plan it made is executed."""
    with_expiries(world)
    first = expire(world, "orders", **{"dry-run": "true"})
    world.drive()
    plan = world.tasks.reads.get(first.task_id).public()["plan_segments"][0]["id"]
    second = expire(world, "orders", plan=plan)
    world.drive()
    return [first, second]


def expiry_killed(world: World) -> list[ApiResponse]:
    """The process died among the deletes: the task is left RUNNING, with its progress."""
    with_expiries(world)
    delete, calls = world.objects.delete, iter(range(1, 1_000))

    def dies(bucket: str, keys: Any) -> Any:
        if next(calls) == _DIES_AT:
            raise Killed("delete")
        world.clock.advance(MINUTE)  # progress is stored from time to time
        return delete(bucket, keys)

    world.objects.delete = dies  # type: ignore[method-assign]
    answer = expire(world, "moved")
    with suppress(Killed):
        world.drive()
    return [answer]


def expiry_resumed(world: World) -> list[ApiResponse]:
    """The next attempt after such a death finishes the same plan."""
    [answer] = expiry_killed(world)
    world.clock.advance(timedelta(hours=2))
    sweep_and_drive(world)
    return [answer]


def expiry_lost_tag(world: World) -> list[ApiResponse]:
    """The commit removes a tag that somebody made just before it: REF_LOST, with a receipt of what is left."""
    commits = with_expiries(world)
    usual = commits.commit_table

    def tagged_first(*call: Any) -> LoadedTable:
        commits.commit_table = usual  # type: ignore[method-assign]
        old = world.lake.metadata("moved")["snapshots"][0]["snapshot-id"]
        usual(call[0], [], [{"action": "set-snapshot-ref", "ref-name": "new", "snapshot-id": old, "type": "tag"}])
        return usual(*call)

    commits.commit_table = tagged_first  # type: ignore[method-assign,assignment]
    answer = expire(world, "moved")
    world.drive()
    return [answer]


def expiry_refused(world: World) -> list[ApiResponse]:
    """The catalog refuses the commit; a request with other options makes a plan of its own."""
    commits = with_expiries(world)
    commits.refused = PolarisForbidden("the principal may not commit", status=403)
    first = expire(world, "moved")
    world.drive()
    commits.refused = None
    second = expire(world, "moved", **{"retain-last": "2"})
    world.drive()
    return [first, second]


def expiry_undeletable(world: World) -> list[ApiResponse]:
    """A key cannot be deleted: FAILURE, and a person's retry finishes the plan."""
    with_expiries(world)
    root = str(world.lake.metadata("moved")["location"])
    lists = (one["manifest-list"] for one in world.lake.metadata("moved")["snapshots"])
    world.objects._denied = (min(uri for uri in lists if uri.startswith(root)),)
    first = expire(world, "moved")
    world.drive()
    world.objects._denied = ()
    world.tasks.operators.retry(first.task_id)
    sweep_and_drive(world)
    return [first]


EXPIRIES: dict[str, Callable[[World], list[ApiResponse]]] = {
    story.__name__: story
    for story in (
        expiry,
        expiry_submitted,
        expiry_dry_run,
        expiry_killed,
        expiry_resumed,
        expiry_lost_tag,
        expiry_refused,
        expiry_undeletable,
    )
}
