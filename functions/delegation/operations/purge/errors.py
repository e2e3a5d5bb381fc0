"""What purging can end in beside the errors of the rooms below, split by what the caller can do next."""

from collections.abc import Sequence
from typing import ClassVar

from delegation.errors import DelegationError, GuardRefused, printable, shown


class PurgeError(DelegationError):
    """A purge could not be done."""

    code: ClassVar[str] = "PURGE_FAILED"


class GcDisabled(GuardRefused):
    """The table's property gc.enabled is false: its files may belong to others."""

    code = "GC_DISABLED"


class TableUuidMismatch(GuardRefused):
    """The table under this name is not the one that was to be purged."""

    code = "TABLE_UUID_MISMATCH"

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"table-uuid is {found}, the purge is for {expected}")
        self.expected = expected
        self.found = found


class MetadataReplaced(GuardRefused):
    """The catalog now names metadata older than what was planned."""

    code = "METADATA_REPLACED"


class _FilesRefused(GuardRefused):
    """`count` files that a guard refuses to delete, and a `sample` of their paths."""

    problem: ClassVar[str]

    def __init__(self, count: int, sample: Sequence[str]) -> None:
        super().__init__(f"{self.problem.format(count)}, such as {shown(sample)}")
        self.count = count
        self.sample = tuple(sample)


class PathsOutsideTable(_FilesRefused):
    """Reachable files lie outside the table's locations and `outside=refuse` was asked; `count`, and a `sample`."""

    code = "PATHS_OUTSIDE_TABLE"
    problem = "{} reachable files lie outside the table's locations"


class FilesShared(_FilesRefused):
    """Another live table references files of this one and `shared=refuse` was asked; `count` and a `sample` of them."""

    code = "FILES_SHARED"
    problem = "another live table references {} files"


class CredentialsDoNotCover(_FilesRefused):
    """Files (often at former locations) that no vended credential reaches; `count` and a `sample` of them."""

    code = "CREDENTIALS_DO_NOT_COVER"
    problem = "the vended credentials do not cover {} files"


class CredentialsCannotDelete(GuardRefused):
    """A delete of a key that never existed was denied: the service's principal lacks TABLE_WRITE_DATA."""

    code = "CREDENTIALS_CANNOT_DELETE"

    def __init__(self, prefix: str, reason: str) -> None:
        super().__init__(f"the vended credentials cannot delete below {printable(prefix)} ({reason})")


class NeighbourUnreadable(GuardRefused):
    """Another table (or the list of them) cannot be read, so whether it shares files is unknown; `who`, and `why`."""

    code = "NEIGHBOUR_UNREADABLE"

    def __init__(self, who: str, why: DelegationError) -> None:
        super().__init__(
            f"{printable(who)} may share files and cannot be read ({why.code}): the service's principal needs "
            "TABLE_LIST on the namespace, TABLE_READ_PROPERTIES and TABLE_READ_DATA on its tables. "
            f"{printable(str(why))}"
        )
        self.who = who
        self.why = why.code


class NeighbourChanged(PurgeError):
    """A manifest of another live table went while it was read: it was committed to, expired or purged meanwhile."""

    code = "NEIGHBOUR_CHANGED"
    retryable = True

    def __init__(self, who: str, path: str) -> None:
        super().__init__(f"{printable(who)} changed while it was read for shared files: {printable(path)} is gone")


class TooLargeForInline(GuardRefused):
    """`engine=inline` was asked for a table of more files than the operator lets that engine purge."""

    code = "TOO_LARGE_FOR_INLINE"

    def __init__(self, files: int, most: int) -> None:
        super().__init__(f"the table has {files} files or more, the inline engine is for at most {most}")


class PlanOfAnotherTable(GuardRefused):
    """The plan was made for another table, or for another identifier of it."""

    code = "PLAN_OF_ANOTHER_TABLE"


class PlanOutdated(GuardRefused):
    """The table was committed to since the plan asked for was made; `plan` is its id.

    The one refusal that can come after the first delete: then the same request without `plan` finishes.
    """

    code = "PLAN_OUTDATED"

    def __init__(self, plan: str) -> None:
        super().__init__(f"the table was committed to since plan {plan} was made, and no other may be executed")


class PlanNotAllowed(GuardRefused):
    """The plan asked for deletes files outside the table's locations, or markers, that this request does not."""

    code = "PLAN_NOT_ALLOWED"


class VersionedBucket(GuardRefused):
    """Deleting from these `buckets` only adds delete markers, and `versioned=refuse` was asked."""

    code = "VERSIONED_BUCKET"

    def __init__(self, buckets: Sequence[str]) -> None:
        super().__init__(f"deleting frees nothing in {shown(buckets)}, which keep versions of their objects")
        self.buckets = tuple(buckets)


class TableGone(PurgeError):
    """The catalog no longer serves the table, and its root was not seen deleted: files may be left.

    `delegation purge METADATA_LOCATION --plan` finishes with the operator's own credentials.
    """

    code = "TABLE_GONE"
