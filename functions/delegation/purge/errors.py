"""What purging can end in, split by what the caller can do next.

PurgeError
├── PurgeRefused                a guard stopped it before the first delete; the table is whole
│   ├── GcDisabled              the table says gc.enabled=false
│   ├── TableUuidMismatch       another table stands at this name now
│   ├── MetadataReplaced        the catalog went back to older metadata
│   ├── AmbiguousPath           a path whose object cannot be told with certainty
│   ├── UnsupportedLocation     another kind of storage, or one with rules of its own
│   ├── UnsupportedFormat       an Iceberg format version this release does not know
│   ├── PathsOutsideTable       files outside the table's own locations, and the caller said refuse
│   ├── FilesShared             another live table references files, and the caller said refuse
│   ├── CredentialsDoNotCover   files that the vended credentials do not reach
│   ├── CredentialsCannotDelete the vended credentials are read-only
│   ├── NeighbourUnreadable     a table that may share files cannot be looked at
│   ├── TooLargeForInline       only the inline engine was asked for, and the table is beyond its limit
│   ├── VersionedBucket         deleting would free nothing, and the caller said refuse
│   ├── PlanOfAnotherTable      the plan asked for was made for something else
│   ├── PlanOutdated            the table was committed to since the plan asked for was made
│   └── PlanNotAllowed          the plan asked for does more than this request may
├── NeighbourChanged            a table that shares the location changed while it was read; the same again may do
├── CorruptMetadata             metadata.json does not say what the Iceberg specification demands
├── ManifestMissing             a manifest or manifest list is not there, and no earlier purge accounts for it
├── PlanTampered                a stored plan is not what was published
├── EngineFailed                the engine itself broke down; the same again may do
├── TableGone                   the table left the catalog before its root was seen deleted
└── FilesNotDeleted             some keys cannot be deleted; a person has to look
    └── FilesNotDeletedYet      some keys were not deleted, all for passing reasons; the same again may do
        └── FilesThrottled      all because the store asked us to slow down
Errors of the object store are in `objectstore`,
of manifests in `manifest_errors`; what ends an attempt is in `attempt`.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from delegation.errors import DelegationError


class PurgeError(DelegationError):
    """A purge could not be done. Instances can be pickled, to travel from an executor to the driver."""

    code: ClassVar[str] = "PURGE_FAILED"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, dict(self.__dict__))


def _restored(kind: type[PurgeError], args: tuple[Any, ...], fields: dict[str, Any]) -> PurgeError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


class PurgeRefused(PurgeError):
    """A guard refused before the first delete."""

    code = "PURGE_REFUSED"


class GcDisabled(PurgeRefused):
    """The table's property gc.enabled is false: its files may belong to others."""

    code = "GC_DISABLED"


class TableUuidMismatch(PurgeRefused):
    """The table under this name is not the one that was to be purged."""

    code = "TABLE_UUID_MISMATCH"

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"table-uuid is {found}, the purge is for {expected}")
        self.expected = expected
        self.found = found


class MetadataReplaced(PurgeRefused):
    """The catalog now names metadata older than what was planned."""

    code = "METADATA_REPLACED"


class AmbiguousPath(PurgeRefused):
    """A path that writers and object stores resolve differently (`#`, `?`, `..`, no bucket, no key, not UTF-8)."""

    code = "AMBIGUOUS_PATH"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{reason}: {printable(path)}")
        self.path = path
        self.reason = reason


class UnsupportedLocation(PurgeRefused):
    """A path in a storage that this engine does not delete from."""

    code = "UNSUPPORTED_LOCATION"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{reason}: {printable(path)}")
        self.path = path
        self.reason = reason


class UnsupportedFormat(PurgeRefused):
    """An Iceberg format version that is not known to be read completely."""

    code = "UNSUPPORTED_FORMAT_VERSION"


class PathsOutsideTable(PurgeRefused):
    """Reachable files lie outside the table's locations and `outside=refuse` was asked; `count`, and a `sample`."""

    code = "PATHS_OUTSIDE_TABLE"

    def __init__(self, count: int, sample: Sequence[str]) -> None:
        super().__init__(f"{count} reachable files lie outside the table's locations, such as {shown(sample)}")
        self.count = count
        self.sample = tuple(sample)


class FilesShared(PurgeRefused):
    """Another live table references files of this one and `shared=refuse` was asked; `count` and a `sample` of them."""

    code = "FILES_SHARED"

    def __init__(self, count: int, sample: Sequence[str]) -> None:
        super().__init__(f"another live table references {count} files, such as {shown(sample)}")
        self.count = count
        self.sample = tuple(sample)


