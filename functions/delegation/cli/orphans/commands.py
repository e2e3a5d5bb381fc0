"""`delegation orphans …`: have the service look for a table's orphan files, approve what it found, and restore it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import typer
from pydantic import ValidationError

from delegation.cli.connection import Connection
from delegation.cli.errors import CommandError, task_unknown
from delegation.cli.misuse import WordGroup
from delegation.cli.options import JsonOption, StackOption, YesOption, confirm_change
from delegation.cli.orphans.restore import restore_command
from delegation.cli.orphans.show import show_command
from delegation.cli.output import JsonOutput, Output, open_output
from delegation.cli.screens.watching import plain, summary_text
from delegation.cli.submit import KeyOption, TableArgument, WaitOption, checked_key, parse_table
from delegation.cli.tasks.follow import watch
from delegation.client.client import DelegationClient
from delegation.client.errors import NotFound, NotPermitted
from delegation.identifiers import TableIdentifier
from delegation.operations.orphans.behavior.limits import (
    EQUAL_AUTHORITIES,
    EQUAL_SCHEMES,
    FILE_AGE,
    INVENTORY,
    LOCATION,
    MISMATCH,
    PLAN,
    QUARANTINE,
    OrphanLimits,
)
from delegation.operations.orphans.behavior.names import PLAN_TASK_TYPE, POLICY, TASK_TYPE
from delegation.operations.orphans.behavior.options import options_of
from delegation.operations.orphans.errors import AgeTooShort
from delegation.tasks.submission.options import DRY_RUN, PLACE, InvalidOption
from delegation.timestamps import utc_now
from delegation.wire.approvals import PlanApproval
from delegation.wire.orphans import OrphanFilesRequest
from delegation.wire.requests import TableRequest
from delegation.wire.tasks import TaskRecord
from polaris_common.errors import DelegationError, counted, printable

app = typer.Typer(
    cls=WordGroup,
    no_args_is_help=True,
    help="Have the service look for a table's orphan files, approve what it found, and restore what was deleted.",
)
AgeOption = Annotated[
    str | None,
    typer.Option(
        "--older-than",
        metavar="AGE",
        show_default=False,
        help="How old a file is at least, by the clock of its store: 7d, 72h; 24 hours or more. Default: 3 days.",
    ),
]
SchemesOption = Annotated[
    str | None,
    typer.Option(
        "--equal-schemes",
        metavar="LISTS",
        show_default=False,
        help="Schemes that name one store, such as cos,oss=store; s3, s3a and s3n always do.",
    ),
]
AuthoritiesOption = Annotated[
    str | None,
    typer.Option(
        "--equal-authorities",
        metavar="LISTS",
        show_default=False,
        help="Buckets that are one, such as alias=bucket.",
    ),
]
MismatchOption = Annotated[
    str | None,
    typer.Option(
        "--prefix-mismatch-mode",
        metavar="MODE",
        show_default=False,
        help="What happens to files with the path of a needed one in another scheme or bucket: error, ignore or "
        "delete. Default: error.",
    ),
]
QuarantineOption = Annotated[
    str | None,
    typer.Option(
        "--quarantine",
        metavar="MODE",
        show_default=False,
        help="tag: an approval of the plan tags the files for a lifecycle rule of the bucket instead of deleting them; "
        "none: it deletes them. Default: the operator's setting.",
    ),
]
InventoryOption = Annotated[
    str | None,
    typer.Option(
        "--inventory",
        metavar="URI",
        show_default=False,
        help="Read this S3 Inventory report instead of listing the location: s3://…/manifest.json, below a place that "
        "the operator allows.",
    ),
]
LocationOption = Annotated[
    str | None,
    typer.Option(
        "--location",
        metavar="URI",
        show_default=False,
        help="Look in this place instead of the table's location, below one that the operator allows.",
    ),
]
PlanArgument = Annotated[
    str,
    typer.Argument(
        metavar="PLAN", show_default=False, help="The plan's id, which the summary of the task that made it has."
    ),
]


@app.command("scan")
def scan_command(
    ctx: typer.Context,
    table: TableArgument,
    *,
    older_than: AgeOption = None,
    equal_schemes: SchemesOption = None,
    equal_authorities: AuthoritiesOption = None,
    prefix_mismatch_mode: MismatchOption = None,
    inventory: InventoryOption = None,
    location: LocationOption = None,
    quarantine: QuarantineOption = None,
    key: KeyOption = None,
    wait: WaitOption = False,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have the service list a table's location and plan which files no table needs; nothing is deleted.

    The task's summary has the number and size of the orphan files, and the
    id of the plan, which `delegation orphans approve` executes. Exit status:
    1 if the task was not accepted or, with --wait, if it failed.
    """
    output = open_output(ctx, as_json=as_json)
    identifier = parse_table(table)
    properties = _properties(
        {
            FILE_AGE: older_than,
            EQUAL_SCHEMES: equal_schemes,
            EQUAL_AUTHORITIES: equal_authorities,
            MISMATCH: prefix_mismatch_mode,
            INVENTORY: inventory,
            LOCATION: location,
            QUARANTINE: quarantine,
            DRY_RUN: "true",
        }
    )
    _send(output, Connection.of(ctx, stack), identifier, properties, key, wait=wait)


IncludingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--including",
        metavar="UUID",
        show_default=False,
        help="Delete the files of this foreign table too, which the plan reports (FOREIGN_TABLE); may be repeated.",
    ),
]


