"""By default a purge keeps every file that a live table references, wherever that table is registered."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from delegation.idempotency.keys import RequestInProgress
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import PolarisForbidden
from delegation.references import REFERENCE_INDEX
from delegation.references.model import SERVES_FOR, CatalogPass
from delegation.removal.purge.requests import Limits, ReferenceSettings
from delegation.removal.purge.task_type import PurgeDetails
from delegation.tasks.life.model import Status
from delegation.tasks.life.policy import InvalidProperty
from polaris_common.dynamodb import to_item
from tests.kit.lakes.lake import busy_table, filled, rows
from tests.kit.worlds.indexed import IndexedWorld
from tests.kit.worlds.together import drive_together


@pytest.fixture
def world() -> IndexedWorld:
    return filled(IndexedWorld(), "t")


def test_a_clone_registered_in_another_namespace_keeps_its_files(world: IndexedWorld) -> None:
    world.other.pointers["clone"] = world.lake.pointers["t"]
    task = world.purge("t")
    assert task.status is Status.SUCCESS
    assert world.readable("clone")
    assert world.other.io.new_input(world.other.pointers["clone"]).exists()


def test_a_table_that_took_files_from_the_purged_one_keeps_them(world: IndexedWorld) -> None:
    files = sorted(uri for uri in world.lake.below("s3://lake/wh/t/data/") if uri.endswith(".parquet"))
    taking = world.other.create("taking", location="s3://other/far/taking")
    taking.append(rows(1))
    world.other.table("taking").add_files(files[:2], check_duplicate_files=False)
    task = world.purge("t")
    assert task.status is Status.SUCCESS
    assert world.readable("taking")
    assert set(world.lake.below("s3://lake/wh/t/")) == set(files[:2])
    (checked,) = world.receipt(task)["references"]
    assert (checked["catalog"], checked["tables"]) == ("cat", 2)
    assert checked["as_of"].startswith("2026-")


def test_a_moved_clone_keeps_the_files_at_the_former_location(world: IndexedWorld) -> None:
    world.other.pointers["moved"] = world.lake.pointers["t"]
    with world.other.table("moved").transaction() as change:
        change.set_properties({"owner": "other"})
    world.other.rewrite_metadata("moved", {"location": "s3://other/moved"})
    world.purge("t")
    assert world.readable("moved")


def test_a_nested_table_of_another_namespace_keeps_its_files(world: IndexedWorld) -> None:
    world.other.create("nested", location="s3://lake/wh/t/data/nested").append(rows(1))
    with world.lake.table("t").transaction() as change:
        change.set_properties({"owner": "me"})
    world.lake.table("t").add_files(
        [uri for uri in world.lake.below("s3://lake/wh/t/data/nested/") if uri.endswith(".parquet")],
        check_duplicate_files=False,
    )
    assert world.purge("t").status is Status.SUCCESS
    assert world.readable("nested")


def test_a_table_recreated_at_the_same_location_in_another_namespace_keeps_its_files(world: IndexedWorld) -> None:
    world.other.create("again", location="s3://lake/wh/t").append(rows(1))
    assert world.purge("t").status is Status.SUCCESS
    assert world.readable("again")
    assert world.lake.below("s3://lake/wh/t/") == world.lake.below("s3://lake/wh/t/") & set(world.reached("again"))


def test_a_table_whose_data_path_is_anothers_location_deletes_none_of_its_files(world: IndexedWorld) -> None:
    victim = world.other.create("victim", location="s3://lake/wh/victim")
    victim.append(rows(1))
    files = [uri for uri in world.lake.below("s3://lake/wh/victim/data/") if uri.endswith(".parquet")]
    world.lake.create("deputy", **{"write.data.path": "s3://lake/wh/victim/data"})
    world.lake.table("deputy").add_files(files, check_duplicate_files=False)
    assert world.purge("deputy").status is Status.SUCCESS
    assert world.readable("victim")


def test_a_table_that_took_files_after_the_plan_stops_the_purge_before_its_first_delete(world: IndexedWorld) -> None:
    files = sorted(uri for uri in world.lake.below("s3://lake/wh/t/data/") if uri.endswith(".parquet"))
    near = world.other.create("near", location="s3://lake/wh/t/near")
    near.append(rows(1))
    before = set(world.lake.uris())

    def take(name: str) -> None:
        if name == "publish":
            world.other.table("near").add_files(files[:1], check_duplicate_files=False)

    plans, publish = world.plans, world.plans.put
    plans.put = lambda key, data: (publish(key, data), take("publish") if key.endswith("index.json") else None)[0]
    task = world.purge("t")
    assert task.error_code == "FILES_SHARED"
    assert before <= set(world.lake.uris())


def test_a_purge_waits_for_another_process_that_refreshes_the_index(world: IndexedWorld) -> None:
    now = world.clock()
    held = CatalogPass("cat", owner="other", owned_until=now + timedelta(seconds=60), began_at=now, checked=7)
    world.index.write_pass(CatalogPass("cat"), held)
    world.submit(world.body("t"))
    (task_id, _n) = world.queue.sent[0]
    world.drive()
    history = world.history(task_id)
    waits = [task for task in history if task.status is Status.RETRY_SCHEDULED]
    assert waits
    assert {task.error_code for task in waits} == {"REFERENCES_NOT_KNOWN"}
    assert "7 tables are checked" in waits[0].result_summary
    assert "set delegation.purge.references to `location` or `namespace`" in waits[0].result_summary
    assert history[-1].status is Status.SUCCESS
    assert history[-1].unexcused_attempts == 1


def test_an_unreadable_table_anywhere_in_the_catalog_refuses_and_is_named(world: IndexedWorld) -> None:
    world.other.create("hidden", location="s3://elsewhere/hidden")
    world.listing.broken["hidden"] = PolarisForbidden("no privilege", status=403)
    task = world.purge("t")
    assert task.error_code == "NEIGHBOUR_UNREADABLE"
    assert "cat.other.hidden" in task.result_summary


def test_a_catalog_of_the_settings_is_checked_too(world: IndexedWorld) -> None:
    world.become(replace(world.behavior, reference_settings=ReferenceSettings(catalogs=("second",))))
    task = world.purge("t")
    assert [one["catalog"] for one in world.receipt(task)["references"]] == ["cat", "second"]
    # The listing has the same tables in each catalog, as a federated one does.
    [same] = [one for one in world.receipt(task)["findings"] if one["code"] == "SAME_TABLE"]
    assert same["sample"] == ["second.ns.t"]


def test_the_recurring_task_is_submitted_once(world: IndexedWorld) -> None:
    busy_table(world.lake, "u")
    world.purge("t")
    world.purge("u")
    kinds = [task.task_type for task in world.store.heads().tasks]
    assert kinds.count(REFERENCE_INDEX) == 1


@pytest.mark.parametrize("one_worker", [False, True])
def test_purges_that_are_submitted_together_share_a_few_passes(world: IndexedWorld, one_worker: bool) -> None:
    """Also where one worker runs them one after the other: they note their moments and wait for the same pass."""
    names = [f"t{number:03}" for number in range(60)]
    for name in names:
        world.lake.create(name)
    world.listing.each_load = lambda: world.clock.advance(timedelta(milliseconds=100))
    ids = [world.submit(world.body(name)).task_id for name in names]
    drive_together(world, one_worker=one_worker)
    assert {world.tasks.reads.get(one).status for one in ids} == {Status.SUCCESS}
    passes = world.index.pass_of("cat").complete
    assert passes <= 4
    # The first pass knows no table, so it loads each twice: a rename behind it shows only then.
    assert world.listing.asked["conditional"] <= (passes + 1) * (len(names) + 1)


def test_the_operator_can_choose_locations_or_the_namespace_alone(world: IndexedWorld) -> None:
    busy_table(world.lake, "u")
    for name, mode, listed in (("t", "namespace", {("ns",)}), ("u", "location", {("ns",), ("other",)})):
        limits = Limits.from_properties({"delegation.purge.references": mode})
        behavior = replace(world.behavior, limits=limits)
        world.listing.asked.clear()
        body = world.body(name, **{"dry-run": "true"})
        world.become(behavior)
        world.submit(body)
        world.drive()
        assert world.listing.asked["conditional"] == 0
        assert world.listing.asked["listings"] == len(listed)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reference-loads-per-second", "0"),
        ("reference-loads-per-second", "many"),
        ("reference-max-age", "soon"),
        ("reference-refresh-interval", "-1h"),
        ("reference-catalogs", "a,,b"),
    ],
)
def test_an_invalid_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidProperty, match=name):
        ReferenceSettings.from_properties({f"delegation.purge.{name}": value})


def test_the_settings_are_read() -> None:
    settings = ReferenceSettings.from_properties(
        {
            "delegation.purge.reference-max-age": "5m",
            "delegation.purge.reference-loads-per-second": "70",
            "delegation.purge.reference-refresh-interval": "PT2H",
            "delegation.purge.reference-catalogs": "b, a",
        }
    )
    assert settings == ReferenceSettings(timedelta(minutes=5), timedelta(hours=2), ("b", "a"), 70)
    assert settings.of("a") == ("a", "b")
    assert TableIdentifier("a", ("n",), "t").catalog == "a"


def test_the_namespace_mode_does_not_find_a_clone_elsewhere(world: IndexedWorld) -> None:
    """The default protects it; docs/architecture/references.md names the difference."""
    world.other.pointers["clone"] = world.lake.pointers["t"]
    limits = Limits.from_properties({"delegation.purge.references": "namespace"})
    world.become(replace(world.behavior, limits=limits))
    world.purge("t")
    assert not world.other.io.new_input(world.other.pointers["clone"]).exists()


def test_a_clone_that_was_renamed_since_the_index_was_refreshed_keeps_its_files(world: IndexedWorld) -> None:
    busy_table(world.lake, "before")
    world.other.pointers["clone"] = world.lake.pointers["t"]
    world.purge("before")
    world.other.pointers["renamed"] = world.other.pointers.pop("clone")
    assert world.purge("t").status is Status.SUCCESS
    assert world.readable("renamed")


def test_a_table_that_took_files_and_was_renamed_after_the_plan_keeps_them(world: IndexedWorld) -> None:
    files = sorted(uri for uri in world.lake.below("s3://lake/wh/t/data/") if uri.endswith(".parquet"))
    world.other.create("near", location="s3://lake/wh/t/near").append(rows(1))

    def take_and_rename(key: str) -> None:
        if key.endswith("index.json"):
            world.other.table("near").add_files(files[:1], check_duplicate_files=False)
            world.other.pointers["renamed"] = world.other.pointers.pop("near")

    put = world.plans.put
    world.plans.put = lambda key, data: (put(key, data), take_and_rename(key))[0]
    assert world.purge("t").error_code == "FILES_SHARED"
    assert world.readable("renamed")


def test_a_neighbour_that_is_dropped_after_the_pass_costs_a_pass_that_finds_it_gone(world: IndexedWorld) -> None:
    for number in range(20):
        world.other.create(f"far{number:02}", location=f"s3://other/far{number:02}")
    world.other.create("near", location="s3://lake/wh/t/near")

    def drop(key: str) -> None:
        if key.endswith("index.json"):
            world.other.pointers.pop("near", None)

    put = world.plans.put
    world.plans.put = lambda key, data: (put(key, data), drop(key))[0]
    task = world.purge("t")
    assert task.status is Status.SUCCESS
    (checked,) = world.receipt(task)["references"]
    assert (checked["pass"], checked["moment"]) == (2, 1)
    assert world.index.overlapping("cat", ["s3://lake/wh/t/near/"]) == {TableIdentifier("cat", ("ns",), "t")}


def test_a_neighbour_that_replaces_another_table_after_the_pass_keeps_its_files(world: IndexedWorld) -> None:
    """It has no new name by which it could be found: the name is that of a table that the index knows."""
    files = sorted(uri for uri in world.lake.below("s3://lake/wh/t/data/") if uri.endswith(".parquet"))
    world.other.create("prod", location="s3://other/far/prod").append(rows(1))
    world.other.create("staging", location="s3://other/far/staging").append(rows(1))
    world.other.table("staging").add_files(files[:1], check_duplicate_files=False)

    def replaced() -> None:
        if "staging" in world.other.pointers and world.index.pass_of("cat").complete:
            world.other.pointers["prod"] = world.other.pointers.pop("staging")

    world.listing.each_load = replaced
    task = world.purge("t")
    assert task.status is Status.SUCCESS
    assert "staging" not in world.other.pointers
    assert world.readable("prod")


def test_the_moment_of_a_purge_stays_while_it_waits(world: IndexedWorld) -> None:
    now = world.clock()
    held = CatalogPass(
        "cat", owner="other", owned_until=now + timedelta(seconds=60), began_at=now, number=4, complete=3
    )
    world.index.write_pass(CatalogPass("cat"), held)
    task = world.purge("t", **{"dry-run": "true"})
    assert len([one for one in world.history(task.task_id) if one.status is Status.RETRY_SCHEDULED]) > 1
    assert PurgeDetails.of(task).references_moment.passes == {"cat": 4}
    assert world.index.pass_of("cat").complete == 5


@pytest.mark.parametrize("how", ["submitted again", "retried"])
def test_a_purge_that_is_requested_again_keeps_what_was_taken_meanwhile(world: IndexedWorld, how: str) -> None:
    """The pass of the first try is minutes old, and began before the table took the files."""
    files = sorted(uri for uri in world.lake.below("s3://lake/wh/t/data/") if uri.endswith(".parquet"))
    world.other.create("taking", location="s3://other/far/taking").append(rows(1))
    (manifest, *_) = world.lake.table("t").current_snapshot().manifests(world.lake.io)
    key = tuple(manifest.manifest_path.removeprefix("s3://").split("/", 1))
    whole = world.lake.objects[key]
    world.lake.objects[key] = b"x" * len(whole)
    first = world.purge("t")
    assert (first.status, world.index.pass_of("cat").complete) == (Status.FAILURE, 1)
    world.lake.objects[key] = whole
    world.other.table("taking").add_files(files[:1], check_duplicate_files=False)
    world.clock.advance(timedelta(minutes=10))
    if how == "retried":
        world.tasks.operators.retry(first.task_id)
        world.clock.advance(timedelta(minutes=2))
        world.sweep()
        world.drive()
        again = world.tasks.reads.get(first.task_id)
    else:
        again = world.purge("t")
    assert (again.task_id, again.status) == (first.task_id, Status.SUCCESS)
    assert world.readable("taking")
    assert PurgeDetails.of(again).references_moment.passes == {"cat": 1}


def test_a_purge_that_waited_longer_than_an_hour_before_its_first_delete_needs_a_new_pass(world: IndexedWorld) -> None:
    files = sorted(uri for uri in world.lake.below("s3://lake/wh/t/data/") if uri.endswith(".parquet"))
    world.other.create("taking", location="s3://other/far/taking").append(rows(1))

    def take_and_wait(key: str) -> None:
        if key.endswith("index.json"):
            world.other.table("taking").add_files(files[:1], check_duplicate_files=False)
            world.clock.advance(SERVES_FOR + timedelta(seconds=1))

    put = world.plans.put
    world.plans.put = lambda key, data: (put(key, data), take_and_wait(key))[0]
    world.purge("t")
    assert world.readable("taking")


def test_the_receipt_names_the_setting_by_which_an_earlier_pass_was_enough(world: IndexedWorld) -> None:
    busy_table(world.lake, "before")
    world.purge("before")
    world.become(replace(world.behavior, reference_settings=ReferenceSettings(max_age=timedelta(minutes=15))))
    (checked,) = world.receipt(world.purge("t"))["references"]
    assert (checked["pass"], checked["moment"], checked["relaxed_by"]) == (1, 1, "reference-max-age=0:15:00")
    busy_table(world.lake, "later")
    world.clock.advance(timedelta(minutes=16))
    (checked,) = world.receipt(world.purge("later"))["references"]
    assert (checked["pass"], checked["moment"]) == (2, 1)
    assert "relaxed_by" not in checked


def test_an_index_that_was_emptied_while_a_purge_waits_is_rebuilt(world: IndexedWorld) -> None:
    """Its passes are numbered anew, so the number that the purge noted says nothing."""
    now = world.clock()
    held = CatalogPass("cat", owner="other", owned_until=now + timedelta(seconds=60), began_at=now, number=900)
    world.index.write_pass(CatalogPass("cat"), held)
    world.submit(world.body("t"))
    (task_id, _n) = world.queue.sent[0]

    def empty() -> None:
        if world.index.pass_of("cat").number == 900 and world.clock() > now + timedelta(seconds=20):
            index = world.index._items
            index.calls.client.delete_item(TableName=index.table, Key=to_item({"pk": "catalog:cat", "sk": "pass"}))

    acquire = world.steps.acquire
    world.steps.acquire = lambda step, deadline: (empty(), acquire(step, deadline))[1]
    world.drive()
    assert world.tasks.reads.get(task_id).status is Status.SUCCESS
    assert world.index.pass_of("cat").complete == 1


def test_an_approved_plan_executed_hours_later_deletes_nothing_at_a_table_created_meanwhile(
    world: IndexedWorld,
) -> None:
    world.lake.create("pooled", **{"write.data.path": "s3://lake/pool"}).append(rows(1))
    plan = world.purge("pooled", **{"dry-run": "true"}).details["plan_segments"][0]["id"]
    world.clock.advance(timedelta(hours=5))
    world.other.create("later", location="s3://lake/pool")
    before = set(world.lake.uris())
    assert world.purge("pooled", plan=plan).error_code == "FILES_AT_ANOTHER_TABLE"
    assert before <= set(world.lake.uris())


def test_files_that_were_taken_after_the_last_refresh_are_kept(world: IndexedWorld) -> None:
    busy_table(world.lake, "before")
    world.other.create("taking", location="s3://other/far/taking").append(rows(1))
    world.purge("before")
    files = sorted(uri for uri in world.lake.below("s3://lake/wh/t/data/") if uri.endswith(".parquet"))
    world.other.table("taking").add_files(files[:2], check_duplicate_files=False)
    assert world.purge("t").status is Status.SUCCESS
    assert world.readable("taking")


def test_a_clone_that_was_registered_after_the_last_refresh_keeps_its_files(world: IndexedWorld) -> None:
    busy_table(world.lake, "before")
    world.purge("before")
    world.other.pointers["clone"] = world.lake.pointers["t"]
    assert world.purge("t").status is Status.SUCCESS
    assert world.readable("clone")


def test_a_table_that_was_renamed_over_another_since_the_refresh_keeps_its_files(world: IndexedWorld) -> None:
    busy_table(world.lake, "before")
    files = sorted(uri for uri in world.lake.below("s3://lake/wh/t/data/") if uri.endswith(".parquet"))
    world.other.create("prod", location="s3://other/far/prod").append(rows(1))
    world.other.create("staging", location="s3://other/far/staging").append(rows(1))
    world.other.table("staging").add_files(files[:1], check_duplicate_files=False)
    world.purge("before")
    world.other.pointers["prod"] = world.other.pointers.pop("staging")
    assert world.purge("t").status is Status.SUCCESS
    assert world.readable("prod")


def test_of_forty_clones_with_one_metadata_file_one_is_loaded(world: IndexedWorld) -> None:
    for number in range(39):
        world.other.pointers[f"clone{number:02}"] = world.lake.pointers["t"]
    world.behavior.refresher(world.index, "recurring", lambda: None).ensure_fresh("cat", timedelta(minutes=15))
    world.listing.asked.clear()
    assert world.purge("t").status is Status.SUCCESS
    # The pass asks all twice, because they share a uuid, and the plan those that are not loaded; only the metadata file
    # is deleted.
    assert world.listing.asked["conditional"] == 2 * 40 + 38
    assert world.listing.asked["full"] <= 8
    assert all(world.readable(name) for name in world.other.pointers)


def test_a_clone_that_took_a_file_after_the_plan_stops_the_purge_beside_another_one(world: IndexedWorld) -> None:
    """Both had one metadata file in the pass, so the plan is made from one of them."""
    world.other.pointers |= dict.fromkeys(("one", "two"), world.lake.pointers["t"])
    before = set(world.lake.below("s3://lake/wh/t/data/"))
    world.lake.table("t").append(rows(3))
    (new, *_) = sorted(set(world.lake.below("s3://lake/wh/t/data/")) - before)

    def take(key: str) -> None:
        if key.endswith("index.json"):
            world.other.table("two").add_files([new], check_duplicate_files=False)

    put = world.plans.put
    world.plans.put = lambda key, data: (put(key, data), take(key))[0]
    assert world.purge("t").error_code == "FILES_SHARED"
    assert world.readable("two")


def test_forty_clones_with_commits_of_their_own_are_loaded_once_for_a_plan_and_once_before_the_deletes(
    world: IndexedWorld,
) -> None:
    for number in range(39):
        world.other.pointers[f"clone{number:02}"] = world.lake.pointers["t"]
        with world.other.table(f"clone{number:02}").transaction() as change:
            change.set_properties({"owner": str(number)})
    world.behavior.refresher(world.index, "recurring", lambda: None).ensure_fresh("cat", timedelta(minutes=15))
    world.listing.asked.clear()
    assert world.purge("t").status is Status.SUCCESS
    assert world.listing.asked["conditional"] == 2 * 40
    assert world.listing.asked["full"] <= 2 * 39 + 8
    assert all(world.readable(name) for name in world.other.pointers)


def slow_catalog(world: IndexedWorld, tables: int) -> None:
    """Have a catalog of so many other tables, of which a pass loads 50 a second."""
    for number in range(tables):
        world.other.create(f"other{number:04}")
    world.become(replace(world.behavior, reference_settings=ReferenceSettings(loads_per_second=50)))


def test_a_purge_completes_in_its_call_if_a_pass_takes_ten_seconds(world: IndexedWorld) -> None:
    slow_catalog(world, 500)
    # A catalog's first pass loads each table twice.
    world.behavior.refresher(world.index, "recurring", lambda: None).ensure_fresh("cat", timedelta(minutes=15))
    answer = world.execute(world.body("t"))
    assert (answer.status, json.loads(answer.body)["status"]) == (200, "COMPLETED_SUCCESS")


def test_a_call_waits_for_the_pass_of_another_purge(world: IndexedWorld) -> None:
    now = world.clock()
    until = now + timedelta(seconds=5)
    held = CatalogPass("cat", owner="other", owned_until=until, began_at=now, number=1)
    world.index.write_pass(CatalogPass("cat"), held)
    answer = world.execute(world.body("t"))
    assert (answer.status, json.loads(answer.body)["status"]) == (200, "COMPLETED_SUCCESS")
    assert world.clock() > until
    assert world.index.pass_of("cat").complete == 2


def test_a_purge_whose_pass_takes_longer_than_its_call_is_handed_over(world: IndexedWorld) -> None:
    slow_catalog(world, 1_500)
    with pytest.raises(RequestInProgress) as waits:
        world.execute(world.body("t"))
    assert world.index.pass_of("cat").checked > 500
    world.drive()
    task = world.tasks.reads.get(waits.value.task_id)
    assert (task.status, task.engine) == (Status.SUCCESS, "inline")
    # Counted are the attempt within the call and those that made a part of the pass, none of which is a failure.
    assert task.unexcused_attempts == 1
    assert world.listing.asked["conditional"] <= 2 * 1_501
