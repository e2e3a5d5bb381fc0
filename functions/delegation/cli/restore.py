"""`delegation orphans restore`: brings back what a removal deleted in a bucket with versions.

It works with the operator's own AWS credentials: those that the catalog vends may not remove delete markers.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import RenderableType

from delegation.cli.calls import Call, argument, command, option, optional, switch
from delegation.cli.connection import Connection
from delegation.cli.errors import INTERRUPTED, PARTLY_DONE, CommandError
from delegation.cli.output import Output
from delegation.cli.screens import LabelledLines, WrappedText, plain, size_text
from delegation.client.errors import NotFound
from delegation.errors import GuardRefused
from delegation.removal.orphans.quarantine import FileState, Restoration, RestoreRun, has_records
from delegation.storage.base import ObjectNotFound, ObjectStoreDenied, PlanStore
from delegation.storage.listing.model import RIGHTS, TAG_RIGHTS
from delegation.storage.locations import Root, split
from polaris_common.errors import counted, printable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from delegation.removal.orphans.quarantine import UntagRun


_TASK: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PLAN_NAME: Final = re.compile(
    rf"(?:s3://(?P<bucket>[^/]+)/)?(?P<plan>{_TASK.pattern}/[0-9]+/[0-9a-f]+)(?:/receipt\.json)?"
)
_MEANINGS: Final[Mapping[FileState, str]] = {
    FileState.PRESENT: "already there",
    FileState.REWRITTEN: "replaced since by a newer object, which stays",
    FileState.DELETED_AGAIN: "deleted again by another process; not restored",
    FileState.GONE: "gone: the version below the delete marker expired or was removed",
    FileState.FAILED: "not restored: the call to the store failed; run the command again",
}
_OF_TAGS: Final[Mapping[FileState, str]] = {
    **_MEANINGS,
    FileState.PRESENT: "already without the tag",
    FileState.GONE: "gone: deleted by the bucket's lifecycle rule or another process",
}
PlanBucketOption = Annotated[
    str | None,
    option(
        "--plan-bucket",
        "The bucket of plans. Default: DELEGATION_PLAN_BUCKET, else the local stack's.",
        "BUCKET",
    ),
]


def receipt_unknown(what: str, reason: str) -> CommandError:
    return CommandError(
        f"{printable(what)}: {reason}",
        "Name the plan or task of a completed removal of orphan files. `delegation tasks list --type ORPHAN_FILES` "
        "lists the tasks.",
        code="RECEIPT_NOT_FOUND",
    )


def plan_bucket_unknown(reason: str) -> CommandError:
    return CommandError(
        reason, "Name the bucket with --plan-bucket or DELEGATION_PLAN_BUCKET.", code="PLAN_BUCKET_UNKNOWN"
    )


def nothing_to_restore(
    reason: str,
    next_step: str = "Restore the files from a backup, if there is one (page Remove orphan files, Restoring).",
) -> CommandError:
    return CommandError(f"nothing can be restored: {reason}", next_step, code="NOT_RESTORABLE")


@dataclass(frozen=True, slots=True)
class PastRemoval:
    """What a receipt states about a removal, or about all quarantines of a location; a quarantine tagged its files."""

    plan_ids: tuple[str, ...]
    location: str
    files_deleted: int
    files_absent: int
    is_versioned: bool
    is_quarantine: bool = False
    by_location: bool = False

    @classmethod
    def of(cls, document: Mapping[str, Any], what: str) -> "PastRemoval":
        """Read a receipt. Raises CommandError (RECEIPT_NOT_FOUND) unless it is of a removal of orphan files."""
        if "files_listed" not in document or not isinstance(document.get("plan"), list):
            raise receipt_unknown(what, "the receipt does not belong to a removal of orphan files")
        return cls(
            tuple(str(plan) for plan in document["plan"]),
            str(document["location"]),
            int(document["files_deleted"]),
            int(document["files_absent"]),
            document["bytes_freed"] is None,
            document.get("quarantine") is not None,
        )


@command(takes="yes stack")
def restore_command(
    call: Call,
    receipt: Annotated[
        str,
        argument(
            "RECEIPT",
            "The id of the removal's plan or task, or its receipt's key or s3:// address. To untag files, also a "
            "location (s3://lake/orders/).",
        ),
    ],
    *,
    dry_run: bool = switch("--dry-run", "Only show what would change."),
    plan_bucket: PlanBucketOption = None,
    s3_endpoint: str | None = optional("--s3-endpoint", "The URL of the table's S3 store.", "URL"),
) -> None:
    """Restore files that a removal deleted from a versioned bucket, using your AWS credentials.

    Removes the delete markers that the removal wrote. After a quarantine, removes the tags instead; with a location,
    all tags there. Repeat the command to resume. Exit status 4: some files are missing.
    """
    bucket = _bucket_of(receipt, plan_bucket, call.connection)
    plans, removal = _opened(call.connection, receipt, bucket)
    if removal.is_quarantine:
        what, rights = "removing tags", TAG_RIGHTS
        effect = f"This removes the quarantine tag from orphan files at {removal.location}"
    else:
        what, rights = "removing delete markers", RIGHTS
        _check_restorable(plans, removal)
        files = f"{counted(removal.files_deleted, 'file')} at {removal.location}"
        effect = f"This restores up to {files}, which no table needs"
    if not dry_run:
        call.confirm(f"{effect}. Continue?")
    run = _run_of(call.connection.s3(bucket, s3_endpoint), plans, removal, dry_run=dry_run)
    restoration = _restored(call.output, run, removal, what, rights)
    unrecorded = 0 if removal.is_quarantine else max(0, removal.files_deleted - restoration.files)
    document = _document(removal, restoration, unrecorded, dry_run=dry_run)
    call.output.result(document, _screens(removal, restoration, unrecorded, dry_run=dry_run))
    raise typer.Exit(0 if restoration.is_complete else PARTLY_DONE)


def _check_restorable(plans: PlanStore, removal: PastRemoval) -> None:
    """Raise CommandError (NOT_RESTORABLE) for a removal whose files are gone, or that recorded none."""
    if not removal.is_versioned:
        raise nothing_to_restore(f"{removal.location} is in a bucket that keeps no versions of deleted files")
    if not has_records(plans, removal.plan_ids):
        raise nothing_to_restore(
            "the removal recorded no delete markers: it was made by an earlier release, or the bucket's versioning "
            "was suspended"
        )


def _run_of(client: "S3Client", plans: PlanStore, removal: PastRemoval, *, dry_run: bool) -> "RestoreRun | UntagRun":
    if not removal.is_quarantine:
        from delegation.storage.listing.tags_s3 import S3Versions  # noqa: PLC0415 - loads boto3

        return RestoreRun(S3Versions(client), plans, removal.plan_ids, removal.location, dry_run=dry_run)
    from delegation.removal.orphans.quarantine import UntagRun  # noqa: PLC0415 - few removals have tags
    from delegation.storage.listing.tags_s3 import S3Tags  # noqa: PLC0415 - loads boto3

    tags, by_location = S3Tags(lambda: client), removal.by_location
    return UntagRun(tags, plans, removal.plan_ids, removal.location, dry_run=dry_run, by_location=by_location)


def _bucket_of(receipt: str, plan_bucket: str | None, connection: Connection) -> str | None:
    """Return the bucket of plans that the command or the settings name. Raises BadParameter for no receipt."""
    match = PLAN_NAME.fullmatch(receipt)
    if match is None and not _TASK.fullmatch(receipt) and _location_of(receipt) is None:
        raise typer.BadParameter(
            "must be a plan's or a task's id, a receipt's key, or a location", param_hint="RECEIPT"
        )
    return (match["bucket"] if match else None) or plan_bucket or connection.settings.get("plan_bucket")


def _location_of(text: str) -> str | None:
    try:
        return Root.of(text).uri if "://" in text and not PLAN_NAME.fullmatch(text) else None
    except GuardRefused:
        return None


def _tagged_here(plans: PlanStore, location: str) -> PastRemoval:
    """Return all quarantines of a location. Raises CommandError (NOT_RESTORABLE) if there are none."""
    from delegation.removal.orphans.released import tagged_at  # noqa: PLC0415 - few restores need it

    plan_ids = tuple(segment.id for segment in tagged_at(plans, location).values())
    if not plan_ids:
        raise nothing_to_restore(
            f"no removal tagged files at {printable(location)}",
            "To restore deleted files, name their removal's receipt.",
        )
    return PastRemoval(plan_ids, location, 0, 0, is_versioned=False, is_quarantine=True, by_location=True)


def plans_of(connection: Connection, bucket: str | None) -> PlanStore:
    """Return the plans in a bucket, by default the settings' or the local stack's. Raises CommandError."""
    from delegation.storage.s3_plans import S3PlanStore  # noqa: PLC0415 - loads boto3

    bucket = bucket or connection.settings.get("plan_bucket")
    client = connection.s3(bucket)
    return S3PlanStore(client, bucket or _bucket_of_stack(client))


def _opened(connection: Connection, receipt: str, bucket: str | None) -> tuple[PlanStore, PastRemoval]:
    plans = plans_of(connection, bucket)
    match, location = PLAN_NAME.fullmatch(receipt), _location_of(receipt)
    if location is not None:
        return plans, _tagged_here(plans, location)
    if match is None:
        try:
            document: Any = connection.client().receipt(receipt).model_dump(mode="json")
        except NotFound as error:
            raise receipt_unknown(receipt, str(error)) from None
        return plans, PastRemoval.of(document, receipt)
    try:
        document = json.loads(plans.get(f"{match['plan']}/receipt.json"))
    except ObjectNotFound:
        raise receipt_unknown(receipt, f"there is no receipt {plans.where(match['plan'])}/receipt.json") from None
    except ValueError:
        raise receipt_unknown(receipt, "the receipt cannot be read") from None
    return plans, PastRemoval.of(document, receipt)


def _bucket_of_stack(client: "S3Client") -> str:
    """Return the only bucket of a local stack that can have the plans. Raises CommandError (PLAN_BUCKET_UNKNOWN)."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - loads boto3

    try:
        names = [bucket["Name"] for bucket in client.list_buckets()["Buckets"] if "plans" in bucket["Name"]]
    except (BotoCoreError, ClientError) as error:
        raise plan_bucket_unknown(f"the buckets of the stack cannot be listed: {type(error).__name__}") from error
    if len(names) != 1:
        several = f"several buckets may be the plan bucket: {', '.join(names)}"
        raise plan_bucket_unknown(several if names else "no bucket of the stack has `plans` in its name")
    return names[0]


