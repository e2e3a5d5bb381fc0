"""Metadata files in S3, read and written with the administrator's keys, and vended credentials."""

import gzip
import json
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from infra.local.catalog.errors import RestError, bad_request, location_missing
from infra.local.catalog.metadata import JsonObject
from infra.local.s3.vended_keys import VendedKey, VendedKeys

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sts import STSClient

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
    """Reads and writes `metadata.json` files."""

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
        """Return the location for a new file with `metadata`."""
        properties = metadata.get("properties", {})
        folder = properties.get("write.metadata.path") or f"{metadata['location']}/metadata"
        suffix = _ZIPPED if properties.get("write.metadata.compression-codec") == "gzip" else ".metadata.json"
        return f"{folder.rstrip('/')}/{version:05d}-{uuid.uuid4()}{suffix}"

    def write(self, metadata: JsonObject, location: str) -> None:
        """Write `metadata` to a location of `next`."""
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
            RoleArn=ROLE_ARN,
            RoleSessionName="polaris",
            Policy=json.dumps(_policy(prefixes, writable=writable)),
            DurationSeconds=int(duration.total_seconds()),
        )["Credentials"]
        key_id, token = answer["AccessKeyId"], answer["SessionToken"]
        self._keys.add(VendedKey(key_id, token, prefixes, writable, expires_at))
        milliseconds = str(int(expires_at.timestamp() * 1000))
        return {
            "s3.access-key-id": key_id,
            "s3.secret-access-key": answer["SecretAccessKey"],
            "s3.session-token": token,
            "s3.session-token-expires-at-ms": milliseconds,
        }


def _policy(prefixes: Sequence[tuple[str, str]], *, writable: bool) -> dict[str, Any]:
    """Return the session policy that Polaris sends to STS; moto ignores it, the S3 front enforces the same bounds."""
    objects = ["s3:GetObject", "s3:GetObjectVersion"] + (["s3:PutObject", "s3:DeleteObject"] if writable else [])
    buckets = sorted({bucket for bucket, _ in prefixes})
    listing: list[dict[str, Any]] = [
        {
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": f"arn:aws:s3:::{bucket}",
            "Condition": {"StringLike": {"s3:prefix": [f"{path}*" for own, path in prefixes if own == bucket]}},
        }
        for bucket in buckets
    ]
    own = {"Effect": "Allow", "Action": objects, "Resource": [f"arn:aws:s3:::{b}/{path}*" for b, path in prefixes]}
    where = {
        "Effect": "Allow",
        "Action": "s3:GetBucketLocation",
        "Resource": [f"arn:aws:s3:::{bucket}" for bucket in buckets],
    }
    return {"Version": "2012-10-17", "Statement": [own, *listing, where]}
