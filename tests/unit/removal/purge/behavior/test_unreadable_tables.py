"""A table that cannot be read still protects what can be read of it and what was known; it holds back few purges."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import NoSuchCatalog, NoSuchTable, PolarisForbidden, PolarisUnavailable
from delegation.polaris.model import GenericTable
from delegation.references.blocking import Exemption
from delegation.references.model import EVERYWHERE
from delegation.references.store import blocking_of
from delegation.removal.purge.indexed import may_be_held, release
from delegation.removal.purge.requests import Limits, ReferenceSettings
from delegation.removal.purge.task_type import DROP_TASK_TYPE, PLAN_TASK_TYPE, TASK_TYPE
from delegation.tasks.life.model import Status, Task
from tests.kit.lakes.lake import Lake, busy_table, filled, rows
from tests.kit.tasks.builders import NOW, submitted
from tests.kit.worlds.indexed import IndexedWorld

FORBIDDEN = PolarisForbidden("no privilege", status=403)
UNAVAILABLE = PolarisUnavailable("Polaris answered 503 ServiceFailureException", status=503)


@pytest.fixture
def world() -> IndexedWorld:
    return filled(IndexedWorld(), "t")


def accept_unreadable(world: IndexedWorld) -> None:
    """Set `delegation.purge.neighbour` to report."""
    world.become(replace(world.behavior, limits=Limits.from_properties({"delegation.purge.neighbour": "report"})))


def own_manifests(world: IndexedWorld, name: str) -> list[str]:
    """Return the manifests that only the other namespace's table has."""

    def manifests(lake: Lake, table: str) -> set[str]:
        return {one.manifest_path for each in lake.table(table).snapshots() for one in each.manifests(lake.io)}

    return sorted(manifests(world.other, name) - manifests(world.lake, "t"))


def waits(task: Task) -> bool:
    return (task.status, task.error_code) == (Status.RETRY_SCHEDULED, "NEIGHBOUR_UNREADABLE")


def torn_clone(world: IndexedWorld, *, lost: bool) -> set[str]:
    """Register a clone, append to it, tear the manifest of that; return the files of `t`, all of which it needs."""
    world.other.pointers["clone"] = world.lake.pointers["t"]
    needed = set(world.reached("clone"))
    world.other.table("clone").append(rows(50))
    for manifest in own_manifests(world, "clone"):
        if lost:
            world.other.io.delete(manifest)
        else:
            world.lake.write(manifest, b"x" * len(world.lake.read(manifest)))
    return needed


@pytest.mark.parametrize("trouble", ["forbidden", "metadata"])
def test_a_clone_that_cannot_be_read_any_more_keeps_the_files_of_its_last_known_areas(
    world: IndexedWorld, trouble: str
) -> None:
    world.other.pointers["clone"] = world.lake.pointers["t"]
    needed = set(world.reached("clone"))
    refresh(world)
    if trouble == "forbidden":
        world.listing.broken["clone"] = FORBIDDEN
    else:
        world.other.table("clone").append(rows(50))
        world.other.rewrite_metadata("clone", {"snapshots": "not a list"})
    world.clock.advance(timedelta(hours=1))
    accept_unreadable(world)
    assert world.purge("t").status is not Status.SUCCESS
    assert needed <= set(world.lake.uris())


def test_a_nested_table_that_may_not_be_loaded_any_more_keeps_the_files_at_its_last_known_location(
    world: IndexedWorld,
) -> None:
    world.other.create("nested", location="s3://lake/wh/t/data/part=a")
    refresh(world)
    inside = world.lake.below("s3://lake/wh/t/data/part=a/")
    world.listing.broken["nested"] = FORBIDDEN
    world.clock.advance(timedelta(hours=1))
    accept_unreadable(world)
    assert world.purge("t").status is Status.SUCCESS
    assert world.lake.below("s3://lake/wh/t/") == inside != set()


def hidden_table(world: IndexedWorld) -> None:
    """Create a table elsewhere that may not be loaded after a pass has read it."""
    world.other.create("hidden", location="s3://elsewhere/hidden")
    refresh(world)
    world.listing.broken["hidden"] = FORBIDDEN


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


def decided(world: IndexedWorld, task: Task | None = None) -> Task | None:
    """Exempt everything that cannot be read, make a pass, and let the sweeper dispatch what is due."""
    exempt_all(world)
    refresh(world)
    return None if task is None else continued(world, task)


