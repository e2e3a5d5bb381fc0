"""A table that cannot be read still protects what can be read of it and what was known; it holds back few purges."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchCatalog, NoSuchTable, PolarisForbidden, PolarisUnavailable
from delegation.polaris.model import GenericTable, LoadedTable
from delegation.references.blocking import Exemption
from delegation.references.model import EVERYWHERE
from delegation.references.store import blocking_of
from delegation.removal.purge.indexed import may_be_held, release
from delegation.removal.purge.requests import Limits, ReferenceSettings
from delegation.removal.purge.task_type import DROP_TASK_TYPE, PLAN_TASK_TYPE, TASK_TYPE
from delegation.tasks.life.model import Status, Task
from tests.kit.lakes.lake import busy_table, filled, rows
from tests.kit.tasks.builders import NOW, submitted
from tests.kit.worlds.indexed import IndexedWorld


@pytest.fixture
def world() -> IndexedWorld:
    return filled(IndexedWorld(), "t")


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


def hidden_table(world: IndexedWorld) -> None:
    """Create a table elsewhere that may not be loaded after a pass has read it."""
    world.other.create("hidden", location="s3://elsewhere/hidden")
    refresh(world)
    world.listing.broken["hidden"] = PolarisForbidden("no privilege", status=403)


def exempt_all(world: IndexedWorld, why: str = "nobody needs it", *, catalog: str = "cat") -> None:
    """Exempt everything that cannot be read, as an operator does by name."""
    for blocking in blocking_of(world.index, catalog):
        world.index.put_exemption(Exemption.of(blocking, why=why, by="operator", now=world.clock()))


def refresh(world: IndexedWorld) -> None:
    """Make a new pass, as the recurring task does."""
    world.clock.advance(timedelta(minutes=20))
    world.behavior.refresher(world.index, "recurring", lambda: None).ensure_fresh("cat", timedelta(minutes=15))
    release(world.index, world.tasks.writes, ["cat"], world.clock())


def continued(world: IndexedWorld, task: Task) -> Task:
    """Let the sweeper dispatch what is due."""
    world.sweep()
    world.drive()
    return world.tasks.reads.get(task.task_id)


def test_a_purge_is_held_and_its_attempts_do_not_count(world: IndexedWorld) -> None:
    hidden_table(world)
    task = world.purge("t")
    assert (task.status, task.error_code) == (Status.RETRY_SCHEDULED, "NEIGHBOUR_UNREADABLE")
    assert "delegation references exempt" in task.result_summary
    assert "cat.other.hidden" in task.result_summary
    assert task.admission.admitted_ts is None
    for _ in range(30):
        world.clock.advance(timedelta(hours=1, minutes=1))
        task = continued(world, task)
    assert task.status is Status.RETRY_SCHEDULED
    assert task.unexcused_attempts == 0
    assert len(world.index.held("cat")) == 1


def test_a_caller_that_waits_gets_409_and_nothing_is_deleted_after_it(world: IndexedWorld) -> None:
    hidden_table(world)
    before = set(world.lake.uris())
    answer = world.execute(world.body("t"))
    assert answer.status == 409
    assert b"NEIGHBOUR_UNREADABLE" in answer.body
    world.listing.broken.clear()
    refresh(world)
    world.sweep()
    world.drive()
    assert set(world.lake.uris()) == before


def test_a_dry_run_says_at_once_what_cannot_be_read(world: IndexedWorld) -> None:
    hidden_table(world)
    task = world.purge("t", **{"dry-run": "true"})
    assert (task.status, task.error_code) == (Status.FAILURE, "NEIGHBOUR_UNREADABLE")


@pytest.mark.parametrize("end", ["readable", "dropped", "exempted"])
def test_a_held_purge_runs_as_soon_as_the_index_finds_that_nothing_blocks_it(world: IndexedWorld, end: str) -> None:
    hidden_table(world)
    task = world.purge("t")
    if end == "readable":
        world.listing.broken.clear()
    elif end == "dropped":
        del world.other.pointers["hidden"]
        world.listing.broken["hidden"] = NoSuchTable("no table", status=404)
    else:
        exempt_all(world)
    refresh(world)
    assert world.tasks.reads.get(task.task_id).next_scheduled_run_ts == world.clock()
    assert world.index.held("cat") == []
    assert continued(world, task).status is Status.SUCCESS


@pytest.mark.parametrize("minutes", [1, 50])
def test_what_another_table_took_while_a_purge_was_held_is_kept(world: IndexedWorld, minutes: int) -> None:
    """The pass that was made before the hold is young enough, but began before the table took the files."""
    files = sorted(uri for uri in world.lake.below("s3://lake/wh/t/data/") if uri.endswith(".parquet"))
    world.other.create("taking", location="s3://other/far/taking").append(rows(1))
    hidden_table(world)
    task = world.purge("t")
    assert task.error_code == "NEIGHBOUR_UNREADABLE"
    world.clock.advance(timedelta(minutes=minutes))
    world.other.table("taking").add_files(files[:1], check_duplicate_files=False)
    exempt_all(world)
    release(world.index, world.tasks.writes, ["cat"], world.clock())
    task = continued(world, task)
    assert task.status is Status.SUCCESS
    assert world.readable("taking")
    (found,) = world.receipt(task)["references"]
    assert (found["pass"], found["moment"]) == (3, 2)


def test_an_exemption_is_in_the_receipt_with_its_reason(world: IndexedWorld) -> None:
    hidden_table(world)
    task = world.purge("t")
    exempt_all(world, "left by a former team")
    refresh(world)
    task = continued(world, task)
    (found,) = world.receipt(task)["references"]
    (one,) = found["exempted"]
    assert (one["what"], one["why"], one["by"]) == ("cat.other.hidden", "left by a former team", "operator")
    assert "NEIGHBOUR_EXEMPT" in {finding["code"] for finding in world.receipt(task)["findings"]}


def test_a_plan_that_was_made_beside_an_exempt_table_is_executed_while_it_is_exempt(world: IndexedWorld) -> None:
    hidden_table(world)
    busy_table(world.lake, "u")
    world.purge("t", **{"dry-run": "true"})
    exempt_all(world)
    plans = {name: _plan(world, name) for name in ("t", "u")}
    assert world.purge("t", plan=plans["t"]).status is Status.SUCCESS
    world.clock.advance(timedelta(days=30))
    before = set(world.lake.uris())
    assert world.purge("u", plan=plans["u"]).error_code == "NEIGHBOUR_UNREADABLE"
    assert set(world.lake.uris()) == before


def _plan(world: IndexedWorld, name: str) -> str:
    planned = world.purge(name, **{"dry-run": "true"})
    assert planned.status is Status.SUCCESS, planned.result_summary
    found: str = planned.details["plan_segments"][0]["id"]
    return found


@pytest.mark.parametrize("lost", [True, False])
def test_what_can_be_read_of_an_exempted_clone_keeps_its_files(world: IndexedWorld, lost: bool) -> None:
    needed = torn_clone(world, lost=lost)
    task = world.purge("t")
    assert task.error_code == "NEIGHBOUR_UNREADABLE"
    exempt_all(world)
    refresh(world)
    task = continued(world, task)
    assert task.status is Status.SUCCESS
    assert needed <= set(world.lake.uris())


def test_an_exemption_ends_when_the_table_can_be_read_and_after_thirty_days(world: IndexedWorld) -> None:
    hidden_table(world)
    world.purge("t")
    exempt_all(world)
    trouble = dict(world.listing.broken)
    world.listing.broken.clear()
    refresh(world)
    assert world.index.exemptions("cat") == []
    world.listing.broken.update(trouble)
    world.clock.advance(timedelta(hours=2))
    world.other.table("hidden").append(rows(1))
    busy_table(world.lake, "u")
    assert world.purge("u").error_code == "NEIGHBOUR_UNREADABLE"
    exempt_all(world)
    world.clock.advance(timedelta(days=30))
    busy_table(world.lake, "v")
    assert world.purge("v").error_code == "NEIGHBOUR_UNREADABLE"


def test_a_table_whose_entry_is_complete_holds_back_only_purges_that_overlap_it(world: IndexedWorld) -> None:
    world.other.create("elsewhere", location="s3://elsewhere/e").append(rows(1))
    world.other.pointers["clone"] = world.lake.pointers["t"]
    busy_table(world.lake, "before")
    busy_table(world.lake, "u")
    assert world.purge("before").status is Status.SUCCESS
    world.listing.not_vended = {"elsewhere", "clone"}
    world.clock.advance(timedelta(hours=2))
    assert world.purge("u").status is Status.SUCCESS
    assert world.purge("t").error_code == "NEIGHBOUR_UNREADABLE"


def test_a_manifest_that_expired_while_a_table_was_read_holds_nothing_back(world: IndexedWorld) -> None:
    """Expiry removes it between the load and the read; the newer metadata does not name it."""
    world.other.create("busy", location="s3://elsewhere/busy").append(rows(1))
    world.other.table("busy").append(rows(2))
    stale = world.listing._load(TableIdentifier("cat", ("other",), "busy"))
    (first, *_rest) = world.other.table("busy").current_snapshot().manifests(world.other.io)
    with world.other.table("busy").transaction() as change:
        change.delete("id >= 0")
    snapshot = world.other.table("busy").current_snapshot().snapshot_id
    metadata = world.other.metadata("busy")
    kept = [one for one in metadata["snapshots"] if one["snapshot-id"] == snapshot]
    world.other.rewrite_metadata("busy", {"snapshots": kept, "refs": {}, "snapshot-log": []})
    for uri in [uri for uri in world.lake.uris() if uri.endswith("-m0.avro") and "elsewhere" in uri]:
        if uri not in {
            one.manifest_path for one in world.other.table("busy").current_snapshot().manifests(world.other.io)
        }:
            world.other.io.delete(uri)
    assert not world.other.io.new_input(first.manifest_path).exists()
    world.listing.answers["busy"] = [stale]
    assert world.purge("t").status is Status.SUCCESS
    assert world.listing.answers["busy"] == []


def test_a_namespace_that_may_not_be_listed_holds_purges_until_it_is_exempted(world: IndexedWorld) -> None:
    world.other.pointers["clone"] = world.lake.pointers["t"]
    busy_table(world.lake, "before")
    busy_table(world.lake, "u")
    assert world.purge("before").status is Status.SUCCESS
    world.listing.unlisted = {("other",)}
    world.clock.advance(timedelta(hours=2))
    task = world.purge("t")
    assert task.error_code == "NEIGHBOUR_UNREADABLE"
    assert "the list of cat.other" in task.result_summary
    exempt_all(world)
    refresh(world)
    assert continued(world, task).status is Status.SUCCESS
    assert world.readable("clone")
    world.listing.unlisted = set()
    refresh(world)
    assert (world.index.unlisted("cat"), world.index.exemptions("cat")) == ([], [])
    assert world.purge("u").status is Status.SUCCESS


@pytest.mark.parametrize("trouble", [NoSuchCatalog("no catalog", status=404), PolarisForbidden("no", status=403)])
def test_a_catalog_of_the_settings_that_is_gone_holds_purges_until_it_is_exempted(
    world: IndexedWorld, trouble: Exception
) -> None:
    busy_table(world.lake, "before")
    world.become(replace(world.behavior, reference_settings=ReferenceSettings(catalogs=("second",))))
    assert world.purge("before").status is Status.SUCCESS
    world.listing.lost["second"] = trouble
    world.clock.advance(timedelta(hours=2))
    task = world.purge("t")
    assert task.error_code == "NEIGHBOUR_UNREADABLE"
    assert "the catalog second" in {str(one.subject) for one in world.index.unlisted("second")}
    exempt_all(world, catalog="second")
    release(world.index, world.tasks.writes, ["second"], world.clock())
    task = continued(world, task)
    # Here it has the same tables as the first catalog: what was known of them protects their files.
    assert "second.ns.t" in task.result_summary
    for entry in list(world.index.entries("second")):
        if entry.identifier.name == "t":
            world.index.remove(entry)
    world.clock.advance(timedelta(hours=2))
    task = continued(world, task)
    assert task.status is Status.SUCCESS, task.result_summary


def generic(world: IndexedWorld, **locations: str | None) -> None:
    """Have the catalog's other namespace list tables of another format at these locations."""

    def tables(catalog: str, namespace: tuple[str, ...], before: Callable[[], None]) -> list[GenericTable]:
        before()
        names = locations if namespace == ("other",) else {}
        return [GenericTable(TableIdentifier(catalog, namespace, name), at) for name, at in names.items()]

    world.become(replace(world.behavior, generic_tables=tables))


