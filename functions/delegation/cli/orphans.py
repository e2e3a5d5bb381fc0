"""The commands about orphan files: scan, show, approve. A plan is read with the operator's own AWS credentials."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Annotated, Final

import typer
from pydantic import ValidationError
from rich.console import RenderableType

from delegation.cli.calls import Call, argument, command, defaulted, group, optional
from delegation.cli.connection import Connection
from delegation.cli.errors import CommandError, task_unknown
from delegation.cli.output import Output
from delegation.cli.restore import PLAN_NAME, PlanBucketOption, plans_of, restore_command
from delegation.cli.screens import LabelledLines, WrappedText, plain, size_text, summary_text
from delegation.cli.submit import TableArgument, call_request, parse_table, refused, send
from delegation.client.client import DelegationClient
from delegation.client.errors import NotFound, NotPermitted
from delegation.identifiers import TableIdentifier
from delegation.removal.errors import PlanTampered
from delegation.removal.index import segment_of
from delegation.removal.orphans.errors import AgeTooShort
from delegation.removal.orphans.index import Candidate, OrphanIndex, candidates_of, load_plan
from delegation.removal.orphans.options import options_of
from delegation.removal.orphans.requests import FILE_AGE, OPTIONS, ORPHANS_FORM, QUARANTINE, OrphanLimits
from delegation.removal.orphans.task_type import PLAN_TASK_TYPE, POLICY, TASK_TYPE
from delegation.removal.requests import PLAN
from delegation.storage.base import PlanStore
from delegation.tasks.options import DRY_RUN, InvalidOption
from delegation.timestamps import isoformat
from delegation.wire.requests import TableRequest
from delegation.wire.tables import PlanApproval
from delegation.wire.tasks import TaskRecord
from polaris_common.errors import counted, printable


def opened_plan(connection: Connection, text: str, plan_bucket: str | None) -> tuple[PlanStore, OrphanIndex]:
    """Return the plans and the index of a plan. Raises BadParameter and CommandError."""
    named = PLAN_NAME.fullmatch(text)
    if named is None:
        raise typer.BadParameter("must be a plan's id, or a receipt's key or s3:// address", param_hint="PLAN")
    bucket = named["bucket"] or plan_bucket or connection.settings.get("plan_bucket")
    plans = plans_of(connection, bucket)
    plan = named["plan"]
    try:
        index = load_plan(plans, segment_of(plans, plan))
    except PlanTampered as error:
        raise _plan_unknown(plan, str(error)) from error
    if index.stage == "listed":
        raise _plan_unknown(plan, "it is only a listing, not yet compared with the files that tables need")
    return plans, index


def _plan_unknown(plan: str, reason: str) -> CommandError:
    return CommandError(
        f"{printable(plan)}: {printable(reason)}",
        "Scan the table again (`delegation orphans scan`) and name the new plan.",
        code="PLAN_NOT_FOUND",
    )


def time_text(seconds: int) -> str:
    """Return a time of the store, given in seconds since 1970."""
    return isoformat(datetime.fromtimestamp(seconds, UTC))


_WAITS: Final = {
    "first-run": "it is the table's first plan at this location",
    "max-share": "it has an unusually large share of the files there",
    "max-files": "it has unusually many files",
    "finding": "the removal found something new after the approval",
}
_DAY: Final = 86_400


@command()
def show_command(
    call: Call,
    plan: Annotated[
        str,
        argument("PLAN", "A plan's id, or the key or s3:// address of a removal's receipt."),
    ],
    *,
    limit: int = defaulted("--limit", "The number of files to list.", 20, min=1),
    plan_bucket: PlanBucketOption = None,
) -> None:
    """List a plan's files with their times, using your AWS credentials."""
    plans, index = opened_plan(call.connection, plan, plan_bucket)
    files = list(islice(chain.from_iterable(candidates_of(plans, [(index.plan_id, index.chunks)])), limit))
    call.output.result(_document(index, files), _screens(index, files))


