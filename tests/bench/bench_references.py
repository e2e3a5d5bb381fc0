"""How many loads of other tables purges cost, with the namespace scan and with the reference index.

`PYTHONPATH=. python tests/bench/bench_references.py --tables 5000 --purges 5000`
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from delegation.identifiers import TableIdentifier
from delegation.polaris.model import LoadedTable
from delegation.references.model import TableEntry
from delegation.references.refresh import Refresher
from delegation.references.store import MemoryReferenceStore

NOW = datetime(2026, 11, 22, tzinfo=UTC)


@dataclass
class Listing:
    """A namespace of tables that exist only as names, and a count of what is asked of the catalog."""

    names: list[str]
    asked: Counter[str] = field(default_factory=Counter)

    def load_if_changed(self, identifier: TableIdentifier, etag: str | None) -> LoadedTable | None:
        self.asked["conditional loads"] += 1
        return None if etag is not None else self._table(identifier)

    def list_tables(self, catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]:
        self.asked["listings"] += 1
        return (TableIdentifier(catalog, namespace, name) for name in self.names)

    def list_namespaces(self, _catalog: str, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        return iter([] if parent else [("ns",)])

    def _table(self, identifier: TableIdentifier) -> LoadedTable:
        location = f"s3://lake/ns/{identifier.name}"
        metadata = {"table-uuid": identifier.name, "location": location, "format-version": 2}
        return LoadedTable(identifier, f"{location}/m.json", metadata, {}, etag=identifier.name)


def read(table: LoadedTable, _known: TableEntry | None) -> TableEntry:
    return TableEntry(table.identifier, table.table_uuid, table.metadata_location, (f"{table.location}/",), table.etag)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=5_000)
    parser.add_argument("--purges", type=int, default=5_000)
    arguments = parser.parse_args()
    listing = Listing([f"t{number:05}" for number in range(arguments.tables)])
    store = MemoryReferenceStore()
    refresher = Refresher(store, listing, read, "bench", timedelta(minutes=15), clock=lambda: NOW)
    began = time.process_time()
    for _ in range(arguments.purges):
        refresher.ensure_fresh("cat")
    seconds = time.process_time() - began
    scan = arguments.purges * (arguments.tables - 1)
    sys.stdout.write(f"{arguments.tables} tables in one namespace, {arguments.purges} purges submitted together\n")
    sys.stdout.write(f"namespace scan: {scan:,} full loads, {arguments.tables - 1:,} for each purge\n")
    index = ", ".join(f"{count:,} {what}" for what, count in sorted(listing.asked.items()))
    sys.stdout.write(
        f"reference index: {index}; {listing.asked['conditional loads'] / arguments.purges:.3f} for each purge\n"
    )
    sys.stdout.write(f"{seconds:.1f} s CPU\n")


if __name__ == "__main__":
    main()
