"""By default a purge keeps every file that a live table references, wherever that table is registered."""

from dataclasses import replace
from datetime import timedelta

import pytest

from delegation.idempotency.keys import RequestInProgress
from delegation.identifiers import TableIdentifier
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


def by_references(world: IndexedWorld, mode: str) -> None:
    """Deploy the service with `delegation.purge.references`."""
    world.become(replace(world.behavior, limits=Limits.from_properties({"delegation.purge.references": mode})))


def look(world: IndexedWorld) -> None:
    """Make a pass over the catalog, as the recurring task does."""
    world.behavior.refresher(world.index, "recurring", lambda: None).ensure_fresh("cat", timedelta(minutes=15))


def pass_of_another(world: IndexedWorld, *, seconds: int = 60, **fields: int) -> None:
    """Have another process begin a pass over the catalog, which it holds for so long."""
    now = world.clock()
    held = CatalogPass("cat", owner="other", owned_until=now + timedelta(seconds=seconds), began_at=now, **fields)
    world.index.write_pass(CatalogPass("cat"), held)


@pytest.mark.parametrize("moved", [False, True])
def test_a_clone_registered_in_another_namespace_keeps_its_files(world: IndexedWorld, *, moved: bool) -> None:
    world.other.pointers["clone"] = world.lake.pointers["t"]
    if moved:
        world.other.table("clone").transaction().set_properties(owner="other").commit_transaction()
        world.other.rewrite_metadata("clone", {"location": "s3://other/moved"})
    assert world.purge("t").status is Status.SUCCESS
    assert world.readable("clone")


def test_a_table_that_took_files_from_the_purged_one_keeps_them(world: IndexedWorld) -> None:
    world.far_table("taking")
    taken = world.take("taking", 2)
    task = world.purge("t")
    assert task.status is Status.SUCCESS
    assert world.readable("taking")
    assert set(world.lake.below("s3://lake/wh/t/")) == set(taken)
    (checked,) = world.receipt(task)["references"]
    assert (checked["catalog"], checked["tables"]) == ("cat", 2)
    assert checked["as_of"].startswith("2026-")


@pytest.mark.parametrize("renamed", [False, True])
def test_a_table_that_took_files_after_the_plan_stops_the_purge_before_its_first_delete(
    world: IndexedWorld, *, renamed: bool
) -> None:
    world.other.create("near", location="s3://lake/wh/t/near").append(rows(1))
    before = set(world.lake.uris())

    def take() -> None:
        world.take("near")
        if renamed:
            world.other.pointers["renamed"] = world.other.pointers.pop("near")

    world.after_publishing(take)
    assert world.purge("t").error_code == "FILES_SHARED"
    assert before <= set(world.lake.uris())


def test_a_purge_waits_for_another_process_that_refreshes_the_index(world: IndexedWorld) -> None:
    pass_of_another(world, checked=7)
    history = world.history(world.purge("t").task_id)
    waits = [task for task in history if task.status is Status.RETRY_SCHEDULED]
    assert {task.error_code for task in waits} == {"REFERENCES_NOT_KNOWN"}
    assert "7 tables are checked" in waits[0].result_summary
    assert (history[-1].status, history[-1].unexcused_attempts) == (Status.SUCCESS, 1)


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


@pytest.mark.parametrize(("mode", "listed"), [("namespace", 1), ("location", 2)])
def test_the_operator_can_choose_locations_or_the_namespace_alone(world: IndexedWorld, mode: str, listed: int) -> None:
    by_references(world, mode)
    world.purge("t", **{"dry-run": "true"})
    assert (world.listing.asked["conditional"], world.listing.asked["listings"]) == (0, listed)


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
    given = {"max-age": "5m", "loads-per-second": "70", "refresh-interval": "PT2H", "catalogs": "b, a"}
    properties = {f"delegation.purge.reference-{name}": value for name, value in given.items()}
    settings = ReferenceSettings.from_properties(properties)
    assert settings == ReferenceSettings(timedelta(minutes=5), timedelta(hours=2), ("b", "a"), 70)
    assert settings.of("a") == ("a", "b")


