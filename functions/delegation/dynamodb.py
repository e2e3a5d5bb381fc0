"""DynamoDB calls that end as applied, refused by a condition, not applied, or unknown.

The client must not retry by itself (`client_config`): a try that was applied would then look like a refusal.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.config import Config
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError

from delegation.backoff import exponential
from delegation.errors import DelegationError

REFUSED: Final = "ConditionalCheckFailed"
_NOT_APPLIED: Final = frozenset({
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "TransactionConflictException",
})  # fmt: skip
_MAYBE_APPLIED: Final = frozenset({"InternalServerError", "ServiceUnavailable", "TransactionInProgressException"})
_REJECTED: Final = frozenset({
    "AccessDenied",
    "AccessDeniedException",
    "ResourceNotFoundException",
    "SerializationException",
    "ValidationException",
})  # fmt: skip
"""What a repeat of the same call meets again, until somebody changes a table, a permission or the program."""
_NOT_APPLIED_REASONS: Final = frozenset({"ProvisionedThroughputExceeded", "ThrottlingError", "TransactionConflict"})
_NOT_SENT: Final = (ConnectTimeoutError, EndpointConnectionError, CredentialRetrievalError)
"""The last: the endpoint of the role's credentials did not answer, so the request could not be signed."""
_UNREACHABLE: Final = (HTTPClientError, BotoConnectionError)
_serialize = TypeSerializer().serialize
_deserialize = TypeDeserializer().deserialize


def client_config(**more: Any) -> Config:
    """Return the botocore configuration of a client for DynamoDbCalls: short time-outs, one try per call."""
    return Config(**{"connect_timeout": 2, "read_timeout": 5, "retries": {"total_max_attempts": 1}, **more})


