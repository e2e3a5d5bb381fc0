"""Both engines of removals of orphan files make the same plan and the same deletes; Spark's executors are processes."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from delegation.errors import RunCancelled
from delegation.iceberg.errors import CorruptManifestError, ManifestMissing
from delegation.polaris.answers import PolarisForbidden
from delegation.removal import spark as spark_jobs
from delegation.removal.errors import (
    FilesNotDeleted,
    FilesNotDeletedYet,
    FilesThrottled,
    NeighbourChanged,
    NeighbourUnreadable,
)
from delegation.removal.index import store_index
from delegation.removal.orphans.context import Claim, OrphanContext, OrphanResult, OrphanSettings
from delegation.removal.orphans.errors import PrefixMismatch
from delegation.removal.orphans.index import Candidate, OrphanIndex, candidates_of, read_markers, recorded
from delegation.removal.orphans.needed_rows import SortedNeeded
from delegation.removal.orphans.place import MismatchMode
from delegation.removal.orphans.run import remove_orphan_files
from delegation.removal.orphans.subtraction import Rules
from delegation.storage import memory
from delegation.storage.base import ObjectStoreError
from delegation.storage.memory import MemoryPlanStore
from tests.faults.crashes.orphan_matrix import OrphanExecutors
from tests.faults.crashes.switch import DRIVER, EXECUTOR, StoreServer, Switch
from tests.kit.stories.orphans import SMALL, SweptTables
from tests.kit.stories.tables import PathTable, StoryTable
from tests.spark_sessions import spark_session
from tests.unit.removal.orphans.engines.test_spreading import ROOT, context, outcome, stored
from tests.unit.removal.orphans.test_orders import at_first_delete, before_deleting, during_listing
from tests.unit.removal.test_index import planned

DATA = "s3://lake/wh/t/data"
PARTS = [f"{DATA}/p={number % 3}/{number:02d}.parquet" for number in range(18)]
SEVERAL = [f"{DATA}/{number:02d}.parquet" for number in range(11)]
Remove = Callable[..., OrphanResult]


def inline(world: SweptTables, table: StoryTable, prepare: Any = lambda _ctx: None, **more: Any) -> OrphanResult:
    ctx = world.context(table, **more)
    prepare(ctx)
    return remove_orphan_files(ctx)


@pytest.fixture(scope="module")
def executors() -> Iterator[OrphanExecutors]:
    with spark_session("local[2]") as session, StoreServer() as server:
        session.sparkContext.setLogLevel("OFF")
        yield OrphanExecutors(session.sparkContext, server)


ON_SPARK = [
    pytest.mark.spark,
    # Py4J leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
ENGINES = ["inline", pytest.param("spark", marks=[*ON_SPARK, pytest.mark.long])]
BOTH_ENGINES = ["inline", pytest.param("spark", marks=ON_SPARK)]
"""For a test that shows in a short run, too, that executors do the same."""


def removing(request: pytest.FixtureRequest, settings: OrphanSettings) -> Remove:
    """Return what removes with the engine of a test."""
    if request.param == "inline":
        return inline
    executors: OrphanExecutors = request.getfixturevalue("executors")

    def on_spark(world: SweptTables, table: StoryTable, prepare: Any = lambda _ctx: None, **more: Any) -> OrphanResult:
        return executors.remove(world, table, prepare=prepare, settings=settings, **more)

    return on_spark


@pytest.fixture(params=ENGINES)
def remove(request: pytest.FixtureRequest) -> Remove:
    """Remove; with Spark the driver compares, for there is little, and executors delete."""
    return removing(request, replace(SMALL, rows_here=1_000))


@pytest.fixture(params=ENGINES)
def compare(request: pytest.FixtureRequest) -> Remove:
    """Remove; with Spark executors compare, too."""
    return removing(request, SMALL)


def lake(*orphans: str) -> tuple[SweptTables, StoryTable]:
    world = SweptTables()
    table = world.table()
    for uri in orphans or SEVERAL:
        world.orphan(uri)
    world.lake.pass_days(4)
    return world, table


def receipt(world: SweptTables, result: OrphanResult) -> dict[str, Any]:
    assert result.receipt is not None
    found: dict[str, Any] = json.loads(world.plans.get(result.receipt))
    return found


def mixed() -> tuple[SweptTables, StoryTable, set[str]]:
    """Return orphan files of every kind, and what only looks like some."""
    world, table = lake(*SEVERAL)
    table.statistics(table.ids[0])
    table.delete(table.live()[0])
    names = ("data/p=1/a.parquet", "metadata/x.avro", "metadata/x.json", "z", "data/a b%", "é/ü")
    orphans = {world.orphan(f"s3://lake/wh/t/{name}") for name in names}
    for uri in ("s3://lake/wh/t2/a", "s3://lake/wh/t", "s3://other/wh/t/a"):
        world.orphan(uri)
    for name in ("_x/a", "data/.b", "dir/"):
        world.orphan(f"s3://lake/wh/t/{name}")
    world.lake.pass_days(4)
    world.orphan(f"{DATA}/young.parquet")
    return world, table, {*orphans, *SEVERAL}


@pytest.mark.parametrize("compare", BOTH_ENGINES, indirect=True)
def test_what_no_table_needs_is_planned_and_deleted_and_nothing_else(compare: Remove) -> None:
    world, table, orphans = mixed()
    before = world.lake.uris()
    result = compare(world, table)
    assert world.planned() == orphans == before - world.lake.uris()
    assert (result.status, result.files_planned, result.files_deleted, result.files_changed) == ("SWEPT", 17, 17, 0)
    assert not world.missing()


def test_the_receipt_is_the_same_but_for_the_engine(compare: Remove) -> None:
    (world, table, _), (other, same, _) = mixed(), mixed()
    found, usual = receipt(world, compare(world, table)), receipt(other, inline(other, same))
    differ = {"engine", "plan", "location", "metadata_location", "table_uuid"}
    differ |= {"planned_at", "finished_at", "listed_at"}  # executors are in the machine's time
    assert {name: one for name, one in found.items() if name not in differ} == {
        name: one for name, one in usual.items() if name not in differ
    }
    assert found["location"] == usual["location"]


def test_an_object_that_is_written_again_after_the_look_stays(remove: Remove) -> None:
    world, table = lake()

    def write_again() -> None:
        world.orphan(SEVERAL[0], b"written again")

    result = remove(world, table, at_first_delete(world, write_again))
    assert (result.status, result.files_deleted, result.files_changed) == ("SWEPT", 10, 1)
    assert set(SEVERAL) & world.lake.uris() == {SEVERAL[0]}
    [listed] = receipt(world, result)["changed"]
    assert world.plans.get(listed).decode() == f'"{SEVERAL[0]}"\n'


def test_an_object_that_somebody_deletes_first_counts_as_absent(remove: Remove) -> None:
    world, table = lake()
    first = ("lake", SEVERAL[0].removeprefix("s3://lake/"))
    result = remove(world, table, at_first_delete(world, lambda: world.lake.objects.pop(first)))
    assert (result.status, result.files_deleted, result.files_absent) == ("SWEPT", 11, 1)
    assert result.bytes_deleted == 10 * len(b"orphan")
    assert not set(SEVERAL) & world.lake.uris()


@pytest.mark.parametrize("when", [during_listing, before_deleting, at_first_delete])
def test_a_commit_that_takes_a_file_keeps_it(compare: Remove, when: Any) -> None:
    world, table = lake()
    result = compare(world, table, when(world, lambda: table.append(paths=[SEVERAL[-1]])))
    assert set(SEVERAL) & world.lake.uris() == {SEVERAL[-1]}
    assert (result.status, result.files_deleted, world.missing()) == ("SWEPT", 10, set())


@pytest.mark.parametrize("when", [during_listing, before_deleting])
def test_a_new_table_that_takes_a_file_keeps_it(compare: Remove, when: Any) -> None:
    world, table = lake()
    result = compare(world, table, when(world, lambda: StoryTable.create(world.lake, "new").append(paths=[SEVERAL[3]])))
    assert set(SEVERAL) & world.lake.uris() == {SEVERAL[3]}
    assert (result.files_deleted, world.missing()) == (10, set())


def test_what_other_tables_tasks_and_spellings_need_stays(compare: Remove) -> None:
    world, table = lake(*SEVERAL, f"{DATA}/a b.parquet", f"{DATA}/in/x")
    other = SweptTables(world.lake, world.plans)
    StoryTable.create(world.lake, "far").append(paths=[SEVERAL[0], "s3a://lake/wh//t/data/a%20b.parquet"])
    purged = StoryTable.create(world.lake, "gone")
    purged.append(paths=[SEVERAL[1]])
    index = planned(world.plans, [[SEVERAL[2]], [SEVERAL[3], "s3://lake/wh/gone/a"]])
    segment = store_index(world.plans, index.model_copy(update={"plan_id": "other/1/a", "roots": ("s3://lake/wh/t/",)}))
    for chunk in index.chunks:
        key = f"{index.plan_id}/{chunk.name}"
        world.plans.put(f"other/1/a/{chunk.name}", world.plans.get(key))
    world.claimed.append(Claim("task", "another", "s3://lake/wh/zoo", segment))
    why = PolarisForbidden("no", status=403)
    world.unreadable = [NeighbourUnreadable("cat.ns.torn", why, areas=(f"{DATA}/in/",), exempt=True)]
    result = compare(world, table)
    stay = {*SEVERAL[:4], f"{DATA}/a b.parquet", f"{DATA}/in/x"}
    assert {*SEVERAL, *stay} & world.lake.uris() == stay
    assert (result.status, result.files_deleted) == ("SWEPT", len(SEVERAL) - 4)
    assert [(one.code, one.count, one.sample) for one in result.findings] == [("AREA_LEFT_ALONE", 1, (f"{DATA}/in/x",))]
    assert other.lake.uris() == world.lake.uris()


def test_files_under_another_prefix_are_refused_or_stay(compare: Remove) -> None:
    world, table = lake()
    StoryTable.create(world.lake, "far").append(paths=[one.replace("s3://lake", "s3://sea") for one in SEVERAL[:3]])
    with pytest.raises(PrefixMismatch, match="3 files"):
        compare(world, table)
    assert set(SEVERAL) <= world.lake.uris()
    result = compare(world, table, mismatch=MismatchMode.IGNORE)
    assert set(SEVERAL) & world.lake.uris() == set(SEVERAL[:3])
    assert [(one.code, one.count, one.sample) for one in result.findings] == [
        ("PREFIX_MISMATCH", 3, tuple(SEVERAL[:3]))
    ]


@pytest.mark.parametrize("whose", ["the table's", "another table's"])
@pytest.mark.parametrize("change", ["missing", "damaged"])
def test_a_manifest_that_cannot_be_read_ends_the_removal(compare: Remove, whose: str, change: str) -> None:
    world, table = lake()
    StoryTable.create(world.lake, "far").append(paths=[SEVERAL[0]])
    name = "t" if whose == "the table's" else "far"
    key = max(key for key in world.lake.objects if key[1].startswith(f"wh/{name}/metadata/m"))
    world.lake.objects[key] = b"x" * len(world.lake.objects[key])
    if change == "missing":
        del world.lake.objects[key]
    expected = {
        ("the table's", "missing"): ManifestMissing,
        ("the table's", "damaged"): CorruptManifestError,
        ("another table's", "missing"): (NeighbourUnreadable, NeighbourChanged),
        ("another table's", "damaged"): NeighbourUnreadable,
    }
    with pytest.raises(expected[whose, change]):
        compare(world, table)
    assert set(SEVERAL) <= world.lake.uris()


def refusing(refuse: Callable[[str, str, int], str | None]) -> Callable[[OrphanContext], None]:
    def prepare(ctx: Any) -> None:
        ctx.store._refuse = refuse

    return prepare


def test_what_is_throttled_is_tried_again(remove: Remove) -> None:
    world, table = lake()
    result = remove(world, table, refusing(lambda _bucket, _key, nth: "SlowDown" if nth < 3 else None))
    assert (result.status, result.files_deleted) == ("SWEPT", 11)
    assert not set(SEVERAL) & world.lake.uris()


@pytest.mark.parametrize(
    ("code", "error"),
    [("AccessDenied", FilesNotDeleted), ("InternalError", FilesNotDeletedYet), ("SlowDown", FilesThrottled)],
)
def test_what_cannot_be_deleted_fails_and_the_next_attempt_finishes_the_same_plan(
    remove: Remove, code: str, error: type[Exception]
) -> None:
    world, table = lake()
    with pytest.raises(error) as raised:
        remove(world, table, refusing(lambda _bucket, key, _nth: code if key.endswith("/00.parquet") else None))
    assert (raised.value.count, raised.value.sample) == (1, ((SEVERAL[0], code),))  # type: ignore[attr-defined]
    assert SEVERAL[0] in world.lake.uris()
    plan = world.plan()
    if error is FilesNotDeleted:
        kept = json.loads(world.plans.get(f"{plan.plan_id}/receipt.json"))
        assert (kept["status"], kept["files_failed"]) == ("INCOMPLETE", 1)
        assert kept["failures"]["sample"] == [{"path": SEVERAL[0], "code": code}]
    result = remove(world, table)
    assert (result.status, result.files_deleted, result.plan_ids) == ("SWEPT", 11, (plan.plan_id,))
    assert not set(SEVERAL) & world.lake.uris()


def test_in_a_bucket_with_versions_the_markers_of_all_files_are_recorded(remove: Remove) -> None:
    world, table = lake()

    def keep_versions(ctx: Any) -> None:
        ctx.store._versioned = frozenset({"lake"})

    result = remove(world, table, keep_versions)
    assert (result.files_deleted, result.bytes_freed) == (11, None)
    plan_id = world.plan().plan_id
    hidden = [one for name in recorded(world.plans, plan_id) for one in read_markers(world.plans, plan_id, name)]
    assert {one.file.path for one in hidden} == set(SEVERAL)
    assert len({one.marker for one in hidden}) == 11


def test_two_attempts_at_once_delete_the_same_plan(remove: Remove) -> None:
    world, table = lake()
    ends: list[OrphanResult] = []

    def other() -> None:
        ends.append(inline(world, table))

    result = remove(world, table, at_first_delete(world, other))
    assert [one.status for one in (*ends, result)] == ["SWEPT", "SWEPT"]
    assert result.plan_ids == ends[0].plan_ids
    assert not set(SEVERAL) & world.lake.uris()
    assert (result.files_deleted, world.missing()) == (11, set())


def test_a_cancelled_attempt_leaves_a_receipt(remove: Remove) -> None:
    world, table = lake()

    def cancel_at_first_delete(ctx: Any) -> None:
        def stop() -> None:
            raise RunCancelled("task")

        at_first_delete(world, lambda: setattr(ctx.attempt, "on_checkpoint", stop))(ctx)

    with pytest.raises(RunCancelled):
        remove(world, table, cancel_at_first_delete)
    kept = json.loads(world.plans.get(f"{world.plan().plan_id}/receipt.json"))
    assert kept["status"] == "INCOMPLETE"
    assert set(SEVERAL) & world.lake.uris()
    assert remove(world, table).status == "SWEPT"
    assert not set(SEVERAL) & world.lake.uris()


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a page of a listing have two objects, so that executors list what the first pages leave."""
    monkeypatch.setattr(memory, "PAGE", 2)


