"""Forty overlapping clones cost a purge what they have of their own (issue 24, line 8)."""

import dataclasses
from collections import Counter

import pytest

from delegation.removal.neighbourhood import Neighbour
from delegation.storage.locations import ObjectLocation
from delegation.storage.memory import Faults, MemoryObjectStore
from tests.kit.lakes.lake import Lake, LakeSource, PurgedTables, busy_table, rows
from tests.unit.removal.purge.planning.executors_here import ENGINES


class Counting(MemoryObjectStore):
    """Counts the reads of each object, over all stores that share `counted`."""

    counted: Counter[str]

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        self.counted[location.uri] += 1
        return super().read(location, limit=limit)


def reads_beside(
    world: Lake, clones: int, engine: str, *, own: bool
) -> tuple[Counter[str], PurgedTables, dict[str, set[str]]]:
    """Purge a table beside clones, with a commit of their own or none; return the reads, and the clones' own files."""
    bench = PurgedTables(lake=world.copy())
    lake, counted = bench.lake, Counter[str]()
    files: dict[str, set[str]] = {}
    for number in range(clones):
        name = f"clone-{number}"
        lake.pointers[name] = lake.pointers["t"]
        if own:
            before = set(lake.uris())
            lake.table(name).append(rows(number + 10))
            files[name] = set(lake.uris()) - before
    ctx = bench.context("t")
    stores = []
    for _ in range(clones + 1):
        store = Counting()
        store.objects, store.counted = lake.objects, counted
        stores.append(store)
    near = [
        Neighbour(LakeSource(lake, name, Faults()).load(), store, certain=True)
        for name, store in zip([name for name in lake.pointers if name != "t"], stores[1:], strict=True)
    ]
    ENGINES[engine](dataclasses.replace(ctx, store=stores[0], neighbours=lambda _roots: near))
    return counted, bench, files


@pytest.fixture(scope="module")
def world() -> Lake:
    lake = Lake()
    busy_table(lake, "t")
    return lake


@pytest.mark.parametrize("engine", ENGINES)
def test_what_clones_share_is_read_once_for_all_of_them(world: Lake, engine: str) -> None:
    few, _, _ = reads_beside(world, 4, engine, own=False)
    many, bench, _ = reads_beside(world, 40, engine, own=False)
    assert many == few
    assert set(bench.lake.uris()) == set(world.uris())
    # A manifest, for the table and for all clones; executors here run every task twice.
    assert max(many.values()) == (2 if engine == "inline" else 4)


@pytest.mark.parametrize("engine", ENGINES)
def test_each_clone_costs_the_reads_of_its_own_files(world: Lake, engine: str) -> None:
    few, _, _ = reads_beside(world, 4, engine, own=True)
    many, bench, files = reads_beside(world, 40, engine, own=True)
    each = (many.total() - few.total()) / 36
    # Its list, its manifests, and a former metadata file.
    assert each <= (4 if engine == "inline" else 6)
    assert all(own <= set(bench.lake.uris()) for own in files.values())
