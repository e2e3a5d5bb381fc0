"""What an audit finds in each table of a catalog, joined from what the service stored. Pure functions."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from rich.console import RenderableType

from delegation.cli.catalog.health import GIB, StoragePrices
from delegation.cli.screens import Rows, WrappedText, between_text, plain, size_text
from delegation.identifiers import TableIdentifier
from delegation.references.model import EVERYWHERE, TableEntry
from delegation.timestamps import isoformat
from delegation.upkeep.health.model import TableHealth
from polaris_common.errors import counted

MOST_NAMED: Final = 5
"""How many of the tables that a table overlaps are named."""


class AuditKind(StrEnum):
    UNREACHABLE = "unreachable"
    """Orphan files by the last scan of the table's location."""
    EXPIRABLE = "expirable"
    """Snapshots that the table's rule expires."""
    SMALL = "small"
    """Data files below three quarters of the table's target size."""
    OVERSIZED = "oversized"
    """Data files above 1.8 times the table's target size."""
    UNREADABLE = "unreadable"
    """The table cannot be read completely."""
    OVERLAPPING = "overlapping"
    """Another table may have files where this one has some."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How many things are found, and how many bytes they are at least and at most; None if unknown."""

    count: int
    least: int | None = None
    most: int | None = None

    @classmethod
    def exact(cls, count: int, size: int | None) -> "Extent":
        return cls(count, size, size)

    def __add__(self, other: "Extent") -> "Extent":
        """Return the sum; what is unknown of one is unknown of both."""
        return Extent(self.count + other.count, _sum(self.least, other.least, or_one=True), _sum(self.most, other.most))


def _sum(first: int | None, second: int | None, *, or_one: bool = False) -> int | None:
    if first is None or second is None:
        return (first if second is None else second) if or_one else None
    return first + second


@dataclass(frozen=True, slots=True)
class OrphanScan:
    """The last scan for a table's orphan files: when it was listed, and what is left of the plan; `size` in bytes."""

    plan_id: str
    at: datetime
    files: int
    size: int | None


@dataclass(frozen=True, slots=True)
class AuditedTable:
    """A table with all that is known of it; `overlaps` are other tables, at most MOST_NAMED, None for all of them."""

    identifier: TableIdentifier
    health: TableHealth | None = None
    scan: OrphanScan | None = None
    problem: str | None = None
    overlaps: tuple[str, ...] | None = ()
    found: Mapping[AuditKind, Extent] = field(default_factory=dict)


def audited(
    healths: Iterable[TableHealth],
    entries: Iterable[TableEntry],
    located: Iterable[tuple[str, str]],
    scans: Mapping[str, OrphanScan],
) -> list[AuditedTable]:
    """Return the tables of a catalog; `located` are names and areas of other formats, `scans` the last by uuid."""
    by_name = {health.identifier: health for health in healths}
    known = {entry.identifier: entry for entry in entries if not entry.absent}
    named = [(str(entry.identifier), entry.areas) for entry in known.values()]
    overlaps = overlapping([*named, *((name, (area,)) for name, area in located)])
    tables = []
    for identifier in sorted({*by_name, *known}, key=str):
        health, entry = by_name.get(identifier), known.get(identifier)
        uuid = entry.table_uuid if entry is not None else "" if health is None else health.table_uuid
        problem = (entry.problem if entry is not None else None) or (health.problem if health is not None else None)
        scan, others = scans.get(uuid.lower()), overlaps.get(str(identifier), ())
        extents = _found(health, scan, problem, is_overlapping=others is None or bool(others))
        tables.append(AuditedTable(identifier, health, scan, problem, others, extents))
    return tables


def _found(
    health: TableHealth | None, scan: OrphanScan | None, problem: str | None, *, is_overlapping: bool
) -> dict[AuditKind, Extent]:
    size = None if health is None else health.bytes
    extents = {}
    if scan is not None and scan.files:
        extents[AuditKind.UNREACHABLE] = Extent.exact(scan.files, scan.size)
    if health is not None and health.expirable:
        extents[AuditKind.EXPIRABLE] = Extent(health.expirable, health.freed.lower, health.freed.upper)
    if health is not None and health.small_files:
        extents[AuditKind.SMALL] = Extent.exact(health.small_files, health.small_bytes)
    if health is not None and health.oversized_files:
        extents[AuditKind.OVERSIZED] = Extent.exact(health.oversized_files, health.oversized_bytes)
    if problem is not None:
        extents[AuditKind.UNREADABLE] = Extent.exact(1, size)
    if is_overlapping:
        extents[AuditKind.OVERLAPPING] = Extent.exact(1, size)
    return extents


