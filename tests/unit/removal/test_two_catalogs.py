"""A table that two catalogs name: upkeep by one of them names the other."""

from dataclasses import replace

import pytest

from delegation.removal.purge.requests import ReferenceSettings
from delegation.tasks.life.model import Status
from tests.kit.lakes.lake import filled
from tests.kit.worlds.expiring import ExpiringWorld, expiries_of
from tests.kit.worlds.sweeping import SweepingWorld, removals_of

SECOND = ReferenceSettings(catalogs=("second",))
"""The listing has the same tables in each catalog, as a federated one does."""


@pytest.mark.parametrize("checked", [True, False])
def test_the_receipt_of_an_expiry_names_the_table_in_the_other_catalog(checked: bool) -> None:
    world = filled(ExpiringWorld(), "t")
    if checked:
        world.become(replace(world.behavior, reference_settings=SECOND))
        world.deploy(expiry=expiries_of(world, world.commits, lost_refs=world.index))
    task = world.expire("t")
    assert task.status is Status.SUCCESS
    same = [one["sample"] for one in world.receipt(task)["findings"] if one["code"] == "SAME_TABLE"]
    assert same == ([["second.ns.t"]] if checked else [])


def test_a_removal_of_orphan_files_is_refused_and_names_the_table_in_the_other_catalog() -> None:
    world = filled(SweepingWorld(), "t")
    planted = world.plant("data/orphan.parquet")
    world.become(replace(world.behavior, reference_settings=SECOND))
    world.deploy(orphans=removals_of(world, world.properties, world.faults, places=lambda *_: []))
    task = world.ask()
    assert (task.status, task.error_code) == (Status.FAILURE, "LOCATION_SHARED")
    assert "second.ns.t" in (task.result_summary or "")
    assert "SAME_TABLE" in (task.result_summary or "")
    assert planted <= set(world.lake.uris())