def test_a_purge_is_held_and_its_attempts_do_not_count(world: IndexedWorld) -> None:
    hidden_table(world)
    task = world.purge("t")
    assert waits(task)
    assert "delegation references exempt" in task.result_summary
    assert "cat.other.hidden" in task.result_summary
    assert task.admission.admitted_ts is None
    for _ in range(30):
        world.clock.advance(timedelta(hours=1, minutes=1))
        task = continued(world, task)
    assert (task.status, task.unexcused_attempts) == (Status.RETRY_SCHEDULED, 0)
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
        exempt_all(world, "left by a former team")
    refresh(world)
    assert world.tasks.reads.get(task.task_id).next_scheduled_run_ts == world.clock()
    assert world.index.held("cat") == []
    task = continued(world, task)
    assert task.status is Status.SUCCESS
    (found,) = world.receipt(task)["references"]
    exempt = [(one["what"], one["why"], one["by"]) for one in found.get("exempted", ())]
    assert exempt == ([("cat.other.hidden", "left by a former team", "operator")] if end == "exempted" else [])
    codes = {finding["code"] for finding in world.receipt(task)["findings"]}
    assert ("NEIGHBOUR_EXEMPT" in codes) is (end == "exempted")


@pytest.mark.parametrize("minutes", [1, 50])
def test_what_another_table_took_while_a_purge_was_held_is_kept(world: IndexedWorld, minutes: int) -> None:
    """The pass that was made before the hold is young enough, but began before the table took the files."""
    world.far_table("taking")
    hidden_table(world)
    task = world.purge("t")
    assert waits(task)
    world.clock.advance(timedelta(minutes=minutes))
    world.take("taking")
    exempt_all(world)
    release(world.index, world.tasks.writes, ["cat"], world.clock())
    task = continued(world, task)
    assert task.status is Status.SUCCESS
    assert world.readable("taking")
    (found,) = world.receipt(task)["references"]
    assert (found["pass"], found["moment"]) == (3, 2)


def test_a_plan_that_was_made_beside_an_exempt_table_is_executed_while_it_is_exempt(world: IndexedWorld) -> None:
    hidden_table(world)
    busy_table(world.lake, "u")
    world.purge("t", **{"dry-run": "true"})
    exempt_all(world)
    dry_runs = {name: world.purge(name, **{"dry-run": "true"}) for name in ("t", "u")}
    plans = {name: task.details["plan_segments"][0]["id"] for name, task in dry_runs.items()}
    assert world.purge("t", plan=plans["t"]).status is Status.SUCCESS
    world.clock.advance(timedelta(days=30))
    before = set(world.lake.uris())
    assert world.purge("u", plan=plans["u"]).error_code == "NEIGHBOUR_UNREADABLE"
    assert set(world.lake.uris()) == before


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("how", ["accepted", "exempted"])
def test_what_can_be_read_of_a_clone_keeps_its_files(world: IndexedWorld, how: str, lost: bool) -> None:
    needed = torn_clone(world, lost=lost)
    if how == "accepted":
        accept_unreadable(world)
    task = world.purge("t")
    if how == "exempted":
        assert waits(task)
        task = decided(world, task)
    assert task.status is Status.SUCCESS
    assert needed <= set(world.lake.uris())
    code = "NEIGHBOUR_UNREADABLE" if how == "accepted" else "NEIGHBOUR_EXEMPT"
    assert code in {one["code"] for one in world.receipt(task)["findings"]}


@pytest.mark.parametrize("trouble", [FORBIDDEN, UNAVAILABLE], ids=["forbidden", "unavailable"])
def test_a_table_whose_entry_is_complete_holds_back_only_purges_that_overlap_it(
    world: IndexedWorld, trouble: Exception
) -> None:
    """It loads without credentials, so its state is known to be the one that was read to its end."""
    world.far_table("elsewhere")
    world.other.pointers["clone"] = world.lake.pointers["t"]
    busy_table(world.lake, "u")
    refresh(world)
    world.listing.not_vended, world.listing.why_not = {"elsewhere", "clone"}, trouble
    world.clock.advance(timedelta(hours=2))
    assert world.purge("u").status is Status.SUCCESS
    needed = set(world.reached("clone"))
    assert waits(world.purge("t")) or trouble is UNAVAILABLE
    assert needed <= set(world.lake.uris())


