"""Forty overlapping clones cost a purge what they have of their own (issue 24, line 8)."""

import dataclasses
from collections import Counter

from delegation.storage.locations import ObjectLocation
from delegation.storage.memory import MemoryObjectStore
from tests.kit.lakes.lake import Lake, PurgedTables, filled, neighbour, rows
from tests.unit.removal.purge.planning.executors_here import ENGINES, engines


class Counting(MemoryObjectStore):
    """Counts the reads of each object, over all stores that share `counted`."""

    def __init__(self, counted: Counter[str]) -> None:
        super().__init__()
        self._counted = counted

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        self._counted[location.uri] += 1
        return super().read(location, limit=limit)


def reads_beside(clones: int, engine: str, *, own: bool) -> tuple[Counter[str], Lake, list[set[str]]]:
    """Purge a table beside clones, with a commit of their own or none; return the reads, and the clones' own files."""
    bench = filled(PurgedTables(), "t")
    lake, counted, files = bench.lake, Counter[str](), list[set[str]]()
    for number in range(clones):
        before = set(lake.uris())
        lake.pointers[f"clone-{number}"] = lake.pointers["t"]
        if own:
            lake.table(f"clone-{number}").append(rows(number + 10))
        files.append(set(lake.uris()) - before)
    near = [neighbour(lake, name, Counting(counted), certain=True) for name in lake.pointers if name != "t"]
    store = Counting(counted)
    store.objects = lake.objects
    ENGINES[engine](dataclasses.replace(bench.context("t"), store=store, neighbours=lambda _roots: near))
    return counted, lake, files


@engines
def test_what_clones_share_is_read_once_for_all_of_them(engine: str) -> None:
    few, _, _ = reads_beside(4, engine, own=False)
    many, lake, _ = reads_beside(40, engine, own=False)
    assert many == few
    assert set(lake.uris()) == set(filled(PurgedTables(), "t").lake.uris())
    # A manifest, for the table and for all clones; executors here run every task twice.
    assert max(many.values()) == (2 if engine == "inline" else 4)


@engines
def test_each_clone_costs_the_reads_of_its_own_files(engine: str) -> None:
    few, _, _ = reads_beside(4, engine, own=True)
    many, lake, files = reads_beside(40, engine, own=True)
    each = (many.total() - few.total()) / 36
    # Its list, its manifests, and a former metadata file.
    assert each <= (4 if engine == "inline" else 6)
    assert all(own and own <= set(lake.uris()) for own in files)
