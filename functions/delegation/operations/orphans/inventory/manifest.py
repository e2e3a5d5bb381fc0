"""The manifest of an S3 Inventory report: what it is of, when it was made, and the files that have its rows. Pure.

Source: Amazon S3 User Guide, "Locating your inventory list" (manifest.json, manifest.checksum) and "Amazon S3
Inventory" (fields of a list; lists are eventually consistent).
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BaseModel, Field, ValidationError

from delegation.operations.orphans.inventory.errors import inventory_damaged, inventory_refused
from delegation.storage.locations import ObjectLocation
from polaris_common.errors import printable

MANIFEST_BYTES: Final = 8 * 1024 * 1024
"""The most bytes of a manifest: it names 30,000 files with it, which have billions of rows."""
CHECKSUM: Final = "manifest.checksum"
LAG: Final = 2 * 86_400
"""How old an object is, in seconds, that every report has: a younger one may be missing (AWS: two days)."""
MOST_AGE: Final = 30 * 86_400
"""How old a report may be, in seconds: by then most of what it lists is another, and no share of it means anything."""
_VERSION: Final = "2016-11-30"
_NEEDED: Final = ("Bucket", "Key", "Size", "LastModifiedDate", "ETag")
_OF_VERSIONS: Final = ("VersionId", "IsLatest", "IsDeleteMarker")
_MD5: Final = "[0-9a-f]{32}"


@dataclass(frozen=True, slots=True)
class ReportFile:
    """A file of rows: its key in the report's bucket, its size in bytes and its MD5 in hexadecimal digits."""

    key: str
    size: int
    md5: str


@dataclass(frozen=True, slots=True)
class InventoryReport:
    """A report: the bucket that it lists, when S3 began it (seconds since 1970), its columns and its files.

    `digest` is the SHA-256 of the manifest.
    """

    uri: str
    bucket: str
    at: int
    columns: tuple[str, ...]
    files: tuple[ReportFile, ...]
    digest: str

    @property
    def has_versions(self) -> bool:
        """Whether rows are of versions, of which the latest count alone."""
        return _OF_VERSIONS[1] in self.columns


class _ManifestFile(BaseModel):
    key: Annotated[str, Field(min_length=1, max_length=1024)]
    size: Annotated[int, Field(ge=0, strict=True)]
    md5: Annotated[str, Field(alias="MD5checksum", pattern=f"^{_MD5}$")]


class _Manifest(BaseModel):
    source: Annotated[str, Field(alias="sourceBucket")]
    destination: Annotated[str, Field(alias="destinationBucket")]
    version: str
    created: Annotated[str, Field(alias="creationTimestamp", pattern="^[0-9]{1,15}$")]
    form: Annotated[str, Field(alias="fileFormat")]
    schema_: Annotated[str, Field(alias="fileSchema")]
    files: tuple[_ManifestFile, ...]


def is_below(uri: str, places: Sequence[str]) -> bool:
    """Return whether an object is below one of the places, `s3://bucket/` with or without a prefix that ends in `/`."""
    return any(uri.startswith(place) for place in places)


def parse_manifest(
    where: ObjectLocation, data: bytes, checksum: bytes, *, bucket: str, places: Sequence[str], now: int
) -> InventoryReport:
    """Return the report of a manifest; `bucket` is the table's, `now` the store's time in seconds since 1970.

    Raises OrphansError (INVENTORY_DAMAGED) for one that is not as S3 wrote it, and GuardRefused (INVENTORY_REFUSED) for
    one of another bucket, in another format, without a needed column, from the future or older than MOST_AGE.
    """
    if checksum.decode("ascii", "replace").strip().lower() != hashlib.md5(data, usedforsecurity=False).hexdigest():
        raise inventory_damaged(where.uri, f"has not the MD5 that its {CHECKSUM} names")
    try:
        found = _Manifest.model_validate_json(data)
    except ValidationError as error:
        raise inventory_damaged(where.uri, f"is no manifest: {_first_of(error)}") from None
    columns = _columns(where, found)
    if found.source != bucket:
        raise inventory_refused(
            where.uri, f"it is of the bucket {printable(found.source, 80)}, and the table is in {bucket}"
        )
    if found.destination.rpartition(":")[2] != where.bucket:
        raise inventory_refused(where.uri, "it was written to another bucket; name the manifest where S3 wrote it")
    at = int(found.created) // 1000
    if at > now:
        raise inventory_refused(where.uri, "it is from the future, by the clock of the store")
    if now - at > MOST_AGE:
        raise inventory_refused(
            where.uri, f"it is {(now - at) // 86_400} days old, and {MOST_AGE // 86_400} are allowed"
        )
    files = tuple(ReportFile(one.key, one.size, one.md5) for one in found.files)
    if len({one.key for one in files}) < len(files):
        raise inventory_damaged(where.uri, "names a file twice")
    for one in files:
        # The service's role may read more than reports, and the writer of this chose the names.
        if not is_below(f"s3://{where.bucket}/{one.key}", places):
            raise inventory_damaged(
                where.uri, f"names the file {one.key}, which is not where the operator allows reports"
            )
    return InventoryReport(where.uri, bucket, at, columns, files, hashlib.sha256(data).hexdigest())


def _columns(where: ObjectLocation, found: _Manifest) -> tuple[str, ...]:
    if found.version != _VERSION:
        raise inventory_refused(
            where.uri, f"its version is {printable(found.version, 40)}, and {_VERSION} alone is known"
        )
    if found.form != "CSV":
        raise inventory_refused(
            where.uri,
            f"its format is {printable(found.form, 40)}; only CSV is read, because the service has no reader of others",
        )
    columns = tuple(one.strip() for one in found.schema_.split(","))
    if len(set(columns)) < len(columns):
        raise inventory_damaged(where.uri, "names a column twice")
    needed = (*_NEEDED, *(_OF_VERSIONS if set(_OF_VERSIONS) & set(columns) else ()))
    if missing := [one for one in needed if one not in columns]:
        raise inventory_refused(
            where.uri, f"it lacks {', '.join(missing)}; have the inventory's configuration include these fields"
        )
    return columns


def _first_of(error: ValidationError) -> str:
    first = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"[:200]


def manifest_of(uri: str) -> ObjectLocation:
    """Return where the manifest of a report is; the option's pattern has checked its form."""
    bucket, _, key = re.sub("^s3://", "", uri).partition("/")
    return ObjectLocation(bucket, key)
