"""Deletes objects that are unchanged since they were listed.

Each object is checked just before, by HEAD or by a page of a listing, and S3's conditional deletes are used. A page
checks up to a thousand objects, so it is used for neighbouring keys. Objects that it does not confirm are checked by
HEAD. Outside AWS a listing may be older than HEAD, so it is used only if the delete has the ETag as its condition.

Some stores ignore unknown conditions and delete anyway. So support is tested on an object that was just found
unchanged: a store with conditions refuses its delete with an ETag that no object has (Amazon S3 API Reference:
DeleteObjects, DeleteObject).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from delegation.storage.base import BatchResult, KeyFailure, ObjectStoreError
from delegation.storage.listing.model import CHANGED, GONE, ListedObject, UnchangedResult
from delegation.storage.listing.pages import page, seconds
from delegation.storage.s3_delete import READ, DeleteAnswer
from delegation.storage.s3_errors import (
    ABSENT,
    FAILED,
    NO_ANSWER,
    S3Failure,
    code_of,
    delete_code_of,
    fits_xml,
    is_bare_404,
    is_unsupported,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_AT_A_TIME: Final = 4
"""The maximum number of concurrent HEADs in one delete."""
PAGE_PAYS: Final = 8
"""The number of objects that a page must confirm to pay: a page costs as much as 13 HEADs, and the CPU time of 4."""
_REST: Final = 16
"""The number of deletes checked by HEAD alone after a delete for which pages did not pay."""
_NULL: Final = "null"
"""The version that is overwritten while versioning is suspended."""


class ObjectChecks:
    """Checks the objects of one store, and remembers whether pages saved requests. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._rest = 0

    def at(
        self, client: "S3Client", bucket: str, some: Sequence[ListedObject], *, by_pages: bool
    ) -> list[tuple[ListedObject, str | None]]:
        """Return each object with None if it is unchanged, else CHANGED, a code in ABSENT or another error."""
        same = self._listed_again(client, bucket, some) if by_pages else frozenset()
        rest = [listed for listed in some if listed.key not in same]
        if not rest:
            return [(listed, None) for listed in some]
        with ThreadPoolExecutor(min(_AT_A_TIME, len(rest)), thread_name_prefix="look") as pool:
            codes = dict(
                zip(
                    (listed.key for listed in rest),
                    pool.map(lambda listed: head(client, bucket, listed), rest),
                    strict=True,
                )
            )
        return [(listed, codes.get(listed.key)) for listed in some]

    def _listed_again(self, client: "S3Client", bucket: str, some: Sequence[ListedObject]) -> frozenset[str]:
        """Return the keys that pages confirm as unchanged. If pages do not pay, reads few, and none for some time."""
        most = len(some) // PAGE_PAYS
        with self._lock:
            if not most or self._rest:
                self._rest -= bool(self._rest)
                return frozenset()
        unchanged, pages = _pages(client, bucket, some, most)
        if len(unchanged) < pages * PAGE_PAYS:
            with self._lock:
                self._rest = _REST
        return unchanged


def _pages(client: "S3Client", bucket: str, some: Sequence[ListedObject], most: int) -> tuple[frozenset[str], int]:
    """Return the keys that up to `most` pages confirm as unchanged, and the number of pages. Stops after a page that
    does not pay, because the remaining keys are as far apart."""
    wanted = {listed_object.key: listed_object for listed_object in some}
    keys = sorted(wanted)
    first, last = keys[0], keys[-1]
    common = next(
        (at for at, (letter, other) in enumerate(zip(first, last, strict=False)) if letter != other), len(first)
    )
    # Whole folders, because credentials may be allowed to list only a location.
    prefix = first[: first.rfind("/", 0, common) + 1]
    unchanged: set[str] = set()
    at, pages, end = 0, 0, ""
    while at < len(keys) and pages < most:
        pages += 1
        try:
            # Only keys that start with this text lie between it and the key.
            listed = page(client, bucket, prefix, max(end, keys[at][:-1]))
        except (*FAILED, ObjectStoreError):
            break
        unchanged |= {
            listed_object.key for listed_object in listed.objects if wanted.get(listed_object.key) == listed_object
        }
        if listed.is_last or not listed.objects or len(unchanged) < pages * PAGE_PAYS:
            break
        end = listed.objects[-1].key
        while at < len(keys) and keys[at] <= end:
            at += 1
    return frozenset(unchanged), pages