def test_the_namespace_mode_does_not_find_a_clone_elsewhere(world: IndexedWorld) -> None:
    """The default protects it; docs/architecture/references.md names the difference."""
    world.other.pointers["clone"] = world.lake.pointers["t"]
    by_references(world, "namespace")
    world.purge("t")
    assert not world.other.io.new_input(world.other.pointers["clone"]).exists()


@pytest.mark.parametrize("event", ["a clone is renamed", "a clone is registered", "files are taken", "one is replaced"])
def test_what_happened_since_the_index_was_refreshed_is_found(world: IndexedWorld, event: str) -> None:
    pointers = world.other.pointers
    for name in ("prod", "staging"):
        world.far_table(name)
    if event == "a clone is renamed":
        pointers["clone"] = world.lake.pointers["t"]
    elif event == "one is replaced":
        world.take("staging")
    look(world)
    if event == "a clone is renamed":
        pointers["prod"] = pointers.pop("clone")
    elif event == "a clone is registered":
        pointers["prod"] = world.lake.pointers["t"]
    elif event == "files are taken":
        world.take("prod", 2)
    else:
        pointers["prod"] = pointers.pop("staging")
    assert world.purge("t").status is Status.SUCCESS
    assert world.readable("prod")


def test_a_neighbour_that_is_dropped_after_the_pass_costs_a_pass_that_finds_it_gone(world: IndexedWorld) -> None:
    for number in range(20):
        world.other.create(f"far{number:02}", location=f"s3://other/far{number:02}")
    world.other.create("near", location="s3://lake/wh/t/near")
    world.after_publishing(lambda: world.other.pointers.pop("near", None))
    task = world.purge("t")
    assert task.status is Status.SUCCESS
    (checked,) = world.receipt(task)["references"]
    assert (checked["pass"], checked["moment"]) == (2, 1)
    assert world.index.overlapping("cat", ["s3://lake/wh/t/near/"]) == {TableIdentifier("cat", ("ns",), "t")}


def test_a_neighbour_that_replaces_another_table_after_the_pass_keeps_its_files(world: IndexedWorld) -> None:
    """It has no new name by which it could be found: the name is that of a table that the index knows."""
    for name in ("prod", "staging"):
        world.far_table(name)
    world.take("staging")

    def replaced() -> None:
        if "staging" in world.other.pointers and world.index.pass_of("cat").complete:
            world.other.pointers["prod"] = world.other.pointers.pop("staging")

    world.listing.each_load = replaced
    assert world.purge("t").status is Status.SUCCESS
    assert "staging" not in world.other.pointers
    assert world.readable("prod")


def test_the_moment_of_a_purge_stays_while_it_waits(world: IndexedWorld) -> None:
    pass_of_another(world, number=4, complete=3)
    task = world.purge("t", **{"dry-run": "true"})
    assert len([one for one in world.history(task.task_id) if one.status is Status.RETRY_SCHEDULED]) > 1
    assert PurgeDetails.of(task).references_moment.passes == {"cat": 4}
    assert world.index.pass_of("cat").complete == 5


@pytest.mark.parametrize("how", ["submitted again", "retried"])
def test_a_purge_that_is_requested_again_keeps_what_was_taken_meanwhile(world: IndexedWorld, how: str) -> None:
    """The pass of the first try is minutes old, and began before the table took the files."""
    world.far_table("taking")
    (manifest, *_) = world.lake.table("t").current_snapshot().manifests(world.lake.io)
    whole = world.lake.read(manifest.manifest_path)
    world.lake.write(manifest.manifest_path, b"x" * len(whole))
    first = world.purge("t")
    assert (first.status, world.index.pass_of("cat").complete) == (Status.FAILURE, 1)
    world.lake.write(manifest.manifest_path, whole)
    world.take("taking")
    world.clock.advance(timedelta(minutes=10))
    if how == "retried":
        world.tasks.operators.retry(first.task_id)
        world.later(1 / 30)
        again = world.tasks.reads.get(first.task_id)
    else:
        again = world.purge("t")
    assert (again.task_id, again.status) == (first.task_id, Status.SUCCESS)
    assert world.readable("taking")
    assert PurgeDetails.of(again).references_moment.passes == {"cat": 1}


