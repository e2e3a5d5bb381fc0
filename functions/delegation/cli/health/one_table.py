"""The health of one table at the terminal, with the runs of maintenance that ended."""

from datetime import datetime

from rich.console import Console

from delegation.cli.screens.layout import LabelledLines, Rows, Whole
from delegation.cli.screens.watching import plain, size_text
from delegation.timestamps import isoformat
from delegation.upkeep.health.model import TableHealth
from polaris_common.errors import counted


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
    protection = health.protection
    if protection is not None:
        lines.append(("Protected", f"{protection}: no policy expires its snapshots"))
    for key, aside in sorted(health.asides.items()):
        lines.append(("Set aside", f"{plain(key)}, next try {aside.next_try:%Y-%m-%d %H:%M}Z: {plain(aside.error)}"))
    # A table has one task of each kind.
    tasks = {one.task_type: one.task_id for one in reversed(health.past) if one.task_id}
    tasks |= {one.task_type: one.task_id for one in health.runs.values() if one.task_id}
    lines.extend((f"Task of {task_type}", task_id) for task_type, task_id in sorted(tasks.items()))
    console.print(LabelledLines(lines), crop=False)
    for plan in (one.waiting for one in health.runs.values() if one.waiting):
        console.print(Whole(f"A plan waits for approval: delegation orphans approve {plain(plan)}"), crop=False)
    under_way = [one for one in health.runs.values() if one.ended is None]
    if not under_way and not health.past:
        console.print("\nNo policy has had anything done to this table yet.", soft_wrap=True)
        return
    numbers = ("snapshots", "files", "bytes")
    table = Rows("began", "what", "outcome", *numbers, "policy", right=numbers)
    for run in under_way:
        table.add(_minute(run.began), run.task_type, "under way", "", "", "", plain(run.policy))
    for one in health.past:
        table.add(
            _minute(one.began),
            one.task_type,
            one.outcome,
            "–" if one.snapshots is None else f"{one.snapshots:,}",
            f"{one.files:,}",
            size_text(one.bytes),
            plain(one.policy),
        )
    console.print()
    console.print(table, crop=False)
