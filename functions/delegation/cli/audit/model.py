"""What an audit finds in each table of a catalog, joined from what the service stored. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from delegation.identifiers import TableIdentifier
from delegation.references.areas import EVERYWHERE
from delegation.references.model import TableEntry
from delegation.upkeep.health.model import TableHealth

MOST_NAMED: Final = 5
"""Tables that are named of those which a table overlaps."""


class Matter(StrEnum):
    """What an audit finds."""

    UNREACHABLE = "unreachable"
    """Orphan files by the last look at the table's location."""
    EXPIRABLE = "expirable"
    """Snapshots that the table's rule expires."""
    SMALL = "small"
    """Data files below three quarters of the table's target size."""
    OVERSIZED = "oversized"
    """Data files above 1.8 times the table's target size."""
    UNREADABLE = "unreadable"
    """The table cannot be read to its end."""
    OVERLAPPING = "overlapping"
    """Another table may have files where this one has some."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How many things are found, and how many bytes they are at least and at most; None where that is not known."""

    count: int
    least: int | None = None
    most: int | None = None

    @classmethod
    def exact(cls, count: int, size: int | None) -> "Extent":
        """Return an extent of as many bytes."""
        return cls(count, size, size)

    def __add__(self, other: "Extent") -> "Extent":
        """Return both together; what is not known of one is not known of both."""
        return Extent(self.count + other.count, _sum(self.least, other.least, or_one=True), _sum(self.most, other.most))


def _sum(one: int | None, other: int | None, *, or_one: bool = False) -> int | None:
    if one is None or other is None:
        return (one if other is None else other) if or_one else None
    return one + other


@dataclass(frozen=True, slots=True)
class OrphanLook:
    """The last look for a table's orphan files: when it was listed, and what of the plan is left; `size` in bytes."""

    plan_id: str
    at: datetime
    files: int
    size: int | None


@dataclass(frozen=True, slots=True)
class AuditedTable:
    """A table with all that is known of it; `overlaps` are other tables, at most MOST_NAMED, None for all of them."""

    identifier: TableIdentifier
    health: TableHealth | None = None
    look: OrphanLook | None = None
    problem: str | None = None
    overlaps: tuple[str, ...] | None = ()
    found: Mapping[Matter, Extent] = field(default_factory=dict)


def audited(
    healths: Iterable[TableHealth],
    entries: Iterable[TableEntry],
    located: Iterable[tuple[str, str]],
    looks: Mapping[str, OrphanLook],
) -> list[AuditedTable]:
    """Return the tables of a catalog, those of the reference index and those whose health is known.

    `located` are the names and areas of tables of other formats, `looks` the last ones by table uuid.
    """
    by_name = {one.identifier: one for one in healths}
    known = {one.identifier: one for one in entries if not one.absent}
    named = [(str(one.identifier), one.areas) for one in known.values()]
    overlaps = overlapping([*named, *((name, (area,)) for name, area in located)])
    tables = []
    for identifier in sorted({*by_name, *known}, key=str):
        health, entry = by_name.get(identifier), known.get(identifier)
        uuid = entry.table_uuid if entry is not None else "" if health is None else health.table_uuid
        problem = (entry.problem if entry is not None else None) or (health.problem if health is not None else None)
        look, others = looks.get(uuid.lower()), overlaps.get(str(identifier), ())
        found = _found(health, look, problem, is_overlapping=others is None or bool(others))
        tables.append(AuditedTable(identifier, health, look, problem, others, found))
    return tables


def _found(
    health: TableHealth | None, look: OrphanLook | None, problem: str | None, *, is_overlapping: bool
) -> dict[Matter, Extent]:
    size = None if health is None else health.bytes
    found = {}
    if look is not None and look.files:
        found[Matter.UNREACHABLE] = Extent.exact(look.files, look.size)
    if health is not None and health.expirable:
        found[Matter.EXPIRABLE] = Extent(health.expirable, health.freed.lower, health.freed.upper)
    if health is not None and health.small_files:
        found[Matter.SMALL] = Extent.exact(health.small_files, health.small_bytes)
    if health is not None and health.oversized_files:
        found[Matter.OVERSIZED] = Extent.exact(health.oversized_files, health.oversized_bytes)
    if problem is not None:
        found[Matter.UNREADABLE] = Extent.exact(1, size)
    if is_overlapping:
        found[Matter.OVERLAPPING] = Extent.exact(1, size)
    return found


def overlapping(tables: Sequence[tuple[str, Sequence[str]]]) -> dict[str, tuple[str, ...] | None]:
    """Return for each table that has an area at, above or below another one's some of the others' names.

    None for a table that may have files everywhere. The time grows with the number of areas and their depth, whatever
    overlaps.
    """
    owners: dict[str, list[str]] = {}
    found: dict[str, tuple[str, ...] | None] = {}
    for name, areas in tables:
        for area in areas:
            if area == EVERYWHERE:
                found[name] = None
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
        if name not in found:
            others = dict.fromkeys(one for area in areas for one in near.get(area, ()) if one != name)
            if others:
                found[name] = tuple(others)[:MOST_NAMED]
    return found


def _add(some: list[str], more: Sequence[str]) -> None:
    for one in more[: MOST_NAMED + 1]:
        if len(some) > MOST_NAMED:
            return
        if one not in some:
            some.append(one)


def totals(tables: Iterable[AuditedTable]) -> dict[Matter, tuple[int, Extent]]:
    """Return for each matter how many tables it is found in, and how much it is altogether."""
    found: dict[Matter, tuple[int, Extent]] = {}
    for table in tables:
        for matter, extent in table.found.items():
            number, sum_ = found.get(matter, (0, None))
            found[matter] = (number + 1, extent if sum_ is None else sum_ + extent)
    return {matter: found[matter] for matter in Matter if matter in found}