def listed(world: SweptTables, index: OrphanIndex) -> set[Candidate]:
    """Return the candidates of a listing, each of which it has once."""
    some = candidates_of(world.plans, [(part.plan_id, part.chunks) for part in index.parts])
    found = [one for rows in some for one in rows]
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.usefixtures("small_pages")
def test_a_listing_has_all_that_may_be_an_orphan_and_the_stores_time(remove: Remove) -> None:
    world, table, _ = mixed()
    below = {uri for uri in world.lake.uris() if uri.startswith("s3://lake/wh/t/")}
    stay = {uri for uri in below if uri.endswith(("_x/a", "data/.b", "dir/", "young.parquet"))}
    listings: list[OrphanIndex] = []
    reported: list[int] = []

    def prepare(ctx: Any) -> None:
        usual = world.passes.renew

        def renew() -> None:
            if not listings:
                listings.append(world.plan())
            usual()

        references = SimpleNamespace(renew=renew, ensure_known=lambda: None, summary=world.passes.summary)
        object.__setattr__(ctx, "references", references)
        object.__setattr__(ctx.attempt, "note", lambda **noted: reported.append(noted.get("files_listed", 0)))

    remove(world, table, prepare)

    [index] = listings
    assert (index.stage, index.listed.files) == ("listed", len(below))
    assert {one.path for one in listed(world, index)} == below - stay
    assert index.listed_at == world.lake.now_ms // 1000
    assert 0 < max(reported) <= len(below)