class CredentialsDoNotCover(PurgeRefused):
    """Files (often at former locations) that no vended credential reaches; `count` and a `sample` of them."""

    code = "CREDENTIALS_DO_NOT_COVER"

    def __init__(self, count: int, sample: Sequence[str]) -> None:
        super().__init__(f"the vended credentials do not cover {count} files, such as {shown(sample)}")
        self.count = count
        self.sample = tuple(sample)


class CredentialsCannotDelete(PurgeRefused):
    """A delete of a key that never existed was denied: the service's principal lacks TABLE_WRITE_DATA."""

    code = "CREDENTIALS_CANNOT_DELETE"

    def __init__(self, prefix: str, reason: str) -> None:
        super().__init__(f"the vended credentials cannot delete below {printable(prefix)} ({reason})")
        self.prefix = prefix
        self.reason = reason


class NeighbourUnreadable(PurgeRefused):
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
        self.who = who
        self.path = path


class TooLargeForInline(PurgeRefused):
    """`engine=inline` was asked for a table of more files than the operator lets that engine purge."""

    code = "TOO_LARGE_FOR_INLINE"

    def __init__(self, files: int, most: int) -> None:
        super().__init__(f"the table has {files} files or more, the inline engine is for at most {most}")
        self.files = files
        self.most = most


class PlanOfAnotherTable(PurgeRefused):
    """The plan was made for another table, or for another identifier of it."""

    code = "PLAN_OF_ANOTHER_TABLE"


class PlanOutdated(PurgeRefused):
    """The table was committed to since the plan asked for was made; `plan` is its id.

    The one refusal that can come after the first delete: then the same request without `plan` finishes.
    """

    code = "PLAN_OUTDATED"

    def __init__(self, plan: str) -> None:
        super().__init__(f"the table was committed to since plan {plan} was made, and no other may be executed")
        self.plan = plan


class PlanNotAllowed(PurgeRefused):
    """The plan asked for deletes files outside the table's locations, or markers, that this request does not."""

    code = "PLAN_NOT_ALLOWED"


class VersionedBucket(PurgeRefused):
    """Deleting from these `buckets` only adds delete markers, and `versioned=refuse` was asked."""

    code = "VERSIONED_BUCKET"

    def __init__(self, buckets: Sequence[str]) -> None:
        super().__init__(f"deleting frees nothing in {shown(buckets)}, which keep versions of their objects")
        self.buckets = tuple(buckets)


class CorruptMetadata(PurgeError):
    """Table metadata that does not follow the Iceberg specification; nothing was deleted."""

    code = "CORRUPT_METADATA"

    def __init__(self, path: str, field: str, reason: str) -> None:
        super().__init__(f"{printable(path)}: {field}: {reason}")
        self.path = path
        self.field = field
        self.reason = reason


class ManifestMissing(PurgeError):
    """A manifest or manifest list is not there, so what it named cannot be known; nothing was deleted."""

    code = "MANIFEST_MISSING"

    def __init__(self, path: str) -> None:
        super().__init__(f"{printable(path)} is missing, and no earlier purge of this table accounts for it")
        self.path = path


class PlanTampered(PurgeError):
    """A stored part of the plan is missing or differs from its published hash."""

    code = "PLAN_TAMPERED"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"plan {name}: {reason}")
        self.name = name


class EngineFailed(PurgeError):
    """The engine broke down for a reason that is not the table's; what was done is kept, the same again goes on."""

    code = "ENGINE_FAILED"
    retryable = True


class TableGone(PurgeError):
    """The catalog no longer serves the table, and its root was not seen deleted: files may be left.

    `delegation purge METADATA_LOCATION --plan` finishes with the operator's own credentials.
    """

    code = "TABLE_GONE"


class FilesNotDeleted(PurgeError):
    """Keys that the store refuses to delete: `count` exact, `sample` bounded as (path, code)."""

    code = "FILES_NOT_DELETED"

    def __init__(self, count: int, sample: Sequence[tuple[str, str]]) -> None:
        super().__init__(
            f"{count} files could not be deleted, such as {shown([f'{path} ({why})' for path, why in sample])}"
        )
        self.count = count
        self.sample = tuple(sample)


class FilesNotDeletedYet(FilesNotDeleted):
    """The same, but every one for a passing reason (throttling, server errors)."""

    code = "FILES_NOT_DELETED_YET"
    retryable = True


class FilesThrottled(FilesNotDeletedYet):
    """The same, and throttling is the only reason: nobody's fault, and no attempt should be counted for it."""

    code = "STORAGE_THROTTLED"


def printable(text: str, limit: int = 200) -> str:
    """Text safe for a log line or an error message: control characters escaped, bounded."""
    clean = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    return clean if len(clean) <= limit else clean[:limit] + "…"


def shown(sample: Sequence[str]) -> str:
    return ", ".join(printable(one) for one in sample[:3]) or "none"
