"""What the promise of a purge costs: loads of tables, units of DynamoDB, and the time to the first delete.

Purges of the whole service over in-memory stores, a stand-in for the catalog that counts what it is asked for, and
DynamoDB's units by the sizes of the index's items. The clock is simulated: the catalog answers at the ceiling of
`reference-loads-per-second`, everything else takes no time.

`PYTHONPATH=functions:. python tests/bench/bench_references.py --tables 100 5000 50000 --purges 1 5000`
"""

import resource
import sys
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.references.model import CatalogPass
from delegation.references.store import ReferenceStore, ReferenceTable
from delegation.tasks.life.model import Status
from tests.bench.frame import options
from tests.bench.loads.units import CountedDynamoDb
from tests.kit.lakes.lake import Lake
from tests.kit.lakes.listing import LakeListing
from tests.kit.worlds.indexed import IndexedWorld
from tests.kit.worlds.together import drive_together

write = sys.stdout.write
_TEMPLATE = Lake()
_TEMPLATE.create("template")


@dataclass
class LargeCatalog(LakeListing):
    """A catalog with `further` tables that never change, beside real ones."""

    further: int = 0

    def list_tables(self, catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]:
        yield from super().list_tables(catalog, namespace)
        if namespace == ("ns",):
            for number in range(self.further):
                yield TableIdentifier(catalog, namespace, f"further{number:06}")

    def load_if_changed(self, identifier: TableIdentifier, etag: str | None) -> LoadedTable | None:
        if not identifier.name.startswith("further"):
            return super().load_if_changed(identifier, etag)
        self.asked["conditional"] += 1
        location = f"s3://lake/further/{identifier.name}"
        if etag is not None:
            return None
        uuid = str(uuid5(NAMESPACE_URL, location))
        metadata = {**_TEMPLATE.metadata("template"), "location": location, "table-uuid": uuid}
        found = f"{location}/metadata/00000.metadata.json"
        return LoadedTable(identifier, found, metadata, {}, (), etag=found)


class Service(IndexedWorld):
    """The service over `count` tables of one namespace, `real` of which can be purged, with units of DynamoDB."""

    def __init__(self, count: int, real: int) -> None:
        super().__init__()
        self.names = [f"t{number:05}" for number in range(real)]
        for name in self.names:
            self.lake.create(name)
        self.listing = LargeCatalog(self.listing.lakes, further=count - real)
        self.become(replace(self.behavior, catalog=self.listing))
        self.units = CountedDynamoDb()
        self.index: Any = ReferenceStore(ReferenceTable(self.units, sleep=lambda _seconds: None), "references")
        self.become(replace(self.behavior, references=self.index))

    def refresh(self) -> CatalogPass:
        """Make a pass, as the recurring task does."""
        refresher = self.behavior.refresher(self.index, "recurring", lambda: None)
        return refresher.ensure_fresh("cat", timedelta(0))

    def purge(self, names: list[str]) -> datetime:
        """Submit purges of these tables together and run them side by side; return when the first one deleted."""
        ids = [self.submit(self.identity(name)).task_id for name in names]
        wanted, send = set(ids), self.queue.send
        self.queue.sent = [one for one in self.queue.sent if one[0] in wanted]

        def send_purge(task_id: str, n: int, *, correlation_id: str | None = None) -> None:
            # The recurring pass would be seen as complete before its time: a step's effects are visible at once.
            if task_id in wanted:
                send(task_id, n, correlation_id=correlation_id)

        self.queue.send = send_purge  # type: ignore[method-assign]
        drive_together(self)
        tasks = [self.tasks.reads.get(one) for one in ids]
        assert {task.status for task in tasks} == {Status.SUCCESS}, {task.error_code for task in tasks}
        return min(task.effects_began_ts for task in tasks if task.effects_began_ts is not None)


def simulated(tables: int, purges: int) -> None:
    service = Service(tables, purges)
    state = service.refresh()
    cold = (service.listing.asked["conditional"], service.units.reads, service.units.writes)
    service.clock.advance(timedelta(hours=2))
    service.listing.asked.clear()
    service.units.reads = service.units.writes = 0
    before, began = service.index.pass_of("cat").complete, service.clock()
    first = service.purge(service.names[:purges])
    passes = service.index.pass_of("cat").complete - before
    loads = service.listing.asked["conditional"]
    write(
        f"{tables:,} tables, {purges:,} purge{'s' if purges > 1 else ''}: {passes} pass{'es' if passes > 1 else ''}, "
        f"{loads / passes / tables:.2f} loads for each table and pass, {service.listing.asked['full'] / purges:.1f} "
        f"others for each purge; first delete after {(first - began).total_seconds():.0f} s, all after "
        f"{(service.clock() - began).total_seconds():.0f} s; DynamoDB {service.units.reads:,} read and "
        f"{service.units.writes:,} write units, {service.units.reads / purges:,.1f} and "
        f"{service.units.writes / purges:,.1f} for each purge\n"
        f"  first pass of all: {cold[0]:,} loads, {cold[1]:,} read and {cold[2]:,} write units, "
        f"{state.duration.total_seconds():.0f} s; {_memory_mb():.0f} MB at most\n"
    )


def traced(tables: int) -> int:
    """Return the bytes that a pass over unchanged tables allocates at most, without the stores, in Python's memory.

    SQLite's pages, 2 MB, are not counted.
    """
    service = Service(tables, 1)
    service.refresh()
    service.clock.advance(timedelta(hours=2))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    service.refresh()
    most = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return most


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    arguments = options(__doc__, tables=[100, 5_000], purges=[1, 5_000], memory=False)
    for tables in arguments.tables if arguments.memory else ():
        write(f"{tables:,} tables: a pass allocates {traced(tables) / 2**20:.1f} MB at most\n")
    for tables in () if arguments.memory else arguments.tables:
        for purges in sorted({min(purges, tables) for purges in arguments.purges}):
            began = time.process_time()
            simulated(tables, purges)
            write(f"  {time.process_time() - began:.1f} s CPU\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
