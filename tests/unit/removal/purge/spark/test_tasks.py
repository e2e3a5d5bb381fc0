"""The functions of executors, run in this process without Spark, make the plans of the inline engine."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
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
from delegation.removal.neighbourhood import Neighbour
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.planning import InlineEngine, make_plan, survey
from delegation.removal.purge.spark import SparkEngine
from delegation.removal.spark import SparkJobs
from delegation.removal.spark_executors import ExecutorResources, decode_error, expected_rows
from delegation.storage.base import ObjectStore, PlanStore
from delegation.storage.locations import parse
from delegation.storage.memory import MemoryObjectStore, MemoryPlanStore
from tests.kit.lakes.lake import LakeSource, PurgedTables, busy_table, filled, rows

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


def with_clone(bench: PurgedTables, ctx: PurgeContext) -> PurgeContext:
    """Return the context with a live clone as a neighbour, which shares the table's files."""
    table = LakeSource(bench.lake, "clone").load()
    return replace(ctx, neighbours=lambda _roots: [Neighbour(table, ctx.store)])


@pytest.mark.parametrize("seed", range(5))
def test_both_engines_make_the_same_plan_beside_a_clone_and_after_a_commit(seed: int) -> None:
    bench = PurgedTables()
    table = busy_table(bench.lake, "t")
    first = bench.context("t")
    inline_index, spark_index = both(bench, first, seed)
    assert planned(bench.plans, inline_index) == planned(bench.plans, spark_index)
    assert inline_index.counts == spark_index.counts

    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    table.append(rows(7, 8, part="z"))
    clone = with_clone(bench, bench.context("t"))
    inline_clone, spark_clone = both(bench, clone, seed)
    assert planned(bench.plans, inline_clone) == planned(bench.plans, spark_clone)
    counted = [{one.code: one.count for one in index.findings} for index in (inline_clone, spark_clone)]
    assert counted[0] == counted[1]
    assert planned(bench.plans, spark_clone)["KEPT"]

    inline_more, spark_more = both(bench, bench.context("t"), seed, (inline_index,))
    assert planned(bench.plans, inline_more) == planned(bench.plans, spark_more)
    assert len(planned(bench.plans, spark_more)["DATA"]) == 1


def test_executors_report_missing_and_corrupt_manifests() -> None:
    for change, error in (("missing", ManifestMissing), ("corrupt", CorruptManifestError)):
        bench = filled(PurgedTables(), "t")
        manifest = next(where for where in bench.lake.objects if where[1].endswith("-m0.avro"))
        if change == "missing":
            del bench.lake.objects[manifest]
        else:
            bench.lake.objects[manifest] = b"x" * len(bench.lake.objects[manifest])
        ctx = bench.context("t")
        with pytest.raises(error):
            make_plan(ctx, ctx.tables.load(), (), SparklessEngine(ThisProcess(ctx.store, bench.plans), 0))


@pytest.mark.parametrize("change", ["missing", "corrupt"])
def test_executors_report_errors_in_a_neighbours_files_as_the_neighbours(change: str) -> None:
    bench = filled(PurgedTables(), "t")
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    ours = set(bench.lake.objects)
    bench.lake.table("clone").append(rows(7, 8, part="z"))
    manifest = next(where for where in bench.lake.objects if where[1].endswith("-m0.avro") and where not in ours)
    ctx = with_clone(bench, bench.context("t"))
    bench.lake.objects[manifest] = b"x" * len(bench.lake.objects[manifest])
    if change == "missing":
        del bench.lake.objects[manifest]
    for engine in (InlineEngine(), SparklessEngine(ThisProcess(ctx.store, bench.plans), 0)):
        with pytest.raises((NeighbourUnreadable, NeighbourChanged)) as raised:
            make_plan(ctx, ctx.tables.load(), (), engine)
        assert str(raised.value.subject) == "cat.ns.clone"


