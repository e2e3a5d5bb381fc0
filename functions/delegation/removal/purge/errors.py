"""Errors of purging, by what the caller can do next."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from delegation.errors import GuardRefused
from delegation.iceberg.errors import (
    CorruptManifestError,
    EncryptedMetadataFile,
    ManifestMismatchError,
    ManifestMissing,
)
from delegation.references.errors import ReferencesNotKnown
from delegation.storage.base import FileTooLarge
from polaris_common.errors import DelegationError, counted, printable, shown

_DAMAGED: Final = "have the operator set delegation.purge.damaged=keep to purge the rest"
ADVICE: Final[Mapping[type[DelegationError], str]] = {
    ReferencesNotKnown: ". To check fewer tables, set delegation.purge.references to `location` or `namespace`",
    ManifestMissing: f". Restore it, or {_DAMAGED}",
    CorruptManifestError: f". Replace it with an intact copy, or {_DAMAGED}",
    ManifestMismatchError: f". Replace it with an intact copy, or {_DAMAGED}",
    FileTooLarge: f". If it is a manifest list or a manifest, {_DAMAGED}",
    EncryptedMetadataFile: ". Have the operator set delegation.purge.unsupported=keep to purge the rest",
}
"""A purge outcome's addition to an error."""


class PurgeError(DelegationError):
    """A purge failed."""

    code = "PURGE_FAILED"


def table_state_mismatch(name: str, stated: str, actual: str) -> GuardRefused:
    """Return the error for a stated value that the catalog's table does not have and never had."""
    return GuardRefused(
        f"the request states {name} {printable(stated)}, but the catalog's table has {printable(actual)}. Load the "
        "table again, and send a new purge if you want to delete that table",
        code="TABLE_STATE_MISMATCH",
    )


def metadata_replaced(message: str) -> GuardRefused:
    """Return the error for catalog metadata that is not a later state than the plan's."""
    return GuardRefused(message, code="METADATA_REPLACED")


class _FilesRefused(GuardRefused):
    """A guard refuses to delete `count` files; `sample` has some of their paths."""

    problem: ClassVar[str]

    def __init__(self, count: int, sample: Sequence[str], *, note: str = "") -> None:
        problem = self.problem.format(files=counted(count, "file"), are="is" if count == 1 else "are")
        super().__init__(f"{problem}, such as {shown(sample)}{note}")
        self.count = count
        self.sample = tuple(sample)


class PathsOutsideTable(_FilesRefused):
    """The table reaches files outside its locations and `outside=refuse` is set, or its metadata file is outside."""

    code = "PATHS_OUTSIDE_TABLE"
    problem = "{files} of the table {are} outside its locations"


class FilesShared(_FilesRefused):
    """Another live table references files of this one, and `shared=refuse` is set or the plan has these files."""

    code = "FILES_SHARED"
    problem = "another live table references {files}"


class FilesAtAnotherTable(_FilesRefused):
    """Files are at another live table's location and not at this table's own, and `shared=refuse` is set."""

    code = "FILES_AT_ANOTHER_TABLE"
    problem = "{files} {are} at the location of another live table, not at this table's"


class CredentialsDoNotCover(_FilesRefused):
    """No vended credential covers some files, often at former locations, or the metadata file itself."""

    code = "CREDENTIALS_DO_NOT_COVER"
    problem = "the vended credentials do not cover {files}"


def spark_not_available(files: int, *, requested: bool) -> GuardRefused:
    """Return the error for a purge that needs or requests Spark in a deployment whose jobs cannot reach Polaris."""
    why = (
        "the request asks for Spark"
        if requested
        else f"the table has {counted(files, 'file')} or more, or large manifests"
    )
    return GuardRefused(
        f"{why}, but Spark jobs of this deployment could not reach Polaris. Set "
        "delegation:emr-subnet-ids to subnets with a route to Polaris, deploy, and retry",
        code="SPARK_NOT_AVAILABLE",
    )


class PlanOutdated(GuardRefused):
    """The table has newer commits than the requested plan. This can happen after the first delete; then the same
    request without `plan` finishes the purge."""

    code = "PLAN_OUTDATED"

    def __init__(self, plan: str) -> None:
        super().__init__(f"plan {plan} is outdated, because the table has newer commits. Make a new plan")


class PlanNotAllowed(GuardRefused):
    """The plan was made under other options than the request's, so it deletes more or less than requested."""

    code = "PLAN_NOT_ALLOWED"


def table_is_written_to(commits: int) -> PurgeError:
    """Return the error for a table with a commit at each of this many comparisons."""
    return PurgeError(
        f"the table had new commits each of {commits} times that this attempt loaded it. Stop its writers, then send "
        "the same purge again to delete the remaining files",
        code="TABLE_IS_WRITTEN_TO",
    )


def files_left_unknown(
    plan_id: str, why: str, *, root: str | None, deleted: Sequence[str], locations: Sequence[str]
) -> PurgeError:
    """Return the error for an unreadable plan of a table with unreadable metadata: nothing lists the remaining files.
    `deleted` are the steps that are known to be completely deleted, `locations` the table's known ones, `root` its
    metadata file."""
    known = f"All files of these steps are deleted: {', '.join(deleted)}" if deleted else _NO_STEP
    file = "" if root is None else f" (metadata file {root})"
    where = f"below {shown(locations)}" if locations else "where the table was"
    return PurgeError(
        f"the plan {plan_id} of this purge is lost, and {why}{file}. {known}. Other files may remain {where}. Either "
        "restore the plan's objects from their versions and retry the task, which then deletes these files. Or delete "
        "the files that no table needs yourself, then drop the table",
        code="FILES_LEFT_UNKNOWN",
    )


_NO_STEP = "No step is recorded as done"


def dropped(root: str) -> PurgeError:
    """Return the error for a table whose entry is gone while its metadata file may still exist."""
    return _table_gone(
        "the catalog no longer has the table, so it vends no credentials for it. The purge had not yet deleted the "
        f"table's current metadata file {root}",
        f"Run `delegation purge {root}` with your own credentials to delete the remaining files",
    )


def root_lost(root: str, plan_id: str) -> PurgeError:
    """Return the error for a table whose current metadata file was deleted by another process."""
    return _table_gone(
        f"the table's current metadata file {root} was deleted by another process before the purge reached it",
        f"The plan {plan_id} lists the files. Delete those that remain, then drop the table",
    )


def _table_gone(why: str, next_step: str) -> PurgeError:
    return PurgeError(f"{why}. Files of the table may remain. {next_step}", code="TABLE_GONE")
