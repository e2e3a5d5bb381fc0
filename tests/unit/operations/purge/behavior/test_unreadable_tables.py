"""A table that cannot be read still protects what can be read of it and what was known; it holds back few purges."""

from dataclasses import replace
from datetime import timedelta

import pytest

from delegation.operations.purge.behavior.limits import Limits
from delegation.polaris.errors import PolarisForbidden
from delegation.tasks.life.model import Status
from tests.unit.operations.purge.behavior.test_references import IndexedWorld
from tests.unit.operations.purge.lake import busy_table, rows


@pytest.fixture
def world() -> IndexedWorld:
    world = IndexedWorld()
    busy_table(world.lake, "t")
    return world


def accept_unreadable(world: IndexedWorld) -> None:
    """Set `delegation.purge.neighbour` to report."""
    world.become(replace(world.behavior, limits=Limits.from_properties({"delegation.purge.neighbour": "report"})))


def own_manifests(world: IndexedWorld, name: str) -> list[str]:
    """Return the manifests that only the other namespace's table has."""
    shared = {
        one.manifest_path for snapshot in world.lake.table("t").snapshots() for one in snapshot.manifests(world.lake.io)
    }
    mine = {
        one.manifest_path
        for snapshot in world.other.table(name).snapshots()
        for one in snapshot.manifests(world.other.io)
    }
    return sorted(mine - shared)


def torn_clone(world: IndexedWorld, *, lost: bool) -> set[str]:
    """Register a clone, append to it, tear the manifest of that; return the files of `t`, all of which it needs."""
    world.other.pointers["clone"] = world.lake.pointers["t"]
    needed = set(world.reached("clone"))
    world.other.table("clone").append(rows(50))
    for manifest in own_manifests(world, "clone"):
        if lost:
            world.other.io.delete(manifest)
        else:
            bucket, _, key = manifest.removeprefix("s3://").partition("/")
            world.lake.objects[bucket, key] = b"x" * len(world.lake.objects[bucket, key])
    return needed


@pytest.mark.parametrize("lost", [True, False])
def test_a_clone_that_is_read_in_part_keeps_its_files_although_unreadable_tables_are_accepted(
    world: IndexedWorld, lost: bool
) -> None:
    needed = torn_clone(world, lost=lost)
    accept_unreadable(world)
    task = world.purge("t")
    assert task.status is Status.SUCCESS
    assert needed <= set(world.lake.uris())
    assert "NEIGHBOUR_UNREADABLE" in {one["code"] for one in world.receipt(task)["findings"]}


def test_a_clone_that_may_not_be_loaded_any_more_keeps_the_files_of_its_last_known_areas(world: IndexedWorld) -> None:
    world.other.pointers["clone"] = world.lake.pointers["t"]
    needed = set(world.reached("clone"))
    busy_table(world.lake, "before")
    world.purge("before")
    world.listing.broken["clone"] = PolarisForbidden("no privilege", status=403)
    world.clock.advance(timedelta(hours=1))
    accept_unreadable(world)
    assert world.purge("t").status is not Status.SUCCESS
    assert needed <= set(world.lake.uris())


def test_a_nested_table_that_may_not_be_loaded_any_more_keeps_the_files_at_its_last_known_location(
    world: IndexedWorld,
) -> None:
    world.other.create("nested", location="s3://lake/wh/t/data/part=a")
    busy_table(world.lake, "before")
    world.purge("before")
    inside = {uri for uri in world.lake.uris() if uri.startswith("s3://lake/wh/t/data/part=a/")}
    world.listing.broken["nested"] = PolarisForbidden("no privilege", status=403)
    world.clock.advance(timedelta(hours=1))
    accept_unreadable(world)
    task = world.purge("t")
    assert task.status is Status.SUCCESS
    assert inside
    left = {uri for uri in world.lake.uris() if uri.startswith("s3://lake/wh/t/")}
    assert left == inside


def test_a_clone_without_readable_metadata_keeps_its_files(world: IndexedWorld) -> None:
    world.other.pointers["clone"] = world.lake.pointers["t"]
    busy_table(world.lake, "before")
    world.purge("before")
    needed = set(world.reached("clone"))
    world.other.table("clone").append(rows(50))
    world.other.rewrite_metadata("clone", {"snapshots": "not a list"})
    world.clock.advance(timedelta(hours=1))
    accept_unreadable(world)
    assert world.purge("t").status is not Status.SUCCESS
    assert needed <= set(world.lake.uris())
