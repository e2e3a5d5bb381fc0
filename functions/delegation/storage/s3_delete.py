"""Deletes keys with a boto3 client, and interprets the answers (Amazon S3 API Reference, DeleteObjects). A key is
deleted only if it is under `Deleted` and not under `Error`, or its only errors are NoSuchKey and NoSuchVersion."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from delegation.storage.base import BatchResult, KeyFailure
from delegation.storage.delete_objects.answers import DeleteAnswer
from delegation.storage.delete_objects.events import READ
from delegation.storage.s3_errors import (
    ABSENT,
    EXPIRED,
    EXPIRED_CODES,
    FAILED,
    NO_ANSWER,
    delete_code_of,
    fits_xml,
    is_unsupported,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# With one of these for a key, a store may still delete it alone.
_ONE_BY_ONE = frozenset({
    "InvalidDigest", "InvalidRequest", "MethodNotAllowed", "MissingArgument", "MissingContentMD5", "NotImplemented",
})  # fmt: skip
# After one of these, further calls of the same batch would only wait or add to the load.
_ENDS_BATCH = frozenset({"ConnectionFailed", "AnswerTooLarge", "SlowDown", "ServiceUnavailable", EXPIRED})


def delete_keys(client: "S3Client", bucket: str, keys: Sequence[str]) -> BatchResult:
    """Delete up to 1,000 keys, one by one if XML cannot contain them or the store refuses DeleteObjects."""
    plain, alone = _split_by_xml(keys)
    absent: set[str] = set()
    deleted, codes, markers, again = _delete_many(client, bucket, plain, absent) if plain else (set(), {}, False, [])
    for key, code, marker in _each(client, bucket, [*again, *alone], refused=codes.get(again[0]) if again else None):
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
) -> tuple[set[str], dict[str, str], bool, Sequence[str]]:
    """Return the deleted keys, the error codes of others, whether delete markers were written, and refused keys. Adds
    deleted keys that an error stated as absent to `absent`."""
    try:
        answer: Mapping[str, Any] = client.delete_objects(
            Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys]}
        )
    except FAILED as error:
        return set(), dict.fromkeys(keys, delete_code_of(error)), False, keys if is_unsupported(error, 403, 404) else ()
    said: DeleteAnswer = answer.get(READ) or DeleteAnswer.of(answer)
    sent = set(keys)
    if not said.errors and sent <= said.confirmed.keys():
        return sent, {}, any(map(said.confirmed.__getitem__, keys)), ()
    if not said.errors and not said.confirmed:
        return set(), dict.fromkeys(keys, NO_ANSWER), False, keys
    confirmed = {key: marker for key, marker in said.confirmed.items() if key in sent}
    deleted = set(confirmed)
    codes: dict[str, str] = {}
    for key, code in said.errors:
        if key is None:
            # Some key was not deleted, and the store does not state which.
            return set(), dict.fromkeys(keys, _code(code)), False, keys if code in _ONE_BY_ONE else ()
        if key in sent:
            _record(key, _code(code), deleted, codes, both=key in confirmed)
    codes |= {key: NO_ANSWER for key in keys if key not in deleted and key not in codes}
    absent |= deleted - confirmed.keys()
    again = [key for key, code in codes.items() if code in _ONE_BY_ONE]
    return deleted, codes, any(confirmed[key] for key in deleted if key in confirmed), again


def _code(code: str | None) -> str:
    """Return an error's code; without exactly one the key's state is unknown."""
    return (EXPIRED if code in EXPIRED_CODES else code) if code else NO_ANSWER


def _record(key: str, code: str, deleted: set[str], codes: dict[str, str], *, both: bool) -> None:
    """Record an error of a key: absent if all its errors say so and it is not under `Deleted` too."""
    if code in ABSENT and not both:
        if key not in codes:
            deleted.add(key)
        return
    deleted.discard(key)
    codes[key] = NO_ANSWER if code in ABSENT else code


def _each(
    client: "S3Client", bucket: str, keys: Sequence[str], *, refused: str | None
) -> Iterator[tuple[str, str | None, bool]]:
    """Delete keys one by one; yield each with its error code, None if deleted, and whether it got a marker. A code in
    ABSENT means no such key. `refused` is DeleteObjects' code for the first key: if its own delete is refused with the
    same code, no other is tried."""
    ended: str | None = None
    for number, key in enumerate(keys):
        code, marker = (ended, False) if ended else _delete_one(client, bucket, key)
        yield key, code, marker
        if code in _ENDS_BATCH or (not number and code == refused):
            ended = code


def _delete_one(client: "S3Client", bucket: str, key: str) -> tuple[str | None, bool]:
    try:
        answer = client.delete_object(Bucket=bucket, Key=key)
    except FAILED as error:
        return delete_code_of(error), False
    # S3 confirms with 204; a proxy may answer 200 for a store that it does not reach.
    confirmed = answer["ResponseMetadata"]["HTTPStatusCode"] == 204
    return (None if confirmed else NO_ANSWER), bool(answer.get("DeleteMarker"))
