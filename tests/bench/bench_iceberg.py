"""Adding a snapshot to a table with many: managed metadata compared with pyiceberg's rewrite of metadata.json.

    PYTHONPATH=functions:. python tests/bench/bench_iceberg.py [--snapshots N …] [--commits N]

Both add the same snapshots one by one and move `main` to each. Ours decodes the state, adds the snapshot and encodes
all new objects, which for some commits include stripes of the index and chunks of the log (so figures are means over
all commits). pyiceberg applies the updates to metadata in memory and writes all of it as JSON, like its catalogs; the
second figure includes reading metadata.json. Times are CPU times. Import and export of a table are measured as well.

First, the batches, rows and read units of a load: by a new process (cold), and by one that loaded the table before and
loads it after one more snapshot (warm). The head of the catalog is not counted.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterable

from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, update_table_metadata

from polaris_persistence.backends.base import ObjectKey, StoredObject
from polaris_persistence.iceberg.layout import TABLE, Json, parse, serialise
from polaris_persistence.iceberg.metadata import ManagedMetadata
from polaris_persistence.iceberg.objects import ICEBERG_TYPES, IcebergMetadata
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.index.stripes import STRIPES
from polaris_persistence.objects.objects import Loaded, ObjectRef, PersistedModel, decode, encode
from polaris_persistence.objects.types import ObjectTypes
from tests.kit.printing import print_now
from tests.persistence.iceberg.iceberg_fixtures import (
    adding,
    apply,
    document_of,
    pointing,
    pyiceberg_table,
    snapshot_json_of,
    snapshot_of,
)
from tests.persistence.iceberg.metered import MeteredTable

TYPES = ObjectTypes([STRIPES, *ICEBERG_TYPES])
ROW_BYTES = 90


class Objects:
    """Objects encoded as in a store and kept decoded as in an object cache."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, int], Loaded[PersistedModel]] = {}
        self.data: dict[tuple[str, int], bytes] = {}
        self.sizes: list[int] = []
        self._ids = itertools.count(1 << 60)

    def write(self, value: PersistedModel) -> ObjectRef:
        """Encode and keep an object."""
        ref = ObjectRef(TYPES.of(type(value)).name, next(self._ids))
        data = encode(value)
        self.sizes.append(len(data))
        self.data[ref.type, ref.id] = data
        self.values[ref.type, ref.id] = Loaded(ObjectKey("", "", ref.type, ref.id), value, 0, len(data))
        return ref

    def fetch(self, refs: Iterable[ObjectRef]) -> list[Loaded[PersistedModel] | None]:
        """Return objects as from the cache."""
        return [self.values[ref.type, ref.id] for ref in refs]

    def fetch_cold(self, refs: Iterable[ObjectRef]) -> list[Loaded[PersistedModel] | None]:
        """Return objects as from the store."""
        keys = [ObjectKey("", "", ref.type, ref.id) for ref in refs]
        return [Loaded(key, TYPES.decode(StoredObject(key, self.data[key.type, key.id], 0)), 0, 0) for key in keys]


