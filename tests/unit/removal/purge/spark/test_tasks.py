"""The functions of executors, run in this process without Spark, make the plans of the inline engine."""

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from delegation.iceberg.errors import CorruptManifestError, ManifestMissing
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import PolarisForbidden
from delegation.removal.attempt import Attempt
from delegation.removal.chunks import Phase, read_chunk
from delegation.removal.errors import NeighbourChanged, NeighbourUnreadable
from delegation.removal.index import PlanIndex
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.planning import InlineEngine, make_plan, survey
from delegation.removal.purge.spark import SparkEngine
from delegation.removal.spark import SparkJobs
from delegation.removal.spark_executors import ExecutorResources, decode_error, expected_rows
from delegation.storage.base import ObjectStore, PlanStore
from delegation.storage.memory import MemoryObjectStore, MemoryPlanStore
from tests.kit.lakes.lake import PurgedTables, codes, neighbour, rows

Task = Callable[[Iterable[Any]], Iterator[Any]]


class ThisProcess:
    """ExecutorResources whose executors are this process."""

    def __init__(self, objects: MemoryObjectStore, plans: MemoryPlanStore) -> None:
        self._objects, self._plans = objects, plans

    def store(self, identifier: TableIdentifier) -> ObjectStore:
        return self._objects

    def plans(self) -> PlanStore:
        return self._plans


@dataclass
class Partitions:
    """The RDD methods that the engine uses: partitions in random order, and tasks that run twice."""

    partitions: list[list[Any]]
    chance: random.Random

    def mapPartitions(self, task: Task) -> "Partitions":
        self.chance.shuffle(self.partitions)
        for partition in self.partitions:
            list(task(iter(partition)))  # an executor that was lost after its last write
        return Partitions([list(task(iter(partition))) for partition in self.partitions], self.chance)

    def partitionBy(self, count: int, number_of: Callable[[Any], int]) -> "Partitions":
        parts: list[list[Any]] = [[] for _ in range(count)]
        for pair in (pair for partition in self.partitions for pair in partition):
            parts[number_of(pair[0]) % count].append(pair)
        for part in parts:
            self.chance.shuffle(part)
        return Partitions(parts, self.chance)


class SparklessJobs(SparkJobs):
    """SparkJobs without Spark."""

    def __init__(self, resources: ExecutorResources, seed: int) -> None:
        self.resources, self.parallelism, self._chance = resources, 3, random.Random(seed)

    def numbered(self, count: int) -> Any:
        return Partitions([[number] for number in range(count)], self._chance)

    def run(self, attempt: Attempt, work: Any, poll: Callable[[], int] = lambda: 0) -> list[dict[str, Any]]:
        results = [result for partition in work.partitions for result in partition]
        for result in results:
            if "error" in result:
                raise decode_error(result["error"])
        return results


class ThreeParts(SparklessJobs):
    """As many parts however few rows there are."""

    def parts_for(self, rows: int) -> int:
        return 3


class SparklessEngine(SparkEngine):
    """The Spark engine without Spark."""

    def __init__(self, resources: ExecutorResources, seed: int) -> None:
        self._jobs = ThreeParts(resources, seed)


def planned(plans: MemoryPlanStore, index: PlanIndex) -> dict[str, set[tuple[str, int, int]]]:
    """Return the rows of a plan by phase."""
    found: dict[str, set[tuple[str, int, int]]] = defaultdict(set)
    for chunk in index.chunks:
        records = read_chunk(plans, index.plan_id, chunk)
        assert [record.path for record in records] == sorted({record.path for record in records})
        assert not found[chunk.kind] & {tuple(record) for record in records}
        found[chunk.kind] |= {tuple(record) for record in records}
    return found


def both(
    bench: PurgedTables, ctx: PurgeContext, seed: int, earlier: tuple[PlanIndex, ...] = ()
) -> tuple[PlanIndex, PlanIndex]:
    """Return the table's plans by the inline engine and by the Spark engine with several parts."""
    engines = (InlineEngine(), SparklessEngine(ThisProcess(ctx.store, bench.plans), seed))
    return [make_plan(ctx, ctx.tables.load(), earlier, engine)[0] for engine in engines]


def with_clone(bench: PurgedTables, **fields: bool) -> PurgeContext:
    """Return a purge with a live clone as a neighbour, which shares the table's files."""
    near = neighbour(bench.lake, "clone", **fields)
    return replace(bench.context("t"), neighbours=lambda _roots: [near])


DAMAGES = pytest.mark.parametrize("change", ["missing", "corrupt"])
EVERY_ENGINE = pytest.mark.parametrize("engine_of", [lambda _resources, _seed: InlineEngine(), SparklessEngine])


def planned_by(engine_of: Callable[..., Any], bench: PurgedTables, ctx: PurgeContext) -> PlanIndex:
    """Return the table's plan by one of the engines."""
    engine = engine_of(ThisProcess(ctx.store, bench.plans), 0)
    return make_plan(ctx, ctx.tables.load(), (), engine)[0]


def damage(bench: PurgedTables, change: str, *, but: Collection[str] = ()) -> None:
    """Delete or tear a manifest that is not one of some."""
    manifest = next(uri for uri in bench.lake.uris() if uri.endswith("-m0.avro") and uri not in but)
    if change == "missing":
        bench.lake.io.delete(manifest)
    else:
        bench.lake.write(manifest, b"x" * len(bench.lake.read(manifest)))