@pytest.mark.parametrize("damaged", [False, True])
def test_what_a_table_needs_that_no_catalog_lists_stays_as_a_part_of_the_plan(compare: Remove, damaged: bool) -> None:
    """A manifest that executors find damaged keeps all at the table's place."""
    world, table = lake()
    other = PathTable.create(world.lake, "t/below")
    other.append(2)
    other.append(1)
    stray = world.orphan("s3://lake/wh/t/below/data/stray.parquet")
    theirs = world.unlist("t/below")
    if damaged:
        manifest = min(uri for uri in theirs if uri in world.lake.manifests)
        world.lake.objects["lake", manifest.removeprefix("s3://lake/")] = b"Obj\x01"
    world.lake.pass_days(4)
    result = compare(world, table, task_id="swept")
    assert theirs <= world.lake.uris()
    assert (stray in world.lake.uris()) is damaged
    assert not set(SEVERAL) & world.lake.uris()
    [part] = world.plan().foreign_tables
    stored = candidates_of(world.plans, [(one.plan_id, one.chunks) for one in part.parts])
    held = {one.path for some in stored for one in some}
    hint = "s3://lake/wh/t/below/metadata/version-hint.text"
    assert held == {*theirs, hint} | ({stray} if damaged else set())
    assert (part.files, part.place, bool(part.why)) == (len(held), "s3://lake/wh/t/below/", damaged)
    assert result.files_deleted == len(SEVERAL) + (not damaged)


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("kills", [3, 7])
def test_a_listing_that_is_interrupted_is_resumed_where_its_parts_stopped(remove: Remove, kills: int) -> None:
    world, table = lake(*PARTS)
    pages: list[tuple[str, str]] = []

    def fail_at(nth: int) -> Callable[[Any], None]:
        def prepare(ctx: Any) -> None:
            usual = ctx.store.page

            def page(bucket: str, prefix: str, *, after: str = "") -> Any:
                pages.append((prefix, after))
                if len(pages) == nth:
                    raise ObjectStoreError("the store ended")
                return usual(bucket, prefix, after=after)

            ctx.store.page = page

        return prepare

    with pytest.raises(ObjectStoreError, match="the store ended"):
        remove(world, table, fail_at(kills))
    before = pages[:-1]
    pages.clear()
    assert remove(world, table, fail_at(-1)).status == "SWEPT"
    # Two pages or more end before three objects are stored; the folder of metadata is listed again before the deletes.
    assert len({one for one in pages if one[0] != "wh/t/metadata/"} & set(before)) <= 2
    assert not set(PARTS) & world.lake.uris()
    assert not world.missing()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
