"""The functions of executors, run in this process without Spark, make and reduce the plans of the inline engine."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from delegation.iceberg.errors import CorruptManifestError, EncryptedMetadataFile, ManifestMissing
from delegation.polaris.model import LoadedTable
from delegation.references.reading import digest
from delegation.removal.attempt import PlanSegment
from delegation.removal.chunks import DeleteStep, Phase
from delegation.removal.errors import NeighbourChanged, NeighbourUnreadable, PlanLost, PlanTampered
from delegation.removal.expiry.context import ExpiryContext, ExpiryIndex, ExpiryResult
from delegation.removal.expiry.planning import decided, make_plan
from delegation.removal.expiry.reduction import INLINE, ExpiryEngine, NeededFiles, OtherPlaces, RemainingPlan
from delegation.removal.expiry.retention import Retention
from delegation.removal.expiry.run import ExpiryRun
from delegation.removal.expiry.spark import SparkExpiry, SpreadRows
from delegation.removal.index import segment_of
from delegation.removal.spark import SparkJobs
from delegation.storage.base import ObjectStoreDenied
from delegation.storage.locations import ObjectLocation, Roots, parse
from delegation.storage.memory import MemoryObjectStore, MemoryPlanStore
from tests.actions.lake import SparkLake
from tests.effort import every
from tests.expiry.action.questions import FAR_MS, questions
from tests.kit.lakes.lake import LakeSource
from tests.kit.stories.expiries import EVERYTHING, SMALL, ExpiringTables
from tests.kit.stories.tables import StoryTable
from tests.unit.removal.expiry.attacks.test_tables import KEEPS
from tests.unit.removal.expiry.spark.executors_here import ExecutorsHere, StoresOfNeighbours
from tests.unit.removal.expiry.test_orders import (
    COMMIT,
    COMPARE_REFS,
    FIRST_DELETE,
    SUBTRACT,
    Story,
    bring_file_back,
    check,
)
from tests.unit.removal.expiry.test_random_histories import _retention, written
from tests.unit.removal.purge.spark.test_tasks import SparklessJobs, planned

EngineOf = Callable[[ExpiryContext], ExpiryEngine]
ENGINES = pytest.mark.parametrize("engine_of", [lambda _ctx: INLINE, ExecutorsHere], ids=["inline", "spark"])


def same(plans: MemoryPlanStore, inline: ExpiryIndex, spark: ExpiryIndex) -> None:
    """Check that two plans have the same files, counts and findings."""
    assert planned(plans, spark) == planned(plans, inline)
    assert {one.step for one in spark.chunks} == {one.step for one in inline.chunks}
    lists = {path for path, _, _ in planned(plans, spark)[Phase.META] if "/snap" in path}
    for chunk in (one for one in spark.chunks if one.step is DeleteStep.META):
        assert not {chunk.first, chunk.last} & lists
    own = {"plan_id", "chunks", "engine", "created_at"}
    assert spark.model_dump(exclude=own) == inline.model_dump(exclude=own)


def plans_of_both(ctx: ExpiryContext, seed: int = 7) -> tuple[ExpiryIndex, ExpiryIndex] | None:
    """Return the plans of both engines, None if nothing is expired."""
    table = ctx.tables.load()
    gone = decided(ctx, table)
    if not gone:
        return None
    return make_plan(ctx, table, gone, INLINE)[0], make_plan(ctx, table, gone, ExecutorsHere(ctx, seed))[0]


def reduced_by(engine: ExpiryEngine, ctx: ExpiryContext, index: ExpiryIndex, *, former: bool) -> ExpiryIndex | None:
    """Take out of a plan what the table and its neighbours need now."""
    segment = ctx.attempt.plan()[-1]
    with NeededFiles(ctx, engine.needed(ctx)) as needed:
        needed.add_neighbours(Roots(index.roots), ctx.tables.load())
        needed.add_table(ctx.tables.load())
        if former:
            needed.add_former_metadata(index)
        found = needed.reduced(index, segment)
    return None if found is None else found[0]


@given(st.integers(min_value=0, max_value=2**32))
def test_both_engines_make_the_same_plan_of_any_table_and_reduce_it_to_the_same(seed: int) -> None:
    choose, world = random.Random(seed), ExpiringTables()
    table = written(world, choose)
    ctx = world.context(table, _retention(choose, table))
    both = plans_of_both(ctx, seed)
    assume(both is not None)
    assert both is not None
    inline, spark = both
    same(world.plans, inline, spark)
    loose = sorted(set(inline.removal.snapshot_ids) - set(table.refs.values()))
    if loose:
        table.remove_snapshots(*loose)
    others = sorted(world.lake.live_anywhere())
    for number in range(choose.randint(0, 2)):
        StoryTable.create(world.lake, f"other{number}").append(paths=choose.sample(others, min(2, len(others))))
    if choose.random() < 0.5 and others:
        table.append(paths=[choose.choice(others)])
    ctx.attempt.publish(segment(world.plans, inline), files_planned=inline.files_planned)
    former = choose.random() < 0.5

    rests = [reduced_by(one, ctx, inline, former=former) for one in (INLINE, ExecutorsHere(ctx, seed))]

    assert (rests[0] is None) == (rests[1] is None)
    if rests[0] is not None and rests[1] is not None:
        same(world.plans, *rests)


def segment(plans: MemoryPlanStore, index: ExpiryIndex) -> PlanSegment:
    return segment_of(plans, index.plan_id)


RETENTIONS = (
    Retention(older_than_ms=FAR_MS, retain_last=1),
    Retention(older_than_ms=FAR_MS, retain_last=2),
    Retention(older_than_ms=FAR_MS, retain_last=1, max_ref_age_ms=1),
    Retention(older_than_ms=FAR_MS, retain_last=1, clean_expired_metadata=True),
)
TABLES = sorted({(one.scenario, one.table) for one in questions()})
"""Those with more than one snapshot."""


@pytest.mark.parametrize(("scenario", "name"), every(4, TABLES), ids=lambda text: text)
def test_both_engines_make_the_same_plan_of_a_table_that_spark_wrote(scenario: str, name: str) -> None:
    lake = SparkLake(scenario, FAR_MS)
    store, plans = MemoryObjectStore(), MemoryPlanStore()
    store.objects = lake.objects
    for retention in RETENTIONS:
        ctx = replace(
            ExpiringTables().context(StoryTable.create(ExpiringTables().lake), retention, settings=SMALL),
            identifier=LakeSource(lake, name).load().identifier,
            table_uuid=str(lake.metadata(name)["table-uuid"]),
            tables=LakeSource(lake, name, prefixes=("s3://lake/",)),
            store=store,
            plans=plans,
            neighbours=lambda _roots: list(lake.neighbours(name)),
        )
        both = plans_of_both(ctx)
        if both is not None:
            same(plans, *both)


@ENGINES
def test_what_readers_open_instead_of_the_path_that_is_named_stays(engine_of: EngineOf) -> None:
    world = ExpiringTables()
    table = StoryTable.create(world.lake)
    ours, theirs, third = table.data(3)
    table.append(paths=[ours, theirs, third])
    table.delete(ours, theirs, third)
    table.append(paths=[f"{ours}?x"])
    StoryTable.create(world.lake, "other").append(paths=[theirs.replace("/t/", "/t//")])
    ctx = world.context(table)
    index = make_plan(ctx, *_expired(ctx), engine_of(ctx))[0]
    assert world.planned(index) >= {theirs, third}
    assert ours not in world.planned(index)

    table.remove_snapshots(*index.removal.snapshot_ids)
    ctx.attempt.publish(segment(world.plans, index), files_planned=index.files_planned)
    rest = reduced_by(engine_of(ctx), ctx, index, former=False)

    assert rest is not None
    assert world.planned(index) - world.planned(rest) == {theirs}


def damage(change: str, world: ExpiringTables, uri: str) -> None:
    """Delete or change a manifest."""
    where = parse(uri)
    data = world.lake.objects.pop((where.bucket, where.key))
    if change == "corrupt":
        world.lake.objects[where.bucket, where.key] = b"x" * len(data)
    if change == "encrypted":
        world.lake.objects[where.bucket, where.key] = b"AGS1" + data[4:]


ERRORS = {"missing": ManifestMissing, "corrupt": CorruptManifestError, "encrypted": EncryptedMetadataFile}


@pytest.mark.parametrize("kept", [False, True], ids=["of an expired snapshot", "of a kept one"])
@pytest.mark.parametrize("change", ERRORS)
@ENGINES
def test_executors_raise_what_one_process_raises(engine_of: EngineOf, change: str, kept: bool) -> None:
    world = ExpiringTables()
    table = StoryTable.create(world.lake)
    table.append()
    table.rewrite_manifests()
    manifests = table.manifests_of(table.ids[-1 if kept else 0])
    damage(change, world, manifests[0])
    ctx, before = world.context(table), world.lake.uris()
    if change == "missing" and not kept:
        assert ExpiryRun(ctx, engine_of(ctx)).run().status == "EXPIRED"
        return

    with pytest.raises(ERRORS[change]):
        ExpiryRun(ctx, engine_of(ctx)).run()

    assert (world.lake.uris(), world.commits()) == (before, 0)


@ENGINES
@pytest.mark.parametrize(("lost", "error"), [(True, PlanLost), (False, PlanTampered)])
def test_a_part_of_the_plan_that_is_lost_or_changed_is_found(
    engine_of: EngineOf, lost: bool, error: type[Exception]
) -> None:
    story = Story()
    ctx = story.world.context(story.table)
    index = make_plan(ctx, *_expired(ctx), INLINE)[0]
    ctx.attempt.publish(segment(story.world.plans, index), files_planned=index.files_planned)
    key = f"{index.plan_id}/{index.chunks[0].name}"
    data = story.world.plans.objects.pop(key)
    if not lost:
        story.world.plans.objects[key] = data + b"\n"

    with pytest.raises(error) as raised:
        reduced_by(engine_of(ctx), ctx, index, former=False)
    assert type(raised.value) is error


def _expired(ctx: ExpiryContext) -> tuple[LoadedTable, Any]:
    table = ctx.tables.load()
    return table, decided(ctx, table)


@ENGINES
@pytest.mark.parametrize("at", [COMPARE_REFS, SUBTRACT, FIRST_DELETE])
def test_a_manifest_that_another_expiry_deletes_while_it_is_read_is_followed(engine_of: EngineOf, at: int) -> None:
    """The table is loaded, then commits and loses a manifest of the state that was loaded; then that is read."""
    story = Story()
    ctx = story.world.context(story.table)
    source = ctx.tables

    class Late:
        """Loads the table, and has another writer be at it before anything of it is read."""

        def load(self) -> LoadedTable:
            found = source.load()
            if story.world.catalogs[-1].calls == at:
                gone = story.table.manifests_of(story.table.refs["main"])
                story.table.rewrite_manifests()
                story.table.rewrite_manifests()
                story.table.remove_snapshots(*sorted(set(story.table.ids) - set(story.table.refs.values())))
                for uri in gone:
                    damage("missing", story.world, uri)
            return found

    ctx = replace(ctx, tables=Late())

    result = ExpiryRun(ctx, engine_of(ctx)).run()

    assert result.status == "EXPIRED"
    assert story.lake.readable() == {"t": set()}
    assert story.of_old[0] not in story.lake.uris()


class TornStore(MemoryObjectStore):
    """Denies some manifests."""

    denied_manifests: frozenset[str] = frozenset()

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        if location.uri in self.denied_manifests:
            raise ObjectStoreDenied(f"no access to {location.uri}")
        return super().read(location, limit=limit)


@pytest.mark.parametrize("change", ["missing", "corrupt"])
@ENGINES
def test_what_cannot_be_read_of_another_table_ends_the_attempt(engine_of: EngineOf, change: str) -> None:
    story = Story()
    other = StoryTable.create(story.lake, "other")
    other.append(paths=[story.of_old[0]])
    damage(change, story.world, other.manifests_of(other.refs["main"])[0])
    ctx, before = story.world.context(story.table), story.lake.uris()

    with pytest.raises((NeighbourUnreadable, NeighbourChanged)):
        ExpiryRun(ctx, engine_of(ctx)).run()
    assert before <= story.lake.uris()


@ENGINES
def test_below_the_last_known_areas_of_an_exempt_table_whose_manifests_are_denied_every_file_stays(
    engine_of: EngineOf,
) -> None:
    story = Story()
    other = StoryTable.create(story.lake, "other")
    other.append()
    store = TornStore()
    store.objects = story.lake.objects
    store.denied_manifests = frozenset(other.manifests_of(other.refs["main"]))
    area = f"{story.table.folder}/data/"
    ctx = story.world.context(story.table)
    found = [replace(one, store=store, exempt=True, areas=(area,)) for one in story.world.neighbours(story.table.name)]
    ctx = replace(ctx, neighbours=lambda _roots: found)
    data = {uri for uri in story.lake.uris() if uri.startswith(area)}

    result = ExpiryRun(ctx, engine_of(ctx)).run()

    assert result.status == "EXPIRED"
    assert data <= story.lake.uris()
    assert {one.code for one in result.findings} >= {"NEIGHBOUR_EXEMPT", "FILES_AT_ANOTHER_TABLE"}


@pytest.mark.parametrize("of_other_files", [False, True], ids=["of these files", "of other files"])
@ENGINES
def test_an_exemption_is_of_single_files_and_needs_not_name_former_metadata(
    engine_of: EngineOf, of_other_files: bool
) -> None:
    """No pass reads former metadata, so no exemption can name what is denied of it."""
    story = Story()
    other = StoryTable.create(story.lake, "other")
    other.append()
    other.append()
    store = TornStore()
    store.objects = story.lake.objects
    manifests = other.manifests_of(other.refs["main"])
    former = [one["metadata-file"] for one in other.document["metadata-log"]]
    store.denied_manifests = frozenset([*manifests, *former])
    exempt = frozenset(map(digest, manifests[: 1 if of_other_files else None]))
    ctx = story.world.context(story.table)
    found = [replace(one, store=store, exempt=True, unread=exempt) for one in story.world.neighbours(story.table.name)]
    ctx, before = replace(ctx, neighbours=lambda _roots: found), story.lake.uris()

    if of_other_files:
        with pytest.raises(NeighbourUnreadable) as raised:
            ExpiryRun(ctx, engine_of(ctx)).run()
        assert (raised.value.exempt, raised.value.is_found) == (False, True)
        assert before <= story.lake.uris()
        return
    assert ExpiryRun(ctx, engine_of(ctx)).run().status == "EXPIRED"


def test_little_work_starts_few_tasks_and_has_one_part() -> None:
    world = ExpiringTables()
    table = StoryTable.create(world.lake)
    for _ in range(30):
        table.append()
    table.rewrite_manifests()
    ctx = world.context(table, EVERYTHING)

    started: list[int] = []

    class Counted(SparklessJobs):
        def numbered(self, count: int) -> Any:
            started.append(count)
            return super().numbered(count)

    jobs = Counted(StoresOfNeighbours(ctx), 1)
    jobs.parallelism = 64
    index, _ = make_plan(ctx, *_expired(ctx), SparkExpiry(jobs))

    assert started == [2]
    assert {one.name.split("-")[-2] for one in index.chunks} == {"p00000"}


class OthersCommitFirst(SpreadRows):
    """What executors read, after another writer's commit that came before they began."""

    def __init__(self, jobs: SparkJobs, ctx: ExpiryContext, commits: list[Callable[[], object]]) -> None:
        super().__init__(jobs, ctx)
        self._commits = commits

    def subtracted(self, left: ExpiryIndex, places: Callable[[], OtherPlaces]) -> RemainingPlan | None:
        if self._commits:
            self._commits.pop()()
        return super().subtracted(left, places)