def _restored(
    output: Output, run: "RestoreRun | UntagRun", removal: PastRemoval, act: str, rights: Sequence[str]
) -> Restoration:
    what = "Looking at" if run.dry_run else "Restoring"
    many = "its files" if removal.is_quarantine else counted(removal.files_deleted, "file")
    try:
        with output.status(f"{what} {many} …"):
            return run.run()
    except ObjectStoreDenied as error:
        raise CommandError(
            f"{act} in the bucket {printable(split(removal.location)[0])} needs {' and '.join(rights)}, which your "
            f"credentials do not allow: {error}",
            "Repeat the command with an operator's role for the bucket (AWS_PROFILE). It continues where it stopped.",
            code="OPERATOR_ROLE_REQUIRED",
        ) from error
    except KeyboardInterrupt:
        raise CommandError(
            "interrupted; files that were restored stay",
            "Repeat the command. It continues where it stopped.",
            code="INTERRUPTED",
            exit_status=INTERRUPTED,
        ) from None


def _document(removal: PastRemoval, restoration: Restoration, unrecorded: int, *, dry_run: bool) -> dict[str, Any]:
    return {
        "location": removal.location,
        "plan": list(removal.plan_ids),
        "dry_run": dry_run,
        "quarantine": removal.is_quarantine,
        "complete": restoration.is_complete,
        **{str(state): {"files": amount.files, "bytes": amount.bytes} for state, amount in restoration.amounts.items()},
        "files_without_record": unrecorded,
        "left": [{"path": path, "state": str(state)} for path, state in restoration.left],
        "errors": [{"of": what, "reason": reason} for what, reason in restoration.failed],
    }