def test_a_purge_that_waited_longer_than_an_hour_before_its_first_delete_needs_a_new_pass(world: IndexedWorld) -> None:
    world.far_table("taking")

    def take_and_wait() -> None:
        world.take("taking")
        world.clock.advance(SERVES_FOR + timedelta(seconds=1))

    world.after_publishing(take_and_wait)
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
    pass_of_another(world, number=900)

    def empty() -> None:
        if world.index.pass_of("cat").number == 900 and world.clock() > now + timedelta(seconds=20):
            index = world.index._items
            index.calls.client.delete_item(TableName=index.table, Key=to_item({"pk": "catalog:cat", "sk": "pass"}))

    acquire = world.steps.acquire
    world.steps.acquire = lambda step, deadline: (empty(), acquire(step, deadline))[1]
    assert world.purge("t").status is Status.SUCCESS
    assert world.index.pass_of("cat").complete == 1


@pytest.mark.parametrize(("own", "conditional", "full"), [(False, 2 * 40 + 38, 8), (True, 2 * 40, 2 * 39 + 8)])
def test_of_forty_clones_those_are_loaded_that_have_commits_of_their_own(
    world: IndexedWorld, *, own: bool, conditional: int, full: int
) -> None:
    """A pass asks all twice, because they share a uuid, and a plan those that are not loaded.

    Those with commits are loaded once for the plan, and once before the deletes.
    """
    for number in range(39):
        name = f"clone{number:02}"
        world.other.pointers[name] = world.lake.pointers["t"]
        if own:
            world.other.table(name).transaction().set_properties(owner=name).commit_transaction()
    look(world)
    world.listing.asked.clear()
    assert world.purge("t").status is Status.SUCCESS
    assert world.listing.asked["conditional"] == conditional
    assert world.listing.asked["full"] <= full
    assert all(world.readable(name) for name in world.other.pointers)


def test_a_clone_that_took_a_file_after_the_plan_stops_the_purge_beside_another_one(world: IndexedWorld) -> None:
    """Both had one metadata file in the pass, so the plan is made from one of them."""
    world.other.pointers |= dict.fromkeys(("one", "two"), world.lake.pointers["t"])
    before = set(world.lake.below("s3://lake/wh/t/data/"))
    world.lake.table("t").append(rows(3))
    (new, *_) = sorted(set(world.lake.below("s3://lake/wh/t/data/")) - before)
    world.after_publishing(lambda: world.other.table("two").add_files([new], check_duplicate_files=False))
    assert world.purge("t").error_code == "FILES_SHARED"
    assert world.readable("two")


def test_a_purge_whose_pass_takes_longer_than_its_call_is_handed_over(world: IndexedWorld) -> None:
    for number in range(1_500):
        world.other.create(f"other{number:04}")
    world.become(replace(world.behavior, reference_settings=ReferenceSettings(loads_per_second=50)))
    with pytest.raises(RequestInProgress) as waits:
        world.execute(world.body("t"))
    assert world.index.pass_of("cat").checked > 500
    world.drive()
    task = world.tasks.reads.get(waits.value.task_id)
    assert (task.status, task.engine) == (Status.SUCCESS, "inline")
    # Counted are the attempt within the call and those that made a part of the pass, none of which is a failure.
    assert task.unexcused_attempts == 1
    assert world.listing.asked["conditional"] <= 2 * 1_501
