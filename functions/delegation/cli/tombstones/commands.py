"""`delegation tombstones …`, and the caller's own tombstones, which the gateway lists and restores."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from delegation.cli.calls import Call, argument, command, defaulted, group, optional, switch
from delegation.cli.errors import CommandError
from delegation.cli.output import watch
from delegation.cli.screens import LabelledLines, Rows, WrappedText, local_text, plain, unbroken
from delegation.client.client import DelegationClient
from delegation.client.errors import Conflict, NotFound
from delegation.identifiers import split_name
from delegation.polaris.answers import NoSuchTable, PolarisError
from delegation.polaris.client import PolarisClient
from delegation.wire.operators import RestoredName, RestoreRequest, TombstoneList, TombstoneRecord
from polaris_common.errors import counted


def not_yours(tombstone_id: str) -> CommandError:
    return CommandError(
        f"none of your drops has the tombstone {tombstone_id}",
        "Check the id. `delegation tombstones list --mine` lists your drops. An operator can restore drops of other "
        "callers.",
        code="TOMBSTONE_NOT_FOUND",
    )


@dataclass(frozen=True, slots=True)
class CallersTombstones:
    """The tables dropped by the principal of `client`, which sends its requests through the gateway."""

    client: PolarisClient

    def all(self) -> Iterator[TombstoneRecord]:
        """Yield them, newest first; pages are fetched on demand. Raises PolarisError."""
        token: str | None = None
        while True:
            page = TombstoneList.model_validate(self.client.own_tombstones(token))
            yield from page.tombstones
            token = page.next_page_token
            if token is None:
                return

    def find(self, tombstone_id: str) -> TombstoneRecord:
        """Return one of them. Raises CommandError (TOMBSTONE_NOT_FOUND) and PolarisError."""
        record = next((record for record in self.all() if record.tombstone_id == tombstone_id), None)
        if record is None:
            raise not_yours(tombstone_id)
        return record

    def restore(self, record: TombstoneRecord, to: RestoredName | None) -> TombstoneRecord:
        """Give one its name back. Raises CommandError (TOMBSTONE_NOT_FOUND, RESTORE_REFUSED)."""
        document = RestoreRequest(to=to).model_dump(mode="json", exclude_none=True)
        try:
            return TombstoneRecord.model_validate(self.client.restore_own_tombstone(record.tombstone_id, document))
        except NoSuchTable as error:
            raise not_yours(record.tombstone_id) from error
        except PolarisError as error:
            refusal = f"{record.table} was not restored: {error.answered or error}"
            raise CommandError(refusal, _after_refused_restore(record, error), code="RESTORE_REFUSED") from error


def _after_refused_restore(record: TombstoneRecord, error: PolarisError) -> str:
    if error.status == 409:
        other = f"delegation tombstones restore {record.tombstone_id} --mine --to {record.name}_restored"
        return f"Follow the message. If the name is taken: `{other}`."
    if error.status == 403:
        return "Ask for TABLE_CREATE on the namespace, or name another namespace with --to."
    return "Run the same command again to finish the restore."


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
    "FAILED": "its purge failed or was refused; restore, purge or dismiss it",
    "CLEARED": "it was never renamed, so nothing was dropped",
    "DISMISSED": "its entry is dropped, and its files stay",
}


def state_text(state: str) -> Text:
    """Return a state in its color; an unknown one stays plain."""
    return Text(state, _STYLES.get(state, ""))


def tombstone_list(records: Sequence[TombstoneRecord], width: int) -> RenderableType:
    """Return tombstones, two lines each, or one if the terminal is wide."""
    wide = width >= _WIDE
    names = ("table", "tombstone", "state", "dropped", "note") if wide else ("table, tombstone", "state, dropped")
    table = Rows(*names)
    for record in records:
        title, state, at = (
            Text(plain(record.table)),
            state_text(record.state),
            Text(local_text(record.created_at), "dim"),
        )
        note = Text(_note(record), "yellow" if record.problem or record.trouble else "dim")
        if wide:
            table.add(title, Text(record.tombstone_id, "dim"), state, at, note)
        else:
            below = Text("\n").join([title, Text(record.tombstone_id, "dim"), *([note] if note.plain else [])])
            table.add(below, Text("\n").join([state, at]))
    return table


def tombstone_screen(record: TombstoneRecord) -> RenderableType:
    lines = {
        "dropped by": f"{plain(record.caller.removeprefix('principal:'))}, {local_text(record.created_at)}",
        "is now": plain(record.present) if not record.is_ended else None,
        "restored as": _restored_as(record),
        "uuid": record.table_uuid,
        "metadata": record.metadata_location and plain(record.metadata_location),
        "purge starts": None
        if record.grace_until is None or record.state != "RENAMED"
        else local_text(record.grace_until),
        "task": record.task_id,
        "problem": record.problem and plain(record.problem),
        "trouble": _trouble(record),
    }
    grid = LabelledLines(
        (name, Text(value, "yellow" if name in {"problem", "trouble"} else ""))
        for name, value in lines.items()
        if value
    )
    head = Text.assemble("Tombstone ", (record.tombstone_id, "bold"), f" of {plain(record.table)}")
    state = Text.assemble(state_text(record.state), f": {_MEANINGS.get(record.state, 'see its task')}.")
    steps = [unbroken(Text(f"→ {step}", "dim")) for step in _steps(record)]
    return Group(WrappedText(head), state, grid, *steps)


def _steps(record: TombstoneRecord) -> list[str]:
    restore = f"delegation tombstones restore {record.tombstone_id}"
    purge = f"delegation tombstones purge {record.tombstone_id}"
    follow = [f"delegation tasks why {record.task_id}"] if record.task_id else []
    match record.state:
        case "RENAMED":
            return [restore, purge]
        case "FAILED":
            return [*follow, restore, purge, f"delegation tombstones dismiss {record.tombstone_id}"]
        case "PURGING" | "PURGED":
            return follow
        case "RESTORING":
            return [restore]
        case "PENDING" if record.trouble:
            return [restore]
        case _:
            return []


def _note(record: TombstoneRecord) -> str:
    if record.trouble:
        return _trouble(record) or ""
    if record.problem:
        return plain(record.problem)
    if record.state == "RENAMED" and record.grace_until is not None and record.grace_until > record.created_at:
        return f"can be restored until {local_text(record.grace_until)}"
    restored = _restored_as(record)
    return f"restored as {restored}" if restored else ""


def _trouble(record: TombstoneRecord) -> str | None:
    if record.trouble is None:
        return None
    return (
        f"failed {counted(record.attempts, 'time')}: {plain(record.trouble)}"
        if record.attempts
        else plain(record.trouble)
    )


def _restored_as(record: TombstoneRecord) -> str | None:
    if record.state != "RESTORED":
        return None
    return plain(_name_of(record, record.restore_namespace, record.restore_name))


def _name_of(record: TombstoneRecord, namespace: Sequence[str] | None, name: str | None) -> str:
    return ".".join((record.catalog, *(namespace or record.namespace), name or record.name))


app = group("tombstones")
_LARGEST_PAGE: Final = 100
_NOBODY: Final = "NO_TOMBSTONES"
TombstoneArgument = Annotated[str, argument("TOMBSTONE_ID", "The tombstone's id.")]


MineOption = Annotated[bool, typer.Option("--mine", help="Only your own drops; uses your credential in the catalog.")]


def no_gateway() -> CommandError:
    return CommandError(
        "this deployment has no gateway, so no table was dropped through it",
        "Switch the gateway on and deploy. A local stack has a gateway after `delegation local up --gateway`.",
        code="NO_TOMBSTONES",
    )


@command(app, "list")
def list_command(
    call: Call,
    *,
    only_open: bool = switch("--open", "Leave out DROPPED, RESTORED, CLEARED and DISMISSED."),
    table: str | None = optional("--table", "Only tables whose name contains the text.", "TEXT"),
    limit: int = defaulted("--limit", "The number of entries to list.", 50, min=1, max=10_000),
    mine: MineOption = False,
) -> None:
    """List tables that were dropped with their files, the newest first."""
    if mine:
        records = CallersTombstones(call.connection.catalog_through_gateway()).all()
    else:
        records = call.connection.operator_client().tombstones(page_size=_LARGEST_PAGE)
    shown, more = _found(records, limit, only_open=only_open, table=table)
    document = {
        "tombstones": [record.model_dump(mode="json", exclude_none=True) for record in shown],
        "more": more,
    }
    call.output.result(document, lambda: tombstone_list(shown, call.output.width) if shown else "No tombstones.")
    if more:
        call.output.say("There are more tombstones; --limit shows them.", dim=True)


@command(app, "show")
def show_command(call: Call, tombstone_id: TombstoneArgument) -> None:
    """Show a tombstone: where its table was and is, its purge, and what you can do."""
    _print(call, _shown(call.connection.operator_client(), tombstone_id))


@command(app, "restore")
def restore_command(
    call: Call,
    tombstone_id: TombstoneArgument,
    *,
    to: str | None = optional(
        "--to", "Another name in the same catalog, if the former name is taken.", "[NAMESPACE.]TABLE"
    ),
    mine: MineOption = False,
) -> None:
    """Restore a dropped table to its name, before its purge begins.

    Safe to repeat. With --mine you need TABLE_CREATE on the namespace, not the operator's identity.
    """
    if mine:
        own = CallersTombstones(call.connection.catalog_through_gateway())
        record = own.find(tombstone_id)
        restored = own.restore(record, None if to is None else parse_name(to, record))
    else:
        restored = _restored(call.connection.operator_client(), tombstone_id, to)
    name = _name_of(restored, restored.restore_namespace, restored.restore_name)
    call.output.result(restored.model_dump(mode="json", exclude_none=True), f"Restored: {name} can be loaded again.")


@command(app, "purge", "yes stack")
def purge_command(
    call: Call,
    tombstone_id: TombstoneArgument,
    *,
    wait: bool = switch("--wait", "Follow the purge until it has an outcome."),
) -> None:
    """Purge a dropped table now: end its grace period, or retry a purge that failed."""
    client = call.connection.operator_client()
    record = _shown(client, tombstone_id)
    call.confirm_deletion(f"of {record.table}")
    record = _changed(client.purge_tombstone, tombstone_id)
    _print(call, record)
    if wait and record.task_id is not None:
        watch(call.output, client, record.task_id)


@command(app, "dismiss", "yes stack")
def dismiss_command(call: Call, tombstone_id: TombstoneArgument) -> None:
    """Close a failed tombstone that cannot be purged: drop its entry, keep its files.

    The answer names the metadata.json for a later `delegation purge`.
    """
    client = call.connection.operator_client()
    record = _shown(client, tombstone_id)
    call.confirm(f"This drops the catalog entry of {record.table}. The files stay. Continue?")
    _print(call, _changed(client.dismiss_tombstone, tombstone_id))


def _print(call: Call, record: TombstoneRecord) -> None:
    call.output.result(record.model_dump(mode="json", exclude_none=True), lambda: tombstone_screen(record))


def _changed(change: Callable[[str], TombstoneRecord], tombstone_id: str) -> TombstoneRecord:
    try:
        return change(tombstone_id)
    except Conflict as error:
        raise CommandError(error.message, _inspection_advice(tombstone_id), code=error.error_code) from error


def _inspection_advice(tombstone_id: str) -> str:
    return f"`delegation tombstones show {tombstone_id}` shows its state and what you can do."


def _restored(client: DelegationClient, tombstone_id: str, to: str | None) -> TombstoneRecord:
    record = _shown(client, tombstone_id)
    try:
        return client.restore_tombstone(tombstone_id, to=None if to is None else parse_name(to, record))
    except Conflict as error:
        raise CommandError(error.message, _after_refusal(error, record), code=error.error_code) from error


def parse_name(text: str, record: TombstoneRecord) -> RestoredName:
    """Parse `namespace.level.table`, or `table` for the former namespace. Raises BadParameter."""
    parts = split_name(text)
    if not parts:
        raise typer.BadParameter(f"{text!r} is not [NAMESPACE.]TABLE", param_hint="--to")
    return RestoredName(namespace=tuple(parts[:-1]) or record.namespace, name=parts[-1])


def _found(
    records: Iterable[TombstoneRecord], limit: int, *, only_open: bool, table: str | None
) -> tuple[list[TombstoneRecord], bool]:
    """Return up to `limit` of the wanted tombstones, and whether there are more."""
    wanted: list[TombstoneRecord] = []
    try:
        for record in records:
            if (only_open and record.is_ended) or (table is not None and table not in record.table):
                continue
            if len(wanted) == limit:
                return wanted, True
            wanted.append(record)
    except NotFound as error:
        raise no_gateway() from error
    return wanted, False


def _shown(client: DelegationClient, tombstone_id: str) -> TombstoneRecord:
    try:
        return client.tombstone(tombstone_id)
    except NotFound as error:
        if error.error_code == _NOBODY:
            raise no_gateway() from error
        raise CommandError(
            f"there is no tombstone {tombstone_id}",
            "Check the id. `delegation tombstones list` lists all tombstones.",
            code="TOMBSTONE_NOT_FOUND",
        ) from error


def _after_refusal(error: Conflict, record: TombstoneRecord) -> str:
    if error.error_code == "NAME_TAKEN":
        other = f"delegation tombstones restore {record.tombstone_id} --to {record.name}_restored"
        return f"Restore it to another name: `{other}`."
    return _inspection_advice(record.tombstone_id)
