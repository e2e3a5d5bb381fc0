"""The demo's results: their checks, demo.json, and the tables on the terminal."""

import json
from collections.abc import Sequence
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
    """Return a line if a task did not go straight to its success, but for waits for a pass over the catalog: those are
    no failure."""
    waits = {
        number
        for number, view in enumerate(history)
        if view.status == "RETRY_SCHEDULED" and view.error_code == ReferencesNotKnown.code
    }
    skipped = {version for number in waits for version in (number - 1, number)}
    statuses = tuple(view.status for number, view in enumerate(history) if number not in skipped)
    if statuses == LIFE:
        return []
    return [f"{name}: went through {' → '.join(statuses)} instead of {' → '.join(LIFE)}"]


@dataclass(frozen=True, slots=True)
class Purged:
    """One purged table; `expected_engine` follows from its size, `seconds` is the time from request to drop."""

    name: str
    expected_engine: str
    files_before: int
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
            "files_before": self.files_before,
            "files_deleted": self.last.files_deleted,
            "objects_left": self.objects_left,
            "seconds": round(self.seconds, 1),
            "versions": [{"version": view.version, "status": view.status} for view in self.history],
        }

    def problems(self) -> list[str]:
        """Return a line for every result that differs from what is expected."""
        problems = problems_of_life(self.name, self.history)
        if self.last.engine != self.expected_engine:
            problems.append(
                f"{self.name}: was purged by the {self.last.engine} engine instead of {self.expected_engine}"
            )
        if self.files_before == 0:
            problems.append(f"{self.name}: had no objects to begin with")
        if self.objects_left:
            problems.append(f"{self.name}: {self.objects_left} objects are left")
        if self.last.files_deleted != self.files_before:
            problems.append(f"{self.name}: {self.last.files_deleted} files reported deleted of {self.files_before}")
        return problems


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
        problems = problems_of_life(self.name, self.history)
        if self.snapshots_left != SNAPSHOTS_LEFT or self.snapshots_before <= SNAPSHOTS_LEFT:
            problems.append(
                f"{self.name}: {self.snapshots_left} of {self.snapshots_before} are left instead of {SNAPSHOTS_LEFT}"
            )
        if self.last.files_deleted != self.lost or not self.lost:
            problems.append(
                f"{self.name}: reported {self.last.files_deleted} deleted files, but {self.lost} no longer exist"
            )
        if self.last.bytes_deleted != self.bytes_lost:
            problems.append(
                f"{self.name}: reported {self.last.bytes_deleted} deleted bytes, but {self.bytes_lost} no longer exist"
            )
        if (asked := policy_of(self.last)) != self.policy:
            problems.append(
                f"{self.name}: {asked or 'a request'} asked for its expiry instead of {self.policy or 'a request'}"
            )
        if self.added != 1:
            problems.append(f"{self.name}: the expiry wrote {self.added} objects instead of one metadata file")
        if not self.rows_same:
            problems.append(f"{self.name}: its rows, or those of its tag, have changed")
        return problems


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
        problems = [problem for table in self.tables for problem in table.problems()] + self.expired.problems()
        if not self.sibling_rows_same:
            problems.append(f"{self.sibling}: its rows have changed")
        if not self.sibling_objects_same:
            problems.append(f"{self.sibling}: its objects have changed")
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
        for purged in self.tables:
            left = Text(f"{purged.objects_left:,}", style="bold red" if purged.objects_left else "bold green")
            table.add_row(
                purged.name,
                f"{purged.files_before:,}",
                f"{purged.last.files_deleted:,}",
                left,
                purged.last.engine or "",
                duration_text(purged.seconds),
            )
        expired = self.expired
        table.add_row(
            expired.name,
            f"{expired.objects_before:,}",
            f"{expired.last.files_deleted:,}",
            f"{expired.objects_left:,}",
            expired.last.engine or "",
            duration_text(expired.seconds),
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
