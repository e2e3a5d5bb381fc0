"""Conditional DynamoDB writes whose answer is always one of: applied, refused, not taken, or not known."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

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

from delegation.tasks.errors import OutcomeUnknown, StoreUnavailable

REFUSED: Final = "ConditionalCheckFailed"
_TRY_AGAIN: Final = frozenset({
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "TransactionConflictException",
    "TransactionInProgressException",
})  # fmt: skip
_TRY_AGAIN_REASONS: Final = frozenset({"ProvisionedThroughputExceeded", "ThrottlingError", "TransactionConflict"})
_NOT_SENT: Final = (ConnectTimeoutError, EndpointConnectionError, CredentialRetrievalError)
"""The last: what hands out the role's credentials did not answer, and they are needed to sign."""
_UNREACHABLE: Final = (HTTPClientError, BotoConnectionError)
_serialize = TypeSerializer().serialize
_deserialize = TypeDeserializer().deserialize


def client_config(**more: Any) -> Config:
    """The botocore configuration of a DynamoDB client for ConditionalTable: short time-outs, one try a call."""
    return Config(**{"connect_timeout": 2, "read_timeout": 5, "retries": {"total_max_attempts": 1}, **more})


def to_item(values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values as DynamoDB attribute values."""
    return {name: _serialize(value) for name, value in values.items()}


def from_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """DynamoDB attribute values as plain values."""
    return {name: _deserialize(value) for name, value in item.items()}


class ConditionalTable:
    """A boto3 DynamoDB client that repeats what can be repeated.

    A write is repeated with the same items, so a nonce among them tells afterwards whether an earlier try was applied.
    The client must not repeat calls itself (`client_config`): behind its back a try could be applied and go unnoticed.
    `sleep` and `draw` are the waiting between tries, passed in so that tests neither wait nor guess.
    """

    def __init__(
        self,
        client: Any,
        *,
        tries: int = 6,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.client = client
        self._tries = tries
        self._sleep = sleep
        self._draw = draw

    def write(self, call: Callable[[], object]) -> Sequence[Mapping[str, Any]]:
        """Make a conditional write; the answer is empty if it was applied, else one cancellation reason an action.

        TransactionConflict, throttling and server errors are tried again, never taken for a lost race. Raises
        StoreUnavailable when nothing was written, OutcomeUnknown when that cannot be told from the answers.
        """
        unclear = False
        refusal: ClientError | None = None
        for attempt in range(self._tries):
            self._wait(attempt)
            try:
                call()
            except ClientError as error:
                if _is_refusal(error):
                    return _reasons(error)
                unclear = unclear or _maybe_applied(error)
                if not _worth_another_try(error):
                    refusal = error
                    break
            except _NOT_SENT:
                continue
            except _UNREACHABLE:
                unclear = True
            else:
                return ()
        if unclear:
            raise OutcomeUnknown("a write got no clear answer") from refusal
        if refusal is not None:
            raise StoreUnavailable(f"the table answered {_code(refusal)}") from refusal
        raise StoreUnavailable(f"the table did not take a write in {self._tries} tries")

    def read(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """A read, tried again like a write; StoreUnavailable when it failed."""
        failure: Exception | None = None
        for attempt in range(self._tries):
            self._wait(attempt)
            try:
                answer: dict[str, Any] = getattr(self.client, operation)(**arguments)
            except ClientError as error:
                failure = error
                if not _worth_another_try(error):
                    break
            except (*_NOT_SENT, *_UNREACHABLE) as error:
                failure = error
            else:
                return answer
        why = _code(failure) if isinstance(failure, ClientError) else type(failure).__name__
        raise StoreUnavailable(f"the table could not be read: {why}") from failure

    def _wait(self, attempt: int) -> None:
        if attempt:
            self._sleep(min(0.05 * 2**attempt, 1.0) * (0.5 + self._draw() / 2))


def _code(error: ClientError) -> str:
    return error.response["Error"]["Code"]


def _is_refusal(error: ClientError) -> bool:
    if _code(error) == "ConditionalCheckFailedException":
        return True
    reasons = error.response.get("CancellationReasons", [])
    return _code(error) == "TransactionCanceledException" and any(r.get("Code") == REFUSED for r in reasons)


def _reasons(error: ClientError) -> Sequence[Mapping[str, Any]]:
    if _code(error) == "ConditionalCheckFailedException":
        return [{"Code": REFUSED, "Item": error.response.get("Item")}]
    reasons: Sequence[Mapping[str, Any]] = error.response.get("CancellationReasons", [])
    return reasons


def _maybe_applied(error: ClientError) -> bool:
    return _is_server_error(error) or _code(error) == "TransactionInProgressException"


def _worth_another_try(error: ClientError) -> bool:
    if _code(error) != "TransactionCanceledException":
        return _is_server_error(error) or _code(error) in _TRY_AGAIN
    return any(reason.get("Code") in _TRY_AGAIN_REASONS for reason in error.response.get("CancellationReasons", []))


def _is_server_error(error: ClientError) -> bool:
    # By status too: what stands before DynamoDB answers 502 to 504 with codes of its own.
    status: int = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status >= 500 or _code(error) in {"InternalServerError", "ServiceUnavailable"}
