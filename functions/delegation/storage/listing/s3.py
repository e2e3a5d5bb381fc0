"""Listing S3, and its conditional deletes (Amazon S3 API Reference: ListObjectsV2, HeadObject, DeleteObjects).

Some stores ignore a condition that they do not know and delete all the same, so whether a store has conditions is found
out with an object that is to be deleted anyway, and was found unchanged just before: a delete of it with an ETag that
no object has is refused by a store that has them.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from delegation.storage.base import BatchResult, KeyFailure
from delegation.storage.delete_objects.answers import DeleteAnswer
from delegation.storage.delete_objects.events import READ
from delegation.storage.listing.model import (
    CHANGED,
    PAGE,
    ClockUnknown,
    ListedFolder,
    ListedObject,
    ListedPage,
    UnchangedResult,
)
from delegation.storage.s3_errors import ABSENT, FAILED, NO_ANSWER, code_of, delete_code_of, fits_xml, is_bare_404

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_NEVER_ETAG: Final = '"00000000000000000000000000000000"'
_REFUSED: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict"})
_UNKNOWN_REQUEST: Final = frozenset({"NotImplemented", "InvalidRequest", "InvalidArgument", "MalformedXML"})
_LOOKS: Final = 8
"""Objects looked at at a time, within one delete."""


class Conditions(StrEnum):
    """Which conditional deletes a store has: of many keys in a call, of one key, or none."""

    MANY = "many"
    ONE = "one"
    NONE = "none"


def page(client: "S3Client", bucket: str, prefix: str, after: str) -> ListedPage:
    """See ListableStore.page."""
    more: dict[str, Any] = {"StartAfter": after} if after else {}
    answer = client.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=PAGE, **more)
    return ListedPage(_objects(answer), _date(answer), not answer.get("IsTruncated", False))


def folder(client: "S3Client", bucket: str, prefix: str) -> ListedFolder:
    """See ListableStore.folder."""
    answer = client.list_objects_v2(Bucket=bucket, Prefix=prefix, Delimiter="/", MaxKeys=PAGE)
    folders = tuple(str(one["Prefix"]) for one in answer.get("CommonPrefixes", ()))
    return ListedFolder(_objects(answer), folders, _date(answer), not answer.get("IsTruncated", False))


def _objects(answer: Any) -> tuple[ListedObject, ...]:
    """Return the objects of a listing; raise ValueError, which the store translates, if one is not described."""
    try:
        return tuple(
            ListedObject(one["Key"], one["Size"], one.get("ETag", ""), _seconds(one["LastModified"]))
            for one in answer.get("Contents", ())
        )
    except KeyError as error:
        raise ValueError(f"a listing has an object without {error.args[0]}") from error


def _seconds(moment: datetime) -> int:
    # A listing may have fractions of a second, which the header of an object never has.
    return int(moment.timestamp())


def _date(answer: Any) -> int:
    """Return when the store answered; raise ClockUnknown."""
    text = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
    try:
        return int(parsedate_to_datetime(text).timestamp())
    except ValueError as error:
        raise ClockUnknown(f"a listing has no valid Date header ({text[:40]!r}); check the endpoint") from error


class UnchangedDeletes:
    """Deletes objects of one bucket that are as they were listed; remembers which conditions the store has."""

    def __init__(self) -> None:
        self._conditions: Conditions | None = None
        self._no_many = False

    def delete(
        self, reads: "S3Client", deletes: "S3Client", bucket: str, some: Sequence[ListedObject]
    ) -> UnchangedResult:
        """See ListableStore.delete_unchanged; `deletes` is a client that sends each request once."""
        codes: dict[str, str] = {}
        absent: list[str] = []
        left: list[ListedObject] = []
        with ThreadPoolExecutor(_LOOKS, thread_name_prefix="look") as pool:
            for one, code in zip(some, pool.map(lambda one: _look(reads, bucket, one), some), strict=True):
                if code is None:
                    left.append(one)
                elif code in ABSENT:
                    absent.append(one.key)
                else:
                    codes[one.key] = code
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
        failed = tuple(KeyFailure(one.key, codes[one.key]) for one in some if one.key in codes)
        return UnchangedResult(BatchResult(tuple(deleted), failed, marked, tuple(absent)), looked, markers)

    def _sent(
        self, client: "S3Client", bucket: str, left: Sequence[ListedObject]
    ) -> "Iterator[tuple[ListedObject, str | None, str | None, bool]]":
        """Yield each object with its error code, its delete marker, and whether a condition was sent.

        A delete marker is its version id, "" if the store names none, None if there is none.
        """
        todo = list(left)
        while todo and self._conditions is None:
            one = todo[0]
            trial, tried = self._next_trial(one)
            code, marker = tried(client, bucket, one.key, _NEVER_ETAG)
            if code in _REFUSED:
                self._conditions = trial
            elif code in _UNKNOWN_REQUEST or code is None or code in ABSENT:
                # It deleted the object in spite of the condition, or knows no such request.
                self._rule_out(trial)
                if code is None or code in ABSENT:
                    yield todo.pop(0), code, marker, False
            else:
                yield todo.pop(0), code, marker, False
        plain = [one for one in todo if fits_xml(one.key)]
        odd = [one for one in todo if not fits_xml(one.key)]
        if self._conditions is Conditions.MANY:
            yield from ((*found, True) for found in _many(client, bucket, plain, conditional=True))
        elif self._conditions is Conditions.ONE:
            yield from ((one, *_one(client, bucket, one.key, one.etag), True) for one in plain)
        else:
            yield from ((*found, False) for found in _many(client, bucket, plain, conditional=False))
        is_conditional = self._conditions in (Conditions.MANY, Conditions.ONE)
        for one in odd:
            yield one, *_one(client, bucket, one.key, one.etag if is_conditional else None), is_conditional

    def _next_trial(
        self, one: ListedObject
    ) -> "tuple[Conditions, Callable[[S3Client, str, str, str], tuple[str | None, str | None]]]":
        if self._no_many or not fits_xml(one.key):
            return Conditions.ONE, _one
        return Conditions.MANY, _one_of_many

    def _rule_out(self, trial: Conditions) -> None:
        if trial is Conditions.MANY:
            self._no_many = True
        else:
            self._conditions = Conditions.NONE


def _look(client: "S3Client", bucket: str, one: ListedObject) -> str | None:
    """Return None for an object that is as it was listed, else CHANGED, a code in ABSENT or another error code."""
    try:
        found = client.head_object(Bucket=bucket, Key=one.key)
    except FAILED as error:
        if not (isinstance(error, ClientError) and (is_bare_404(error) or code_of(error) in ABSENT)):
            return delete_code_of(error)
        return _absent(client, bucket, one.key)
    same = found.get("ETag", "") == one.etag and _seconds(found["LastModified"]) == one.modified
    return None if same and found["ContentLength"] == one.size else CHANGED


def _absent(client: "S3Client", bucket: str, key: str) -> str:
    """Return why HEAD found no object: its answer does not say whether the bucket exists."""
    try:
        client.get_object(Bucket=bucket, Key=key, Range="bytes=0-0")["Body"].close()
    except ClientError as error:
        return code_of(error) if code_of(error) in ABSENT else delete_code_of(error)
    except FAILED as error:
        return delete_code_of(error)
    return CHANGED


def _one(client: "S3Client", bucket: str, key: str, etag: str | None) -> tuple[str | None, str | None]:
    more: dict[str, Any] = {} if etag is None else {"IfMatch": etag}
    try:
        answer = client.delete_object(Bucket=bucket, Key=key, **more)
    except FAILED as error:
        return delete_code_of(error), None
    confirmed = answer["ResponseMetadata"]["HTTPStatusCode"] == 204
    marker = answer.get("VersionId", "") if answer.get("DeleteMarker") else None
    return (None if confirmed else NO_ANSWER), marker


def _one_of_many(client: "S3Client", bucket: str, key: str, etag: str) -> tuple[str | None, str | None]:
    listed = ListedObject(key, 0, etag, 0)
    ((_, code, marker),) = _many(client, bucket, [listed], conditional=True)
    return code, marker


def _many(
    client: "S3Client", bucket: str, some: Sequence[ListedObject], *, conditional: bool
) -> Iterator[tuple[ListedObject, str | None, str | None]]:
    """Delete objects in one call; yield each with its error code and its delete marker, as `UnchangedDeletes._sent`."""
    if not some:
        return
    wanted: Any = [{"Key": one.key, "ETag": one.etag} if conditional else {"Key": one.key} for one in some]
    try:
        answer: Any = client.delete_objects(Bucket=bucket, Delete={"Objects": wanted})
    except FAILED as error:
        code = delete_code_of(error)
        yield from ((one, code, None) for one in some)
        return
    said: DeleteAnswer = answer.get(READ) or DeleteAnswer.of(answer)
    errors = {key: code or NO_ANSWER for key, code in said.errors}
    for one in some:
        if None in errors:
            # Some object was not deleted, and the store does not say which.
            yield one, NO_ANSWER, None
        elif one.key in errors:
            yield one, errors[one.key], None
        else:
            marker = said.markers.get(one.key, "") if said.confirmed.get(one.key) else None
            yield one, None if one.key in said.confirmed else NO_ANSWER, marker
