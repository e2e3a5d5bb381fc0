"""`delegation persistence refs …`: list the references of the persistence tables, and reset one after a disaster."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console

from delegation.cli.connection import dynamodb_client
from delegation.cli.options import JsonOption, YesOption
from delegation.cli.output import open_output, print_json
from delegation.cli.screens.layout import Rows
from polaris_persistence.backends.base import Backend, Reference
from polaris_persistence.backends.dynamodb import Calls, DynamoDbBackend
from polaris_persistence.catalogs.process import PersistenceProcess
from polaris_persistence.catalogs.realms import space_of
from polaris_persistence.ids.nodes import SHORT_LIVED
from polaris_persistence.maintenance.recovery import RecentHead, recent_heads, reset

app = typer.Typer(
    no_args_is_help=True, help="Inspect the tables of the NoSQL persistence, and repair them after a disaster."
)
refs = typer.Typer(
    no_args_is_help=True,
    help="List the references (the pointers to the newest commits), or reset one to a recent head.",
)
app.add_typer(refs, name="refs")

ObjectsOption = Annotated[
    str, typer.Option("--objects-table", envvar="DELEGATION_OBJECTS_TABLE", help="The name of the objects table.")
]
ReferencesOption = Annotated[
    str,
    typer.Option(
        "--references-table", envvar="DELEGATION_PERSISTENCE_REFERENCES_TABLE", help="The name of the references table."
    ),
]
EndpointOption = Annotated[
    str | None,
    typer.Option("--endpoint", show_default=False, help="The URL of DynamoDB. Default: that of your AWS environment."),
]


@refs.command("list")
def list_command(
    ctx: typer.Context,
    *,
    realm: Annotated[
        str | None, typer.Option("--realm", show_default=False, help="Only references of this realm (name or space).")
    ] = None,
    objects: ObjectsOption,
    references: ReferencesOption,
    endpoint: EndpointOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the references with their recent heads, and whether all objects of each head exist."""
    open_output(ctx, as_json=as_json)
    process = PersistenceProcess(open_backend(objects, references, endpoint), leases=SHORT_LIVED)
    if realm is not None:
        realm = space_of(process.store, realm)
    found = [
        (one, list(recent_heads(process.store(one.key.realm, one.key.catalog), one)))
        for one in sorted(process.backend.references(realm=realm), key=lambda one: one.key)
    ]
    if as_json:
        print_json({"references": [_document(one, heads) for one, heads in found]})
    else:
        _print_table(found)


@refs.command("reset")
def reset_command(
    ctx: typer.Context,
    realm: Annotated[str, typer.Argument(help="The realm (name or space).", show_default=False)],
    catalog: Annotated[str, typer.Argument(help="The catalog, as `refs list` shows it.", show_default=False)],
    name: Annotated[str, typer.Argument(help="The name of the reference.", show_default=False)],
    head: Annotated[int, typer.Argument(help="The id of the recent head to reset to.", show_default=False)],
    *,
    even_if_incomplete: Annotated[
        bool, typer.Option("--even-if-incomplete", help="Reset even if objects of the head are missing.")
    ] = False,
    yes: YesOption = False,
    objects: ObjectsOption,
    references: ReferencesOption,
    endpoint: EndpointOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reset a reference to one of its recent heads; later commits are no longer visible."""
    open_output(ctx, as_json=as_json)
    process = PersistenceProcess(open_backend(objects, references, endpoint), leases=SHORT_LIVED)
    store = process.store(space_of(process.store, realm), catalog)
    if not yes:
        typer.confirm(f"Commits to {name} after {head} will no longer be visible. Reset?", abort=True, err=True)
    moved = reset(store, name, head, even_if_incomplete=even_if_incomplete)
    if as_json:
        print_json(_document(moved, []))
    else:
        Console(highlight=False).print(f"{name} now points to {head}; to undo this, reset it to its former head.")


def open_backend(objects: str, references: str, endpoint: str | None) -> Backend:
    """Return the backend over the two tables, with the operator's own AWS credentials; raises CommandError."""
    return DynamoDbBackend(Calls(dynamodb_client(endpoint)), objects=objects, references=references)


def _document(one: Reference, heads: Sequence[RecentHead]) -> dict[str, Any]:
    return {**asdict(one.key), "head": one.head, "version": one.version, "recent_heads": [asdict(it) for it in heads]}


def _print_table(found: Sequence[tuple[Reference, Sequence[RecentHead]]]) -> None:
    table = Rows("realm", "catalog", "reference", "head", "complete")
    for one, heads in found:
        for head in heads:
            name = (one.key.realm, one.key.catalog, one.key.name) if head.current else ("", "", "")
            table.add(*name, str(head.id), head.problem or "yes")
        if not heads:
            table.add(one.key.realm, one.key.catalog, one.key.name, "-", "no commit")
    Console(highlight=False).print(table if found else "No references.", crop=False)