@pytest.mark.parametrize("engine_of", [lambda _resources, _seed: InlineEngine(), SparklessEngine])
def test_both_engines_keep_what_is_known_of_an_exempt_table(engine_of: Callable[..., Any]) -> None:
    """Its torn manifest is accepted, what the others name is kept, and so is what is at its last known area."""
    bench = filled(PurgedTables(), "t")
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    ours = set(bench.lake.objects)
    bench.lake.table("clone").append(rows(7, 8, part="z"))
    manifest = next(where for where in bench.lake.objects if where[1].endswith("-m0.avro") and where not in ours)
    bench.lake.objects[manifest] = b"x" * len(bench.lake.objects[manifest])
    bench.lake.table("t").append(rows(9, part="z"))
    area = "s3://lake/wh/t/data/part=z/"
    hidden = NeighbourUnreadable("cat.ns.hidden", PolarisForbidden("no"), areas=(area,), exempt=True)
    ctx = with_clone(bench, bench.context("t"))
    cloned = ctx.neighbours
    ctx = replace(ctx, neighbours=lambda roots: [hidden, *(replace(one, exempt=True) for one in cloned(roots))])
    plan = ctx.tables.load()
    index, _ = make_plan(ctx, plan, (), engine_of(ThisProcess(ctx.store, bench.plans), 0))
    rows_of = planned(bench.plans, index)
    deleted = {path for phase in (Phase.DATA, Phase.META) for path, *_ in rows_of[phase]}
    at_area = {path for path, *_ in rows_of[Phase.KEPT] if path.startswith(area)}
    assert at_area
    assert not any(path.startswith(area) for path in deleted)
    shared = {f"s3://{bucket}/{key}" for bucket, key in ours if "/data/" in key}
    assert not deleted & shared
    assert deleted
    assert {one.code for one in index.findings} >= {"NEIGHBOUR_EXEMPT", "FILES_SHARED", "FILES_AT_ANOTHER_TABLE"}


@pytest.mark.parametrize("change", ["missing", "corrupt"])
@pytest.mark.parametrize("engine_of", [lambda _resources, _seed: InlineEngine(), SparklessEngine])
def test_both_engines_report_damage_of_a_former_state_unless_a_live_table_has_it_too(
    engine_of: Callable[..., Any], change: str
) -> None:
    """Another program deleted or tore what no table names; what a live table names has to be read."""
    bench = filled(PurgedTables(), "t")
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    ours = set(bench.lake.objects)
    bench.lake.table("clone").append(rows(7, 8, part="z"))
    manifest = next(where for where in bench.lake.objects if where[1].endswith("-m0.avro") and where not in ours)
    bench.lake.objects[manifest] = b"x" * len(bench.lake.objects[manifest])
    if change == "missing":
        del bench.lake.objects[manifest]
    ctx = with_clone(bench, bench.context("t"))
    live = list(ctx.neighbours(None))
    former = [replace(one, former=True) for one in live if isinstance(one, Neighbour)]

    alone = replace(ctx, neighbours=lambda _roots: former)
    index, _ = make_plan(alone, ctx.tables.load(), (), engine_of(ThisProcess(ctx.store, bench.plans), 0))

    assert "LOST_REFS_DAMAGED" in {one.code for one in index.findings}
    assert planned(bench.plans, index)["KEPT"]
    both_of_them = replace(ctx, neighbours=lambda _roots: [*former, *live])
    with pytest.raises((NeighbourUnreadable, NeighbourChanged)):
        make_plan(both_of_them, ctx.tables.load(), (), engine_of(ThisProcess(ctx.store, bench.plans), 0))


@pytest.mark.parametrize("engine_of", [lambda _resources, _seed: InlineEngine(), SparklessEngine])
def test_a_damaged_manifest_list_that_is_kept_is_not_taken_for_an_empty_one_of_a_clone(
    engine_of: Callable[..., Any],
) -> None:
    """A later list of the table names the same files, which the clone reads with the damaged one alone."""
    bench = PurgedTables()
    bench.lake.create("t").append(rows(1))
    bench.lake.pointers["clone"] = bench.lake.pointers["t"]
    bench.lake.table("t").append(rows(2))
    where = parse(bench.lake.metadata("clone")["snapshots"][0]["manifest-list"])
    bench.lake.objects[where.bucket, where.key] = b"no list"
    ctx = with_clone(bench, bench.context("t"))
    ctx = replace(ctx, options=replace(ctx.options, damaged="keep"))
    with pytest.raises(NeighbourUnreadable) as raised:
        make_plan(ctx, ctx.tables.load(), (), engine_of(ThisProcess(ctx.store, bench.plans), 0))
    assert str(raised.value.subject) == "cat.ns.clone"


def test_a_wrong_count_in_a_manifest_list_makes_at_most_the_largest_number_of_parts() -> None:
    bench = filled(PurgedTables(), "t")
    ctx = bench.context("t")
    found = survey(ctx, ctx.tables.load())
    jobs = SparklessJobs(ThisProcess(ctx.store, bench.plans), 0)
    wrong_counts = [one._replace(added_files_count=2**62) for one in found.manifests.values()]
    assert jobs.parts_for(expected_rows(wrong_counts)) == 4_096
    assert jobs.parts_for(expected_rows(found.manifests.values())) == 1
