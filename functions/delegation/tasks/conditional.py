"""Conditional DynamoDB writes whose answer is always one of: applied, refused, not taken, or not known."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from delegation.tasks.errors import OutcomeUnknown, StoreUnavailable

REFUSED: Final = "ConditionalCheckFailed"
_RETRYABLE: Final = frozenset({
    "InternalServerError",
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ServiceUnavailable",
    "ThrottlingException",
    "TransactionConflictException",
    "TransactionInProgressException",
})  # fmt: skip
_RETRYABLE_REASONS: Final = frozenset({"ProvisionedThroughputExceeded", "ThrottlingError", "TransactionConflict"})
_MAYBE_APPLIED: Final = frozenset({"InternalServerError", "ServiceUnavailable", "TransactionInProgressException"})
_UNREACHABLE: Final = (HTTPClientError, BotoConnectionError)
_serialize = TypeSerializer().serialize
_deserialize = TypeDeserializer().deserialize


def to_item(values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values as DynamoDB attribute values."""
    return {name: _serialize(value) for name, value in values.items()}


def from_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """DynamoDB attribute values as plain values."""
    return {name: _deserialize(value) for name, value in item.items()}


class ConditionalTable:
    """A boto3 DynamoDB client that repeats what can be repeated.

    A write is repeated with the same items, so a nonce among them tells afterwards whether an earlier try was applied.
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
        for attempt in range(self._tries):
            if attempt:
                self._sleep(min(0.05 * 2**attempt, 1.0) * (0.5 + self._draw() / 2))
            try:
                call()
            except ClientError as error:
                if not _worth_another_try(error):
                    return _reasons(error)
                unclear = unclear or error.response["Error"]["Code"] in _MAYBE_APPLIED
            except _UNREACHABLE:
                unclear = True
            else:
                return ()
        if unclear:
            raise OutcomeUnknown("a write got no clear answer")
        raise StoreUnavailable(f"the table did not take a write in {self._tries} tries")

    def read(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """One read; StoreUnavailable when it failed."""
        try:
            answer: dict[str, Any] = getattr(self.client, operation)(**arguments)
        except ClientError as error:
            raise StoreUnavailable(f"the table answered {error.response['Error']['Code']}") from error
        except _UNREACHABLE as error:
            raise StoreUnavailable(f"the table could not be read: {type(error).__name__}") from error
        return answer


def _worth_another_try(error: ClientError) -> bool:
    code = error.response["Error"]["Code"]
    if code != "TransactionCanceledException":
        return code in _RETRYABLE
    codes = {reason.get("Code") for reason in error.response.get("CancellationReasons", [])}
    return REFUSED not in codes and bool(codes & _RETRYABLE_REASONS)


def _reasons(error: ClientError) -> Sequence[Mapping[str, Any]]:
    code = error.response["Error"]["Code"]
    if code == "ConditionalCheckFailedException":
        return [{"Code": REFUSED, "Item": error.response.get("Item")}]
    reasons: Sequence[Mapping[str, Any]] = error.response.get("CancellationReasons", [])
    if code == "TransactionCanceledException" and any(reason.get("Code") == REFUSED for reason in reasons):
        return reasons
    raise StoreUnavailable(f"the table answered {code}") from error