@dataclass(frozen=True, slots=True)
class Present:
    """A key's object: whether it is the listed one, and its version id, None without versions."""

    same: bool
    version: Mapping[str, str]


def look(client: "S3Client", bucket: str, listed: ListedObject) -> Present | None:
    """Return the object at a key, None if there is none. Raises the client's errors."""
    try:
        answer = client.head_object(Bucket=bucket, Key=listed.key)
    except ClientError as error:
        if code_of(error) not in ABSENT and not is_bare_404(error):
            raise
        return _look_again(client, bucket, listed.key)
    # Read first: an answer without a time, such as a proxy's, is an error and does not prove a change.
    modified = seconds(answer["LastModified"])
    same = answer.get("ETag", "") == listed.etag and modified == listed.modified
    version = answer.get("VersionId", _NULL)
    return Present(
        same and answer["ContentLength"] == listed.size, {} if version in ("", _NULL) else {"VersionId": version}
    )


def _look_again(client: "S3Client", bucket: str, key: str) -> Present | None:
    """Repeat by GET, because HEAD's 404 does not state whether the bucket exists."""
    try:
        client.get_object(Bucket=bucket, Key=key, Range="bytes=0-0")["Body"].close()
    except ClientError as error:
        if code_of(error) in ABSENT:
            return None
        raise
    return Present(same=False, version={})


def head(client: "S3Client", bucket: str, listed: ListedObject) -> str | None:
    """Return None for an unchanged object, else CHANGED, GONE or another error code."""
    try:
        present = look(client, bucket, listed)
    except FAILED as error:
        return delete_code_of(error)
    if present is None:
        return GONE
    return None if present.same else CHANGED


_NEVER_ETAG: Final = '"00000000000000000000000000000000"'
_REFUSED: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict"})
_UNKNOWN_REQUEST: Final = frozenset({"NotImplemented", "InvalidRequest", "InvalidArgument", "MalformedXML"})


class _Unsupported(str):
    """The code of a request that the store may not support; the key's state is unknown."""

    __slots__ = ()


class Conditions(StrEnum):
    """The conditional deletes that a store supports: of many keys in a call, of one key, or none."""

    MANY = "many"
    ONE = "one"
    NONE = "none"


