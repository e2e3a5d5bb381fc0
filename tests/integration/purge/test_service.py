"""Purges through the service and the local catalog, with vended credentials: crashes, races and clones."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.removal.purge.task_type import PurgeDetails
from delegation.storage.memory import Killed, MemoryPlanStore
from delegation.tasks.life.model import Status, Task
from delegation.wiring.table_access import vended_store
from infra.local.catalog.layout import ALLOW_OVERLAP, ALLOW_UNSTRUCTURED
from tests.integration.local.catalog_world import (
    ORDERS,
    SCHEMA,
    Stack,
    connect,
    emptied,
    filled_orders,
    objects,
    polaris,
    rows,
    running,
)
from tests.kit.worlds.service import REALM, World

CONTINUED = timedelta(hours=2)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    yield from running()


@pytest.fixture(autouse=True)
def clean(stack: Stack) -> Iterator[None]:
    yield from emptied(stack)


class Plans(MemoryPlanStore):
    """The plan bucket; `on_put` gets every key before it is written, and may kill the process."""

    on_put: Callable[[str], None] | None = None

    def put(self, key: str, data: bytes) -> None:
        if self.on_put is not None:
            self.on_put(key)
        super().put(key, data)


@pytest.fixture
def world(stack: Stack) -> World:
    world = World()
    catalog = polaris(stack)
    world.plans = Plans()
    world.become(
        replace(
            world.behavior,
            catalog=catalog,
            plans=world.plans,
            store_of=lambda identifier: vended_store(catalog, identifier, clock=stack.clock),
        )
    )
    return world


def body(name: str) -> dict[str, Any]:
    return {
        "common_payload": {"operation_type": "TABLE_PURGE", "realm_identifier": REALM},
        "operation_parameters": {
            "table_identity": {"catalog_name": "lake", "namespace_levels": ["sales"], "table_name": name}
        },
    }


def purge(world: World, name: str = "orders") -> Task:
    accepted = world.submit(body(name))
    world.drive()
    return world.tasks.reads.get(accepted.task_id)


def continued(world: World, task_id: str) -> Task:
    """Let the lease of a killed holder end, run the sweeper, and return the task after its next attempt."""
    world.clock.advance(CONTINUED)
    world.sweep()
    world.drive()
    return world.tasks.reads.get(task_id)


def killing(at: str) -> Callable[[str], None]:
    """Return an `on_put` that kills the process before it first writes a key with this end."""
    deaths: list[str] = []

    def put(key: str) -> None:
        if key.endswith(at) and not deaths:
            deaths.append(key)
            raise Killed(key)

    return put


def test_a_purge_killed_between_its_last_delete_and_the_mark_ends_with_success(stack: Stack, world: World) -> None:
    """The catalog then answers 400 NotFoundException for the table, which replaces the missing mark."""
    filled_orders(stack)
    sibling = connect(stack, "owner").create_table(("sales", "sibling"), SCHEMA)
    sibling.append(rows((7, "eu")))
    rest = set(objects(stack, "tables/sales/sibling/"))
    world.plans.on_put = killing("done/ROOT-00000.jsonl.gz")
    accepted = world.submit(body("orders"))
    with pytest.raises(Killed):
        world.drive()
    assert set(objects(stack)) == rest
    assert world.tasks.reads.get(accepted.task_id).status is Status.RUNNING
    task = continued(world, accepted.task_id)
    assert (task.status, task.attempt_count, task.error_code) == (Status.SUCCESS, 2, None)
    assert PurgeDetails.of(task).files_deleted == PurgeDetails.of(task).files_planned
    assert set(objects(stack)) == rest
    polaris(stack, "owner").drop_table(ORDERS)


def test_a_purge_killed_just_before_its_last_delete_ends_with_success(stack: Stack, world: World) -> None:
    filled_orders(stack)
    world.plans.on_put = killing("done/ROOT-NEXT")
    accepted = world.submit(body("orders"))
    with pytest.raises(Killed):
        world.drive()
    assert len(objects(stack)) == 1
    assert continued(world, accepted.task_id).status is Status.SUCCESS
    assert objects(stack) == []


def test_two_attempts_that_plan_at_once_publish_one_plan_and_leave_nothing(stack: Stack, world: World) -> None:
    """The first planner is paused beyond its lease before it stores its index; the second finishes meanwhile."""
    filled_orders(stack)
    accepted = world.submit(body("orders"))
    meanwhile: list[Task] = []

    def pause(key: str) -> None:
        if key.startswith(f"{accepted.task_id}/1/") and key.endswith("/index.json"):
            meanwhile.append(continued(world, accepted.task_id))

    world.plans.on_put = pause
    world.drive()
    [second] = meanwhile
    task = world.tasks.reads.get(accepted.task_id)
    assert (second.status, second.attempt_count) == (Status.SUCCESS, 2)
    assert task == second
    plans = [key for key in world.plans.objects if key.endswith("/index.json")]
    assert sorted(key.split("/")[1] for key in plans) == ["1", "2"]
    assert [segment.id.split("/")[1] for segment in PurgeDetails.of(task).plan_segments] == ["2"]
    assert not [key for key in world.plans.objects if key.startswith(f"{accepted.task_id}/1/") and "/done/" in key]
    assert objects(stack) == []


def test_a_clone_purged_and_then_the_original_leaves_nothing(stack: Stack, world: World) -> None:
    """Both have one uuid and so one task; the clone's purge keeps the original's files, the original's deletes all."""
    table = filled_orders(stack)
    owner = connect(stack, "owner")
    stack.allow(ALLOW_OVERLAP, ALLOW_UNSTRUCTURED)
    clone = owner.register_table(("sales", "clone"), table.metadata_location)
    clone.append(rows((8, "eu")))
    shared = {f"s3://warehouse/{key}" for key in objects(stack)} - reached_only_by(stack, "clone")
    first = purge(world, "clone")
    assert (first.status, PurgeDetails.of(first).purged_identifier) == (Status.SUCCESS, '["lake", "sales", "clone"]')
    assert {f"s3://warehouse/{key}" for key in objects(stack)} == shared
    assert sorted(owner.load_table(("sales", "orders")).scan().to_arrow()["id"].to_pylist()) == [1, 2, 4]
    owner.drop_table(("sales", "clone"))
    second = purge(world, "orders")
    assert (second.task_id, second.status) == (first.task_id, Status.SUCCESS)
    assert PurgeDetails.of(second).purged_identifier == '["lake", "sales", "orders"]'
    assert objects(stack) == []


def reached_only_by(stack: Stack, name: str) -> set[str]:
    """Return the files that `name` reaches and `orders` does not."""
    owner = connect(stack, "owner")
    return reach(owner.load_table(("sales", name))) - reach(owner.load_table(("sales", "orders")))


def reach(table: Any) -> set[str]:
    found = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    for snapshot in table.snapshots():
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io, False)}
    return found
