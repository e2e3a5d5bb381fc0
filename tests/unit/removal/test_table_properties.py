"""Table properties that are misspelled, and tables that two catalogs name: the receipt states it, or the work stops."""

from dataclasses import replace

import pytest

from delegation.errors import GuardRefused
from delegation.removal.orphans.task_type import TASK_TYPE as ORPHANS
from delegation.removal.path_guard import POLICY_TYPES
from delegation.removal.purge.requests import ReferenceSettings
from delegation.tasks.life.model import Status
from delegation.upkeep.rules.model import PolicyType
from tests.kit.errors import coded
from tests.kit.lakes.commits import LakeCommits
from tests.kit.lakes.lake import busy_table, filled
from tests.kit.stories.orphans import SweptTables
from tests.kit.worlds.expiring import ExpiringWorld, expiries_of
from tests.kit.worlds.sweeping import SweepingWorld, removals_of

OPERATIONS = ["TABLE_PURGE", "TABLE_EXPIRE_SNAPSHOTS", ORPHANS]


def world(properties: dict[str, str]) -> SweepingWorld:
    """Return a world with all operations and the table `t`, which has these properties."""
    here = SweepingWorld()
    here.deploy(expiry=expiries_of(here, LakeCommits(here.lake, 4_000_000_000_000)))
    busy_table(here.lake, "t")
    here.lake.rewrite_metadata("t", {"properties": properties})
    return here


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", ["delegation.protectd", "delegation.Protected", "delegaton.protected"])
def test_a_misspelled_protection_protects(operation: str, name: str) -> None:
    here = world({name: "true"})
    before = set(here.lake.uris())
    if operation == "TABLE_PURGE":
        task_id = here.submit(here.identity("t")).task_id
        here.drive()
        task = here.tasks.reads.get(task_id)
        assert (task.status, task.error_code) == (Status.FAILURE, "TABLE_PROTECTED")
        assert f"{name} (taken for delegation.protected) is true" in str(task.result_summary)
    else:
        with pytest.raises(GuardRefused, match=r"taken for delegation\.protected", check=coded("TABLE_PROTECTED")):
            here.submit(here.request(operation, "t"))
    assert set(here.lake.uris()) == before


def test_a_misspelled_age_of_orphan_files_stops_their_removal() -> None:
    swept = SweptTables()
    table = swept.table()
    orphan = swept.orphan("s3://lake/wh/t/data/a.parquet")
    swept.lake.pass_days(9)
    table.set(**{"delegation.orphan-files.older-then": "30d"})
    with pytest.raises(GuardRefused, match=r"older-then; did you mean .*older-than\?", check=coded("AGE_INVALID")):
        swept.sweep(table)
    assert swept.lake.objects.keys() >= {("lake", orphan.removeprefix("s3://lake/"))}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_property_of_the_services_prefix_without_an_effect_is_a_finding_of_the_receipt(operation: str) -> None:
    properties = {"delegation.keep-forever": "true", "delegation.policy.snapshots.enable": "false", "owner": "a"}
    here = world(properties)
    here.plant("data/orphan.parquet")
    here.clock.advance(ExpiringWorld.pause)
    options = {"older-than": "now"} if operation == "TABLE_EXPIRE_SNAPSHOTS" else {}
    task_id = here.submit(here.request(operation, "t", **options)).task_id
    here.drive()
    task = here.tasks.reads.get(task_id)
    assert task.status is Status.SUCCESS, task.result_summary
    [found] = [one for one in here.receipt(task)["findings"] if one["code"] == "TABLE_PROPERTY_UNKNOWN"]
    assert (found["count"], len(found["sample"])) == (2, 2)
    assert found["sample"][0].startswith("delegation.keep-forever (did you mean ")


def test_the_types_of_policies_are_known_to_both_packages() -> None:

    assert set(POLICY_TYPES) == {one.short for one in PolicyType}


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
