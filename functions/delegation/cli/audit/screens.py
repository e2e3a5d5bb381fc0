"""What people and programs see of an audit: a summary, the tables where most is to be gained, JSON, and CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console

from delegation.cli.audit.model import AuditedTable, Extent, Matter, totals
from delegation.cli.health.documents import GIB, StoragePrices
from delegation.cli.screens.layout import Rows, Whole
from delegation.cli.screens.watching import plain, size_text
from delegation.timestamps import isoformat
from polaris_common.errors import counted

_UNITS: Final[Mapping[Matter, str]] = {
    Matter.UNREACHABLE: "file",
    Matter.EXPIRABLE: "snapshot",
    Matter.SMALL: "data file",
    Matter.OVERSIZED: "data file",
    Matter.UNREADABLE: "table",
    Matter.OVERLAPPING: "table",
}
_SAVING: Final = (Matter.UNREACHABLE, Matter.EXPIRABLE)
"""What frees bytes if it is removed."""
_COLUMNS: Final = (
    *("catalog", "namespace", "table", "finding", "count", "unit", "bytes_at_least", "bytes_at_most"),
    *("month_at_least", "month_at_most", "note"),
)
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit of a catalog: its tables, as of when the reference index is, and plans that cannot be read."""

    catalog: str
    as_of: datetime | None
    tables: Sequence[AuditedTable]
    unread: Sequence[str]
    prices: StoragePrices

    def month(self, size: int | None) -> float | None:
        """Return what bytes cost a month."""
        return None if size is None else size * self.prices.s3_gb_month / GIB

    def in_order(self) -> list[AuditedTable]:
        """Return the tables with findings, those where most bytes can be freed first."""

        def key(one: AuditedTable) -> tuple[int, int, str]:
            freed = sum(extent.most or extent.least or 0 for m, extent in one.found.items() if m in _SAVING)
            return -freed, -sum(extent.count for extent in one.found.values()), str(one.identifier)

        return sorted((one for one in self.tables if one.found), key=key)

    @property
    def never_looked(self) -> int:
        """How many tables no removal ever listed, as far as plans are kept."""
        return sum(one.look is None for one in self.tables)

    def document(self) -> dict[str, Any]:
        """Return the audit as JSON has it."""
        place = {"region": self.prices.region, "as_of": self.prices.as_of, "currency": self.prices.currency}
        return {
            "catalog": self.catalog,
            "references_as_of": None if self.as_of is None else isoformat(self.as_of),
            "prices": place,
            "tables": len(self.tables),
            "never_looked_for_orphans": self.never_looked,
            "plans_unreadable": list(self.unread),
            "totals": {
                str(matter): {"tables": number, **self._extent(extent)}
                for matter, (number, extent) in totals(self.tables).items()
            },
            "findings": [self._table(one) for one in self.in_order()],
        }

    def _extent(self, extent: Extent) -> dict[str, Any]:
        least, most = self.month(extent.least), self.month(extent.most)
        return {
            "count": extent.count,
            "bytes": {"at_least": extent.least, "at_most": extent.most},
            "month": {
                "at_least": None if least is None else round(least, 4),
                "at_most": None if most is None else round(most, 4),
            },
        }

    def _table(self, one: AuditedTable) -> dict[str, Any]:
        look = one.look
        return {
            "namespace": list(one.identifier.namespace),
            "name": one.identifier.name,
            "bytes": None if one.health is None else one.health.bytes,
            "looked_for_orphans": None if look is None else {"at": isoformat(look.at), "plan": look.plan_id},
            "problem": one.problem,
            "overlaps": None if one.overlaps is None else list(one.overlaps),
            **{str(matter): self._extent(extent) for matter, extent in one.found.items()},
        }

    def csv(self) -> str:
        """Return a line for each finding of each table, with a header."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for one in self.in_order():
            for matter, extent in one.found.items():
                least, most = self.month(extent.least), self.month(extent.most)
                row = (
                    *(self.catalog, ".".join(one.identifier.namespace), one.identifier.name, str(matter)),
                    *(extent.count, _UNITS[matter], extent.least, extent.most),
                    *("" if each is None else round(each, 4) for each in (least, most)),
                    _note(one, matter),
                )
                writer.writerow(["" if cell is None else _cell(cell) for cell in row])
        return out.getvalue()

    def show(self, console: Console, most: int) -> None:
        """Print the summary and the first tables."""
        summary = Rows("finding", "tables", "count", "size", "a month", right=("tables", "count", "size", "a month"))
        for matter, (number, extent) in totals(self.tables).items():
            number_of = f"{number:,}", f"{extent.count:,}"
            summary.add(str(matter), *number_of, _between(extent, size_text), self._money(extent))
        shown = self.in_order()
        if shown:
            console.print(summary, crop=False)
            console.print()
        for one in shown[:most]:
            self._show_table(console, one)
        if len(shown) > most:
            console.print(f"{len(shown) - most:,} more; --limit, --json and --csv list them.")
        self._show_notes(console, found=bool(shown))

    def _show_table(self, console: Console, one: AuditedTable) -> None:
        name = plain(".".join((*one.identifier.namespace, one.identifier.name)))
        console.print(Whole(name if one.health is None else f"{name}  {size_text(one.health.bytes)}"), crop=False)
        for matter, extent in one.found.items():
            words = [f"{matter}: {counted(extent.count, _UNITS[matter])}"] if matter not in _BY_NOTE else [str(matter)]
            if extent.most or extent.least:
                words.append(f"{_between(extent, size_text)}, {self._money(extent)} {self.prices.currency} a month")
            note = plain(_note(one, matter))
            console.print(Whole("; ".join([*words, *([note] if note else [])]), indent=2), crop=False)

    def _show_notes(self, console: Console, *, found: bool) -> None:
        text = f"{counted(len(self.tables), 'table')} of {plain(self.catalog)}"
        text += ", nothing found" if not found else ""
        known = self.as_of is not None
        text += (
            f"; references as of {_minute(self.as_of)}" if known else "; the reference index has no complete pass yet"
        )
        notes = [f"{text}. Prices of {self.prices.region}, {self.prices.as_of}, {self.prices.currency}."]
        if self.never_looked:
            notes.append(
                f"In {counted(self.never_looked, 'table')} nobody has looked for orphan files: "
                "`delegation orphans scan TABLE` does, and deletes nothing."
            )
        if self.unread:
            notes.append(f"{counted(len(self.unread), 'plan')} could not be read, so its files are not counted.")
        for note in notes:
            console.print(Whole(note), crop=False)

    def _money(self, extent: Extent) -> str:
        return _between(extent, lambda size: f"{self.month(size) or 0.0:,.2f}")


_BY_NOTE: Final = frozenset({Matter.UNREADABLE, Matter.OVERLAPPING})
"""Findings of the whole table, which are not counted in it."""


def _note(one: AuditedTable, matter: Matter) -> str:
    match matter:
        case Matter.UNREACHABLE if one.look is not None:
            return f"by the plan {one.look.plan_id}, listed {_minute(one.look.at)}"
        case Matter.UNREADABLE:
            return one.problem or ""
        case Matter.OVERLAPPING:
            return "files may be anywhere" if one.overlaps is None else f"with {', '.join(one.overlaps)}"
    return ""


def _minute(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _between(extent: Extent, text: Any) -> str:
    if extent.least is None:
        return "–"
    if extent.most is None:
        return f"{text(extent.least)} or more"
    least, most = str(text(extent.least)), str(text(extent.most))
    return most if least == most else f"{least}–{most}"


def _cell(value: object) -> object:
    """Return a cell that no spreadsheet takes for a formula: names are chosen by those who make tables."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