class UnchangedDeletes:
    """Deletes unchanged objects of one bucket, and remembers which conditions the store supports."""

    def __init__(self) -> None:
        self._conditions: Conditions | None = None
        self._no_many = False
        self._looks = ObjectChecks()

    def delete(
        self, reads: "S3Client", deletes: "S3Client", bucket: str, some: Sequence[ListedObject]
    ) -> UnchangedResult:
        """Delete unchanged objects. `deletes` must be a client that sends each request once."""
        codes: dict[str, str] = {}
        absent: list[str] = []
        left: list[ListedObject] = []
        has_conditions = self._conditions in (Conditions.MANY, Conditions.ONE)
        for listed, code in self._looks.at(reads, bucket, some, by_pages=has_conditions):
            if code is None:
                left.append(listed)
            elif code in ABSENT:
                absent.append(listed.key)
            else:
                codes[listed.key] = code
        deleted, looked, marked = list(absent), 0, False
        markers: dict[str, str] = {}
        for sent, code, marker, conditional in self._sent(deletes, bucket, left):
            if code is None or code in ABSENT:
                deleted.append(sent.key)
                looked += not conditional
                marked = marked or marker is not None
                if marker:
                    markers[sent.key] = marker
            else:
                codes[sent.key] = CHANGED if code in _REFUSED else code
        failed = tuple(KeyFailure(listed.key, codes[listed.key]) for listed in some if listed.key in codes)
        return UnchangedResult(BatchResult(tuple(deleted), failed, marked, tuple(absent)), looked, markers)

    def _sent(
        self, client: "S3Client", bucket: str, left: Sequence[ListedObject]
    ) -> "Iterator[tuple[ListedObject, str | None, str | None, bool]]":
        """Yield each object with its error code, its delete marker, and whether a condition was sent. The marker is its
        version id, "" if the store does not name it, None if there is none."""
        todo = list(left)
        while todo and self._conditions is None:
            listed = todo[0]
            trial, tried = self._next_trial(listed)
            code, marker = tried(client, bucket, listed.key, _NEVER_ETAG)
            if code in _REFUSED:
                self._conditions = trial
            elif isinstance(code, _Unsupported) or code in _UNKNOWN_REQUEST or code is None or code in ABSENT:
                # The store ignored the condition, or does not know the request.
                self._rule_out(trial)
                if code is None or code in ABSENT:
                    yield todo.pop(0), code, marker, False
            else:
                yield todo.pop(0), code, marker, False
        plain = [listed_object for listed_object in todo if fits_xml(listed_object.key)]
        alone = [listed_object for listed_object in todo if not fits_xml(listed_object.key)]
        is_conditional = self._conditions in (Conditions.MANY, Conditions.ONE)
        refused: str | None = None
        if self._conditions is Conditions.ONE:
            alone = [*plain, *alone]
        else:
            for listed, code, marker in _many(client, bucket, plain, conditional=is_conditional):
                if isinstance(code, _Unsupported):
                    refused = code
                    alone.append(listed)
                else:
                    yield listed, code, marker, is_conditional
        ended: str | None = None
        for number, listed in enumerate(alone):
            etag = listed.etag if is_conditional else None
            code, marker = (ended, None) if ended else _one(client, bucket, listed.key, etag)
            yield listed, code, marker, is_conditional
            # If the store refuses the first object alone too, no further object is tried.
            if not number and code == refused:
                ended = refused

    def _next_trial(
        self, listed: ListedObject
    ) -> "tuple[Conditions, Callable[[S3Client, str, str, str], tuple[str | None, str | None]]]":
        if self._no_many or not fits_xml(listed.key):
            return Conditions.ONE, _one
        return Conditions.MANY, _one_of_many

    def _rule_out(self, trial: Conditions) -> None:
        if trial is Conditions.MANY:
            self._no_many = True
        else:
            self._conditions = Conditions.NONE


def _one(client: "S3Client", bucket: str, key: str, etag: str | None) -> tuple[str | None, str | None]:
    more: dict[str, Any] = {} if etag is None else {"IfMatch": etag}
    try:
        answer = client.delete_object(Bucket=bucket, Key=key, **more)
    except FAILED as error:
        return _code_of(error), None
    confirmed = answer["ResponseMetadata"]["HTTPStatusCode"] == 204
    marker = answer.get("VersionId", "") if answer.get("DeleteMarker") else None
    return (None if confirmed else NO_ANSWER), marker


def _code_of(error: S3Failure, *more: int) -> str:
    code = delete_code_of(error)
    return _Unsupported(code) if is_unsupported(error, *more) else code


def _one_of_many(client: "S3Client", bucket: str, key: str, etag: str) -> tuple[str | None, str | None]:
    listed = ListedObject(key, 0, etag, 0)
    ((_, code, marker),) = _many(client, bucket, [listed], conditional=True)
    return code, marker


def _many(
    client: "S3Client", bucket: str, some: Sequence[ListedObject], *, conditional: bool
) -> Iterator[tuple[ListedObject, str | None, str | None]]:
    """Delete objects in one call; yield each with its error code and delete marker, as `_sent` does."""
    if not some:
        return
    wanted: Any = [{"Key": listed.key, "ETag": listed.etag} if conditional else {"Key": listed.key} for listed in some]
    try:
        answer: Any = client.delete_objects(Bucket=bucket, Delete={"Objects": wanted})
    except FAILED as error:
        code = _code_of(error, 403, 404)
        yield from ((listed, code, None) for listed in some)
        return
    said: DeleteAnswer = answer.get(READ) or DeleteAnswer.of(answer)
    if not said.errors and not said.confirmed:
        yield from ((listed, _Unsupported(NO_ANSWER), None) for listed in some)
        return
    errors = {key: code or NO_ANSWER for key, code in said.errors}
    for listed in some:
        if None in errors:
            # Some object was not deleted, and the store does not state which one.
            yield listed, NO_ANSWER, None
        elif listed.key in errors:
            yield listed, errors[listed.key], None
        else:
            marker = said.markers.get(listed.key, "") if said.confirmed.get(listed.key) else None
            yield listed, None if listed.key in said.confirmed else NO_ANSWER, marker
