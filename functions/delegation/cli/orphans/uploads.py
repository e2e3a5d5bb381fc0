"""`delegation orphans abort-uploads`: abort unfinished uploads at the location of a removal's plan.

It works with the operator's own AWS credentials: those that the catalog vends may neither list nor abort uploads.
"""

from pathlib import Path
from typing import Final

import typer
from rich.console import Console

from delegation.cli.connection import Connection
from delegation.cli.errors import INTERRUPTED, PARTLY_DONE, CommandError
from delegation.cli.options import JsonOption, StackOption, YesOption, confirm_change
from delegation.cli.orphans.plans import PlanArgument, opened_plan, time_text
from delegation.cli.orphans.restore import DryRunOption, PlanBucketOption, S3EndpointOption
from delegation.cli.output import JsonOutput, Output, open_output, print_json
from delegation.cli.policies.limits import CdkOption, StageFileOption, given_foreign
from delegation.cli.screens.layout import LabelledLines, Whole
from delegation.cli.screens.watching import plain, size_text
from delegation.operations.orphans.uploads import AbortRun, UploadsAborted, UploadState
from delegation.storage.base import ObjectStoreDenied
from delegation.storage.listing.uploads import UPLOAD_RIGHTS
from delegation.storage.locations import split
from polaris_common.errors import counted, printable

_SHOWN: Final = 10


def abort_uploads_command(
    ctx: typer.Context,
    plan: PlanArgument,
    *,
    dry_run: DryRunOption = False,
    plan_bucket: PlanBucketOption = None,
    s3_endpoint: S3EndpointOption = None,
    cdk: CdkOption = Path("cdk.json"),
    stage_file: StageFileOption = None,
    yes: YesOption = False,
    stack: StackOption = None,
    as_json: JsonOption = False,
) -> None:
    """Abort unfinished multipart uploads at a table's location, with your own AWS credentials.

    A plan of a scan or a removal states where, and how old an upload has to be:
    only uploads that were older than the plan's age when it listed the
    location are aborted. What they uploaded cannot be brought back. Repeat
    the command to resume. Exit status: 0 none of them is left, 4 a writer
    still sends parts of some, 130 interrupted, 1 any other error.
    """
    output = open_output(ctx, as_json=as_json)
    connection = Connection.of(ctx, stack)
    bucket, _, index = opened_plan(connection, plan, plan_bucket)
    if not (yes or dry_run):
        before = time_text(index.listed_at - index.age)
        confirm_change(f"This aborts unfinished uploads at {index.roots[0]} that began before {before}")
    from delegation.storage.listing.uploads_s3 import S3Uploads  # noqa: PLC0415 - loads boto3

    foreign = given_foreign(cdk, stage_file)
    run = AbortRun(S3Uploads(connection.s3(bucket, s3_endpoint)), index, dry_run=dry_run, foreign=foreign)
    found = _aborted(output, run)
    _show(output, run, found)
    raise typer.Exit(0 if found.is_complete else PARTLY_DONE)


def _aborted(output: Output, run: AbortRun) -> UploadsAborted:
    location = run.index.roots[0]
    try:
        with output.status(f"Looking for unfinished uploads at {plain(location)} …"):
            return run.run()
    except ObjectStoreDenied as error:
        raise CommandError(
            f"to abort uploads in {printable(split(location)[0])} takes {', '.join(UPLOAD_RIGHTS)}, which credentials "
            f"that the catalog vends lack, and so do those of this command: {error}",
            "Repeat the command with an operator's role for the bucket (AWS_PROFILE); what is aborted stays so.",
            code="OPERATOR_ROLE_REQUIRED",
        ) from error
    except KeyboardInterrupt:
        raise CommandError(
            "interrupted; the uploads that were aborted stay so",
            "Repeat the command: it continues with what is left.",
            code="INTERRUPTED",
            exit_status=INTERRUPTED,
        ) from None


def _show(output: Output, run: AbortRun, found: UploadsAborted) -> None:
    location, before = run.index.roots[0], time_text(run.before)
    if isinstance(output, JsonOutput):
        print_json(
            {
                "location": location,
                "plan": run.index.plan_id,
                "began_before": before,
                "dry_run": run.dry_run,
                "complete": found.is_complete,
                **{str(state): {"uploads": one.files, "bytes": one.bytes} for state, one in found.amounts.items()},
                "sample": [_document(one) for one in found.sample],
                "left": [_document(one) for one in found.left],
            }
        )
        return
    console = Console(highlight=False)
    done = found.amounts[UploadState.ABORTED]
    word = "Would abort" if run.dry_run else "Aborted"
    uploads = counted(done.files, "unfinished upload")
    console.print(
        Whole(f"{word} {uploads}, {size_text(done.bytes)}, at {plain(location)} that began before {before}"),
        crop=False,
    )
    meanings = {
        UploadState.RECENT: "younger, or with a hidden path; they stay",
        UploadState.FOREIGN: "at a location of others (delegation.foreign-locations); they stay",
        UploadState.GONE: "completed or aborted meanwhile by somebody else",
        UploadState.REMAINS: "not gone: a writer still sends parts; repeat the command later",
    }
    rows = [(f"{found.amounts[state].files:,}", text) for state, text in meanings.items() if found.amounts[state].files]
    if rows:
        console.print(LabelledLines(rows, indent=2), crop=False)
    for path, began, size in (*found.left, *found.sample)[:_SHOWN]:
        console.print(Whole(f"{plain(path)}  began {time_text(began)}, {size_text(size)}", indent=4), crop=False)


def _document(one: tuple[str, int, int]) -> dict[str, str | int]:
    path, began, size = one
    return {"path": path, "began": time_text(began), "bytes": size}
