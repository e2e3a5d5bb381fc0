"""Metadata of tables and views, its files in S3, and vended credentials.

Updates are applied by the service's own applier, which accepts what Iceberg accepts (persistence/iceberg/updates).
"""

import gzip
import json
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from infra.local.catalog.errors import RestError, bad_request, commit_failed, location_missing
from infra.local.s3.requests import VendedKey, VendedKeys
from polaris_persistence.errors import IcebergConflict, InvalidIcebergMetadata, InvalidIcebergUpdate
from polaris_persistence.iceberg.ids import new_table_ids
from polaris_persistence.iceberg.updates.change import LAST_ADDED
from polaris_persistence.iceberg.updates.tables import DEFAULT_VERSION, updated_table
from polaris_persistence.iceberg.updates.views import updated_view

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sts import STSClient


JsonObject = dict[str, Any]

FORMAT_VERSION = "format-version"


def new_metadata(request: Mapping[str, Any], location: str, *, now_ms: int) -> JsonObject:
    """Return the metadata of a table for a CreateTableRequest, with newly assigned field ids and no snapshot."""
    properties = dict(request.get("properties") or {})
    version = int(properties.pop(FORMAT_VERSION, DEFAULT_VERSION))
    try:
        ids = new_table_ids(request["schema"], request.get("partition-spec"), request.get("write-order"))
    except InvalidIcebergMetadata as error:
        raise bad_request(str(error)) from error
    updates: list[JsonObject] = [
        {"action": "assign-uuid", "uuid": str(uuid.uuid4())},
        {"action": "upgrade-format-version", "format-version": version},
        {"action": "add-schema", "schema": ids.schema},
        {"action": "set-current-schema", "schema-id": LAST_ADDED},
        {"action": "add-spec", "spec": ids.spec},
        {"action": "set-default-spec", "spec-id": LAST_ADDED},
        {"action": "add-sort-order", "sort-order": ids.order},
        {"action": "set-default-sort-order", "sort-order-id": LAST_ADDED},
        {"action": "set-location", "location": location},
        {"action": "set-properties", "updates": properties},
    ]
    return committed(None, [], updates, now_ms=now_ms)


_STALE = "Cannot add snapshot with sequence number"


def committed(
    base: JsonObject | None,
    requirements: Iterable[Mapping[str, Any]],
    updates: Iterable[Mapping[str, Any]],
    *,
    now_ms: int,
    previous_location: str | None = None,
    newer: bool = True,
) -> JsonObject:
    """Return the metadata of a table after a commit, equal to `base` if nothing changes; None is no table.

    Raises RestError 409 for a requirement that is not met and for values behind the metadata, otherwise 400; before a
    `newer` Polaris also for a stale sequence number.
    """
    try:
        return updated_table(
            base, requirements, updates, now_ms=now_ms, previous_file=previous_location, new_uuid=str(uuid.uuid4())
        )
    except (IcebergConflict, InvalidIcebergUpdate) as error:
        if not newer and _STALE in error.reason:
            raise RestError(400, "ValidationException", error.reason) from error
        raise _answer(error) from error


def committed_view(
    base: JsonObject | None,
    requirements: Iterable[Mapping[str, Any]],
    updates: Iterable[Mapping[str, Any]],
    *,
    now_ms: int,
) -> JsonObject:
    """Return the metadata of a view after a commit, equal to `base` if nothing changes; None is no view."""
    try:
        return updated_view(base, requirements, updates, now_ms=now_ms, new_uuid=str(uuid.uuid4()))
    except (IcebergConflict, InvalidIcebergUpdate) as error:
        raise _answer(error) from error


def _answer(error: IcebergConflict | InvalidIcebergUpdate) -> RestError:
    return commit_failed(error.reason) if isinstance(error, IcebergConflict) else bad_request(error.reason)


# moto stores resources by account, and keys of an assumed role belong to the account in its ARN: moto's default one.
ROLE_ARN = "arn:aws:iam::123456789012:role/polaris-vending"
_STS_SHORTEST = timedelta(minutes=15)
_STS_LONGEST = timedelta(hours=12)
_MISSING = frozenset({"NoSuchKey", "NoSuchBucket", "404"})
_GZIP = b"\x1f\x8b"
_ZIPPED = ".gz.metadata.json"


def split_uri(uri: str) -> tuple[str, str]:
    """Return (bucket, key) of an s3 URI without decoding the key; raise RestError 400 for any other scheme."""
    scheme, separator, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if not separator or scheme not in {"s3", "s3a", "s3n"} or not bucket:
        raise bad_request(f"Not an S3 location: {uri}")
    return bucket, key


