"""Delete keys with a boto3 client, and what the store's answers mean (Amazon S3 API Reference, DeleteObjects).

A key is deleted only if the answer names it under `Deleted` and nowhere under `Error`, or if its only errors are
NoSuchKey and NoSuchVersion. `delete_objects` reads the answers, or botocore.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from delegation.storage.base import BatchResult, KeyFailure
from delegation.storage.delete_objects.answers import DeleteAnswer
from delegation.storage.delete_objects.events import READ
from delegation.storage.s3_errors import ABSENT, EXPIRED, EXPIRED_CODES, FAILED, NO_ANSWER, delete_code_of, fits_xml

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# A store that refuses DeleteObjects so may still delete key by key.
_ONE_BY_ONE = frozenset({"MissingContentMD5", "InvalidRequest", "NotImplemented"})
# After one of these, further calls of the same batch would only wait or add to the load.
_ENDS_BATCH = frozenset({"ConnectionFailed", "AnswerTooLarge", "SlowDown", "ServiceUnavailable", EXPIRED})


def delete_keys(client: "S3Client", bucket: str, keys: Sequence[str]) -> BatchResult:
    """Delete up to 1,000 keys; those that XML cannot contain, and all if the store demands it, one by one."""
    plain, alone = _split_by_xml(keys)
    absent: set[str] = set()
    deleted, codes, markers = _delete_many(client, bucket, plain, absent) if plain else (set(), {}, False)
    again = [key for key, code in codes.items() if code in _ONE_BY_ONE]
    for key, code, marker in _each(client, bucket, [*again, *alone]):
        codes.pop(key, None)
        if code is None or code in ABSENT:
            deleted.add(key)
            absent.update([key] if code else [])
            markers = markers or marker
        else:
            codes[key] = code
    if len(deleted) == len(keys) and not absent:
        return BatchResult(tuple(keys), delete_markers=markers)
    return BatchResult(
        tuple(key for key in keys if key in deleted),
        tuple(KeyFailure(key, codes[key]) for key in keys if key in codes),
        delete_markers=markers,
        absent=tuple(key for key in keys if key in absent),
    )


def _split_by_xml(keys: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    if fits_xml("".join(keys)):
        return keys, ()
    return [key for key in keys if fits_xml(key)], [key for key in keys if not fits_xml(key)]


def _delete_many(
    client: "S3Client", bucket: str, keys: Sequence[str], absent: set[str]
) -> tuple[set[str], dict[str, str], bool]:
    """Return the keys deleted, the error code of each other key, and whether delete markers were written.

    Those of the deleted keys whose error stated that they are absent are added to `absent`.
    """
    try:
        answer: Mapping[str, Any] = client.delete_objects(
            Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys]}
        )
    except FAILED as error:
        return set(), dict.fromkeys(keys, delete_code_of(error)), False
    said: DeleteAnswer = answer.get(READ) or DeleteAnswer.of(answer)
    sent = set(keys)
    if not said.errors and sent <= said.confirmed.keys():
        return sent, {}, any(map(said.confirmed.__getitem__, keys))
    confirmed = {key: marker for key, marker in said.confirmed.items() if key in sent}
    deleted = set(confirmed)
    codes: dict[str, str] = {}
    for key, code in said.errors:
        if key is None:
            # Some key was not deleted, and the store does not state which.
            return set(), dict.fromkeys(keys, _code(code)), False
        if key in sent:
            _record(key, _code(code), deleted, codes, both=key in confirmed)
    codes |= {key: NO_ANSWER for key in keys if key not in deleted and key not in codes}
    absent |= deleted - confirmed.keys()
    return deleted, codes, any(confirmed[key] for key in deleted if key in confirmed)


def _code(code: str | None) -> str:
    """Return an error's code; an answer with none or with several states nothing about the key."""
    return (EXPIRED if code in EXPIRED_CODES else code) if code else NO_ANSWER


def _record(key: str, code: str, deleted: set[str], codes: dict[str, str], *, both: bool) -> None:
    """Record one error of a key: it is absent if all its errors state it and it is not under `Deleted` as well."""
    if code in ABSENT and not both:
        if key not in codes:
            deleted.add(key)
        return
    deleted.discard(key)
    codes[key] = NO_ANSWER if code in ABSENT else code


def _each(client: "S3Client", bucket: str, keys: Sequence[str]) -> Iterator[tuple[str, str | None, bool]]:
    """Delete keys one by one; yield each with its error code, None if it is deleted, and whether it got a marker.

    A code in ABSENT states that there is no such key.
    """
    ended: str | None = None
    for key in keys:
        code, marker = (ended, False) if ended else _delete_one(client, bucket, key)
        yield key, code, marker
        if code in _ENDS_BATCH:
            ended = code


def _delete_one(client: "S3Client", bucket: str, key: str) -> tuple[str | None, bool]:
    try:
        answer = client.delete_object(Bucket=bucket, Key=key)
    except FAILED as error:
        return delete_code_of(error), False
    # S3 confirms with 204; a proxy may answer 200 for a store that it does not reach.
    confirmed = answer["ResponseMetadata"]["HTTPStatusCode"] == 204
    return (None if confirmed else NO_ANSWER), bool(answer.get("DeleteMarker"))