def with_damaged_clone(bench: PurgedTables, change: str, **fields: bool) -> PurgeContext:
    """Return a purge with a live clone one of whose own manifests is lost or torn."""
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    ours = set(bench.lake.uris())
    bench.lake.table("clone").append(rows(7, 8, part="z"))
    damage(bench, change, but=ours)
    return with_clone(bench, **fields)


@pytest.mark.parametrize("seed", range(5))
def test_both_engines_make_the_same_plan_beside_a_clone_and_after_a_commit(seed: int, bench: PurgedTables) -> None:
    first = bench.context("t")
    inline_index, spark_index = both(bench, first, seed)
    assert planned(bench.plans, inline_index) == planned(bench.plans, spark_index)
    assert inline_index.counts == spark_index.counts

    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    bench.lake.table("t").append(rows(7, 8, part="z"))
    inline_clone, spark_clone = both(bench, with_clone(bench), seed)
    assert planned(bench.plans, inline_clone) == planned(bench.plans, spark_clone)
    assert codes(inline_clone) == codes(spark_clone)
    assert planned(bench.plans, spark_clone)["KEPT"]

    inline_more, spark_more = both(bench, bench.context("t"), seed, (inline_index,))
    assert planned(bench.plans, inline_more) == planned(bench.plans, spark_more)
    assert len(planned(bench.plans, spark_more)["DATA"]) == 1


@pytest.mark.parametrize(("change", "error"), [("missing", ManifestMissing), ("corrupt", CorruptManifestError)])
def test_executors_report_missing_and_corrupt_manifests(
    bench: PurgedTables, change: str, error: type[Exception]
) -> None:
    damage(bench, change)
    with pytest.raises(error):
        planned_by(SparklessEngine, bench, bench.context("t"))


@DAMAGES
@EVERY_ENGINE
def test_executors_report_errors_in_a_neighbours_files_as_the_neighbours(
    bench: PurgedTables, engine_of: Callable[..., Any], change: str
) -> None:
    ctx = with_damaged_clone(bench, change)
    with pytest.raises((NeighbourUnreadable, NeighbourChanged)) as raised:
        planned_by(engine_of, bench, ctx)
    assert str(raised.value.subject) == "cat.ns.clone"


@EVERY_ENGINE
def test_both_engines_keep_what_is_known_of_an_exempt_table(bench: PurgedTables, engine_of: Callable[..., Any]) -> None:
    """Its torn manifest is accepted, what the others name is kept, and so is what is at its last known area."""
    shared = bench.lake.below("s3://lake/wh/t/data/")
    ctx = with_damaged_clone(bench, "corrupt", exempt=True)
    bench.lake.table("t").append(rows(9, part="z"))
    area = "s3://lake/wh/t/data/part=z/"
    hidden = NeighbourUnreadable("cat.ns.hidden", PolarisForbidden("no"), areas=(area,), exempt=True)
    cloned = ctx.neighbours
    ctx = replace(ctx, neighbours=lambda roots: [hidden, *cloned(roots)])
    index = planned_by(engine_of, bench, ctx)
    rows_of = planned(bench.plans, index)
    deleted = {path for phase in (Phase.DATA, Phase.META) for path, *_ in rows_of[phase]}
    assert any(path.startswith(area) for path, *_ in rows_of[Phase.KEPT])
    assert not any(path.startswith(area) for path in deleted)
    assert not deleted & shared
    assert deleted
    assert codes(index).keys() >= {"NEIGHBOUR_EXEMPT", "FILES_SHARED", "FILES_AT_ANOTHER_TABLE"}


@DAMAGES
@EVERY_ENGINE
def test_both_engines_report_damage_of_a_former_state_unless_a_live_table_has_it_too(
    bench: PurgedTables, engine_of: Callable[..., Any], change: str
) -> None:
    """Another program deleted or tore what no table names; what a live table names has to be read."""
    ctx = with_damaged_clone(bench, change)
    live = neighbour(bench.lake, "clone")
    former = replace(live, former=True)

    index = planned_by(engine_of, bench, replace(ctx, neighbours=lambda _roots: [former]))

    assert "LOST_REFS_DAMAGED" in codes(index)
    assert planned(bench.plans, index)["KEPT"]
    with pytest.raises((NeighbourUnreadable, NeighbourChanged)):
        planned_by(engine_of, bench, replace(ctx, neighbours=lambda _roots: [former, live]))


@EVERY_ENGINE
def test_a_damaged_manifest_list_that_is_kept_is_not_taken_for_an_empty_one_of_a_clone(
    engine_of: Callable[..., Any],
) -> None:
    """A later list of the table names the same files, which the clone reads with the damaged one alone."""
    bench = PurgedTables()
    bench.lake.create("t").append(rows(1))
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    bench.lake.table("t").append(rows(2))
    bench.lake.write(bench.lake.metadata("clone")["snapshots"][0]["manifest-list"], b"no list")
    ctx = with_clone(bench)
    with pytest.raises(NeighbourUnreadable) as raised:
        planned_by(engine_of, bench, replace(ctx, options=replace(ctx.options, damaged="keep")))
    assert str(raised.value.subject) == "cat.ns.clone"


def test_a_wrong_count_in_a_manifest_list_makes_at_most_the_largest_number_of_parts(bench: PurgedTables) -> None:
    ctx = bench.context("t")
    found = survey(ctx, ctx.tables.load())
    jobs = SparklessJobs(ThisProcess(ctx.store, bench.plans), 0)
    wrong_counts = [one._replace(added_files_count=2**62) for one in found.manifests.values()]
    assert jobs.parts_for(expected_rows(wrong_counts)) == 4_096
    assert jobs.parts_for(expected_rows(found.manifests.values())) == 1