class MetadataFiles:
    def __init__(self, s3: "S3Client") -> None:
        self._s3 = s3

    def read(self, location: str) -> JsonObject:
        """Return the metadata at `location`; raise RestError 400 (missing) or 503 (damaged)."""
        content = self.content(location)
        try:
            metadata: JsonObject = json.loads(gzip.decompress(content) if content.startswith(_GZIP) else content)
        except (ValueError, OSError, EOFError) as error:
            raise RestError(503, "RuntimeIOException", f"Failed to read file: {location}") from error
        return metadata

    def content(self, location: str) -> bytes:
        """Return the content of a file; raise RestError 400 NotFoundException if it is missing."""
        bucket, key = split_uri(location)
        try:
            return self._s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] in _MISSING:
                raise location_missing(location) from error
            raise

    @staticmethod
    def next(metadata: JsonObject, version: int) -> str:
        properties = metadata.get("properties", {})
        folder = properties.get("write.metadata.path") or f"{metadata['location']}/metadata"
        suffix = _ZIPPED if properties.get("write.metadata.compression-codec") == "gzip" else ".metadata.json"
        return f"{folder.rstrip('/')}/{version:05d}-{uuid.uuid4()}{suffix}"

    def write_for(self, step: Callable[[], None], metadata: JsonObject, location: str) -> None:
        """Write a file for a step that gives an entity this metadata; delete it if the step is refused."""
        self.write(metadata, location)
        try:
            step()
        except RestError:
            self.delete(location)
            raise

    def write(self, metadata: JsonObject, location: str) -> None:
        content = json.dumps(metadata).encode()
        bucket, key = split_uri(location)
        body = gzip.compress(content) if location.endswith(_ZIPPED) else content
        self._s3.put_object(Bucket=bucket, Key=key, Body=body, ContentType="application/json")

    def delete(self, location: str) -> None:
        bucket, key = split_uri(location)
        self._s3.delete_object(Bucket=bucket, Key=key)


def version_of(location: str) -> int:
    """Return the number that a metadata file's name begins with, 0 for another name (of a registered file)."""
    number = location.rsplit("/", 1)[-1].partition("-")[0]
    return int(number) if number.isascii() and number.isdigit() else 0


@dataclass(frozen=True, slots=True)
class _Vended:
    config: dict[str, str] = field(repr=False)
    reuse_until: datetime


class CredentialVendor:
    """Vends keys of the emulated STS, registered with their prefixes; cached across principals, as in Polaris.

    Polaris bounds them by a session policy, which moto ignores; the S3 front enforces the same bounds.

    `lifetime` may be shorter than STS allows, because the registry expires the keys.
    """

    def __init__(
        self,
        sts: "STSClient",
        keys: VendedKeys,
        *,
        clock: Callable[[], datetime],
        lifetime: timedelta = timedelta(hours=1),
    ) -> None:
        self._sts = sts
        self._keys = keys
        self._clock = clock
        self._lifetime = lifetime
        self._lock = threading.Lock()
        self._cache: dict[tuple[tuple[str, ...], bool], _Vended] = {}

    def vend(self, locations: Sequence[str], *, writable: bool) -> dict[str, str]:
        """Return the `config` of a StorageCredential for everything below `locations`."""
        with self._lock:
            now = self._clock()
            held = self._cache.get((tuple(locations), writable))
            if held is None or now >= held.reuse_until:
                config = self._assume(locations, now + self._lifetime, writable=writable)
                held = _Vended(config, now + self._lifetime / 2)
                self._cache[tuple(locations), writable] = held
            return dict(held.config)

    def _assume(self, locations: Sequence[str], expires_at: datetime, *, writable: bool) -> dict[str, str]:
        prefixes = tuple((bucket, f"{key.rstrip('/')}/") for bucket, key in map(split_uri, locations))
        duration = min(max(self._lifetime, _STS_SHORTEST), _STS_LONGEST)
        answer = self._sts.assume_role(
            RoleArn=ROLE_ARN, RoleSessionName="polaris", DurationSeconds=int(duration.total_seconds())
        )["Credentials"]
        key_id, token = answer["AccessKeyId"], answer["SessionToken"]
        self._keys[key_id] = VendedKey(key_id, token, prefixes, writable, expires_at)
        milliseconds = str(int(expires_at.timestamp() * 1000))
        return {
            "s3.access-key-id": key_id,
            "s3.secret-access-key": answer["SecretAccessKey"],
            "s3.session-token": token,
            "s3.session-token-expires-at-ms": milliseconds,
        }
