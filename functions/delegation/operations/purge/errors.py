"""Errors of purging, split by what the caller can do next."""

from collections.abc import Sequence
from typing import ClassVar

from delegation.errors import DelegationError, GuardRefused, printable, shown


class PurgeError(DelegationError):
    """A purge failed."""

    code = "PURGE_FAILED"


class TableStateMismatch(GuardRefused):
    """The request states something of the table that the catalog's table does not have and never had."""

    code = "TABLE_STATE_MISMATCH"

    def __init__(self, name: str, stated: str, found: str) -> None:
        super().__init__(
            f"the request states {name} {printable(stated)}, the catalog's table has {printable(found)}; "
            "load the table again, and send a new purge if it is the one to delete"
        )
        self.name = name
        self.stated = stated
        self.found = found


class MetadataReplaced(GuardRefused):
    """The catalog names metadata that is not a later state of what the plan was made from."""

    code = "METADATA_REPLACED"


class _FilesRefused(GuardRefused):
    """`count` files that a guard refuses to delete, and a `sample` of their paths."""

    problem: ClassVar[str]

    def __init__(self, count: int, sample: Sequence[str], *, note: str = "") -> None:
        super().__init__(f"{self.problem.format(count)}, such as {shown(sample)}{note}")
        self.count = count
        self.sample = tuple(sample)


class PathsOutsideTable(_FilesRefused):
    """The table reaches files outside its locations and `outside=refuse` is set, or its metadata file is outside."""

    code = "PATHS_OUTSIDE_TABLE"
    problem = "{} files of the table are outside its locations"


class FilesShared(_FilesRefused):
    """Another live table references files of this one, and `shared=refuse` is set or the plan has these files."""

    code = "FILES_SHARED"
    problem = "another live table references {} files"


class FilesAtAnotherTable(_FilesRefused):
    """Files are at another live table's location and not at this table's own, and `shared=refuse` is set."""

    code = "FILES_AT_ANOTHER_TABLE"
    problem = "{} files are at the location of another live table and not at this table's own"


class CredentialsDoNotCover(_FilesRefused):
    """No vended credential covers some files, which are often at former locations, or the metadata file itself."""

    code = "CREDENTIALS_DO_NOT_COVER"
    problem = "the vended credentials do not cover {} files"


class RootKept(GuardRefused):
    """The plan would keep the table's current metadata file, for another reason than a live table that needs it."""

    code = "ROOT_KEPT"


class TooLargeForInline(GuardRefused):
    """`engine=inline` was requested for a table with more files than the operator allows for that engine."""

    code = "TOO_LARGE_FOR_INLINE"

    def __init__(self, files: int, most: int) -> None:
        super().__init__(f"the table has {files} files or more, the inline engine purges at most {most}; use Spark")


class SparkNotAvailable(GuardRefused):
    """The purge needs Spark, or asked for it, in a deployment whose Spark jobs could not reach Polaris."""

    code = "SPARK_NOT_AVAILABLE"

    def __init__(self, files: int, *, requested: bool) -> None:
        why = "the request asks for Spark" if requested else f"the table has {files} files or more, or large manifests"
        super().__init__(
            f"{why}, and this deployment runs no Spark jobs because they would not reach Polaris; set "
            "delegation:emr-subnet-ids to subnets with a route to Polaris, deploy, and retry"
        )


class PlanOutdated(GuardRefused):
    """The table has newer commits than the requested plan.

    It can come after the first delete; then the same request without `plan` finishes the purge.
    """

    code = "PLAN_OUTDATED"

    def __init__(self, plan: str) -> None:
        super().__init__(f"plan {plan} is stale: the table has newer commits; make a new plan")


class PlanNotAllowed(GuardRefused):
    """The plan was made under other options than the request's, so it deletes more or less than that asks for."""

    code = "PLAN_NOT_ALLOWED"


class VersionedBucket(GuardRefused):
    """A delete in these versioned `buckets` only adds a delete marker, and `versioned=refuse` is set."""

    code = "VERSIONED_BUCKET"

    def __init__(self, buckets: Sequence[str]) -> None:
        super().__init__(f"deleting frees nothing in {shown(buckets)}: versioning is on")
        self.buckets = tuple(buckets)


class TableIsWrittenTo(PurgeError):
    """The table received a commit at so many of the purge's looks that the purge stopped following them."""

    code = "TABLE_IS_WRITTEN_TO"

    def __init__(self, commits: int) -> None:
        super().__init__(
            f"the table received new commits while it was purged, at {commits} looks of this attempt: "
            "stop what writes to it, then send the same purge again, which deletes the rest"
        )
        self.commits = commits


class TableGone(PurgeError):
    """The table was dropped, or lost its metadata file `root`, before the purge deleted that: files may remain."""

    code = "TABLE_GONE"

    def __init__(self, root: str, why: str, *, next_step: str) -> None:
        super().__init__(f"{why}: files of the table may remain. {next_step}")
        self.root = root


class FilesLeftUnknown(PurgeError):
    """Neither the purge's plan nor the table's metadata can be read any more, so nothing lists what may be left.

    `deleted` are the steps of which every file is known to be deleted, `locations` the table's as far as they are
    known, `root` its metadata file.
    """

    code = "FILES_LEFT_UNKNOWN"

    def __init__(
        self, plan_id: str, why: str, *, root: str | None, deleted: Sequence[str], locations: Sequence[str]
    ) -> None:
        known = f"all files of these steps are deleted: {', '.join(deleted)}" if deleted else _NO_STEP
        file = "" if root is None else f", whose metadata file was {root}"
        where = f"below {shown(locations)}" if locations else "where the table was"
        super().__init__(
            f"the plan {plan_id} of this purge is lost, and {why}{file}: {known}, other files may remain {where}. "
            "Either put back the plan's objects, which the versions of its bucket have, and retry the task, which "
            "deletes the rest; or look there and delete what no table needs, then drop the table"
        )
        self.root = root
        self.deleted = tuple(deleted)
        self.locations = tuple(locations)


_NO_STEP = "none of its steps is recorded as done"


def dropped(root: str) -> TableGone:
    """Return the error of a table whose entry is gone while its metadata file may still exist."""
    return TableGone(
        root,
        "the catalog has no such table any more and vends no credentials for it, and the purge had not yet deleted "
        f"its current metadata file {root}",
        next_step=f"Run `delegation purge {root}` with credentials of your own; it deletes what is left",
    )


def root_lost(root: str, plan_id: str) -> TableGone:
    """Return the error of a table whose current metadata file was deleted by another process."""
    return TableGone(
        root,
        f"the table's current metadata file {root} was deleted by another process before the purge came to it",
        next_step=f"The files are listed in the plan {plan_id}; delete what is left of them, then drop the table",
    )
