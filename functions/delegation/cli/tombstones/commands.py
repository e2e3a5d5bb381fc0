"""`delegation tombstones …`: list, show, restore, purge and dismiss the tables that were dropped by the gateway."""

from collections.abc import Iterable
from typing import Annotated, Final

import typer

from delegation.cli.calls import Call, command
from delegation.cli.errors import CommandError
from delegation.cli.misuse import WordGroup
from delegation.cli.output import watch
from delegation.cli.tombstones.own import TIMEOUT_SECONDS, CallersTombstones
from delegation.cli.tombstones.screens import tombstone_list, tombstone_screen
from delegation.client.client import DelegationClient
from delegation.client.errors import Conflict, NotFound
from delegation.identifiers import split_name
from delegation.wire.tombstones import RestoredName, TombstoneRecord

app = typer.Typer(
    cls=WordGroup,
    no_args_is_help=True,
    help="List, show, restore, purge and dismiss the tables that were dropped through the gateway.",
)
_LARGEST_PAGE: Final = 100
_NOBODY: Final = "NO_TOMBSTONES"
TombstoneArgument = Annotated[
    str, typer.Argument(metavar="TOMBSTONE_ID", show_default=False, help="The tombstone's id, which the list has.")
]


MineOption = Annotated[
    bool,
    typer.Option("--mine", help="Only tables that you dropped yourself: with your credential in the catalog."),
]


def no_gateway() -> CommandError:
    """Return the error: the deployment has no gateway."""
    return CommandError(
        "this deployment has no gateway, so no table was dropped through it",
        "Switch the gateway on and deploy; a local stack has one after `delegation local up --gateway`.",
        code="NO_TOMBSTONES",
    )


def tombstone_stays(error: Conflict, next_step: str) -> CommandError:
    """Return the error: the tombstone's state, or another table of the name, does not allow the change."""
    return CommandError(error.message, next_step, code=error.error_code)


@command(app, "list")
def list_command(
    call: Call,
    *,
    only_open: Annotated[
        bool, typer.Option("--open", help="Only those that have not ended: DROPPED, RESTORED and CLEARED are left out.")
    ] = False,
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="TEXT", show_default=False, help="Only tables whose name contains the text."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="The largest number to list.")] = 50,
    mine: MineOption = False,
) -> None:
    """List tables that were dropped with their files, the newest first."""
    if mine:
        records = CallersTombstones(call.connection.catalog_through_gateway(TIMEOUT_SECONDS)).all()
    else:
        records = call.connection.operator_client().tombstones(page_size=_LARGEST_PAGE)
    found, more = _found(records, limit, only_open=only_open, table=table)
    if call.printed({"tombstones": [one.model_dump(mode="json", exclude_none=True) for one in found], "more": more}):
        return
    call.output.show(tombstone_list(found, call.output.width) if found else "No tombstones.")
    if more:
        call.output.say("There are more; --limit shows them.", dim=True)


@command(app, "show")
def show_command(call: Call, tombstone_id: TombstoneArgument) -> None:
    """Show a tombstone: where its table was and is, how far its purge is, and what can be done."""
    record = _shown(call.connection.operator_client(), tombstone_id)
    if not call.printed(record.model_dump(mode="json", exclude_none=True)):
        call.output.show(tombstone_screen(record))


@command(app, "restore")
def restore_command(
    call: Call,
    tombstone_id: TombstoneArgument,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="[NAMESPACE.]TABLE",
            show_default=False,
            help="Another name, if the former one is taken; alone it is in the former namespace.",
        ),
    ] = None,
    mine: MineOption = False,
) -> None:
    """Give a dropped table its name back, before the first attempt at its purge begins.

    If another table has the name by now, --to restores it to another one of
    the same catalog. With --mine you need no operator, but TABLE_CREATE on the
    namespace. A repeat finishes what was begun.
    """
    if mine:
        own = CallersTombstones(call.connection.catalog_through_gateway(TIMEOUT_SECONDS))
        record = own.find(tombstone_id)
        restored = own.restore(record, None if to is None else parse_name(to, record))
    else:
        restored = _restored(call.connection.operator_client(), tombstone_id, to)
    if not call.printed(restored.model_dump(mode="json", exclude_none=True)):
        name = ".".join(
            (
                restored.catalog,
                *(restored.restore_namespace or restored.namespace),
                restored.restore_name or restored.name,
            )
        )
        call.output.say(f"Restored: {name} can be loaded again.")