def lose_a_manifest(story: Story) -> None:
    """Have another writer rewrite a file, expire its snapshots, and delete its manifest."""
    table = story.table
    former, old = table.ids, table.manifests_of(table.refs["main"])[0]
    table.delete(*story.lake.live(old))
    table.remove_snapshots(*former)
    where = parse(old)
    del story.lake.objects[where.bucket, where.key]


def run_after(ctx: ExpiryContext, *commits: Callable[[], object]) -> ExpiryResult:
    """Expire with executors that read after these commits of other writers, one before each comparison."""
    left = list(commits)

    class Engine(ExecutorsHere):
        def needed(self, ctx: ExpiryContext) -> SpreadRows:
            return OthersCommitFirst(self._jobs, ctx, left)

    result = ExpiryRun(ctx, Engine(ctx)).run()
    assert (result.status, left) == ("EXPIRED", [])
    return result


def test_what_the_table_named_before_a_manifest_was_missing_is_read_with_the_next_load() -> None:
    """A file that came back stays, although executors read no manifest of the first look: one of them was deleted."""
    story = Story()
    ctx = story.world.context(story.table)
    story.world.catalogs[-1].before[SUBTRACT] = lambda: bring_file_back(story)

    check(story, run_after(ctx, lambda: lose_a_manifest(story)))


def test_former_metadata_that_the_table_keeps_stays_although_the_first_comparison_ended_with_a_manifest() -> None:
    """The second one is another comparison: a planned snapshot that had a tag is gone by then."""
    story = Story()
    story.table.set(**KEEPS)
    ctx = story.world.context(story.table)
    before = {uri for uri in story.lake.uris() if uri.endswith(".metadata.json")}
    story.world.catalogs[-1].before[COMMIT - 1] = lambda: story.table.tag("new", story.old)
    story.world.catalogs[-1].before[SUBTRACT] = lambda: story.table.set(
        **{"write.metadata.delete-after-commit.enabled": "false"}
    )

    def remove_tag_too() -> None:
        story.table.drop_ref("new")
        lose_a_manifest(story)

    run_after(ctx, remove_tag_too)

    assert before <= story.lake.uris()
