"""What people see of tombstones: a list that fits 80 columns, and one tombstone with what can be done."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from delegation.cli.screens import LabelledLines, Rows, Whole, plain, unbroken
from delegation.wire.tombstones import TombstoneRecord

_WIDE: Final = 140
_STYLES: Final = {
    "PENDING": "yellow",
    "RENAMED": "cyan",
    "PURGING": "blue",
    "PURGED": "blue",
    "RESTORING": "magenta",
    "FAILED": "bold red",
    "DROPPED": "green",
    "RESTORED": "green",
    "CLEARED": "dim",
    "DISMISSED": "dim",
}
_MEANINGS: Final = {
    "PENDING": "its rename is not confirmed yet",
    "RENAMED": "it waits for its purge",
    "PURGING": "its files are being deleted",
    "PURGED": "its files are deleted, its entry is about to be dropped",
    "DROPPED": "its files are deleted and its entry is dropped",
    "RESTORING": "it is being renamed back",
    "RESTORED": "it has a name again",
    "FAILED": "its purge failed or was refused, and it waits for you",
    "CLEARED": "it was never renamed",
    "DISMISSED": "it has ended, and its files stay",
}


def state_text(state: str) -> Text:
    """Return a state in its color; one that a later release adds stays plain."""
    return Text(state, _STYLES.get(state, ""))


def tombstone_list(found: Sequence[TombstoneRecord], width: int) -> RenderableType:
    """Return tombstones, two lines each, or one where the terminal is wide."""
    wide = width >= _WIDE
    names = ("table", "tombstone", "state", "dropped", "note") if wide else ("table, tombstone", "state, dropped")
    table = Rows(*names)
    for one in found:
        title, state, at = Text(plain(one.table)), state_text(one.state), Text(_time(one.created_at), "dim")
        note = Text(_note(one), "yellow" if one.problem or one.trouble else "dim")
        if wide:
            table.add(title, Text(one.tombstone_id, "dim"), state, at, note)
        else:
            below = Text("\n").join([title, Text(one.tombstone_id, "dim"), *([note] if note.plain else [])])
            table.add(below, Text("\n").join([state, at]))
    return table


def tombstone_screen(one: TombstoneRecord) -> RenderableType:
    """Return one tombstone, and what can be done with it."""
    lines = {
        "dropped by": f"{plain(one.caller.removeprefix('principal:'))}, {_time(one.created_at)}",
        "is now": plain(one.present) if not one.is_ended else None,
        "restored as": _restored_as(one),
        "uuid": one.table_uuid,
        "metadata": one.metadata_location and plain(one.metadata_location),
        "purge starts": None if one.grace_until is None or one.state != "RENAMED" else _time(one.grace_until),
        "task": one.task_id,
        "problem": one.problem and plain(one.problem),
        "trouble": _trouble(one),
    }
    grid = LabelledLines(
        (name, Text(value, "yellow" if name in {"problem", "trouble"} else ""))
        for name, value in lines.items()
        if value
    )
    head = Text.assemble("Tombstone ", (one.tombstone_id, "bold"), f" of {plain(one.table)}")
    state = Text.assemble(state_text(one.state), f": {_MEANINGS.get(one.state, 'see its task')}.")
    steps = [unbroken(Text(f"→ {step}", "dim")) for step in _steps(one)]
    return Group(Whole(head), state, grid, *steps)


def _steps(one: TombstoneRecord) -> list[str]:
    """Return the commands that make sense in the tombstone's state."""
    restore = f"delegation tombstones restore {one.tombstone_id}"
    purge = f"delegation tombstones purge {one.tombstone_id}"
    follow = [f"delegation tasks why {one.task_id}"] if one.task_id else []
    match one.state:
        case "RENAMED":
            return [restore, purge]
        case "FAILED":
            return [*follow, restore, purge, f"delegation tombstones dismiss {one.tombstone_id}"]
        case "PURGING" | "PURGED":
            return follow
        case "RESTORING":
            return [restore]
        case "PENDING" if one.trouble:
            return [restore]
        case _:
            return []


def _note(one: TombstoneRecord) -> str:
    if one.trouble:
        return _trouble(one) or ""
    if one.problem:
        return plain(one.problem)
    if one.state == "RENAMED" and one.grace_until is not None and one.grace_until > one.created_at:
        return f"can be restored until {_time(one.grace_until)}"
    restored = _restored_as(one)
    return f"restored as {restored}" if restored else ""


def _trouble(one: TombstoneRecord) -> str | None:
    if one.trouble is None:
        return None
    return f"{one.attempts} looks failed: {plain(one.trouble)}" if one.attempts else plain(one.trouble)


def _restored_as(one: TombstoneRecord) -> str | None:
    if one.state != "RESTORED":
        return None
    return plain(".".join((one.catalog, *(one.restore_namespace or one.namespace), one.restore_name or one.name)))


def _time(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
