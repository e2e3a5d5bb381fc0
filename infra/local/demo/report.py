"""The demo's results: their checks, demo.json, and the tables on the terminal."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from delegation.cli.screens import duration_text
from delegation.references.errors import ReferencesNotKnown
from delegation.wire.tasks import TaskRecord
from infra.local.demo.tables import policy_of

LIFE: Final = ("SUBMITTED", "ACQUIRING_RESOURCES", "RUNNING", "SUCCESS")
"""The statuses of a task without a failure."""
SNAPSHOTS_LEFT: Final = 2
"""Snapshots of the expired table afterwards: the newest one, and the one that a tag names."""


def problems_of_life(name: str, history: Sequence[TaskRecord]) -> list[str]:
    """Return a line if an attempt of a task failed.

    A wait for a pass over the catalog is no failure. Nor is an attempt that was handed over: on a slow machine it may
    reach the function's time-out.
    """
    waits = {
        number
        for number, view in enumerate(history)
        if view.status == "RETRY_SCHEDULED" and view.error_code == ReferencesNotKnown.code
    }
    skipped = {version for number in waits for version in (number - 1, number)}
    statuses = tuple(view.status for number, view in enumerate(history) if number not in skipped)
    leased = max((number for number, status in enumerate(statuses) if status == LIFE[1]), default=0)
    if set(statuses[:leased]) <= set(LIFE[:3]) and (*statuses[:1], *statuses[leased:]) == LIFE:
        return []
    return [f"{name}: went through {' → '.join(statuses)} instead of {' → '.join(LIFE)}"]


def failed(name: str, checks: Mapping[str, bool]) -> list[str]:
    """Return a line for each check of a table that does not hold."""
    return [f"{name}: {problem}" for problem, holds in checks.items() if not holds]


@dataclass(frozen=True, slots=True)
class Purged:
    """One purged table; `expected_engine` follows from its size, `seconds` is the time from request to drop."""

    name: str
    expected_engine: str
    objects_before: int
    objects_left: int
    seconds: float
    history: Sequence[TaskRecord]

    @property
    def last(self) -> TaskRecord:
        return self.history[-1]

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "engine": self.last.engine,
            "task_id": self.last.task_id,
            "status": self.last.status,
            "files_before": self.objects_before,
            "files_deleted": self.last.files_deleted,
            "objects_left": self.objects_left,
            "seconds": round(self.seconds, 1),
            "versions": [{"version": view.version, "status": view.status} for view in self.history],
        }

    def problems(self) -> list[str]:
        """Return a line for every result that differs from what is expected."""
        last, before = self.last, self.objects_before
        checks = {
            f"was purged by the {last.engine} engine instead of {self.expected_engine}": (
                last.engine == self.expected_engine
            ),
            "had no objects to begin with": before > 0,
            f"{self.objects_left} objects are left": not self.objects_left,
            f"{last.files_deleted} files reported deleted of {before}": last.files_deleted == before,
        }
        return problems_of_life(self.name, self.history) + failed(self.name, checks)


@dataclass(frozen=True, slots=True)
class ExpiredTable:
    """A table whose snapshots were expired, by a policy or by request (None).

    `lost` and `added` count objects, `bytes_lost` are those of the lost ones; `rows_same` is of `main` and the tag.
    """

    name: str
    policy: str | None
    snapshots_before: int
    snapshots_left: int
    objects_before: int
    lost: int
    bytes_lost: int
    added: int
    rows_same: bool
    seconds: float
    history: Sequence[TaskRecord]

    @property
    def last(self) -> TaskRecord:
        return self.history[-1]

    @property
    def objects_left(self) -> int:
        return self.objects_before - self.lost + self.added

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "task_id": self.last.task_id,
            "status": self.last.status,
            "policy": self.policy,
            "snapshots_before": self.snapshots_before,
            "snapshots_left": self.snapshots_left,
            "objects_before": self.objects_before,
            "files_deleted": self.last.files_deleted,
            "bytes_freed": self.bytes_lost,
            "objects_left": self.objects_left,
            "rows_same": self.rows_same,
            "seconds": round(self.seconds, 1),
        }

    def problems(self) -> list[str]:
        """Return a line for every unexpected result; the newest snapshot and the tagged one stay."""
        last, asked = self.last, policy_of(self.last)
        checks = {
            f"{self.snapshots_left} of {self.snapshots_before} are left instead of {SNAPSHOTS_LEFT}": (
                self.snapshots_left == SNAPSHOTS_LEFT < self.snapshots_before
            ),
            f"reported {last.files_deleted} deleted files, but {self.lost} no longer exist": (
                0 < self.lost == last.files_deleted
            ),
            f"reported {last.bytes_deleted} deleted bytes, but {self.bytes_lost} no longer exist": (
                last.bytes_deleted == self.bytes_lost
            ),
            f"{asked or 'a request'} asked for its expiry instead of {self.policy or 'a request'}": (
                asked == self.policy
            ),
            f"the expiry wrote {self.added} objects instead of one metadata file": self.added == 1,
            "its rows, or those of its tag, have changed": self.rows_same,
        }
        return problems_of_life(self.name, self.history) + failed(self.name, checks)


@dataclass(frozen=True, slots=True)
class Report:
    """All results; `catalog` lists the remaining tables, `seconds` is the duration of the demo."""

    tables: Sequence[Purged]
    expired: ExpiredTable
    sibling: str
    sibling_rows_same: bool
    sibling_objects_same: bool
    catalog: Sequence[str]
    seconds: float

    @property
    def ended(self) -> "list[Purged | ExpiredTable]":
        return [*self.tables, self.expired]

    @property
    def sibling_intact(self) -> bool:
        return self.sibling_rows_same and self.sibling_objects_same

    def document(self) -> dict[str, Any]:
        return {
            "tables": [table.document() for table in self.tables],
            "expired": self.expired.document(),
            "sibling_intact": self.sibling_intact,
            "seconds": round(self.seconds, 1),
        }

    def problems(self) -> list[str]:
        """Return a line for every unexpected result; the demo has succeeded if there is none."""
        problems = [problem for table in self.ended for problem in table.problems()]
        same = {"its rows have changed": self.sibling_rows_same, "its objects have changed": self.sibling_objects_same}
        problems += failed(self.sibling, same)
        stay = sorted((self.sibling, self.expired.name))
        if list(self.catalog) != stay:
            problems.append(f"the catalog lists {', '.join(self.catalog) or 'nothing'} instead of {' and '.join(stay)}")
        return problems

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.document(), indent=2) + "\n", encoding="utf-8")

    def objects_table(self, sibling_objects: int) -> Table:
        table = Table(title="The bucket, listed object by object", title_justify="left", title_style="bold", box=None)
        table.add_column("table")
        for column in ("objects before", "deleted", "left"):
            table.add_column(column, justify="right")
        for column in ("engine", "took"):
            table.add_column(column)
        for ended in self.ended:
            style = "" if ended is self.expired else "bold red" if ended.objects_left else "bold green"
            table.add_row(
                ended.name,
                f"{ended.objects_before:,}",
                f"{ended.last.files_deleted:,}",
                Text(f"{ended.objects_left:,}", style=style),
                ended.last.engine or "",
                duration_text(ended.seconds),
            )
        verdict = Text("untouched", style="green") if self.sibling_intact else Text("CHANGED", style="bold red")
        table.add_row(self.sibling, f"{sibling_objects:,}", "0", f"{sibling_objects:,}", verdict, "", style="dim")
        return table

    def rows_line(self) -> Text:
        expired = self.expired
        same = Text("the same", style="green") if expired.rows_same else Text("NOT THE SAME", style="bold red")
        counts = f": {expired.snapshots_left} of {expired.snapshots_before} snapshots stay; rows and tag are "
        return Text.assemble((expired.name, "bold"), counts, same, " as before.")

    def catalog_line(self) -> Text:
        names = [Text(name, style="bold") for name in self.catalog] or [Text("nothing")]
        return Text.assemble("The catalog now lists ", Text(", ").join(names), ".")