def overlapping(tables: Sequence[tuple[str, Sequence[str]]]) -> dict[str, tuple[str, ...] | None]:
    """Return for each table others with areas at, above or below its own; None if it may have files everywhere."""
    owners: dict[str, list[str]] = {}
    overlaps: dict[str, tuple[str, ...] | None] = {}
    for name, areas in tables:
        for area in areas:
            if area == EVERYWHERE:
                overlaps[name] = None
            else:
                some = owners.setdefault(area, [])
                some += [name] if name not in some[-1:] else []
    near: dict[str, list[str]] = {}
    stack: list[str] = []
    for area in sorted(owners):
        while stack and not area.startswith(stack[-1]):
            stack.pop()
        near[area] = owners[area][: MOST_NAMED + 1]
        for above in stack:
            _add(near[above], owners[area])
            _add(near[area], owners[above])
        stack.append(area)
    for name, areas in tables:
        if name not in overlaps:
            others = dict.fromkeys(other for area in areas for other in near.get(area, ()) if other != name)
            if others:
                overlaps[name] = tuple(others)[:MOST_NAMED]
    return overlaps


def _add(some: list[str], more: Sequence[str]) -> None:
    for name in more[: MOST_NAMED + 1]:
        if len(some) > MOST_NAMED:
            return
        if name not in some:
            some.append(name)


def totals(tables: Iterable[AuditedTable]) -> dict[AuditKind, tuple[int, Extent]]:
    """Return for each kind of finding in how many tables it occurs, and its total."""
    sums: dict[AuditKind, tuple[int, Extent]] = {}
    for table in tables:
        for matter, extent in table.found.items():
            number, sum_ = sums.get(matter, (0, None))
            sums[matter] = (number + 1, extent if sum_ is None else sum_ + extent)
    return {matter: sums[matter] for matter in AuditKind if matter in sums}


