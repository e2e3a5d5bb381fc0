"""Stories of what policies ask for, and of removals of orphan files, played as those of `stories`."""

from collections.abc import Callable
from dataclasses import replace

from delegation.edge.answers import ApiResponse
from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.removal.expiry.requests import TableExpiry
from delegation.removal.expiry.retention import Permission, Withdrawn
from delegation.removal.orphans.requests import Approvers, approve
from delegation.removal.orphans.task_type import TASK_TYPE as ORPHANS
from delegation.removal.orphans.task_type import TASK_TYPES as ORPHAN_KINDS
from delegation.storage.locations import parse
from delegation.tasks.life.model import Caller
from delegation.upkeep.execution.kinds import submitted
from delegation.wire.requests import TableState
from delegation.wire.tables import PlanApproval
from tests.golden.expiries import expire, sweep_and_drive, with_expiries
from tests.kit.dynamodb import MemoryReferenceStore
from tests.kit.lakes.lake import LakeSource
from tests.kit.lakes.listing import LakeListing
from tests.kit.tasks.builders import MINUTE
from tests.kit.worlds.service import REALM, World
from tests.kit.worlds.sweeping import removals_of

POLICY = "cat.gov.keep-a-week"
_OLDER_THAN = {"older-than": "now"}


def by_policy(world: World, name: str) -> None:
    """Submit what a pass of upkeep submits for a table."""
    table = LakeSource(world.lake, name).load()
    state = TableState(
        metadata_location=table.metadata_location,
        location=str(table.metadata["location"]),
        table_uuid=table.table_uuid,
        format_version=int(table.metadata["format-version"]),
    )
    identifier = TableIdentifier("cat", ("ns",), name)
    wanted = TableExpiry(realm=REALM, identifier=identifier, table=state, properties=_OLDER_THAN, policy=POLICY)
    submitted(world.tasks, wanted)


def expiry_by_policy(world: World) -> list[ApiResponse]:
    """An expiry that a policy asks for, and then one of a caller, who does not join what a policy may stop."""
    with_expiries(world, lambda _expiry, asked, _at: lambda _table: asked)
    by_policy(world, "moved")
    world.clock.advance(MINUTE)
    sweep_and_drive(world)
    answer = expire(world, "moved", **{"retain-last": "2"})
    world.drive()
    return [answer]


def expiry_policy_withdrawn(world: World) -> list[ApiResponse]:
    """The policy is detached after the commit, before the first delete."""

    def permitted(table: LoadedTable) -> Permission | Withdrawn:
        if table.metadata_location == before:
            return asked[0]
        return Withdrawn(f"the policy {POLICY} is no longer attached")

    asked: list[Permission] = []
    before = LakeSource(world.lake, "moved").load().metadata_location
    with_expiries(world, lambda _expiry, wanted, _at: asked.append(wanted) or permitted)  # type: ignore[func-returns-value]
    by_policy(world, "moved")
    world.clock.advance(MINUTE)
    sweep_and_drive(world)
    return []


def with_orphans(world: World, **properties: str) -> None:
    """Have the service remove orphan files, with a reference index over the lake."""
    world.objects.clock = lambda: world.clock().timestamp()
    listing = LakeListing({("ns",): world.lake})
    behavior = replace(world.behavior, catalog=listing, references=MemoryReferenceStore())
    world.become(behavior)
    world.deploy(orphans=removals_of(world, properties, places=lambda _catalogs, before: before() or ()))


def plant(world: World, name: str) -> None:
    """Put two objects at the location of a table that nothing names, written in 1970."""
    root = parse(str(world.lake.metadata(name)["location"]))
    for key in ("data/left-by-a-job.parquet", "metadata/left-by-a-job.avro"):
        world.lake.objects[root.bucket, f"{root.key}/{key}"] = b"orphan"


def sweep_orphans(world: World, name: str, **properties: str) -> ApiResponse:
    """Send a request for a removal of a table's orphan files."""
    return world.submit(world.request(ORPHANS, name, **properties))


def orphans_removed(world: World) -> list[ApiResponse]:
    """A removal that waits for no person: listing, plan, marks and receipt."""
    with_orphans(world, **{"delegation.orphan-files.first-run": "delete", "delegation.orphan-files.max-share": "1"})
    plant(world, "orders")
    answer = sweep_orphans(world, "orders")
    world.drive()
    return [answer]


def orphans_approved(world: World) -> list[ApiResponse]:
    """A first run waits for a person, who approves its plan; the request that names it deletes it."""
    with_orphans(world)
    plant(world, "orders")
    first = sweep_orphans(world, "orders")
    world.drive()
    [waiting] = [one for one in world.store.heads().tasks if one.task_type in ORPHAN_KINDS]
    plan = waiting.public()["waiting_plan"]["id"]
    wanted, by = PlanApproval(plan=plan), Caller(client_id="operator")
    approve(world.tasks.writes, lambda: world.plans, Approvers(), waiting.task_id, wanted, by=by, is_operator=True)
    second = sweep_orphans(world, "orders", plan=plan)
    world.drive()
    return [first, second]


UPKEEP: dict[str, Callable[[World], list[ApiResponse]]] = {
    story.__name__: story for story in (expiry_by_policy, expiry_policy_withdrawn, orphans_removed, orphans_approved)
}