def test_a_manifest_that_expired_while_a_table_was_read_holds_nothing_back(world: IndexedWorld) -> None:
    """Expiry removes it between the load and the read; the newer metadata does not name it."""
    world.far_table("busy")
    world.other.table("busy").append(rows(2))
    stale = world.listing._load(TableIdentifier("cat", ("other",), "busy"))
    former = set(own_manifests(world, "busy"))
    world.other.table("busy").delete("id >= 0")
    snapshot = world.other.table("busy").current_snapshot().snapshot_id
    kept = [one for one in world.other.metadata("busy")["snapshots"] if one["snapshot-id"] == snapshot]
    world.other.rewrite_metadata("busy", {"snapshots": kept, "refs": {}, "snapshot-log": []})
    expired = former - set(own_manifests(world, "busy"))
    assert expired
    for path in expired:
        world.other.io.delete(path)
    world.listing.answers["busy"] = [stale]
    assert world.purge("t").status is Status.SUCCESS
    assert world.listing.answers["busy"] == []


def test_a_namespace_that_may_not_be_listed_holds_purges_until_it_is_exempted(world: IndexedWorld) -> None:
    world.other.pointers["clone"] = world.lake.pointers["t"]
    busy_table(world.lake, "u")
    refresh(world)
    world.listing.unlisted = {("other",)}
    world.clock.advance(timedelta(hours=2))
    task = world.purge("t")
    assert waits(task)
    assert "the list of cat.other" in task.result_summary
    assert decided(world, task).status is Status.SUCCESS
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
    inside = world.lake.below("s3://lake/wh/t/data/part=a/")
    task = world.purge("t")
    assert task.status is Status.SUCCESS, task.result_summary
    assert world.lake.below("s3://lake/wh/t/") == inside != set()
    assert [one["code"] for one in world.receipt(task)["findings"]] == ["FILES_AT_ANOTHER_TABLE"]


def test_a_table_of_another_format_at_the_same_location_holds_the_purge_until_it_is_gone(world: IndexedWorld) -> None:
    generic(world, delta="s3://lake/wh/t")
    before = set(world.lake.uris())
    task = world.purge("t")
    assert waits(task)
    assert "Drop cat.other.delta, or move it" in task.result_summary
    assert set(world.lake.uris()) == before
    generic(world)
    world.clock.advance(timedelta(hours=2))
    assert continued(world, task).status is Status.SUCCESS
    assert world.index.located("cat") == []


def test_a_table_of_another_format_around_a_table_keeps_its_write_paths_alone(world: IndexedWorld) -> None:
    generic(world, delta="s3://lake/pool")
    world.lake.create("pooled", **{"write.data.path": "s3://lake/pool/pooled"}).append(rows(1))
    at_pool = world.lake.below("s3://lake/pool/")
    assert world.purge("pooled").status is Status.SUCCESS
    assert world.lake.below("s3://lake/pool/") == at_pool != set()
    assert world.lake.below("s3://lake/wh/pooled/") == set()


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


def test_a_table_that_the_catalog_answers_with_5xx_holds_purges_until_a_person_exempts_it(world: IndexedWorld) -> None:
    """Its areas are known, but its state may be another one by now."""
    world.other.pointers["clone"] = world.lake.pointers["t"]
    needed = set(world.reached("clone"))
    refresh(world)
    world.other.table("clone").append(rows(1))
    world.listing.broken["clone"] = UNAVAILABLE
    busy_table(world.lake, "elsewhere")
    world.clock.advance(timedelta(hours=1))
    task = world.purge("elsewhere")
    assert waits(task)
    assert "503" in task.result_summary
    assert task.unexcused_attempts == 0
    assert decided(world, task).status is Status.SUCCESS
    assert world.purge("t").status is not Status.SUCCESS, "it needs the very files"
    assert needed <= set(world.lake.uris())


def test_a_glitch_of_an_unrelated_table_holds_no_purge(world: IndexedWorld) -> None:
    """One pass had no answer for it; the pass that serves the purge is complete, and knows its areas."""
    world.other.create("quiet", location="s3://elsewhere/quiet")
    refresh(world)
    entry = world.index.get(TableIdentifier("cat", ("other",), "quiet"))
    assert entry is not None
    world.index.put(replace(entry, problem="POLARIS_UNAVAILABLE: 503", problem_since=world.clock(), unanswered=(2,)))
    world.become(replace(world.behavior, reference_settings=ReferenceSettings(max_age=timedelta(hours=1))))
    assert world.purge("t").status is Status.SUCCESS
