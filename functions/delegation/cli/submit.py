"""`delegation submit`: submit the purge of a table to the service."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from delegation.cli.calls import Call, KeyOption, WaitOption, argument, command, defaulted, flag_of, optional, switch
from delegation.cli.errors import bad_table_metadata
from delegation.cli.output import Output, watch
from delegation.cli.screens import WrappedText
from delegation.client.client import DelegationClient, new_key
from delegation.client.errors import TASK_EXISTS, Conflict
from delegation.client.executor import DRY_RUN
from delegation.identifiers import TableIdentifier, split_name
from delegation.polaris.model import LoadedTable
from delegation.tasks.life.declared import named
from delegation.tasks.options import PLACE, OptionTable, RequestForm
from delegation.timestamps import utc_now
from delegation.wire.requests import TableRequest, TableState, is_key
from delegation.wire.tasks import TaskRecord
from delegation.wiring.types import TYPES
from polaris_common.errors import DelegationError

T = TypeVar("T")

TableArgument = Annotated[
    str,
    argument(
        "CATALOG.NAMESPACE.TABLE",
        "The table. Dots separate namespace levels; `backquotes` enclose a name with a dot.",
    ),
]


@command(takes="yes stack")
def submit_command(
    call: Call,
    table: TableArgument,
    *,
    sync: bool = defaulted("--sync/--async", "Wait for the outcome in one call, or run in the background.", False),
    key: KeyOption = None,
    wait: WaitOption = False,
    task_type: str | None = optional(
        "--type",
        f"The task type: {', '.join(name for name, traits in TYPES.items() if traits.requests)}. Default: the first.",
        "TASK_TYPE",
    ),
    properties: list[str] | None = defaulted(
        "--property", "A property, such as outside=keep; may be repeated.", None, metavar="NAME=VALUE"
    ),
    dry_run: bool = switch("--dry-run", "Only plan."),
    metadata: str | None = optional(
        "--metadata",
        "Send this LoadTableResult (JSON file, - for stdin) instead of loading the table.",
        "FILE",
    ),
) -> None:
    """Delete all files of a table; its entry in the catalog stays.

    After SUCCESS, drop the table without purge.
    """
    identifier = parse_table(table)
    form = form_of(task_type)
    given = options_of(form, parse_properties(properties or ()), dry_run=dry_run)
    call.key, call.wait = key, wait
    wanted = call_request(call, identifier, given)
    if metadata is not None:
        wanted = _with_table(wanted, read_metadata(identifier, metadata))
    dry_run = given.get(DRY_RUN) == "true"
    if dry_run and sync:
        raise typer.BadParameter("a dry run needs --async", param_hint="--dry-run")
    if form.deletes and not dry_run:
        call.confirm_deletion(f"of {identifier}")
    _submit(call, form, wanted, sync=sync, dry_run=dry_run)


def form_of(task_type: str | None) -> RequestForm:
    """Return the form of the requests for a task type, by default the first one's. Raises BadParameter."""
    forms = {name: traits.requests for name, traits in TYPES.items() if traits.requests is not None}
    if task_type not in (None, *forms):
        raise typer.BadParameter(f"{task_type!r} is not one of {', '.join(forms)}", param_hint="--type")
    form: RequestForm = named(forms[task_type or next(iter(forms))])
    return form


def options_of(form: RequestForm, given: Mapping[str, str], *, dry_run: bool) -> dict[str, str]:
    """Return the options of a request by name. Raises BadParameter for an option that the operation does not have."""
    try:
        options = form.options.canonical(given)
    except DelegationError as error:
        raise typer.BadParameter(str(error).removeprefix(f"{PLACE}."), param_hint="--property") from None
    if dry_run and options.get(DRY_RUN, "true") != "true":
        raise typer.BadParameter(f"contradicts --property {DRY_RUN}={options[DRY_RUN]}", param_hint="--dry-run")
    return {**options, DRY_RUN: "true"} if dry_run else options


def _submit(call: Call, form: RequestForm, wanted: TableRequest, *, sync: bool, dry_run: bool) -> None:
    client, table, key = call.connection.client(), wanted.identifier, str(wanted.correlation_id)
    if not sync:
        request = form.request(wanted, synchronous=False)
        accepted = _in_turn(call.output, client, table, lambda: client.submit(request, key=key))
        call.output.accepted(accepted, key=key, dry_run=dry_run or not form.deletes)
        if call.wait:
            watch(call.output, client, accepted.delegation_task_id)
        return
    if wanted.table is None and form.waits_with_table:
        wanted = _with_table(wanted, call.connection.catalog().load_table(table, vend=False))
    request = form.request(wanted, synchronous=True)
    with call.output.status(form.running.format(table)):
        outcome = _in_turn(call.output, client, table, lambda: client.execute(request, key=key))
    call.output.outcome(outcome, key=key)