_UNITS: Final[Mapping[AuditKind, str]] = {
    AuditKind.UNREACHABLE: "file",
    AuditKind.EXPIRABLE: "snapshot",
    AuditKind.SMALL: "data file",
    AuditKind.OVERSIZED: "data file",
    AuditKind.UNREADABLE: "table",
    AuditKind.OVERLAPPING: "table",
}
_SAVING: Final = (AuditKind.UNREACHABLE, AuditKind.EXPIRABLE)
"""The findings whose removal frees bytes."""
_COLUMNS: Final = (
    *("catalog", "namespace", "table", "finding", "count", "unit", "bytes_at_least", "bytes_at_most"),
    *("month_at_least", "month_at_most", "note"),
)
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit of a catalog: its tables, the time of the reference index, and unreadable plans."""

    catalog: str
    as_of: datetime | None
    tables: Sequence[AuditedTable]
    unread: Sequence[str]
    prices: StoragePrices

    def month(self, size: int | None) -> float | None:
        return None if size is None else size * self.prices.s3_gb_month / GIB

    def in_order(self) -> list[AuditedTable]:
        """Return the tables with findings, those where most bytes can be freed first."""

        def key(table: AuditedTable) -> tuple[int, int, str]:
            freed = sum(extent.most or extent.least or 0 for m, extent in table.found.items() if m in _SAVING)
            return -freed, -sum(extent.count for extent in table.found.values()), str(table.identifier)

        return sorted((table for table in self.tables if table.found), key=key)

    @property
    def never_scanned(self) -> int:
        """How many tables were never scanned, as far as plans are kept."""
        return sum(table.scan is None for table in self.tables)

    def document(self) -> dict[str, Any]:
        place = {"region": self.prices.region, "as_of": self.prices.as_of, "currency": self.prices.currency}
        return {
            "catalog": self.catalog,
            "references_as_of": None if self.as_of is None else isoformat(self.as_of),
            "prices": place,
            "tables": len(self.tables),
            "never_looked_for_orphans": self.never_scanned,
            "plans_unreadable": list(self.unread),
            "totals": {
                str(matter): {"tables": number, **self._extent(extent)}
                for matter, (number, extent) in totals(self.tables).items()
            },
            "findings": [self._table(table) for table in self.in_order()],
        }

    def _months(self, extent: Extent) -> tuple[float | None, ...]:
        months = (self.month(extent.least), self.month(extent.most))
        return tuple(None if cost is None else round(cost, 4) for cost in months)

    def _extent(self, extent: Extent) -> dict[str, Any]:
        least, most = self._months(extent)
        return {
            "count": extent.count,
            "bytes": {"at_least": extent.least, "at_most": extent.most},
            "month": {"at_least": least, "at_most": most},
        }

    def _table(self, table: AuditedTable) -> dict[str, Any]:
        scan = table.scan
        return {
            "namespace": list(table.identifier.namespace),
            "name": table.identifier.name,
            "bytes": None if table.health is None else table.health.bytes,
            "looked_for_orphans": None if scan is None else {"at": isoformat(scan.at), "plan": scan.plan_id},
            "problem": table.problem,
            "overlaps": None if table.overlaps is None else list(table.overlaps),
            **{str(matter): self._extent(extent) for matter, extent in table.found.items()},
        }

    def csv(self) -> str:
        """Return a line for each finding of each table, with a header."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for table in self.in_order():
            for matter, extent in table.found.items():
                row = (
                    *(self.catalog, ".".join(table.identifier.namespace), table.identifier.name, str(matter)),
                    *(extent.count, _UNITS[matter], extent.least, extent.most),
                    *self._months(extent),
                    _note(table, matter),
                )
                writer.writerow(["" if cell is None else _cell(cell) for cell in row])
        return out.getvalue()

    def screens(self, most: int) -> Iterator[RenderableType]:
        shown = self.in_order()
        if shown:
            yield self._summary()
            yield ""
        for table in shown[:most]:
            yield from self._table_lines(table)
        if len(shown) > most:
            yield f"{counted(len(shown) - most, 'more table')}; --limit, --json and --csv list them."
        yield from self._notes(found=bool(shown))

    def _summary(self) -> Rows:
        summary = Rows("finding", "tables", "count", "size", "a month", right=("tables", "count", "size", "a month"))
        for matter, (number, extent) in totals(self.tables).items():
            number_of = f"{number:,}", f"{extent.count:,}"
            summary.add(str(matter), *number_of, _between(extent, size_text), self._money(extent))
        return summary

    def _table_lines(self, table: AuditedTable) -> Iterator[RenderableType]:
        name = plain(".".join((*table.identifier.namespace, table.identifier.name)))
        yield name if table.health is None else f"{name}  {size_text(table.health.bytes)}"
        for matter, extent in table.found.items():
            words = [f"{matter}: {counted(extent.count, _UNITS[matter])}"] if matter not in _BY_NOTE else [str(matter)]
            if extent.most or extent.least:
                words.append(f"{_between(extent, size_text)}, {self._money(extent)} {self.prices.currency} a month")
            note = plain(_note(table, matter))
            yield WrappedText("; ".join([*words, *([note] if note else [])]), indent=2)

    def _notes(self, *, found: bool) -> Iterator[str]:
        text = f"{counted(len(self.tables), 'table')} of {plain(self.catalog)}{'' if found else ', nothing found'}; "
        known = f"reference index as of {_minute(self.as_of)}"
        text += "the reference index has no complete pass yet" if self.as_of is None else known
        yield f"{text}. Prices of {self.prices.region}, {self.prices.as_of}, {self.prices.currency}."
        if self.never_scanned:
            yield (
                f"Never scanned for orphan files: {counted(self.never_scanned, 'table')}. Run `delegation orphans scan "
                "TABLE`, which deletes nothing."
            )
        if self.unread:
            yield f"Not counted: the files of {counted(len(self.unread), 'plan')} that could not be read."

    def _money(self, extent: Extent) -> str:
        return _between(extent, lambda size: f"{self.month(size) or 0.0:,.2f}")


_BY_NOTE: Final = frozenset({AuditKind.UNREADABLE, AuditKind.OVERLAPPING})
"""Findings about a whole table, which are not counted in it."""


def _note(table: AuditedTable, matter: AuditKind) -> str:
    match matter:
        case AuditKind.UNREACHABLE if table.scan is not None:
            return f"from plan {table.scan.plan_id}, which listed the files at {_minute(table.scan.at)}"
        case AuditKind.UNREADABLE:
            return table.problem or ""
        case AuditKind.OVERLAPPING:
            if table.overlaps is None:
                return "may share files with any table, because its location is unknown"
            return f"may share files with {', '.join(table.overlaps)}"
    return ""


def _minute(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _between(extent: Extent, text: Callable[[int], str]) -> str:
    return "–" if extent.least is None else between_text(extent.least, extent.most, text)


def _cell(value: object) -> object:
    """Return a cell that no spreadsheet takes for a formula: whoever creates tables chooses names."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
