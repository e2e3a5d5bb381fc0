"""Maps errors of boto3's S3 clients to ObjectStoreError and to the error codes of deletes."""

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import lt
from typing import TYPE_CHECKING, Any, NoReturn

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError
from botocore.exceptions import ConnectionError as EndpointError
from botocore.parsers import ResponseParserError

from delegation.storage.base import (
    BucketNotFound,
    ObjectNotFound,
    ObjectStoreDenied,
    ObjectStoreError,
    ObjectStoreUnavailable,
)
from delegation.storage.sessions import FOREIGN, AnswerNotRead

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# Only these codes state that a key does not exist. A missing bucket or a bare 404 may come from another store.
ABSENT = frozenset({"NoSuchKey", "NoSuchVersion"})
# The code of a key for which the store gave no readable answer.
NO_ANSWER = "NoAnswer"
EXPIRED_CODES = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"})
# Their common code in a BatchResult. The delete is retried with another credential (`deleter.TRANSIENT`).
EXPIRED = "ExpiredToken"
_DENIED = frozenset({
    "AccessDenied", "AllAccessDisabled", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "403",
    "Forbidden",
})  # fmt: skip
# With these a store or a proxy may refuse one kind of request but accept another.
_UNSUPPORTED = frozenset({400, 405, 411, 415, 501})
_NO_REFUSAL = EXPIRED_CODES | ABSENT | {"NoSuchBucket", "RequestTimeout"}
S3Failure = ClientError | BotoCoreError | ResponseParserError | ValueError | KeyError | TypeError | RuntimeError

# Errors of boto3's S3 clients beside ClientError and BotoCoreError. ResponseParserError: an answer cut short or written
# by a proxy. ValueError: a header that is not a date or number. KeyError, TypeError: a header that is missing or
# duplicated. RuntimeError: credentials that are already expired when refreshed.
ODD = (ResponseParserError, ValueError, KeyError, TypeError, RuntimeError)
FAILED = (ClientError, BotoCoreError, *ODD)
_PRINTABLE = bytes(range(0x20, 0x7F))
_NOT_IN_XML = re.compile("[\x00-\x1f\x7f-\x9f\ufffe\uffff]")


def fits_xml(text: str) -> bool:
    """Return whether XML 1.0 can contain the text unchanged, without control characters."""
    # Removing printable characters decides nearly every text. The pattern takes ten times as long.
    return (text.isascii() and not text.encode().translate(None, _PRINTABLE)) or _NOT_IN_XML.search(text) is None


def code_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code") or "Unknown")


def delete_code_of(error: S3Failure) -> str:
    """Return a failed delete's error code. A 404 or 5xx without a code is transient: a proxy may have sent it."""
    if isinstance(error, AnswerNotRead):
        return "AnswerTooLarge"
    if isinstance(error, BotoCoreError):
        return "ConnectionFailed"
    # An answer that a proxy cut short confirms no key.
    if isinstance(error, ODD) or is_bare_404(error):
        return NO_ANSWER
    code, status = code_of(error), _status(error)
    if code in EXPIRED_CODES:
        return EXPIRED
    if status == 501:
        return "NotImplemented"
    if status == 429:
        return "SlowDown"
    if status == 503:
        return code if code in {"SlowDown", "InternalError"} else "ServiceUnavailable"
    return "InternalError" if status >= 500 else code


def is_unsupported(error: BaseException | None, *more: int) -> bool:
    """Return whether a store may not support this request, by status, or the answer was not S3's."""
    if not isinstance(error, ClientError) or code_of(error) in _NO_REFUSAL:
        return False
    return _status(error) in {*_UNSUPPORTED, *more} or FOREIGN in error.response


def check_listing(client: "S3Client", uri: str, answer: Mapping[str, Any]) -> None:
    """Raise ObjectStoreError (STORE_LISTING_INVALID) for an answer that is not a listing."""
    if FOREIGN in answer:
        raise listing_invalid(client, uri, "is not in S3's form")


def check_keys(client: "S3Client", uri: str, keys: Sequence[str], prefix: str, after: str) -> None:
    """Raise ObjectStoreError unless the keys are in order, after `after` and below the prefix."""
    if keys and not all(map(lt, chain((after,), keys), keys)):
        raise listing_invalid(client, uri, f"does not advance in order after {after!r}")
    if keys and not (keys[0].startswith(prefix) and keys[-1].startswith(prefix)):
        raise listing_invalid(client, uri, "has keys of another prefix")


def listing_invalid(client: "S3Client", uri: str, problem: str) -> ObjectStoreError:
    where = client.meta.endpoint_url
    text = f"the listing of {uri} by the object store {where} {problem}. Check the endpoint"
    return ObjectStoreError(text, code="STORE_LISTING_INVALID")


def is_bare_404(error: ClientError) -> bool:
    return _status(error) == 404 and code_of(error) in {"404", "NotFound", "Unknown"}


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def cause_of(error: ObjectStoreError) -> str:
    cause = error.__cause__
    return code_of(cause) if isinstance(cause, ClientError) else error.code


def translate(uri: str, error: S3Failure) -> NoReturn:
    """Raise the ObjectStoreError for a boto3 error, with the store's code, never its message."""
    if isinstance(error, ClientError):
        code = code_of(error)
        # botocore cannot parse a body that quotes a key that XML cannot contain.
        if is_bare_404(error) and fits_xml(uri):
            raise ObjectStoreUnavailable(f"404 without an error code for {uri}. Check the endpoint") from error
        if code == "NoSuchBucket":
            raise BucketNotFound(f"the object store has no bucket of {uri}. Check the endpoint and region") from error
        if code in ABSENT or is_bare_404(error):
            raise ObjectNotFound(f"there is no object {uri}") from error
        if code in _DENIED or code in EXPIRED_CODES:
            raise ObjectStoreDenied(f"the object store answered {code} to {error.operation_name} for {uri}") from error
        transient = _status(error) == 429 or code in {"SlowDown", "RequestTimeout", "OperationAborted"}
        if transient or (_status(error) >= 500 and _status(error) != 501):
            raise ObjectStoreUnavailable(
                f"the object store answered {code} to {error.operation_name} for {uri}"
            ) from error
        raise ObjectStoreError(f"the object store answered {code} to {error.operation_name} for {uri}") from error
    if isinstance(error, AnswerNotRead):
        raise ObjectStoreUnavailable(
            f"{error} for {uri}. Check the endpoint", code="STORAGE_ANSWER_TOO_LARGE"
        ) from error
    if isinstance(error, (HTTPClientError, EndpointError, IncompleteReadError, *ODD)):
        raise ObjectStoreUnavailable(f"the call for {uri} failed: {type(error).__name__}") from error
    raise ObjectStoreError(f"the call for {uri} failed: {type(error).__name__}") from error