class TestExecutors:
    @pytest.mark.usefixtures("small_pages")
    def test_executors_list_what_the_first_pages_leave(self, executors: OrphanExecutors) -> None:
        world, table = lake(*PARTS)
        switch = Switch()
        executors.remove(world, table, switch)
        sides = Counter(call.side for call in switch.made if call.name == "list")
        # Two folders are split, and the first page of each of four parts is listed here; before the deletes the
        # location is split again, and `data/metadata/` and four pages of the table's metadata are listed.
        assert sides[DRIVER] == 6 + 6
        assert sides[EXECUTOR] >= 6

    def test_a_small_location_takes_no_job(self, executors: OrphanExecutors) -> None:
        world, table = lake()
        switch = Switch()
        executors.remove(world, table, switch)
        assert {call.side for call in switch.made if call.name == "list"} == {DRIVER}

    def test_executors_delete_and_the_driver_looks_at_the_table_between_jobs(self, executors: OrphanExecutors) -> None:
        world, table = lake()
        switch = Switch()
        executors.remove(world, table, switch, settings=replace(SMALL, rows_here=1_000))
        deletes = [call for call in switch.made if call.name == "delete"]
        assert {call.side for call in deletes} == {EXECUTOR}
        assert len(deletes) > 1
        order = [call.name for call in switch.made if call.name in ("load", "delete")]
        looks = "".join(name[0] for name in order).lstrip("l")
        assert "dl" in looks

    def test_executors_compare_what_is_large(self, executors: OrphanExecutors) -> None:
        world, table = lake()
        switch = Switch()
        executors.remove(world, table, switch)
        read = [call for call in switch.made if call.name == "read" and "/metadata/m" in call.subject]
        chunks = [call for call in switch.made if call.name == "plan put" and "DATA-p0" in call.subject]
        assert {call.side for call in read} == {EXECUTOR}
        assert {call.side for call in chunks} == {EXECUTOR}

    @pytest.mark.parametrize("seed", range(3))
    def test_executors_find_what_one_process_finds(self, executors: OrphanExecutors, seed: int) -> None:
        """Of some hundred files; `operations.orphans.engines.test_spreading` plays many more with no Spark."""
        chance, plans = random.Random(seed), MemoryPlanStore()
        ctx = context(plans, chunk_paths=50, run_records=100)
        names = [f"p={number % 7}/{chance.randrange(400)}%{number:x}" for number in range(600)]
        candidates = [Candidate(f"{ROOT}/{name}", 1, '"e"', chance.randrange(9)) for name in names]
        parts = stored(plans, candidates, 5)
        rules = Rules(
            chance.choice([MismatchMode.IGNORE, MismatchMode.DELETE]), (f"{ROOT}/p=3/",), chance.choice([5, None])
        )
        spellings = [f"{ROOT}/", "s3a://lake/wh//t/", "s3://sea/wh/t/", "s3://lake/wh/%74/"]
        needed_files = [chance.choice(spellings) + name for name in names if chance.random() < 0.7]
        from delegation.removal.orphans.spark import SpreadNeeded

        found = []
        jobs = spark_jobs.SparkJobs(executors.spark, executors.server.resources(ctx))  # type: ignore[arg-type]
        with mock.patch.object(spark_jobs, "_ROWS_PER_TASK", 50):
            for needed in (SortedNeeded(ctx), SpreadNeeded(ctx, jobs)):
                needed.add_files(needed_files)
                found.append(outcome(ctx, needed, parts, rules, f"plan/{len(found)}"))
                needed.close()
        assert found[0] == found[1]
        assert 50 < len(found[0][0]) < 550

    def test_killed_at_a_call_the_next_attempt_finishes_the_same_plan(self, executors: OrphanExecutors) -> None:
        """Every 200th call; `python -m tests.faults.crashes.orphan_matrix` kills each."""
        tally = executors.play(step=200)
        assert tally.wrong == []
        assert tally.ends.total() >= 2
