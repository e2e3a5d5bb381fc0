"""Errors of S3 as ours: which code says what, whatever the operation."""

from typing import NoReturn

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError
from botocore.exceptions import ConnectionError as EndpointError
from botocore.parsers import ResponseParserError

from delegation.storage.base import ObjectNotFound, ObjectStoreDenied, ObjectStoreError, ObjectStoreUnavailable
from delegation.storage.s3_delete import fits_xml

ABSENT = frozenset({"NoSuchKey", "NoSuchBucket", "NoSuchVersion", "NotFound", "404"})
EXPIRED_CODES = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"})
# What all of them are called in a BatchResult: to be tried again with another credential (`delete.PASSING`).
EXPIRED = "ExpiredToken"
_DENIED = frozenset({
    "AccessDenied", "AllAccessDisabled", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "403",
    "Forbidden",
})  # fmt: skip
_Failure = ClientError | BotoCoreError | ResponseParserError

# What boto3's clients raise; the last is an answer that something in between cut short, or gave itself.
FAILED = (ClientError, BotoCoreError, ResponseParserError)


def code_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code") or "Unknown")


def delete_code_of(error: _Failure) -> str:
    """The store's code for a delete, which says in words what is absent; a bare status may be a proxy's own.

    An ingress without a store behind it answers 404 or 502 to everything: that says nothing of any key, and passes.
    """
    if isinstance(error, BotoCoreError):
        return "ConnectionFailed"
    # An answer that something in between cut short confirms nothing that could be known.
    if isinstance(error, ResponseParserError) or _is_bare_404(error):
        return "NoAnswer"
    code, status = code_of(error), _status(error)
    if status == 429:
        return "SlowDown"
    if status == 503:
        return code if code in {"SlowDown", "InternalError"} else "ServiceUnavailable"
    return "InternalError" if status >= 500 and code != "NotImplemented" else code


def _is_bare_404(error: ClientError) -> bool:
    return _status(error) == 404 and code_of(error) in {"404", "NotFound", "Unknown"}


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def cause_of(error: ObjectStoreError) -> str:
    cause = error.__cause__
    return code_of(cause) if isinstance(cause, ClientError) else error.code


def translate(uri: str, error: _Failure) -> NoReturn:
    """Raise our own error for boto3's; the text names the store's code, never what it quotes of the request."""
    if isinstance(error, ClientError):
        code = code_of(error)
        # Only the answer to HEAD has no room for words, and words about a key that XML cannot carry are not read.
        if _is_bare_404(error) and error.operation_name != "HeadObject" and fits_xml(uri):
            raise ObjectStoreUnavailable(f"404 without a word from the store for {uri}") from error
        if code in ABSENT:
            raise ObjectNotFound(f"no object {uri}") from error
        if code in _DENIED or code in EXPIRED_CODES:
            raise ObjectStoreDenied(f"{code} for {uri}") from error
        passing = _status(error) == 429 or code in {"SlowDown", "RequestTimeout", "OperationAborted"}
        if passing or (_status(error) >= 500 and code != "NotImplemented"):
            raise ObjectStoreUnavailable(f"{code} for {uri}") from error
        raise ObjectStoreError(f"{code} for {uri}") from error
    if isinstance(error, (HTTPClientError, EndpointError, IncompleteReadError, ResponseParserError)):
        raise ObjectStoreUnavailable(f"{type(error).__name__} for {uri}") from error
    raise ObjectStoreError(f"{type(error).__name__} for {uri}") from error
