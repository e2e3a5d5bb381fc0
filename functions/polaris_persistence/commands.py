"""`delegation persistence refs …`: list the references of the persistence tables, and reset one after a disaster.

The command `delegation` finds this group by its entry point. Listing its help must not load boto3.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polaris_common.errors import DelegationError

if TYPE_CHECKING:
    from polaris_persistence.backends.base import Backend, Reference
    from polaris_persistence.catalogs.process import PersistenceProcess
    from polaris_persistence.maintenance.recovery import RecentHead

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
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
EndpointOption = Annotated[
    str | None,
    typer.Option("--endpoint", show_default=False, help="The URL of DynamoDB. Default: your AWS environment's."),
]


@refs.command("list")
def list_command(
    *,
    realm: Annotated[
        str | None,
        typer.Option("--realm", show_default=False, help="List only references of this realm, given by name or id."),
    ] = None,
    objects: ObjectsOption,
    references: ReferencesOption,
    endpoint: EndpointOption = None,
    as_json: JsonOption = False,
) -> None:
    """List references with their recent heads, and whether each head is complete."""
    from polaris_persistence.catalogs.realms import space_of  # noqa: PLC0415 - `--help` needs none of it
    from polaris_persistence.maintenance.recovery import recent_heads  # noqa: PLC0415

    process = open_process(objects, references, endpoint)
    if realm is not None:
        realm = space_of(process.store, realm)
    found = [
        (reference, list(recent_heads(process.store(reference.key.realm, reference.key.catalog), reference)))
        for reference in sorted(process.backend.references(realm=realm), key=lambda reference: reference.key)
    ]
    if as_json:
        _print_json({"references": [_document(reference, heads) for reference, heads in found]})
    else:
        _print_table(found)


@refs.command("reset")
def reset_command(
    realm: Annotated[str, typer.Argument(help="The realm's name, or its id in `refs list`.", show_default=False)],
    catalog: Annotated[str, typer.Argument(help="The catalog, from `refs list`.", show_default=False)],
    name: Annotated[str, typer.Argument(help="The reference's name.", show_default=False)],
    head: Annotated[int, typer.Argument(help="The head's id.", show_default=False)],
    *,
    even_if_incomplete: Annotated[
        bool, typer.Option("--even-if-incomplete", help="Reset to an incomplete head.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    objects: ObjectsOption,
    references: ReferencesOption,
    endpoint: EndpointOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reset a reference to a recent head; later commits are lost."""
    from polaris_persistence.catalogs.realms import space_of  # noqa: PLC0415 - `--help` needs none of it
    from polaris_persistence.maintenance.recovery import reset  # noqa: PLC0415

    process = open_process(objects, references, endpoint)
    store = process.store(space_of(process.store, realm), catalog)
    if not yes:
        typer.confirm(f"Commits to {name} after {head} will no longer be visible. Reset?", abort=True, err=True)
    moved = reset(store, name, head, even_if_incomplete=even_if_incomplete)
    if as_json:
        _print_json(_document(moved, []))
    else:
        typer.echo(f"{name} now points to {head}. To undo this, reset {name} to its former head.")


def open_process(objects: str, references: str, endpoint: str | None) -> "PersistenceProcess":
    """Return the process over the two tables. Raises DelegationError."""
    from polaris_persistence.catalogs.process import PersistenceProcess  # noqa: PLC0415
    from polaris_persistence.ids.nodes import SHORT_LIVED  # noqa: PLC0415

    return PersistenceProcess(open_backend(objects, references, endpoint), leases=SHORT_LIVED)


def open_backend(objects: str, references: str, endpoint: str | None) -> "Backend":
    """Return the backend over the two tables, with the operator's own AWS credentials. Raises DelegationError."""
    import boto3  # noqa: PLC0415
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415

    from polaris_common.dynamodb import client_config  # noqa: PLC0415
    from polaris_persistence.backends.dynamodb import Calls, DynamoDbBackend  # noqa: PLC0415

    try:
        client = boto3.client("dynamodb", endpoint_url=endpoint, config=client_config())
    except BotoCoreError as error:
        raise DelegationError(f"AWS: {error}", code="BAD_CONNECTION") from error
    return DynamoDbBackend(Calls(client), objects=objects, references=references)


def _print_json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(document, ensure_ascii=False))


def _document(reference: "Reference", heads: "Sequence[RecentHead]") -> dict[str, Any]:
    found = {"head": reference.head, "version": reference.version, "recent_heads": [asdict(it) for it in heads]}
    return {**asdict(reference.key), **found, **({} if reference.problem is None else {"problem": reference.problem})}


def _print_table(found: "Sequence[tuple[Reference, Sequence[RecentHead]]]") -> None:
    """Print a line for each recent head; a line is never broken, so that an id can be copied."""
    if not found:
        typer.echo("No references.")
        return
    rows = [("realm", "catalog", "reference", "head", "complete")]
    for reference, heads in found:
        for head in heads:
            name = (reference.key.realm, reference.key.catalog, reference.key.name) if head.current else ("", "", "")
            rows.append((*name, str(head.id), head.problem or "yes"))
        if not heads:
            rows.append(
                (reference.key.realm, reference.key.catalog, reference.key.name, "-", reference.problem or "no commit")
            )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