def test_a_table_of_another_format_keeps_what_is_at_its_location(world: IndexedWorld) -> None:
    generic(world, delta="s3://lake/wh/t/data/part=a", far="s3://elsewhere/far", nowhere=None, odd="gs://b/x")
    inside = {uri for uri in world.lake.uris() if uri.startswith("s3://lake/wh/t/data/part=a/")}
    task = world.purge("t")
    assert task.status is Status.SUCCESS, task.result_summary
    assert inside
    assert {uri for uri in world.lake.uris() if uri.startswith("s3://lake/wh/t/")} == inside
    assert [one["code"] for one in world.receipt(task)["findings"]] == ["FILES_AT_ANOTHER_TABLE"]


def test_a_table_of_another_format_at_the_same_location_holds_the_purge_until_it_is_gone(world: IndexedWorld) -> None:
    generic(world, delta="s3://lake/wh/t")
    before = set(world.lake.uris())
    task = world.purge("t")
    assert task.error_code == "NEIGHBOUR_UNREADABLE"
    assert "Drop cat.other.delta, or move it" in task.result_summary
    assert set(world.lake.uris()) == before
    generic(world)
    world.clock.advance(timedelta(hours=2))
    assert continued(world, task).status is Status.SUCCESS
    assert world.index.located("cat") == []