def main() -> None:
    """Print the figures for every size."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--snapshots", type=int, nargs="+", default=[100, 1_000])
    options.add_argument("--commits", type=int, default=60)
    options.add_argument("--loads", type=int, nargs="*", default=[10, 1_000, 10_000])
    given = options.parse_args()
    for count in given.loads:
        loads(count)
    for count in given.snapshots:
        measure(count, given.commits)


def loads(count: int) -> None:
    """Print what loading a table costs, cold and warm."""
    document = document_of(pyiceberg_table(2, 10))
    # By hand, because pyiceberg takes minutes for 10,000 snapshots.
    document["snapshots"] = [snapshot_json_of(number) for number in range(count)]
    document["snapshot-log"] = [
        {"snapshot-id": one["snapshot-id"], "timestamp-ms": one["timestamp-ms"]} for one in document["snapshots"]
    ]
    document["last-sequence-number"] = count
    table = MeteredTable(document)
    process = table.process()
    table.load(process).document()
    cold = table.backend.line()
    writer = table.process()
    changed = table.load(writer)
    apply(changed, adding(snapshot_json_of(count)))
    table.save(writer, changed)
    table.backend.reset()
    table.load(process).document()
    print_now(f"load of {count:,} snapshots: cold {cold}; warm, after another snapshot, {table.backend.line()}")


def measure(count: int, commits: int) -> None:
    """Print the figures for one size."""
    before = pyiceberg_table(2, count)
    print_now(f"a table of {count:,} snapshots, {commits} more")
    objects = Objects()
    text = before.model_dump_json().encode()
    document = document_of(before)
    state: list[ObjectRef] = []

    def import_table() -> None:
        metadata = ManagedMetadata.of(document, TABLE, objects.fetch)
        state.append(objects.write(metadata.finish(IndexPolicy(), objects.write)))

    imported = cpu(import_table)
    print_now(
        f"  import {imported * 1e3:.1f} ms, {len(objects.sizes):,} objects, {sum(objects.sizes):,} bytes "
        f"(JSON {len(text):,})"
    )
    objects.sizes.clear()
    current = [state[-1]]
    spent: list[float] = []
    units: list[int] = []
    for number in range(count, count + commits):
        snapshot = json.loads(snapshot_of(number).model_dump_json(exclude_none=True))
        wrote = len(objects.sizes)
        spent.append(cpu(lambda snapshot=snapshot: current.append(add(objects, current[-1], snapshot))))
        units.append(sum(-(-(size + ROW_BYTES) // 1_024) for size in objects.sizes[wrote:]))
    ours_bytes = sum(objects.sizes) / commits

    metadata = [before]
    whole: list[int] = []
    rewritten: list[float] = []
    for number in range(count, count + commits):

        def rewrite(number: int = number) -> None:
            metadata.append(update_table_metadata(metadata[-1], updates(number)))
            whole.append(len(metadata[-1].model_dump_json().encode()))

        rewritten.append(cpu(rewrite))
    texts = metadata[-1].model_dump_json()
    reading = cpu(lambda: TableMetadataUtil.parse_raw(texts))
    theirs = statistics.mean(rewritten)
    ours = statistics.mean(spent)
    ratio("bytes written per snapshot", statistics.mean(whole), ours_bytes)
    ratio("write units per snapshot", -(-statistics.mean(whole) // 1_024), statistics.mean(units))
    ratio("CPU ms per snapshot, metadata in memory", theirs * 1e3, ours * 1e3)
    ratio("CPU ms per snapshot, metadata read before", (theirs + reading) * 1e3, ours * 1e3)
    final = load(objects, current[-1], objects.fetch_cold)
    exported = cpu(lambda: serialise(final.document()))
    ratio("export of the whole, ms (pyiceberg: dump)", cpu(metadata[-1].model_dump_json) * 1e3, exported * 1e3)
    if parse(serialise(final.document()))["snapshots"] != json.loads(texts)["snapshots"]:
        raise SystemExit("the two tables differ")


def add(objects: Objects, state: ObjectRef, snapshot: Json) -> ObjectRef:
    """Make one commit on managed metadata, whose state is read from bytes."""
    table = load(objects, state, objects.fetch)
    apply(table, adding(snapshot), pointing("main", snapshot["snapshot-id"]))
    return objects.write(table.finish(IndexPolicy(), objects.write))


def load(
    objects: Objects, state: ObjectRef, fetch: Callable[[Iterable[ObjectRef]], list[Loaded[PersistedModel] | None]]
) -> ManagedMetadata:
    """Return a working copy."""
    key = ObjectKey("", "", state.type, state.id)
    return ManagedMetadata(decode(StoredObject(key, objects.data[state.type, state.id], 0), IcebergMetadata), fetch)


def updates(number: int) -> tuple[AddSnapshotUpdate, SetSnapshotRefUpdate]:
    """Return the same commit as pyiceberg's updates."""
    snapshot = snapshot_of(number)
    return (
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate(
            ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=snapshot.snapshot_id,
            max_ref_age_ms=None, max_snapshot_age_ms=None, min_snapshots_to_keep=None,
        ),
    )  # fmt: skip


def cpu(work: Callable[[], object]) -> float:
    """Return the CPU seconds of one run."""
    start = time.process_time()
    work()
    return time.process_time() - start


def ratio(what: str, theirs: float, ours: float) -> None:
    """Print a figure beside pyiceberg's."""
    print_now(f"  {what:44} {ours:12,.2f}   pyiceberg {theirs:14,.2f}   {theirs / ours:8.1f} times")


if __name__ == "__main__":
    main()
