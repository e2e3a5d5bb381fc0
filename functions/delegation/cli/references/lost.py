"""`delegation references lost` and `dismiss`: former states of tables that are kept because refs of them were lost."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from delegation.cli.connection import Connection
from delegation.cli.errors import CommandError
from delegation.cli.options import JsonOption, StackOption, YesOption, at_a_terminal
from delegation.cli.output import open_output, print_json
from delegation.cli.references.options import IndexTableOption
from delegation.cli.references.screens import name_of
from delegation.cli.screens.layout import Whole
from delegation.cli.screens.watching import plain
from delegation.references.blocking.model import Subject
from delegation.references.lost import LostRefs, restore_statement
from delegation.timestamps import isoformat, utc_now
from polaris_common.errors import counted

CatalogArgument = Annotated[str, typer.Argument(metavar="CATALOG", show_default=False, help="The catalog's name.")]


def lost_command(
    ctx: typer.Context,
    catalog: CatalogArgument,
    *,
    index_table: IndexTableOption = None,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the branches and tags that expiries lost, how to restore each, and until when their files are kept."""
    open_output(ctx, as_json=as_json)
    found = kept_now(Connection.of(ctx, stack).reference_store(index_table).lost_refs(catalog), utc_now())
    if as_json:
        print_json({"catalog": catalog, "lost": [document_of(one) for one in found]})
    else:
        print_lost(catalog, found)


def dismiss_command(
    ctx: typer.Context,
    catalog: CatalogArgument,
    key: Annotated[
        str, typer.Argument(metavar="ID", show_default=False, help="As `delegation references lost` has it.")
    ],
    *,
    yes: YesOption = False,
    index_table: IndexTableOption = None,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep files no longer for lost branches and tags, because they are restored or nobody needs them."""
    open_output(ctx, as_json=as_json)
    store = Connection.of(ctx, stack).reference_store(index_table)
    lost = next((one for one in store.lost_refs(catalog) if one.key == key), None)
    if lost is None:
        raise CommandError(
            f"nothing is kept in {plain(catalog)} for lost refs with the id {plain(key)}",
            f"`delegation references lost {plain(catalog)}` lists what is kept, with ids.",
            code="NOTHING_LOST",
        )
    if not yes and at_a_terminal():
        what = f"{_refs(lost)} of {plain(_table(lost))}"
        text = f"The next expiry, and removals of orphan files, may delete what only {what} read. Continue?"
        typer.confirm(text, abort=True, err=True)
    store.remove_lost_refs(lost)
    if as_json:
        print_json({"dismissed": document_of(lost)})
    else:
        Console(highlight=False).print(f"Nothing is kept any more for {_refs(lost)} of {plain(_table(lost))}.")


def kept_now(found: Sequence[LostRefs], now: datetime) -> list[LostRefs]:
    """Return what is still kept, what ends first first."""
    return sorted((one for one in found if now < one.until), key=lambda one: (one.until, one.key))


def document_of(lost: LostRefs) -> dict[str, Any]:
    """Return lost refs as JSON has them."""
    return {
        "id": lost.key,
        "table": _table(lost),
        "table_uuid": lost.table_uuid,
        "refs": {name: str(snapshot_id) for name, snapshot_id in lost.refs.items()},
        "refs_count": lost.count,
        "metadata_file": lost.metadata_file,
        "copy": lost.copy,
        "task_id": lost.task_id,
        "lost_at": isoformat(lost.at),
        "kept_until": isoformat(lost.until),
        "restore": restore_statement(lost.identifier, lost.metadata_file),
    }


def print_lost(catalog: str, found: Sequence[LostRefs]) -> None:
    """Print what is kept, each with the statement that restores it and the command that dismisses it."""
    console = Console(highlight=False)
    if not found:
        console.print(f"No expiry lost a branch or tag in {plain(catalog)} whose files are kept.")
        return
    for one in found:
        console.print(Whole(Text(plain(_table(one)), style="bold")), crop=False)
        _line(
            console, f"{_refs(one)} lost {_day(one.at)} by task {one.task_id}; files are kept until {_day(one.until)}"
        )
        _line(console, f"restore, in Spark: {plain(restore_statement(one.identifier, one.metadata_file))}")
        _line(console, f"if that file is gone, put its copy back: {plain(one.copy)} of the plan bucket")
        _line(console, f"restored or not needed: {dismiss_words(one)}")


def dismiss_words(lost: LostRefs) -> str:
    """Return the command that dismisses lost refs."""
    return f"delegation references dismiss {plain(lost.identifier.catalog)} {lost.key}"


def summary_of(lost: LostRefs) -> str:
    """Return one sentence about lost refs, for a list of tables."""
    return (
        f"{plain(_table(lost))}: an expiry lost {_refs(lost)}; files are kept until {_day(lost.until)}: "
        f"`delegation references lost {plain(lost.identifier.catalog)}` states how to restore or dismiss them"
    )


def _refs(lost: LostRefs) -> str:
    shown = ", ".join(plain(name) for name in list(lost.refs)[:3])
    return f"{counted(lost.count, 'ref')} ({shown}{', …' if lost.count > min(len(lost.refs), 3) else ''})"


def _table(lost: LostRefs) -> str:
    return name_of(Subject.of(lost.identifier))


def _line(console: Console, text: str) -> None:
    console.print(Whole(Text(text), indent=2), crop=False)


def _day(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d}"