def test_a_table_of_another_format_around_a_table_keeps_its_write_paths_alone(world: IndexedWorld) -> None:
    generic(world, delta="s3://lake/pool")
    world.lake.create("pooled", **{"write.data.path": "s3://lake/pool/pooled"}).append(rows(1))
    at_pool = {uri for uri in world.lake.uris() if uri.startswith("s3://lake/pool/")}
    task = world.purge("pooled")
    assert task.status is Status.SUCCESS, task.result_summary
    assert at_pool
    assert {uri for uri in world.lake.uris() if uri.startswith("s3://lake/pool/")} == at_pool
    assert not any(uri.startswith("s3://lake/wh/pooled/") for uri in world.lake.uris())


def test_the_pass_of_another_purge_lets_a_held_one_run(world: IndexedWorld) -> None:
    hidden_table(world)
    busy_table(world.lake, "u")
    task = world.purge("t")
    world.listing.broken.clear()
    world.clock.advance(timedelta(minutes=20))
    assert world.purge("u").status is Status.SUCCESS
    assert world.tasks.reads.get(task.task_id).next_scheduled_run_ts <= world.clock()
    assert continued(world, task).status is Status.SUCCESS


def test_what_the_writer_of_a_table_chooses_stops_no_other_purge(world: IndexedWorld) -> None:
    """A bucket name of 701 bytes, a path of 3,000, files in 300 buckets: every purge compares such a table."""
    names = {"write.data.path": f"s3://{'b' * 701}/x", "write.metadata.path": f"s3://lake/{'k/' * 1500}"}
    world.other.create("hostile", location="s3://elsewhere/hostile").append(rows(1))
    log = [{"metadata-file": f"s3://bucket{number}/m.json", "timestamp-ms": 1} for number in range(300)]
    world.other.rewrite_metadata("hostile", {"properties": names, "metadata-log": log})
    task = world.purge("t")
    assert task.status is Status.SUCCESS, task.result_summary
    (entry,) = [one for one in world.index.entries("cat") if one.identifier.name == "hostile"]
    assert entry.areas == (EVERYWHERE,)
    assert "cat.other.hostile" in {one["identifier"] for one in world.receipt(task)["neighbours"]}


