"""`delegation purge`: purges a table in this process from its metadata file, without service and catalog."""

import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from delegation.cli.calls import Call, argument, command, defaulted, optional, switch
from delegation.cli.deployment.limits import CdkOption, StageFileOption, given_foreign
from delegation.cli.errors import INTERRUPTED, command_unavailable
from delegation.cli.interruption import Interrupted, Interruption
from delegation.cli.output import Output
from delegation.errors import GuardRefused
from delegation.iceberg.errors import CorruptManifestError, CorruptMetadata, ManifestMismatchError, ManifestMissing
from delegation.removal.choice import EngineChoice
from delegation.removal.errors import FilesNotDeleted, PlanTampered
from delegation.removal.marks import Deleted
from delegation.removal.path_guard import OUTSIDE, SHARED
from delegation.removal.purge.context import PurgeResult
from delegation.removal.purge.direct import DirectPurge, DirectResources, DirectRun, default_place
from delegation.removal.purge.errors import FilesShared, PathsOutsideTable
from delegation.removal.purge.not_covered import NotCoveredRun, place_of
from delegation.removal.purge.requests import PurgeOptions
from delegation.storage.credentials import S3Settings
from polaris_common.errors import DelegationError, counted

REFUSED: Final = 3
KEYS_FAILED: Final = 4
CORRUPT: Final = 5
_CORRUPT = (CorruptMetadata, CorruptManifestError, ManifestMismatchError, ManifestMissing, PlanTampered)


class Kept(StrEnum):
    DAMAGED = "damaged"
    UNSUPPORTED = "unsupported"
    AMBIGUOUS = "ambiguous"


@command(takes="yes")
def purge_command(
    call: Call,
    metadata_location: Annotated[str, argument("METADATA_LOCATION", "The table's current metadata.json.")],
    *,
    engine: EngineChoice = defaulted("--engine", "inline: in this process; spark: in a Spark session.", "inline"),
    dry_run: bool = switch("--dry-run", "Only write the plan and the estimate."),
    plan: str | None = optional(
        "--plan",
        "Where plan and receipt are stored. An existing plan is executed. Default: ./delegation-plans/ID.",
        "DIR_OR_URI",
    ),
    s3_endpoint: str | None = optional("--s3-endpoint", "The URL of an S3-compatible store.", "URL"),
    outside: Literal["keep", "refuse", "delete"] = defaulted(
        "--outside", "Files outside the table's locations: keep, refuse or delete.", "keep"
    ),
    protect: list[str] | None = defaulted(
        "--protect",
        "Another table's metadata.json; its files stay. May be repeated.",
        None,
        metavar="OTHER_METADATA_LOCATION",
    ),
    keep: list[Kept] | None = defaulted(
        "--keep",
        "Keep damaged, unsupported or ambiguous files and purge the rest; may be repeated.",
        None,
    ),
    not_covered: bool = switch(
        "--not-covered",
        "Delete the files that a plan kept as NOT_COVERED; METADATA_LOCATION is the plan's index.json.",
    ),
    experimental_format: bool = switch("--experimental-format", "Try an unsupported format version."),
    cdk: CdkOption = Path("cdk.json"),
    stage_file: StageFileOption = None,
) -> None:
    """Delete all files of a table, given its metadata.json, with your credentials and without the service.

    Use it for a table that is no longer in its catalog. Rerun the command to resume. Exit status 3: a guard
    refused the purge. 4: some keys were not deleted. 5: the metadata is corrupt.
    """
    if not dry_run:
        call.confirm_deletion(f"that {metadata_location} references")
    options = PurgeOptions(
        outside=outside,
        dry_run=dry_run,
        experimental_format=experimental_format,
        damaged="keep" if Kept.DAMAGED in (keep or ()) else "refuse",
        unsupported="keep" if Kept.UNSUPPORTED in (keep or ()) else "refuse",
        ambiguous="keep" if Kept.AMBIGUOUS in (keep or ()) else "refuse",
    )
    foreign = given_foreign(cdk, stage_file)
    purge = DirectPurge(metadata_location, engine, options, tuple(protect or ()), foreign)
    settings = S3Settings(endpoint=s3_endpoint, path_style=s3_endpoint is not None)
    if not_covered and plan:
        raise typer.BadParameter(
            "cannot be combined with --not-covered: METADATA_LOCATION is the plan", param_hint="--plan"
        )
    report = _run(call, purge, plan, settings, not_covered=not_covered)
    report.show(call)
    raise typer.Exit(_status(report.problem)[1])


