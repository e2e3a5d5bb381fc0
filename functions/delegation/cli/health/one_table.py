"""The health of one table, with the runs of maintenance that ended."""

from datetime import datetime
from typing import Any

from rich.console import Console

from delegation.cli.errors import CommandError
from delegation.cli.screens.layout import LabelledLines, Rows
from delegation.cli.screens.watching import plain, size_text
from delegation.errors import counted
from delegation.identifiers import TableIdentifier
from delegation.timestamps import isoformat
from delegation.upkeep.health.model import TableHealth
from delegation.upkeep.health.past import PastRun
from delegation.upkeep.health.store import HealthStore


def health_of(store: HealthStore, identifier: TableIdentifier) -> TableHealth:
    """Return what is stored of a table; raise CommandError if nothing is, and the store's errors."""
    found = store.health(identifier)
    if found is None:
        raise CommandError(
            f"nothing is known of the health of {identifier}",
            "Check the name; a table is read after the first pass of the reference index that sees it.",
            code="HEALTH_UNKNOWN",
        )
    return found


def history_document(health: TableHealth) -> dict[str, Any]:
    """Return the upkeep of one table as JSON has it: the runs that have not ended, and those that have."""
    return {
        "table": str(health.identifier),
        "as_of": isoformat(health.as_of),
        "under_way": [
            {"kind": one.kind, "task_id": one.task_id, "policy": one.policy, "began": isoformat(one.began)}
            for one in health.runs.values()
            if one.ended is None
        ],
        "past": [_past_document(one) for one in health.past],
    }


def _past_document(run: PastRun) -> dict[str, Any]:
    return {
        "kind": run.kind,
        "task_id": run.task_id or None,
        "policy": run.policy,
        "began": isoformat(run.began),
        "ended": isoformat(run.ended),
        "outcome": run.outcome,
        "snapshots_removed": run.snapshots,
        "files_deleted": run.files,
        "bytes_deleted": run.bytes,
    }


def _minute(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%MZ")


def print_health(health: TableHealth, costs: str) -> None:
    """Print one table's health, what its files cost, and the runs of maintenance, the newest first."""
    console = Console(highlight=False)
    expirable = "no rule" if health.expirable is None else f"{health.expirable:,} expirable"
    lines = [
        ("Table", plain(str(health.identifier))),
        ("As of", isoformat(health.as_of)),
        ("Files", f"{health.files:,}, {size_text(health.bytes)}; {health.small_files:,} small"),
        (
            "Deletes",
            f"{counted(health.delete_files, 'delete file')}, {counted(health.deletion_vectors, 'deletion vector')}",
        ),
        ("Snapshots", f"{health.snapshots:,}, {expirable}"),
        ("Costs", costs),
    ]
    if health.problem is not None:
        lines.append(("Problem", plain(health.problem)))
    # A table has one task of each kind.
    tasks = {one.kind: one.task_id for one in reversed(health.past) if one.task_id}
    tasks |= {one.kind: one.task_id for one in health.runs.values() if one.task_id}
    lines.extend((f"Task of {kind}", task_id) for kind, task_id in sorted(tasks.items()))
    console.print(LabelledLines(lines), crop=False)
    under_way = [one for one in health.runs.values() if one.ended is None]
    if not under_way and not health.past:
        console.print("\nNo policy has had anything done to this table yet.", soft_wrap=True)
        return
    numbers = ("snapshots", "files", "bytes")
    table = Rows("began", "what", "outcome", *numbers, "policy", right=numbers)
    for run in under_way:
        table.add(_minute(run.began), run.kind, "under way", "", "", "", plain(run.policy))
    for one in health.past:
        table.add(
            _minute(one.began),
            one.kind,
            one.outcome,
            "–" if one.snapshots is None else f"{one.snapshots:,}",
            f"{one.files:,}",
            size_text(one.bytes),
            plain(one.policy),
        )
    console.print()
    console.print(table, crop=False)