@pytest.mark.parametrize(
    ("kind", "synchronous", "began", "held"),
    [
        (TASK_TYPE, False, None, True),
        (DROP_TASK_TYPE, False, None, True),
        (PLAN_TASK_TYPE, False, None, False),
        (TASK_TYPE, True, None, False),
        (TASK_TYPE, True, NOW, True),
    ],
)
def test_a_purge_is_held_unless_a_caller_has_the_answer_that_nothing_was_deleted(
    kind: str, synchronous: bool, began: datetime | None, held: bool
) -> None:
    assert may_be_held(submitted(task_type=kind, synchronous=synchronous, effects_began_ts=began)) is held


def unanswered(world: IndexedWorld, name: str) -> None:
    """Have the catalog answer 503 for a table of the other namespace."""
    world.listing.broken[name] = PolarisUnavailable("Polaris answered 503 ServiceFailureException", status=503)


def test_a_table_that_the_catalog_answers_with_5xx_holds_purges_until_a_person_exempts_it(world: IndexedWorld) -> None:
    """Its areas are known, but its state may be another one by now."""
    world.other.pointers["clone"] = world.lake.pointers["t"]
    needed = set(world.reached("clone"))
    busy_table(world.lake, "before")
    world.purge("before")
    world.other.table("clone").append(rows(1))
    unanswered(world, "clone")
    busy_table(world.lake, "elsewhere")
    world.clock.advance(timedelta(hours=1))
    task = world.purge("elsewhere")
    assert (task.status, task.error_code) == (Status.RETRY_SCHEDULED, "NEIGHBOUR_UNREADABLE")
    assert "503" in task.result_summary
    assert task.unexcused_attempts == 0
    exempt_all(world)
    refresh(world)
    assert continued(world, task).status is Status.SUCCESS
    assert world.purge("t").status is not Status.SUCCESS, "it needs the very files"
    assert needed <= set(world.lake.uris())


