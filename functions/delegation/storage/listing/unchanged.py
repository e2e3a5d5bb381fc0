"""S3's conditional deletes (Amazon S3 API Reference: DeleteObjects, DeleteObject). Some stores ignore unknown
conditions and delete anyway. So support is tested on an object that is to be deleted and was just found unchanged: a
store with conditions refuses its delete with an ETag that no object has."""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from delegation.storage.base import BatchResult, KeyFailure
from delegation.storage.delete_answers import DeleteAnswer
from delegation.storage.listing.looks import Looks
from delegation.storage.listing.model import CHANGED, ListedObject, UnchangedResult
from delegation.storage.s3_delete import READ
from delegation.storage.s3_errors import ABSENT, FAILED, NO_ANSWER, S3Failure, delete_code_of, fits_xml, is_unsupported

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_NEVER_ETAG: Final = '"00000000000000000000000000000000"'
_REFUSED: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict"})
_UNKNOWN_REQUEST: Final = frozenset({"NotImplemented", "InvalidRequest", "InvalidArgument", "MalformedXML"})


class _Unsupported(str):
    """The code of a request that the store may not support; the key's state is unknown."""

    __slots__ = ()


class Conditions(StrEnum):
    """A store's conditional deletes: of many keys in a call, of one key, or none."""

    MANY = "many"
    ONE = "one"
    NONE = "none"


class UnchangedDeletes:
    """Deletes unchanged objects of one bucket; remembers which conditions the store supports."""

    def __init__(self) -> None:
        self._conditions: Conditions | None = None
        self._no_many = False
        self._looks = Looks()

    def delete(
        self, reads: "S3Client", deletes: "S3Client", bucket: str, some: Sequence[ListedObject]
    ) -> UnchangedResult:
        """Delete unchanged objects; `deletes` is a client that sends each request once."""
        codes: dict[str, str] = {}
        absent: list[str] = []
        left: list[ListedObject] = []
        has_conditions = self._conditions in (Conditions.MANY, Conditions.ONE)
        for one, code in self._looks.at(reads, bucket, some, by_pages=has_conditions):
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
        """Yield each object with its error code, its delete marker, and whether a condition was sent. A delete marker
        is its version id, "" if the store names none, None if there is none."""
        todo = list(left)
        while todo and self._conditions is None:
            one = todo[0]
            trial, tried = self._next_trial(one)
            code, marker = tried(client, bucket, one.key, _NEVER_ETAG)
            if code in _REFUSED:
                self._conditions = trial
            elif isinstance(code, _Unsupported) or code in _UNKNOWN_REQUEST or code is None or code in ABSENT:
                # It deleted the object in spite of the condition, or knows no such request.
                self._rule_out(trial)
                if code is None or code in ABSENT:
                    yield todo.pop(0), code, marker, False
            else:
                yield todo.pop(0), code, marker, False
        plain = [one for one in todo if fits_xml(one.key)]
        alone = [one for one in todo if not fits_xml(one.key)]
        is_conditional = self._conditions in (Conditions.MANY, Conditions.ONE)
        refused: str | None = None
        if self._conditions is Conditions.ONE:
            alone = [*plain, *alone]
        else:
            for one, code, marker in _many(client, bucket, plain, conditional=is_conditional):
                if isinstance(code, _Unsupported):
                    refused = code
                    alone.append(one)
                else:
                    yield one, code, marker, is_conditional
        ended: str | None = None
        for number, one in enumerate(alone):
            etag = one.etag if is_conditional else None
            code, marker = (ended, None) if ended else _one(client, bucket, one.key, etag)
            yield one, code, marker, is_conditional
            # A store that refuses the first one alone too is not asked about the others.
            if not number and code == refused:
                ended = refused

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
    """Delete objects in one call; yield each with its error code and delete marker, as `_sent`."""
    if not some:
        return
    wanted: Any = [{"Key": one.key, "ETag": one.etag} if conditional else {"Key": one.key} for one in some]
    try:
        answer: Any = client.delete_objects(Bucket=bucket, Delete={"Objects": wanted})
    except FAILED as error:
        code = _code_of(error, 403, 404)
        yield from ((one, code, None) for one in some)
        return
    said: DeleteAnswer = answer.get(READ) or DeleteAnswer.of(answer)
    if not said.errors and not said.confirmed:
        yield from ((one, _Unsupported(NO_ANSWER), None) for one in some)
        return
    errors = {key: code or NO_ANSWER for key, code in said.errors}
    for one in some:
        if None in errors:
            # Some object was not deleted, and the store does not state which.
            yield one, NO_ANSWER, None
        elif one.key in errors:
            yield one, errors[one.key], None
        else:
            marker = said.markers.get(one.key, "") if said.confirmed.get(one.key) else None
            yield one, None if one.key in said.confirmed else NO_ANSWER, marker
