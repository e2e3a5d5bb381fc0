"""Reading a plan of many sorted runs, such as Spark's parts, in order and in bounded memory."""

import tracemalloc
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import delegation.removal
from delegation.removal.chunks import Chunk, ChunkWriter, Phase
from delegation.removal.index import PlanIndex, ReducedIndex, planned_paths
from delegation.storage.memory import MemoryPlanStore
from tests.kit.plans import plan_index

RUNS, PATHS = 40, 2_000
INDEX = plan_index(engine="spark")


def planned(store: MemoryPlanStore, runs: list[list[str]]) -> PlanIndex:
    chunks: list[Chunk] = []
    for number, paths in enumerate(runs):
        writer = ChunkWriter(store, INDEX.plan_id, Phase.DATA, chunk_paths=PATHS, part=f"p{number:05d}-")
        writer.extend([(path, 8, 1) for path in sorted(paths)])
        writer.flush()
        chunks += writer.chunks
    return INDEX.model_copy(update={"chunks": tuple(chunks)})


def test_merging_many_runs_uses_little_memory() -> None:
    store = MemoryPlanStore()
    names = [
        [f"s3://lake/wh/orders/data/{n:06d}-{run:03d}-{'x' * 60}.parquet" for n in range(PATHS)] for run in range(RUNS)
    ]
    index = planned(store, names)
    as_text = sum(len(path) for run in names for path in run)
    tracemalloc.start()
    try:
        paths = planned_paths(store, [index], (Phase.DATA,))
        assert next(paths) == min(run[0] for run in names)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < as_text / 2
    assert sum(1 for _ in paths) == RUNS * PATHS - 1


def paths() -> Iterator[st.SearchStrategy[str]]:
    yield st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
    yield st.sampled_from(['a", "type": "b', "a\\", "line\u2028end", "\r", "\n", "\x85", '"'])


@given(st.lists(st.lists(st.one_of(*paths()), min_size=1, unique=True), max_size=4))
def test_every_path_is_read_in_order_as_written(runs: list[list[str]]) -> None:
    store = MemoryPlanStore()
    named = [[f"s3://lake/{path}" for path in run] for run in runs]
    assert list(planned_paths(store, [planned(store, named)], (Phase.DATA,))) == sorted(chain.from_iterable(named))


def test_each_plan_that_can_be_reduced_stores_which_plans_it_replaced() -> None:
    """The base declares `reduces` for type checkers alone, so one that lacks it would fail when it is executed."""
    for folder in delegation.removal.__path__:
        for file in (*Path(folder).glob("*/index.py"), *Path(folder).glob("*/context.py")):
            import_module(f"delegation.removal.{file.parent.name}.{file.stem}")
    kinds = ReducedIndex.__subclasses__()
    assert {one.__name__ for one in kinds} >= {"ExpiryIndex", "OrphanIndex"}
    assert [one.__name__ for one in kinds if "reduces" not in one.model_fields] == []
