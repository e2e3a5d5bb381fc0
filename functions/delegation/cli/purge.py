"""`delegation purge`: purge a table by its metadata file, here, without service and catalog."""

import json
import sys
import time
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from delegation.cli.errors import CommandUnavailable
from delegation.cli.options import JsonOption
from delegation.cli.output import output_of
from delegation.cli.submit import at_a_terminal
from delegation.errors import DelegationError, GuardRefused
from delegation.iceberg.errors import CorruptManifestError, CorruptMetadata, ManifestMismatchError, ManifestMissing
from delegation.operations.purge import guards
from delegation.operations.purge.context import PurgeResult
from delegation.operations.purge.direct import DirectPurge, DirectResources, DirectRun, default_place
from delegation.operations.purge.errors import FilesShared, PathsOutsideTable
from delegation.operations.purge.options import PurgeOptions
from delegation.storage.credentials import S3Settings
from delegation.worksets.errors import FilesNotDeleted, PlanTampered

REFUSED: Final = 3
KEYS_FAILED: Final = 4
CORRUPT: Final = 5
_CORRUPT = (CorruptMetadata, CorruptManifestError, ManifestMismatchError, ManifestMissing, PlanTampered)


class EngineName(StrEnum):
    """Which engine does the work."""

    INLINE = "inline"
    SPARK = "spark"


class Outside(StrEnum):
    """What becomes of reachable files outside the table's own locations."""

    KEEP = "keep"
    REFUSE = "refuse"
    DELETE = "delete"


def purge_command(
    ctx: typer.Context,
    metadata_location: Annotated[
        str,
        typer.Argument(metavar="METADATA_LOCATION", show_default=False, help="The table's current metadata.json."),
    ],
    *,
    engine: Annotated[
        EngineName, typer.Option("--engine", help="Purge in this process, or with a Spark session.")
    ] = EngineName.INLINE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write the plan and delete nothing.")] = False,
    plan: Annotated[
        str | None,
        typer.Option(
            "--plan",
            metavar="DIR_OR_URI",
            show_default=False,
            help="Where plan and receipt lie; a plan that is there is executed. By default ./delegation-plans/ID.",
        ),
    ] = None,
    s3_endpoint: Annotated[
        str | None, typer.Option("--s3-endpoint", metavar="URL", show_default=False, help="An S3 other than AWS'.")
    ] = None,
    outside: Annotated[
        Outside, typer.Option("--outside", help="What becomes of files outside the table's own locations.")
    ] = Outside.KEEP,
    protect: Annotated[
        list[str] | None,
        typer.Option(
            "--protect",
            metavar="OTHER_METADATA_LOCATION",
            help="The metadata.json of another table whose files have to stay; may be repeated.",
        ),
    ] = None,
    experimental_format: Annotated[
        bool, typer.Option("--experimental-format", help="Try a format version that is not known to be read whole.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, even at a terminal.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete all files of a table that its metadata file reaches, with your own credentials, without any service.

    For a table that is gone from its catalog. Stopped at any point, the same command goes on. Exit status: 0 done,
    3 refused by a guard, 4 some keys could not be deleted, 5 corrupt, 1 anything else.
    """
    if not (yes or dry_run) and at_a_terminal():
        question = f"This deletes every file that {metadata_location} reaches, for good. Go on?"
        typer.confirm(question, abort=True, err=True)
    options = PurgeOptions(outside=outside.value, dry_run=dry_run, experimental_format=experimental_format)
    wanted = DirectPurge(metadata_location, engine.value, options, tuple(protect or ()))
    started = time.monotonic()
    place = plan
    run: DirectRun | None = None
    result: PurgeResult | None = None
    problem: DelegationError | None = None
    try:
        place = plan or default_place(metadata_location)
        settings = S3Settings(endpoint=s3_endpoint, path_style=s3_endpoint is not None)
        run = DirectRun(wanted, DirectResources(place, settings))
        result = run()
    except DelegationError as error:
        problem = error
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"pyspark", "pyarrow", "py4j"}:
            raise
        problem = CommandUnavailable("spark", f"the module {error.name} is not installed")
    told = _told(run, result, problem, seconds=time.monotonic() - started) | {"engine": engine.value, "plan": place}
    forecast = result.forecast.text() if result and result.forecast else None
    _show(ctx, told, problem, forecast=forecast, as_json=as_json)
    raise typer.Exit(_status(problem)[1])


def _status(problem: DelegationError | None) -> tuple[str, int]:
    match problem:
        case None:
            return "", 0
        case GuardRefused():
            return "REFUSED", REFUSED
        case FilesNotDeleted():
            return "INCOMPLETE", KEYS_FAILED
        case _ if isinstance(problem, _CORRUPT):
            return "CORRUPT", CORRUPT
        case _:
            return "FAILED", 1


def _told(
    run: DirectRun | None, result: PurgeResult | None, problem: DelegationError | None, *, seconds: float
) -> dict[str, Any]:
    attempt = run.attempt if run is not None else None
    counts = {finding.code: finding.count for finding in result.findings} if result is not None else {}
    return {
        "status": result.status if result is not None else _status(problem)[0],
        "files_planned": result.files_planned if result is not None else None,
        "files_deleted": result.files_deleted if result else attempt.reported.files_deleted if attempt else 0,
        "bytes_deleted": result.bytes_deleted if result else attempt.reported.bytes_deleted if attempt else 0,
        "files_failed": problem.count if isinstance(problem, FilesNotDeleted) else 0,
        "files_outside": problem.count if isinstance(problem, PathsOutsideTable) else counts.get(guards.OUTSIDE, 0),
        "files_protected": problem.count if isinstance(problem, FilesShared) else counts.get(guards.SHARED, 0),
        "seconds": round(seconds, 3),
        "error_code": None if problem is None else problem.code,
    } | ({"estimate": result.forecast.model_dump(mode="json")} if result and result.forecast else {})


def _show(
    ctx: typer.Context, told: dict[str, Any], problem: DelegationError | None, *, forecast: str | None, as_json: bool
) -> None:
    if as_json:
        sys.stdout.write(json.dumps(told | ({"message": str(problem)} if problem else {}), ensure_ascii=False) + "\n")
    elif problem is not None:
        output_of(ctx).problem(problem)
    elif told["status"] == "PLANNED":
        typer.echo(f"Planned {told['files_planned']:,} files; the plan lies in {told['plan']}, nothing was deleted.")
        typer.echo(f"Executing it takes {forecast}.")
    else:
        typer.echo(
            f"Deleted {told['files_deleted']:,} files, {told['bytes_deleted']:,} bytes; kept "
            f"{told['files_outside']:,} outside and {told['files_protected']:,} of others; receipt in {told['plan']}."
        )