def _screens(index: OrphanIndex, files: list[Candidate]) -> Iterator[RenderableType]:
    yield f"Plan {index.plan_id} of {plain(index.identifier)}"
    yield LabelledLines(_about(index), indent=2)
    for file in files:
        yield WrappedText(f"{time_text(file.modified)[:19]}Z  {size_text(file.size):>10}  {plain(file.path)}", indent=2)
    if index.files_planned > len(files):
        more = counted(index.files_planned - len(files), "more file")
        yield WrappedText(f"{more}; --limit {index.files_planned} lists all", indent=2)
    if files or index.foreign_tables:
        more = " (--including UUID adds a foreign table)" if index.foreign_tables else ""
        yield f"Approve it: delegation orphans approve {index.plan_id}{more}"


def _about(index: OrphanIndex) -> list[tuple[str, str]]:
    orphan, listed = index.planned_amount, index.listed_amount
    counts = (
        f"{counted(amount.files, what)}, {size_text(amount.bytes)}"
        for amount, what in ((orphan, "file"), (listed, "object"))
    )
    orphans, objects = counts
    rows = [
        ("location", plain(index.roots[0])),
        ("listed", f"{objects}, at {time_text(index.listed_at)[:19]}Z by the store's clock"),
        ("orphan", f"{orphans}, {index.age / _DAY:g} days old or more at that time"),
    ]
    if index.quarantine:
        rows.append(("approval", "tags the orphan files for a lifecycle rule of the bucket"))
    for foreign in index.foreign_tables:
        why = f"; {plain(foreign.why)}" if foreign.why else ""
        stays = f"{counted(foreign.files, 'file')}, {size_text(foreign.bytes)}, at {plain(foreign.place)}{why}"
        rows.append(("foreign", f"{foreign.uuid}: {stays}"))
    if index.waits:
        rows.append(("waits", f"for approval, because {_WAITS[index.waits]} ({index.waits})"))
    return rows


def _document(index: OrphanIndex, files: list[Candidate]) -> dict[str, object]:
    return {
        "plan": index.plan_id,
        "table": index.identifier,
        "location": index.roots[0],
        "listed_at": time_text(index.listed_at),
        "older_than_seconds": index.age,
        "files_listed": index.listed.files,
        "bytes_listed": index.listed.bytes,
        "files_planned": index.files_planned,
        "bytes_planned": index.bytes_planned,
        "quarantine": index.quarantine,
        "waits": index.waits,
        "foreign_tables": [foreign.model_dump(exclude={"parts"}) for foreign in index.foreign_tables],
        "files": [{"path": file.path, "bytes": file.size, "modified": time_text(file.modified)} for file in files],
    }


app = group("orphans")


@command(app, "scan", "key wait stack", table=OPTIONS)
def scan_command(call: Call, table: TableArgument) -> None:
    """Find files at a table's location that no table needs; delete nothing.

    The summary shows the number and size of the files, and the plan's id.
    """
    identifier = parse_table(table)
    _send(call, identifier, _checked({**call.given, DRY_RUN: "true"}))