def to_item(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain values as DynamoDB attribute values."""
    return {name: _serialize(value) for name, value in values.items()}


def from_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return DynamoDB attribute values as plain values."""
    return {name: _deserialize(value) for name, value in item.items()}


class DynamoDbCalls:
    """Calls of a boto3 DynamoDB client, retried where that is safe; subclasses define the errors raised.

    TransactionConflict, throttling and server errors are retried, never reported as a failed condition. `sleep` and
    `draw` make the pauses between tries; tests pass their own.
    """

    unavailable: ClassVar[type[DelegationError]]
    """Raised when nothing was read or written."""
    rejected: ClassVar[type[DelegationError] | None] = None
    """Raised instead of `unavailable` when the call can never succeed; None for `unavailable` then too."""
    unknown: ClassVar[type[DelegationError]]
    """Raised when a write may or may not have been applied."""
    refused: ClassVar[type[DelegationError] | None] = None
    """Raised when the call can never succeed (ValidationException); `unavailable` is raised instead without it."""

    def __init__(
        self,
        client: Any,
        *,
        tries: int = 6,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.client = client
        self.tries = tries
        self._sleep = sleep
        self._draw = draw

    def repeatable(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Make a read, or a write that has the same effect when applied twice, and return the answer."""
        answer: dict[str, Any] = self._repeat(
            lambda: getattr(self.client, operation)(**arguments), operation, is_conditional=False
        )
        return answer

    def conditional(self, operation: str, **arguments: Any) -> Mapping[str, Any] | None:
        """Make a conditional write, retried only while it was certainly not applied; return None if it was applied.

        Otherwise return the item that failed the condition, empty if there is none. Raises `unknown` at the first
        answer after which the write may have been applied.
        """
        try:
            self._repeat(lambda: getattr(self.client, operation)(**arguments), operation, repeats_unclear=False)
        except ClientError as refused:
            return _reasons(refused)[0]["Item"] or {}
        return None

    def write(self, call: Callable[[], object]) -> Sequence[Mapping[str, Any]]:
        """Make a conditional write whose items carry a nonce, retried also when it may have been applied.

        Return nothing if it was applied, else one cancellation reason per action.
        """
        try:
            self._repeat(call, "a write")
        except ClientError as refused:
            return _reasons(refused)
        return ()

    def put_once(
        self, table: str, key: Sequence[str], item: Mapping[str, Any], **condition: Any
    ) -> Mapping[str, Any] | None:
        """Put an item that carries a `nonce`, under a condition; return None if it was applied, by whichever try.

        Otherwise return the item that failed the condition, empty if there is none. `key` has the names of the table's
        key attributes: a write without a clear answer is read back by them. Raises `unavailable`, and `unknown` if that
        does not show the write.
        """
        put = {"TableName": table, "Item": to_item(item), "ReturnValuesOnConditionCheckFailure": "ALL_OLD", **condition}
        try:
            reasons = self.write(lambda: self.client.put_item(**put))
        except self.unknown:
            if self._stored_nonce(table, {name: item[name] for name in key}) != item["nonce"]:
                raise
            return None
        if not reasons:
            return None
        found = from_item(reasons[0].get("Item") or {})
        # An earlier try of this very write may have been applied without a clear answer.
        return None if found.get("nonce") == item["nonce"] else found

    def _stored_nonce(self, table: str, key: Mapping[str, Any]) -> object:
        try:
            answer = self.repeatable("get_item", TableName=table, Key=to_item(key), ConsistentRead=True)
        except self.unavailable as error:
            raise self.unknown("a write got no clear answer, and could not be read back") from error
        return from_item(answer.get("Item", {})).get("nonce")

    def _repeat(
        self, call: Callable[[], Any], name: str, *, is_conditional: bool = True, repeats_unclear: bool = True
    ) -> Any:
        """Return the answer of `call`; raises ClientError only for a failed condition."""
        failure: Exception | None = None
        unclear = False
        for attempt in range(self.tries):
            self.wait(attempt)
            try:
                answer = call()
            except ClientError as error:
                if is_conditional and _is_refusal(error):
                    raise
                failure, unclear = error, unclear or _maybe_applied(error)
                if not _is_retryable(error):
                    break
            except _NOT_SENT as error:
                failure = error
            except _UNREACHABLE as error:
                failure, unclear = error, True
            else:
                self.answered(answer)
                return answer
            if unclear and not repeats_unclear:
                break
        if isinstance(failure, ClientError) and _is_permanent(failure) and self.refused and not unclear:
            text = failure.response["Error"].get("Message") or "no reason given"
            raise self.refused(f"DynamoDB refused {name} permanently: {_reason(failure)}: {text}") from failure
        if unclear and is_conditional:
            raise self.unknown(f"{name} got no clear answer: {_reason(failure)}") from failure
        rejected = isinstance(failure, ClientError) and _code(failure) in _REJECTED
        raised = (self.rejected if rejected else None) or self.unavailable
        raise raised(f"{name} failed: {_reason(failure)}") from failure

    def answered(self, answer: Mapping[str, Any]) -> None:
        """Take note of an answer; a subclass may, for example, read the time from it."""

    def wait(self, attempt: int) -> None:
        """Pause before a repeat; `attempt` counts from 0, which has no pause."""
        if attempt:
            self._sleep(exponential(attempt, 0.1, 1.0) * (0.5 + self._draw() / 2))


def _reason(failure: Exception | None) -> str:
    return _code(failure) if isinstance(failure, ClientError) else type(failure).__name__


def _code(error: ClientError) -> str:
    return error.response["Error"]["Code"]


def _is_refusal(error: ClientError) -> bool:
    return any(reason.get("Code") == REFUSED for reason in _reasons(error))


def _is_permanent(error: ClientError) -> bool:
    """Return whether a call is refused however often it is made (Amazon DynamoDB API Reference, TransactWriteItems)."""
    return _code(error) == "ValidationException" or any(
        reason.get("Code") == "ValidationError" for reason in _reasons(error)
    )


def _reasons(error: ClientError) -> Sequence[Mapping[str, Any]]:
    if _code(error) == "ConditionalCheckFailedException":
        return [{"Code": REFUSED, "Item": error.response.get("Item")}]
    reasons: Sequence[Mapping[str, Any]] = error.response.get("CancellationReasons", [])
    return reasons


def _maybe_applied(error: ClientError) -> bool:
    # By status too: a proxy before DynamoDB answers 502 to 504 with other codes.
    status: int = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status >= 500 or _code(error) in _MAYBE_APPLIED


def _is_retryable(error: ClientError) -> bool:
    if _code(error) != "TransactionCanceledException":
        return _maybe_applied(error) or _code(error) in _NOT_APPLIED
    return any(reason.get("Code") in _NOT_APPLIED_REASONS for reason in _reasons(error))
