"""Table files in S3 or a compatible store, through boto3. Addressing style, endpoint and region come from the table's
configuration, else from boto3. Clients belong to the process that created them and are never pickled."""

import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError

from delegation.storage.base import (
    BatchResult,
    BucketNotFound,
    FileTooLarge,
    KeyFailure,
    ObjectNotFound,
    ObjectStoreError,
    ObjectStoreUnavailable,
)
from delegation.storage.credentials import Credentials, CredentialsUnavailable, S3Credential, S3Settings
from delegation.storage.locations import LOCAL, ObjectLocation, UnsupportedLocation, split, uri_of
from delegation.storage.s3_delete import delete_keys, is_pinned, prepare_for_deletes
from delegation.storage.s3_errors import (
    ABSENT,
    EXPIRED,
    EXPIRED_CODES,
    FAILED,
    ODD,
    cause_of,
    check_listing,
    code_of,
    fits_xml,
    is_unsupported,
    translate,
)
from delegation.storage.sessions import s3_client

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from delegation.storage.listing.model import ListedFolder, ListedObject, ListedPage, UnchangedResult
    from delegation.storage.listing.unchanged import UnchangedDeletes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class S3Timeouts:
    """Timeouts of S3 calls in seconds, and tries per call. Deletes are sent once, because the deleter retries them."""

    connect: float = 10.0
    read: float = 60.0
    tries: int = 5

    def config(self, *, send_once: bool = False, **more: Any) -> Config:
        tries = 1 if send_once else self.tries
        return Config(
            connect_timeout=self.connect,
            read_timeout=self.read,
            retries={"total_max_attempts": tries, "mode": "standard"},
            **more,
        )


# API Gateway allows 29 s, and the last call to S3 may start after 20 s.
SYNCHRONOUS_TIMEOUTS = S3Timeouts(connect=1.5, read=3.0, tries=2)
_BODY_TRIES = 3
_NEVER_ETAG = '"00000000000000000000000000000000"'