@command(app, "approve", "key wait yes stack")
def approve_command(
    call: Call,
    plan: Annotated[str, argument("PLAN", "The plan's id, from its task's summary.")],
    *,
    including: list[str] | None = optional(
        "--including",
        "Also delete the files of this foreign table (FOREIGN_TABLE); may be repeated.",
        "UUID",
    ),
) -> None:
    """Approve a plan, and delete its files that are unchanged since the listing.

    Needs the operator's identity. The approval holds for 14 days. With --wait, a policy's plan is executed at once,
    otherwise by the policy's next run.
    """
    properties = _checked({PLAN: plan})
    try:
        wanted = PlanApproval(plan=plan, including=tuple(including or ()))
    except ValidationError as error:
        raise typer.BadParameter(error.errors()[0]["msg"], param_hint="--including") from None
    task_id = plan.partition("/")[0]
    operator = call.connection.operator_client()
    try:
        task = operator.get(task_id)
    except NotFound:
        raise task_unknown(task_id) from None
    if task.task_type not in (TASK_TYPE, PLAN_TASK_TYPE):
        raise CommandError(
            f"the plan {printable(plan)} belongs to a task of the type {printable(task.task_type)}, not to a removal "
            "of orphan files",
            "Name the plan that `delegation orphans scan` printed. The summary of its task has it too.",
            code="PLAN_NOT_FOUND",
        )
    identifier = TableRequest.of_stored(task.task_payload).identifier
    summary = printable(summary_text(task.result_summary or "the task has no summary").partition(";")[0], 300)
    more = f", and the files of {counted(len(wanted.including), 'foreign table')}" if wanted.including else ""
    does = _effect(task, plan)
    versions = "In a bucket without versions, deleted files cannot be restored."
    effect = {
        "deletes": f"This deletes the plan's files{more}. {versions}",
        "tags": f"This tags the plan's files{more}, for a lifecycle rule of the bucket.",
    }.get(does, f"This deletes the plan's files{more}, or tags them if the plan is a quarantine. {versions}")
    call.confirm(f"{identifier}: {summary}.\n{effect} Continue?")
    seen = [
        segment for segment in (*task.plan_segments, task.waiting_plan) if segment is not None and segment.id == plan
    ]
    approved = operator.approve(task_id, plan, sha256=seen[0].sha256 if seen else None, including=wanted.including)
    if POLICY in task.properties and not call.wait:
        _approved(call.output, approved, f"the next run of the table's policy {does} the files")
        return
    try:
        _send(call, identifier, properties)
    except NotPermitted as error:
        if error.error_code != "PERMISSION_MISSING":
            raise
        _approved(
            call.output, approved, f"the next request for the table, or the next run of its policy, {does} the files"
        )


app.command("show")(show_command)
app.command("restore")(restore_command)


def _effect(task: TaskRecord, plan: str) -> str:
    """Return what the execution does to the files; a request without the option leaves it to the operator's setting."""
    stated = re.search(rf"approve {re.escape(plan)}` (deletes|tags) ", task.result_summary or "")
    if stated is not None:
        return stated[1]
    return {"none": "deletes", "tag": "tags"}.get(task.properties.get(QUARANTINE, ""), "deletes or tags")


def _approved(output: Output, task: TaskRecord, then: str) -> None:
    assert task.approval is not None  # noqa: S101 - the service returned it
    until = f"{task.approval.until.astimezone():%Y-%m-%d %H:%M %Z}"
    output.result(task.model_dump(mode="json"))
    output.say(f"Approved until {until}: {plain(task.approval.plan)}; {then}.")


def _checked(properties: dict[str, str]) -> dict[str, str]:
    """Return the properties of the request. Raises BadParameter for a value that the service would refuse."""
    # Only the service knows what the operator allows.
    allowing = OrphanLimits.from_properties({"delegation.orphan-files.prefix-mismatch-mode": "delete"})
    try:
        options_of(properties, replace(allowing, locations=("s3://",)))
    except InvalidOption as error:
        raise refused(OPTIONS, error, error.name) from None
    except AgeTooShort as error:
        raise refused(OPTIONS, error, FILE_AGE) from None
    return properties


def _send(call: Call, identifier: TableIdentifier, properties: Mapping[str, str]) -> None:
    ended = send(call, ORPHANS_FORM, call_request(call, identifier, properties))
    if ended is not None:
        _advise(call, ended)


def _advise(call: Call, ended: TaskRecord) -> None:
    if call.as_json:
        return
    say = call.output.say
    plan = ended.plan_segments[-1].id if ended.plan_segments else None
    waits = ended.waiting_plan is not None
    if ended.files_deleted:
        say(f"Show the receipt: delegation tasks receipt {ended.task_id}")
        if _is_restorable(call.connection.client(), ended.task_id):
            say(f"Restore the files: delegation orphans restore {ended.task_id}")
    if plan is not None and ended.files_planned and (waits or not ended.files_deleted):
        say(f"List the files: delegation orphans show {plan}")
        say(f"Delete the files: delegation orphans approve {plan} --wait")


def _is_restorable(client: DelegationClient, task_id: str) -> bool:
    """Return whether a removal freed nothing, because the bucket keeps versions."""
    try:
        return client.receipt(task_id).model_dump().get("bytes_freed", 0) is None
    except NotFound:
        return False
