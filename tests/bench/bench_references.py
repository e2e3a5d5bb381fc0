"""How many loads of tables purges cost, before (every table of the namespace) and after (the reference index).

Purges of the whole service over in-memory stores and a stand-in for the catalog, which counts what it is asked for.
They are all submitted before the first one runs. The scan grows with the square of the tables, so it is measured on
few and computed for all.

`PYTHONPATH=. python tests/bench/bench_references.py --tables 5000 --measured-by-scan 60`
"""

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta

from delegation.identifiers import TableIdentifier
from delegation.operations.purge.behavior.limits import Limits
from delegation.polaris.model import LoadedTable
from delegation.references.store import MemoryReferenceStore
from delegation.tasks.life.model import Status
from tests.unit.edge.world import World
from tests.unit.operations.purge.lake import rows
from tests.unit.references.catalogs import LakeListing

AFTER_MAX_AGE = timedelta(minutes=16)


@dataclass
class CountedCatalog(LakeListing):
    """A stand-in catalog that tells loads of the purged table from loads of other tables."""

    purged: str = ""
    counted: Counter[str] = field(default_factory=Counter)

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable:
        self.counted["own" if identifier.name == self.purged else "of other tables"] += 1
        return super().load_table(identifier, vend=vend, snapshots=snapshots)

    def load_if_changed(self, identifier: TableIdentifier, etag: str | None) -> LoadedTable | None:
        self.counted["of other tables"] += 1
        found = super().load_if_changed(identifier, etag)
        self.counted["of these unchanged (304)"] += found is None
        return found


class Service(World):
    """The service over `count` tables of one namespace, with the reference index or a scan of the namespace."""

    def __init__(self, count: int, references: str) -> None:
        super().__init__()
        self.names = [f"t{number:05}" for number in range(count)]
        for name in self.names:
            self.lake.create(name)
        self.catalog = CountedCatalog({("ns",): self.lake})
        limits = Limits.from_properties({"delegation.purge.references": references})
        index = MemoryReferenceStore() if references == "index" else None
        self.become(replace(self.behavior, catalog=self.catalog, references=index, limits=limits))

    def purge(self, names: list[str]) -> Counter[str]:
        """Submit purges of these tables together, run them all, and return what the catalog was asked for."""
        self.catalog.counted.clear()
        self.catalog.asked.clear()
        ids = {self.submit(self.body(name)).task_id: name for name in names}
        dispatches, self.queue.sent = self.queue.sent, []
        for task_id, n in dispatches:
            if task_id not in ids:
                continue  # the recurring refresh, which the first purge does itself
            self.catalog.purged = ids[task_id]
            self.queue.sent = [(task_id, n)]
            self.drive()
            assert self.tasks.get(task_id).status is Status.SUCCESS, self.tasks.get(task_id)
        return self.catalog.counted | Counter(listings=self.catalog.asked["listings"])

    def drive(self) -> None:
        """Run dispatches, except those of the recurring task."""
        self.queue.sent = [one for one in self.queue.sent if self.tasks.get(one[0]).task_type == "TABLE_PURGE"]
        super().drive()


def line(what: str, counted: Counter[str], purges: int) -> str:
    others = counted["of other tables"]
    return (
        f"{what}: {others:,} loads of other tables for {purges:,} purges, {others / purges:,.3f} for each; "
        f"{counted['of these unchanged (304)']:,} of them answered 304; {counted['own'] / purges:.1f} loads of its own "
        f"table for each; {counted['listings']:,} listings\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=5_000)
    parser.add_argument("--measured-by-scan", type=int, default=60)
    parser.add_argument("--changed", type=int, default=20)
    arguments = parser.parse_args()
    write, tables = sys.stdout.write, arguments.tables

    few = Service(arguments.measured_by_scan, "namespace")
    counted = few.purge(few.names)
    write(line("before, measured", counted, len(few.names)))
    per_purge = counted["of other tables"] / len(few.names) / (len(few.names) - 1) * (tables - 1)
    write(f"before, {tables:,} tables: {per_purge:,.0f} loads for each purge, {per_purge * tables:,.0f} for all\n")

    began = time.process_time()
    service = Service(tables + 2 * arguments.changed, "index")
    write(line("after, all submitted together", service.purge(service.names[:tables]), tables))
    for name in service.names[:tables]:
        del service.lake.pointers[name]  # as the caller does after SUCCESS
    for name in service.names[-arguments.changed :]:
        service.lake.table(name).append(rows(1))
    service.clock.advance(AFTER_MAX_AGE)
    counted = service.purge(service.names[-1:])
    write(line(f"after, {arguments.changed} of {2 * arguments.changed} tables changed since", counted, 1))
    write(f"{time.process_time() - began:.1f} s CPU\n")


if __name__ == "__main__":
    main()
