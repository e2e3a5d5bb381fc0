"""`delegation submit`: have a table's files purged."""

import json
import re
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from delegation.cli.connection import Connection
from delegation.cli.errors import BadTableMetadata
from delegation.cli.options import JsonOption, StackOption
from delegation.cli.output import open_output
from delegation.cli.tasks import watch
from delegation.client.client import new_key
from delegation.client.payload import Purge
from delegation.identifiers import TableIdentifier
from delegation.operations.purge.behavior.parameters import DRY_RUN
from delegation.polaris.model import LoadedTable
from delegation.timestamps import utc_now

# The pattern and length that idempotency-key.txt gives the header.
_KEY = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}", re.ASCII)
_NAME_PART = re.compile(r"(?:`([^`]+)`|([^.`]+))(?:\.|\Z)")


def submit_command(
    ctx: typer.Context,
    table: Annotated[
        str,
        typer.Argument(
            metavar="CATALOG.NAMESPACE.TABLE",
            show_default=False,
            help="The table; more namespace levels stand between more dots, a name with a dot between `backquotes`.",
        ),
    ],
    *,
    sync: Annotated[
        bool,
        typer.Option(
            "--sync/--async", help="Wait in one call for the outcome, or have the task run in the background."
        ),
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            show_default=False,
            help="The idempotency key; the same command with the same key is the same purge. By default a new UUID.",
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="With --async: follow the task until it has an outcome.")
    ] = False,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="A property of the purge; may be repeated."),
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option(
            "--metadata",
            metavar="FILE",
            show_default=False,
            help="Send the table of this LoadTableResult (JSON; - is stdin) instead of looking it up in the catalog.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, even at a terminal.")] = False,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete all files of a table: data, deletes, manifests, metadata. Its entry in the catalog stays.

    With --sync the exit status is 1 if the purge failed, with --async only if the task was not accepted (or, with
    --wait, if it failed).
    """
    output = open_output(ctx, as_json=as_json)
    identifier = parse_table(table)
    purge = plan(
        identifier, parse_properties(properties or ()), _checked(key), connection := Connection(stack), utc_now()
    )
    loaded = None if metadata is None else read_metadata(identifier, metadata)
    dry_run = purge.properties.get(DRY_RUN) == "true"
    if not (yes or dry_run) and at_a_terminal():
        typer.confirm(f"This deletes every file of {identifier}, for good. Go on?", abort=True, err=True)
    client = connection.client()
    used = purge.correlation_id or new_key()
    if sync:
        loaded = loaded or connection.catalog().load_table(identifier, vend=False)
        with output.working(f"Purging {identifier} …"):
            outcome = client.execute_synchronous(purge.of_loaded(loaded, synchronous=True), key=used)
        output.outcome(outcome, key=used, dry_run=dry_run)
        return
    payload = purge.by_identity() if loaded is None else purge.of_loaded(loaded, synchronous=False)
    accepted = client.submit(payload, key=used)
    output.accepted(accepted, key=used, dry_run=dry_run)
    if wait:
        watch(output, client, accepted.delegation_task_id)


def at_a_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty()


def plan(
    identifier: TableIdentifier, properties: dict[str, str], key: str | None, connection: Connection, now: datetime
) -> Purge:
    """The purge; its key is its correlation id.

    A key that the caller chose may be used again by a later run of the same command, whose payload then has to be the
    same (idempotency-key.txt, "Reuse rule"): it carries no time of its own.
    """
    realm = connection.client_settings().realm
    return Purge(
        realm, identifier, properties, correlation_id=key or new_key(), requested_at=None if key is not None else now
    )


def parse_table(text: str) -> TableIdentifier:
    """`catalog.level.level.table`, each part plain or between backquotes; raises BadParameter."""
    parts: list[str] = []
    at = 0
    while at < len(text) and (part := _NAME_PART.match(text, at)):
        parts.append(part[1] or part[2])
        at = part.end()
    if at < len(text) or len(parts) < 3 or text.endswith("."):
        raise typer.BadParameter(f"{text!r} is not CATALOG.NAMESPACE.TABLE", param_hint="CATALOG.NAMESPACE.TABLE")
    try:
        return TableIdentifier(parts[0], tuple(parts[1:-1]), parts[-1])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="CATALOG.NAMESPACE.TABLE") from None


def parse_properties(texts: Sequence[str]) -> dict[str, str]:
    """`name=value` each; raises BadParameter, also for a name that is given twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not (name and separator):
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--property")
        if name in found:
            raise typer.BadParameter(f"{name!r} is given twice", param_hint="--property")
        found[name] = value
    return found


def read_metadata(identifier: TableIdentifier, path: str) -> LoadedTable:
    """The table of a LoadTableResult in a file; credentials in it are left behind. Raises BadTableMetadata."""
    try:
        document: Any = json.loads(sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadTableMetadata(path, error.strerror or "cannot be read") from error
    except ValueError:
        raise BadTableMetadata(path, "is not JSON") from None
    match document:
        case {
            "metadata-location": str(location),
            "metadata": {"table-uuid": str(), "location": str(), "format-version": int()} as table_metadata,
        }:
            return LoadedTable(identifier, location, table_metadata, config={})
        case _:
            raise BadTableMetadata(
                path, "lacks metadata-location, or metadata with table-uuid, location and format-version"
            )


def _checked(key: str | None) -> str | None:
    if key is not None and not _KEY.fullmatch(key):
        raise typer.BadParameter(
            "must be 1 to 255 of a-z A-Z 0-9 _ . -, the first a letter or digit", param_hint="--key"
        )
    return key