class S3ObjectStore:
    """A table's files. Use one instance per process. Without `credentials` boto3 finds those of the process. Without
    `settings` they come from the credentials' table."""

    def __init__(
        self,
        credentials: Credentials | None = None,
        *,
        settings: S3Settings | None = None,
        connections: int = 32,
        timeouts: S3Timeouts | None = None,
    ) -> None:
        self._credentials = credentials
        self._settings = settings
        self._connections = connections
        self._timeouts = timeouts or S3Timeouts()
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, str, bool], S3Client] = {}
        self._unchanged: dict[str, UnchangedDeletes] = {}

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        return self._call(
            location.uri, lambda client: _read(client, location, limit, min(_BODY_TRIES, self._timeouts.tries))
        )

    def part(self, location: ObjectLocation, *, start: int, length: int) -> bytes:
        tries = min(_BODY_TRIES, self._timeouts.tries)
        return self._call(location.uri, lambda client: _part(client, location, start, length, tries))

    def exists(self, location: ObjectLocation) -> bool:
        look = _listed if not fits_xml(location.key) else _first_byte
        return self._call(location.uri, lambda client: look(client, location))

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        if bucket == LOCAL:
            return BatchResult((), tuple(KeyFailure(key, UnsupportedLocation.code) for key in keys))
        results: list[BatchResult] = []
        for credential, group in self._by_credential(bucket, keys):
            results.append(delete_keys(self._client(credential, deleting=True), bucket, group))
            self._replace_expired(credential, bucket, group[0], results[-1])
        return results[0] if len(results) == 1 else BatchResult.merged(results)

    def _replace_expired(self, credential: S3Credential | None, bucket: str, key: str, result: BatchResult) -> None:
        if self._credentials and credential and any(failure.code == EXPIRED for failure in result.failed):
            self._credentials.replace(f"s3://{bucket}/{key}", credential)

    def probe_delete(self, prefix: str) -> str | None:
        uri = f"{prefix.rstrip('/')}/.delegation-probe-{uuid.uuid4().hex}"
        bucket, key = split(uri)

        # If-Match keeps a versioned bucket from writing a delete marker; S3 checks the authorization before it.
        refusal = self._refusal(uri, lambda s3: s3.delete_object(Bucket=bucket, Key=key, IfMatch=_NEVER_ETAG))
        # A store without conditional deletes refuses the condition, not the delete.
        if refusal and is_unsupported(refusal.__cause__) and not self.versioned(bucket):
            refusal = self._refusal(uri, lambda s3: s3.delete_object(Bucket=bucket, Key=key))
        return cause_of(refusal) if refusal else None

    def _refusal(self, uri: str, delete: "Callable[[S3Client], object]") -> ObjectStoreError | None:
        """Return the error that refuses the delete of an absent key, None if it is allowed."""
        try:
            self._call(uri, delete)
        except ObjectNotFound:
            if not fits_xml(uri):
                self.exists(ObjectLocation(*split(uri)))  # the 404 could be of the bucket
        except ObjectStoreUnavailable as error:
            # Some stores answer InternalError for a delete of an absent key, but state its absence in other calls.
            if cause_of(error) != "InternalError" or self.exists(ObjectLocation(*split(uri))):
                raise
        except BucketNotFound:
            raise
        except ObjectStoreError as error:
            return None if cause_of(error) == "PreconditionFailed" else error
        return None

    def versioned(self, bucket: str, *, seen: ObjectLocation | None = None) -> bool | None:
        try:
            answer = self._call(self._uri_in(bucket), lambda s3: s3.get_bucket_versioning(Bucket=bucket))
            return answer.get("Status") is not None
        except (ObjectStoreError, CredentialsUnavailable):
            pass
        try:
            return None if seen is None else self._call(seen.uri, lambda s3: _has_version(s3, seen))
        except (ObjectStoreError, CredentialsUnavailable):
            return None

    # Imported late: only a removal of orphan files, and the count after a purge, need it.

    def page(self, bucket: str, prefix: str, *, after: str = "") -> "ListedPage":
        from delegation.storage.listing import pages as listing  # noqa: PLC0415

        return self._call(uri_of(bucket, prefix), lambda s3: listing.page(s3, bucket, prefix, after))

    def folder(self, bucket: str, prefix: str) -> "ListedFolder":
        from delegation.storage.listing import pages as listing  # noqa: PLC0415

        return self._call(uri_of(bucket, prefix), lambda s3: listing.folder(s3, bucket, prefix))

    def delete_unchanged(self, bucket: str, listed: "Sequence[ListedObject]") -> "UnchangedResult":
        from delegation.storage.listing.model import UnchangedResult  # noqa: PLC0415
        from delegation.storage.listing.unchanged import UnchangedDeletes  # noqa: PLC0415

        if bucket == LOCAL:
            failed = tuple(KeyFailure(listed_object.key, UnsupportedLocation.code) for listed_object in listed)
            return UnchangedResult(BatchResult((), failed))
        with self._lock:
            unchanged = self._unchanged.setdefault(bucket, UnchangedDeletes())
        of_key = {listed_object.key: listed_object for listed_object in listed}
        results: list[UnchangedResult] = []
        for credential, keys in self._by_credential(bucket, list(of_key)):
            reads, deletes = self._client(credential), self._client(credential, deleting=True)
            results.append(unchanged.delete(reads, deletes, bucket, [of_key[key] for key in keys]))
            self._replace_expired(credential, bucket, keys[0], results[-1].result)
        merged = BatchResult.merged([result.result for result in results])
        markers = {key: marker for result in results for key, marker in result.markers.items()}
        return UnchangedResult(merged, sum(result.looked_only for result in results), markers)

    def _uri_in(self, bucket: str) -> str:
        """Return a URI in the bucket that the credentials cover, for calls about the bucket itself."""
        if bucket == LOCAL:
            return uri_of(bucket, "")
        known = (
            []
            if self._credentials is None
            else [credential.prefix for credential in self._credentials.table().credentials]
        )
        covered = (f"{prefix.rstrip('/')}/" for prefix in known if prefix.partition("://")[2])
        return next((uri for uri in covered if uri.partition("://")[2].startswith(f"{bucket}/")), f"s3://{bucket}/")

    def _call(self, uri: str, action: "Callable[[S3Client], T]") -> T:
        """Run `action` with the client for a URI. boto3 retries it; an expired credential is replaced once."""
        if split(uri)[0] == LOCAL:
            raise UnsupportedLocation(uri, "it is not in an object store")
        credential = None if self._credentials is None else self._credentials.for_uri(uri)
        try:
            return action(self._client(credential))
        except ClientError as error:
            if self._credentials is None or credential is None or code_of(error) not in EXPIRED_CODES:
                translate(uri, error)
        except (BotoCoreError, *ODD) as error:
            translate(uri, error)
        try:
            return action(self._client(self._credentials.replace(uri, credential)))
        except FAILED as error:
            translate(uri, error)

    def _by_credential(self, bucket: str, keys: Sequence[str]) -> list[tuple[S3Credential | None, Sequence[str]]]:
        """Group keys by credential, nearly always into one group."""
        if self._credentials is None:
            return [(None, keys)]
        first = self._credentials.for_uri(f"s3://{bucket}/{keys[0]}")
        if len({credential.access_key_id for credential in self._credentials.table().credentials}) <= 1:
            return [(first, keys)]
        groups: dict[str, tuple[S3Credential, list[str]]] = {}
        for key in keys:
            credential = self._credentials.for_uri(f"s3://{bucket}/{key}")
            groups.setdefault(credential.access_key_id, (credential, []))[1].append(key)
        return list(groups.values())

    def _client(self, credential: S3Credential | None, *, deleting: bool = False) -> "S3Client":
        # A renewed token may have the same access key id.
        key_ids = ("", "") if credential is None else (credential.access_key_id, credential.session_token or "")
        name = (*key_ids, deleting)
        with self._lock:
            client = self._clients.get(name)
            if client is None:
                if len(self._clients) >= 16:
                    self._clients.clear()
                client = self._clients[name] = self._build(credential, deleting=deleting)
            return client

    def _build(self, credential: S3Credential | None, *, deleting: bool) -> "S3Client":
        settings = self._settings
        if settings is None and self._credentials is not None:
            settings = self._credentials.table().s3
        settings = settings or S3Settings()
        # The deleter retries each key at its own rate. Validating the types of a million keys would waste time.
        config = self._timeouts.config(
            send_once=deleting,
            parameter_validation=not deleting,
            max_pool_connections=self._connections,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path"} if settings.path_style else None,
        )
        client = s3_client(
            settings,
            answer_seconds=2 * self._timeouts.read,
            aws_access_key_id=None if credential is None else credential.access_key_id,
            aws_secret_access_key=None if credential is None else credential.secret_access_key,
            aws_session_token=None if credential is None else credential.session_token,
            config=config,
        )
        if deleting:
            prepare_for_deletes(client)
        if is_pinned():
            client.meta.events.register("before-parse.*.ListObjectsV2", _read_listing)
        return client