def _screens(
    removal: PastRemoval, restoration: Restoration, unrecorded: int, *, dry_run: bool
) -> Iterator[RenderableType]:
    back = restoration.amounts[FileState.RESTORED]
    word = "Would restore" if dry_run else "Restored"
    if removal.is_quarantine:
        word = "Would remove the tag from" if dry_run else "Removed the tag from"
    yield f"{word} {counted(back.files, 'file')}, {size_text(back.bytes)}, at {plain(removal.location)}"
    meanings = _OF_TAGS if removal.is_quarantine else _MEANINGS
    rows = [
        (f"{amount.files:,}", f"{meanings[state]} ({size_text(amount.bytes)})")
        for state, amount in restoration.amounts.items()
        if state is not FileState.RESTORED and amount.files
    ]
    if unrecorded:
        why = (
            "not recorded: these files were absent already, an attempt that was killed deleted them, or a record is "
            "damaged"
        )
        rows.append((f"{unrecorded:,}", why))
    if rows:
        yield LabelledLines(rows, indent=2)
    for path, state in restoration.left[:10]:
        yield WrappedText(f"{plain(path)}  {state.replace('_', ' ')}", indent=4)
    for what, reason in restoration.failed[:10]:
        yield WrappedText(f"{plain(what)}: {reason}", indent=4)
    if back.files and not dry_run:
        yield (
            "No table needs these files, so the next removal finds them again. Commit the files to a table, or set the "
            "table's property delegation.protected to true."
        )
    if not restoration.resumes:
        yield "Your credentials may not write beside the plan, so a repeated command checks each file again."