@command(app, "purge", "yes stack")
def purge_command(
    call: Call,
    tombstone_id: TombstoneArgument,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the purge until it has an outcome.")] = False,
) -> None:
    """Purge a dropped table now: end its grace period, or retry a purge that failed."""
    client = call.connection.operator_client()
    record = _shown(client, tombstone_id)
    call.confirm_deletion(f"of {record.table}")
    try:
        record = client.purge_tombstone(tombstone_id)
    except Conflict as error:
        advice = f"`delegation tombstones show {tombstone_id}` has its state and what can be done."
        raise tombstone_stays(error, advice) from error
    if not call.printed(record.model_dump(mode="json", exclude_none=True)):
        call.output.show(tombstone_screen(record))
    if wait and record.task_id is not None:
        watch(call.output, client, record.task_id)


@command(app, "dismiss", "yes stack")
def dismiss_command(call: Call, tombstone_id: TombstoneArgument) -> None:
    """End a tombstone that failed and cannot be purged: drop its entry, keep its files.

    For one whose metadata file is gone, or whose files are to stay. The answer
    names the metadata.json from which `delegation purge` deletes what is left.
    """
    client = call.connection.operator_client()
    record = _shown(client, tombstone_id)
    call.confirm(f"The entry of {record.table} is dropped, and its files stay. Continue?")
    try:
        record = client.dismiss_tombstone(tombstone_id)
    except Conflict as error:
        advice = f"`delegation tombstones show {tombstone_id}` has its state and what can be done."
        raise tombstone_stays(error, advice) from error
    if not call.printed(record.model_dump(mode="json", exclude_none=True)):
        call.output.show(tombstone_screen(record))


def _restored(client: DelegationClient, tombstone_id: str, to: str | None) -> TombstoneRecord:
    record = _shown(client, tombstone_id)
    try:
        return client.restore_tombstone(tombstone_id, to=None if to is None else parse_name(to, record))
    except Conflict as error:
        raise tombstone_stays(error, _after_refusal(error, record)) from error


def parse_name(text: str, record: TombstoneRecord) -> RestoredName:
    """Parse `namespace.level.table`, or `table` for the former namespace; raises BadParameter."""
    parts = split_name(text)
    if not parts:
        raise typer.BadParameter(f"{text!r} is not [NAMESPACE.]TABLE", param_hint="--to")
    return RestoredName(namespace=tuple(parts[:-1]) or record.namespace, name=parts[-1])


def _found(
    records: Iterable[TombstoneRecord], limit: int, *, only_open: bool, table: str | None
) -> tuple[list[TombstoneRecord], bool]:
    """Return up to `limit` of the wanted tombstones, and whether there are others."""
    found: list[TombstoneRecord] = []
    try:
        for record in records:
            if (only_open and record.is_ended) or (table is not None and table not in record.table):
                continue
            if len(found) == limit:
                return found, True
            found.append(record)
    except NotFound as error:
        raise no_gateway() from error
    return found, False


def _shown(client: DelegationClient, tombstone_id: str) -> TombstoneRecord:
    try:
        return client.tombstone(tombstone_id)
    except NotFound as error:
        raise (
            no_gateway()
            if error.error_code == _NOBODY
            else CommandError(
                f"there is no tombstone {tombstone_id}",
                "Check the id. `delegation tombstones list` shows those that there are.",
                code="TOMBSTONE_NOT_FOUND",
            )
        ) from error


def _after_refusal(error: Conflict, record: TombstoneRecord) -> str:
    if error.error_code == "NAME_TAKEN":
        other = f"delegation tombstones restore {record.tombstone_id} --to {record.name}_restored"
        return f"Restore it to another name: `{other}`."
    return f"`delegation tombstones show {record.tombstone_id}` has its state and what can be done."