def call_request(call: Call, identifier: TableIdentifier, properties: Mapping[str, str]) -> TableRequest:
    """Return the request of a command for an operation on one table. With --key it has no time, because a repeat must
    have the same payload. Raises BadParameter for an unusable --key."""
    return TableRequest(
        realm=call.connection.client_settings().realm,
        identifier=identifier,
        properties=properties,
        correlation_id=checked_key(call.key),
        requested_at=utc_now() if call.key is None else None,
    )


def _with_table(wanted: TableRequest, loaded: LoadedTable) -> TableRequest:
    return wanted.model_copy(update={"table": TableState.of(loaded)})


def send(
    call: Call, form: RequestForm, wanted: TableRequest, shown: Mapping[str, Any] | None = None
) -> TaskRecord | None:
    """Submit a request and print that it was accepted, as JSON also `shown`; return the task if --wait followed it."""
    client, key = call.connection.client(), str(wanted.correlation_id)
    accepted = client.submit(form.request(wanted, synchronous=False), key=key)
    # The table stays, so its entry in the catalog is not mentioned.
    call.output.accepted(accepted, key=key, dry_run=True, shown=shown)
    return watch(call.output, client, accepted.delegation_task_id) if call.wait else None


def refused(table: OptionTable, error: DelegationError, name: str) -> typer.BadParameter:
    [option] = [known for known in table.options if known.name == name]
    reason = str(error).removeprefix(f"{PLACE}.{getattr(error, 'name', name)}: ")
    return typer.BadParameter(reason, param_hint=flag_of(option))


def _in_turn(output: Output, client: DelegationClient, table: TableIdentifier, send: Callable[[], T]) -> T:
    """Send a request; if the task of a clone prevents that, after its end: clones share one uuid, and one task."""
    ended: set[tuple[str, int]] = set()
    while True:
        try:
            return send()
        except Conflict as conflict:
            task_id = conflict.delegation_task_id
            if conflict.error_code != TASK_EXISTS or task_id is None:
                raise
            running = client.get(task_id)
            clone = _table_of(running)
            if clone in (None, table) or (task_id, running.version) in ended:
                raise
            if not running.is_terminal:
                text = (
                    f"Task {task_id} purges {clone}, a clone of {table}; this purge is sent when that task has ended."
                )
                output.show(WrappedText(text))
                running = client.wait(task_id)
            ended.add((task_id, running.version))


def _table_of(task: TaskRecord) -> TableIdentifier | None:
    """Return the table that a purge's payload names, None if it cannot be read."""
    try:
        identity = json.loads(task.task_payload)["operation_parameters"]["table_identity"]
        return TableIdentifier(identity["catalog_name"], tuple(identity["namespace_levels"]), identity["table_name"])
    except (ValueError, KeyError, TypeError):
        return None


def parse_table(text: str) -> TableIdentifier:
    """Parse `catalog.level.level.table`, each part plain or between backquotes. Raises BadParameter."""
    parts = split_name(text)
    if len(parts) < 3:
        raise typer.BadParameter(f"{text!r} is not CATALOG.NAMESPACE.TABLE", param_hint="CATALOG.NAMESPACE.TABLE")
    try:
        return TableIdentifier(parts[0], tuple(parts[1:-1]), parts[-1])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="CATALOG.NAMESPACE.TABLE") from None


def parse_namespace(text: str, hint: str = "CATALOG.NAMESPACE") -> tuple[str, tuple[str, ...]]:
    """Parse `catalog.level.level`. Raises BadParameter."""
    parts = split_name(text)
    if len(parts) < 2:
        raise typer.BadParameter(f"{text!r} is not CATALOG.NAMESPACE", param_hint=hint)
    return parts[0], tuple(parts[1:])


def parse_properties(texts: Sequence[str]) -> dict[str, str]:
    """Parse texts of the form `name=value`. Raises BadParameter, also for a repeated name."""
    properties: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not (name and separator):
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--property")
        if name in properties:
            raise typer.BadParameter(f"{name!r} occurs twice", param_hint="--property")
        properties[name] = value
    return properties


def read_metadata(identifier: TableIdentifier, path: str) -> LoadedTable:
    """Read the table of a LoadTableResult from a file, without its credentials. Raises CommandError."""
    try:
        document: Any = json.loads(sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise bad_table_metadata(path, error.strerror or "cannot be read") from error
    except ValueError:
        raise bad_table_metadata(path, "it is not JSON") from None
    match document:
        case {
            "metadata-location": str(location),
            "metadata": {"table-uuid": str(), "location": str(), "format-version": int()} as table_metadata,
        }:
            return LoadedTable(identifier, location, table_metadata, config={})
        case _:
            raise bad_table_metadata(
                path, "it lacks metadata-location, or metadata with table-uuid, location and format-version"
            )


def checked_key(key: str | None) -> str:
    """Return an idempotency key, a new one without `key`. Raises BadParameter."""
    if key is None:
        return new_key()
    if not is_key(key):
        raise typer.BadParameter(
            "must be 1 to 255 characters of a-z A-Z 0-9 _ . -, beginning with a letter or digit", param_hint="--key"
        )
    return key