def _run(
    call: Call, purge: DirectPurge, plan: str | None, settings: S3Settings, *, not_covered: bool = False
) -> "_Report":
    report = _Report(purge.engine, plan)

    def interrupted(error: DelegationError) -> None:
        report.problem = error
        report.show(call)

    started = time.monotonic()
    pressed = Interruption(_resume_text(purge, plan), interrupted)
    try:
        if not_covered:
            report.plan = place_of(purge.metadata_location)
            report.run = NotCoveredRun(
                purge.metadata_location,
                DirectResources(report.plan, settings),
                protect=purge.protect,
                dry_run=purge.options.dry_run,
                foreign=purge.foreign,
                checkpoint=pressed.checkpoint,
            )
        else:
            report.plan = plan or default_place(purge.metadata_location)
            report.run = DirectRun(
                purge, DirectResources(report.plan, settings), checkpoint=pressed.checkpoint, warn=report.warn
            )
        with pressed.watched():
            report.result = report.run()
    except DelegationError as error:
        pressed.claim()
        report.problem = error
    except KeyboardInterrupt:  # Spark's session has its own handler
        pressed.claim()
        report.problem = pressed.error
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"pyspark", "pyarrow", "py4j"}:
            raise
        report.problem = command_unavailable("spark", f"the module {error.name} is not installed")
    report.seconds = time.monotonic() - started
    return report


def _resume_text(purge: DirectPurge, plan: str | None) -> str:
    place = f" --plan {plan}" if plan else ""
    return (
        "interrupted; recorded progress is kept. To resume, run this command in the same directory, with all other "
        f"options as before: delegation purge {purge.metadata_location}{place}"
    )


def _status(problem: DelegationError | None) -> tuple[str, int]:
    match problem:
        case None:
            return "", 0
        case Interrupted():
            return "INTERRUPTED", INTERRUPTED
        case GuardRefused():
            return "REFUSED", REFUSED
        case FilesNotDeleted():
            return "INCOMPLETE", KEYS_FAILED
        case _ if isinstance(problem, _CORRUPT):
            return "CORRUPT", CORRUPT
        case _:
            return "FAILED", 1


@dataclass
class _Report:
    """What a purge has done, and the error that ended it."""

    engine: str
    plan: str | None
    run: DirectRun | NotCoveredRun | None = None
    result: PurgeResult | None = None
    problem: DelegationError | None = None
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)

    def warn(self, text: str) -> None:
        """Print a warning at once, before anything is deleted."""
        self.warnings.append(text)
        typer.echo(f"Warning: {text}", err=True)

    def marked(self) -> tuple[int | None, Deleted]:
        """Return the files planned and what was deleted by the plan's marks; 0 if they cannot be read."""
        if self.run is None:
            return None, Deleted()
        try:
            planned, deleted = self.run.marked()
        except DelegationError:
            return None, Deleted()
        return planned or None, deleted

    def document(self) -> dict[str, Any]:
        result, problem = self.result, self.problem
        if result is None:
            planned, deleted = self.marked()
        else:
            planned = result.files_planned
            deleted = Deleted(result.files_deleted, result.bytes_deleted, result.files_absent)
        counts = {finding.code: finding.count for finding in result.findings} if result else {}
        document: dict[str, Any] = {
            "status": result.status if result else _status(problem)[0],
            "files_planned": planned,
            "files_deleted": deleted.files,
            "bytes_deleted": deleted.bytes,
            "files_failed": problem.count if isinstance(problem, FilesNotDeleted) else 0,
            "files_outside": problem.count if isinstance(problem, PathsOutsideTable) else counts.get(OUTSIDE, 0),
            "files_protected": problem.count if isinstance(problem, FilesShared) else counts.get(SHARED, 0),
            "seconds": round(self.seconds, 3),
            "error_code": problem.code if problem else None,
        }
        if deleted.absent:
            document["files_absent"] = deleted.absent
        if result and result.forecast:
            document["estimate"] = result.forecast.model_dump(mode="json")
        document |= {"engine": self.engine, "plan": self.plan}
        if self.warnings:
            document["warnings"] = self.warnings
        return document | {"message": str(problem)} if problem else document

    def show(self, call: Call) -> None:
        document = self.document()
        if call.as_json:
            call.output.result(document)
            if isinstance(self.problem, Interrupted):
                typer.echo(str(self.problem), err=True)
        elif self.problem is not None:
            Output().problem(self.problem)  # its advice is not limited to this command's options
        elif document["status"] == "PLANNED":
            forecast = self.result.forecast.text() if self.result and self.result.forecast else "an unknown time"
            typer.echo(f"Planned {counted(document['files_planned'], 'file')} in {self.plan}; nothing was deleted.")
            typer.echo(f"Executing the plan takes {forecast}.")
        else:
            absent = f" ({document['files_absent']:,} of them absent already)" if "files_absent" in document else ""
            typer.echo(
                f"Deleted {counted(document['files_deleted'], 'file')}{absent}, "
                f"{counted(document['bytes_deleted'], 'byte')}; kept "
                f"{counted(document['files_outside'], 'file')} outside the table's locations and "
                f"{counted(document['files_protected'], 'file')} of other tables. The receipt is in {self.plan}."
            )