def test_a_table_with_5xx_that_is_as_it_was_read_holds_back_only_purges_that_overlap_it(world: IndexedWorld) -> None:
    """It loads without credentials, so its state is known to be the one that was read to its end."""
    world.other.pointers["clone"] = world.lake.pointers["t"]
    busy_table(world.lake, "before")
    world.purge("before")
    real = world.listing.load_if_changed

    def load_if_changed(identifier: TableIdentifier, etag: str | None) -> LoadedTable | None:
        if identifier.name == "clone":
            raise PolarisUnavailable("Polaris answered 503", status=503)
        return real(identifier, etag)

    world.listing.load_if_changed = load_if_changed  # type: ignore[method-assign]
    busy_table(world.lake, "elsewhere")
    world.clock.advance(timedelta(hours=1))
    assert world.purge("elsewhere").status is Status.SUCCESS
    needed = set(world.reached("clone"))
    world.purge("t")
    assert needed <= set(world.lake.uris())


def test_a_table_that_was_never_read_is_passed_by_in_no_way(world: IndexedWorld) -> None:
    world.other.create("new", location="s3://elsewhere/new")
    unanswered(world, "new")
    task = world.purge("t")
    assert (task.status, task.error_code) == (Status.RETRY_SCHEDULED, "NEIGHBOUR_UNREADABLE")
    exempt_all(world)
    refresh(world)
    assert continued(world, task).status is Status.RETRY_SCHEDULED
    del world.other.pointers["new"]
    world.listing.broken["new"] = NoSuchTable("no table", status=404)
    refresh(world)
    assert continued(world, task).status is Status.SUCCESS


def test_a_glitch_of_an_unrelated_table_holds_no_purge(world: IndexedWorld) -> None:
    """One pass had no answer for it; the pass that serves the purge is complete, and knows its areas."""
    world.other.create("quiet", location="s3://elsewhere/quiet")
    busy_table(world.lake, "before")
    world.purge("before")
    entry = world.index.get(TableIdentifier("cat", ("other",), "quiet"))
    assert entry is not None
    world.index.put(replace(entry, problem="POLARIS_UNAVAILABLE: 503", problem_since=world.clock(), unanswered=(2,)))
    world.become(replace(world.behavior, reference_settings=ReferenceSettings(max_age=timedelta(hours=1))))
    assert world.purge("t").status is Status.SUCCESS