@app.command("approve")
def approve_command(
    ctx: typer.Context,
    plan: PlanArgument,
    *,
    including: IncludingOption = None,
    key: KeyOption = None,
    wait: WaitOption = False,
    yes: YesOption = False,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Approve a plan with the operator's identity, and have its files deleted that are still as they were listed.

    The plan is of `delegation orphans scan`, or of a removal that waits for
    approval. The approval is recorded first and holds for 14 days; then the
    plan is executed as the identity that submits tasks. That of a policy is
    left to the policy's next run, unless --wait is given. Exit status: 1 if
    the plan was not approved, the task not accepted or, with --wait, failed.
    """
    output = open_output(ctx, as_json=as_json)
    properties = _properties({PLAN: plan})
    wanted = _approval(plan, including or ())
    connection = Connection.of(ctx, stack)
    task_id = plan.partition("/")[0]
    operator = connection.operator_client()
    try:
        task = operator.get(task_id)
    except NotFound:
        raise task_unknown(task_id) from None
    if task.task_type not in (TASK_TYPE, PLAN_TASK_TYPE):
        raise CommandError(
            f"the plan {printable(plan)} is of a task {printable(task.task_type)}, and not of orphan files",
            "Name the plan that `delegation orphans scan` printed, or that the task's summary has.",
            code="PLAN_NOT_FOUND",
        )
    identifier = TableRequest.of_stored(task.task_payload).identifier
    if not yes:
        found = printable(summary_text(task.result_summary or "the task has no summary").partition(";")[0], 300)
        more = f", and the files of {counted(len(wanted.including), 'foreign table')}" if wanted.including else ""
        confirm_change(
            f"{identifier}: {found}.\nThis deletes them{more}, or tags them if the plan is a quarantine. Where their "
            "bucket keeps no versions, nothing brings deleted ones back"
        )
    seen = [one for one in (*task.plan_segments, task.waiting_plan) if one is not None and one.id == plan]
    approved = operator.approve(task_id, plan, sha256=seen[0].sha256 if seen else None, including=wanted.including)
    if POLICY in task.properties and not wait:
        _approved(output, approved, "the next run of its policy deletes them")
        return
    try:
        _send(output, connection, identifier, properties, key, wait=wait)
    except NotPermitted as error:
        if error.error_code != "PERMISSION_MISSING":
            raise
        _approved(output, approved, "the next request for the table, or the next run of its policy, deletes them")


app.command("show")(show_command)
app.command("restore")(restore_command)


def _approval(plan: str, including: Sequence[str]) -> PlanApproval:
    """Return what is approved; raises BadParameter for what is no uuid."""
    try:
        return PlanApproval(plan=plan, including=tuple(including))
    except ValidationError as error:
        raise typer.BadParameter(error.errors()[0]["msg"], param_hint="--including") from None


def _approved(output: Output, task: TaskRecord, then: str) -> None:
    """Print an approval whose plan this command does not execute."""
    if isinstance(output, JsonOutput):
        output.task(task)
        return
    assert task.approval is not None  # noqa: S101 - the service returned it
    until = task.approval.until
    output.say(f"Approved until {until.astimezone():%Y-%m-%d %H:%M %Z}: {plain(task.approval.plan)}; {then}.")


def _properties(given: Mapping[str, str | None]) -> dict[str, str]:
    """Return the properties of the request; raises BadParameter for a value that the service would refuse."""
    properties = {name: value for name, value in given.items() if value is not None}
    # Only the service knows what the operator allows.
    allowing = OrphanLimits.from_properties({"delegation.orphan-files.prefix-mismatch-mode": "delete"})
    anything = replace(allowing, inventories=("s3://",), locations=("s3://",))
    try:
        options_of(properties, anything)
    except InvalidOption as error:
        raise _misuse(error, error.name) from None
    except AgeTooShort as error:
        raise _misuse(error, FILE_AGE) from None
    return properties


def _misuse(error: DelegationError, name: str) -> typer.BadParameter:
    """Return the misuse of the option of this command that sets a property of the request."""
    reason = str(error).removeprefix(f"{PLACE}.{name}: ")
    return typer.BadParameter(reason, param_hint={FILE_AGE: "--older-than", PLAN: "PLAN"}.get(name, f"--{name}"))


def _send(
    output: Output,
    connection: Connection,
    identifier: TableIdentifier,
    properties: Mapping[str, str],
    key: str | None,
    *,
    wait: bool,
) -> None:
    used_key = checked_key(key)
    request = OrphanFilesRequest(
        realm=connection.client_settings().realm,
        identifier=identifier,
        properties=properties,
        correlation_id=used_key,
        # Repeating the command with the same --key requires the same payload each time, which then has no time.
        requested_at=utc_now() if key is None else None,
    ).request()
    client = connection.client()
    accepted = client.submit(request, key=used_key)
    # The table stays, so there is no entry in the catalog to speak of.
    output.accepted(accepted, key=used_key, dry_run=True)
    if wait:
        _advise(output, client, watch(output, client, accepted.delegation_task_id))


def _advise(output: Output, client: DelegationClient, ended: TaskRecord) -> None:
    """Say what comes next, to people and outside of the frame of the task: each line is copied."""
    if isinstance(output, JsonOutput):
        return
    plan = ended.plan_segments[-1].id if ended.plan_segments else None
    waits = ended.waiting_plan is not None
    if ended.files_deleted:
        output.say(f"The receipt: delegation tasks receipt {ended.task_id}")
        if _is_restorable(client, ended.task_id):
            output.say(f"Bring them back: delegation orphans restore {ended.task_id}")
    if plan is not None and ended.files_planned and (waits or not ended.files_deleted):
        output.say(f"Look at them: delegation orphans show {plan}")
        output.say(f"Delete them: delegation orphans approve {plan} --wait")


def _is_restorable(client: DelegationClient, task_id: str) -> bool:
    """Return whether a removal freed nothing, because the bucket keeps versions."""
    try:
        return client.receipt(task_id).model_dump().get("bytes_freed", 0) is None
    except NotFound:
        return False