def _read_listing(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    from delegation.storage.listing.pages import read_body  # noqa: PLC0415 - few processes list

    read_body(response_dict, customized_response_dict)


def _read(client: "S3Client", location: ObjectLocation, limit: int, tries: int) -> bytes:
    """Read an object, and retry if its body breaks off: boto3 retries only the call."""
    for _ in range(tries):
        answer = client.get_object(Bucket=location.bucket, Key=location.key)
        stated = answer.get("ContentLength", 0)
        if stated <= limit:
            try:
                # An answer in chunked transfer encoding has no Content-Length.
                data = answer["Body"].read(None if "ContentLength" in answer else limit + 1)
            except (HTTPClientError, IncompleteReadError) as error:
                broken = error
                continue
            if len(data) <= limit:
                return data
        answer["Body"].close()
        size = f"{stated} bytes, more than the limit of" if stated else "more bytes than the limit of"
        raise FileTooLarge(f"{location.uri} has {size} {limit}")
    raise broken


def _part(client: "S3Client", location: ObjectLocation, start: int, length: int, tries: int) -> bytes:
    """Read a part of an object, and retry if its body breaks off. Empty if the store ignores `Range`."""
    for _ in range(tries):
        try:
            answer = client.get_object(
                Bucket=location.bucket, Key=location.key, Range=f"bytes={start}-{start + length - 1}"
            )
        except ClientError as error:
            if code_of(error) == "InvalidRange":
                return b""
            raise
        try:
            return b"" if start and not answer.get("ContentRange") else answer["Body"].read(length)
        except (HTTPClientError, IncompleteReadError) as error:
            broken = error
        finally:
            answer["Body"].close()
    raise broken


def _has_version(client: "S3Client", location: ObjectLocation) -> bool:
    """Return whether an object has a version id, maybe `null`: it has once versioning was enabled. Vended credentials
    allow this where they deny GetBucketVersioning (Amazon S3 API Reference, GetObject, `x-amz-version-id`)."""
    answer = client.get_object(Bucket=location.bucket, Key=location.key, Range="bytes=0-0")
    answer["Body"].close()
    return "VersionId" in answer


def _first_byte(client: "S3Client", location: ObjectLocation) -> bool:
    """Return whether an object exists, by GET, because HEAD's 404 does not state whether the bucket exists."""
    try:
        client.get_object(Bucket=location.bucket, Key=location.key, Range="bytes=0-0")["Body"].close()
    except ClientError as error:
        if code_of(error) in ABSENT:
            return False
        if code_of(error) != "InvalidRange":  # of an empty object
            raise
    return True


def _listed(client: "S3Client", location: ObjectLocation) -> bool:
    """Return whether an object exists whose key XML cannot contain: errors about such keys cannot be parsed."""
    answer = client.list_objects_v2(Bucket=location.bucket, Prefix=location.key, MaxKeys=1)
    check_listing(client, location.uri, answer)
    return any(entry.get("Key") == location.key for entry in answer.get("Contents", ()))
