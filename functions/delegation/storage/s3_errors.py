"""Map errors of boto3's S3 clients to ObjectStoreError and to the error codes of deletes."""

from typing import NoReturn

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError
from botocore.exceptions import ConnectionError as EndpointError
from botocore.parsers import ResponseParserError

from delegation.storage.base import ObjectNotFound, ObjectStoreDenied, ObjectStoreError, ObjectStoreUnavailable
from delegation.storage.s3_delete import fits_xml

ABSENT = frozenset({"NoSuchKey", "NoSuchBucket", "NoSuchVersion", "NotFound", "404"})
EXPIRED_CODES = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"})
# Their common code in a BatchResult: the delete is retried with another credential (`lots.TRANSIENT`).
EXPIRED = "ExpiredToken"
_DENIED = frozenset({
    "AccessDenied", "AllAccessDisabled", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "403",
    "Forbidden",
})  # fmt: skip
_Failure = ClientError | BotoCoreError | ResponseParserError

# What boto3's clients raise; the last for an answer that a proxy cut short or wrote itself.
FAILED = (ClientError, BotoCoreError, ResponseParserError)


def code_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code") or "Unknown")


def delete_code_of(error: _Failure) -> str:
    """Return the error code of a failed delete.

    A 404 or 5xx without a code may come from a proxy without a store behind it: it is transient, whatever the key.
    """
    if isinstance(error, BotoCoreError):
        return "ConnectionFailed"
    # An answer that a proxy cut short confirms no key.
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
    """Raise the ObjectStoreError for an error of boto3; its text has the store's code, never the store's message."""
    if isinstance(error, ClientError):
        code = code_of(error)
        # The answer to HEAD has no body, and botocore cannot parse a body that quotes a key that XML cannot contain.
        if _is_bare_404(error) and error.operation_name != "HeadObject" and fits_xml(uri):
            raise ObjectStoreUnavailable(f"404 without an error code for {uri}; check the endpoint") from error
        if code in ABSENT:
            raise ObjectNotFound(f"there is no object {uri}") from error
        if code in _DENIED or code in EXPIRED_CODES:
            raise ObjectStoreDenied(f"the object store answered {code} for {uri}") from error
        transient = _status(error) == 429 or code in {"SlowDown", "RequestTimeout", "OperationAborted"}
        if transient or (_status(error) >= 500 and code != "NotImplemented"):
            raise ObjectStoreUnavailable(f"the object store answered {code} for {uri}") from error
        raise ObjectStoreError(f"the object store answered {code} for {uri}") from error
    if isinstance(error, (HTTPClientError, EndpointError, IncompleteReadError, ResponseParserError)):
        raise ObjectStoreUnavailable(f"the call for {uri} failed: {type(error).__name__}") from error
    raise ObjectStoreError(f"the call for {uri} failed: {type(error).__name__}") from error
