"""DynamoDB calls that end as applied, refused by a condition, not applied, or unknown.

The client must not retry by itself (`client_config`): a try that was applied would then look like a refusal.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from types import MappingProxyType
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

from polaris_common.backoff import exponential
from polaris_common.errors import DelegationError


class CallOutcome(Enum):
    """What the answer to a call means; of a transaction's reasons the first in this order counts."""

    CONDITION_FAILED = auto()
    INVALID = auto()  # no repeat can succeed
    NOT_APPLIED = auto()  # a repeat may succeed
    UNCLEAR = auto()  # it may have been applied
    BLOCKED = auto()  # until somebody changes a table or a permission
    UNKNOWN = auto()  # a code that is not listed here; it was not applied


_OUTCOMES: Final[Mapping[str, CallOutcome]] = {
    "AccessDenied": CallOutcome.BLOCKED,
    "AccessDeniedException": CallOutcome.BLOCKED,
    "ConditionalCheckFailed": CallOutcome.CONDITION_FAILED,
    "ConditionalCheckFailedException": CallOutcome.CONDITION_FAILED,
    "InternalServerError": CallOutcome.UNCLEAR,
    "LimitExceededException": CallOutcome.NOT_APPLIED,
    "ProvisionedThroughputExceeded": CallOutcome.NOT_APPLIED,
    "ProvisionedThroughputExceededException": CallOutcome.NOT_APPLIED,
    "RequestLimitExceeded": CallOutcome.NOT_APPLIED,
    "ResourceNotFoundException": CallOutcome.BLOCKED,
    "SerializationException": CallOutcome.INVALID,
    "ServiceUnavailable": CallOutcome.UNCLEAR,
    "ThrottlingError": CallOutcome.NOT_APPLIED,
    "ThrottlingException": CallOutcome.NOT_APPLIED,
    "TransactionConflict": CallOutcome.NOT_APPLIED,
    "TransactionConflictException": CallOutcome.NOT_APPLIED,
    "TransactionInProgressException": CallOutcome.UNCLEAR,
    "ValidationError": CallOutcome.INVALID,
    "ValidationException": CallOutcome.INVALID,
}
"""By error code and by reason of a cancelled transaction (Amazon DynamoDB API Reference, TransactWriteItems)."""
_REPEATED: Final = frozenset({CallOutcome.NOT_APPLIED, CallOutcome.UNCLEAR})
_NOT_SENT: Final = (ConnectTimeoutError, EndpointConnectionError, CredentialRetrievalError)
"""The last: the endpoint of the role's credentials did not answer, so the request could not be signed."""
_UNREACHABLE: Final = (HTTPClientError, BotoConnectionError)
_serialize = TypeSerializer().serialize
_deserialize = TypeDeserializer().deserialize


def client_config(**more: Any) -> Config:
    """Return the botocore configuration of a client for DynamoDbCalls: short time-outs, one try per call."""
    return Config(**{"connect_timeout": 2, "read_timeout": 5, "retries": {"total_max_attempts": 1}, **more})


def to_item(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _serialize(value) for name, value in values.items()}


def from_item(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _deserialize(value) for name, value in item.items()}


class DynamoDbCalls:
    """Calls of a boto3 DynamoDB client, retried where that is safe; subclasses define the errors raised.

    TransactionConflict, throttling and server errors are retried, never reported as a failed condition. `sleep` and
    `draw` make the pauses between tries; tests replace them.
    """

    unavailable: ClassVar[type[DelegationError]]
    """Raised when nothing was read or written."""
    unknown: ClassVar[type[DelegationError]]
    """Raised when a write may or may not have been applied."""
    refused: ClassVar[Mapping[CallOutcome, Callable[[str], DelegationError]]] = MappingProxyType({})
    """Raised instead of `unavailable` for these outcomes, which a repeat of the call would also have."""

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
        answer after which the write may have been applied."""
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
        """Put an item that carries a `nonce`, under a condition; return None if it was applied, by any try. Otherwise
        return the item that failed the condition, empty if there is none. `key` has the names of the table's key
        attributes: a write without a clear answer is read back by them. Raises `unavailable`, and `unknown` if that
        does not show the write."""
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
            raise self.unknown("a write got no clear answer, and the item could not be read to find out") from error
        return from_item(answer.get("Item", {})).get("nonce")

    def _repeat(
        self, call: Callable[[], Any], name: str, *, is_conditional: bool = True, repeats_unclear: bool = True
    ) -> Any:
        """Return the answer of `call`; raises ClientError only for a failed condition."""
        failure: Exception | None = None
        outcome, unclear = CallOutcome.NOT_APPLIED, False
        for attempt in range(self.tries):
            self.wait(attempt)
            try:
                answer = self.send(call)
            except ClientError as error:
                failure, outcome = error, outcome_of(error)
                if is_conditional and outcome is CallOutcome.CONDITION_FAILED:
                    raise
            except _NOT_SENT as error:
                failure, outcome = error, CallOutcome.NOT_APPLIED
            except _UNREACHABLE as error:
                failure, outcome = error, CallOutcome.UNCLEAR
            else:
                self.answered(answer)
                return answer
            unclear = unclear or outcome is CallOutcome.UNCLEAR
            if outcome not in _REPEATED or (unclear and not repeats_unclear):
                break
        if unclear and is_conditional:
            raise self.unknown(f"{name} got no clear answer: {_reason(failure)}") from failure
        raise self.refused.get(outcome, self.unavailable)(f"{name} failed: {_reason(failure)}") from failure

    def send(self, call: Callable[[], Any]) -> Any:
        """Make a call; a subclass may bound how long it waits for the answer."""
        return call()

    def answered(self, answer: Mapping[str, Any]) -> None:
        """Handle an answer; a subclass may, for example, read the time from it."""

    def wait(self, attempt: int) -> None:
        """Pause before a repeat; `attempt` counts from 0, which has no pause."""
        if attempt:
            self._sleep(exponential(attempt, 0.1, 1.0) * (0.5 + self._draw() / 2))


def outcome_of(error: ClientError) -> CallOutcome:
    """Return what an error states about its call."""
    found = {_OUTCOMES.get(str(reason.get("Code")), CallOutcome.UNKNOWN) for reason in _reasons(error)}
    first = min(found, key=lambda outcome: outcome.value, default=CallOutcome.UNKNOWN)
    # By status too: a proxy in front of DynamoDB answers 502 to 504 with other codes.
    status: int = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return CallOutcome.UNCLEAR if status >= 500 and first is not CallOutcome.CONDITION_FAILED else first


def is_failed_condition(reason: Mapping[str, Any]) -> bool:
    """Return whether a reason of a cancelled transaction is the failed condition of its action."""
    return _OUTCOMES.get(str(reason.get("Code"))) is CallOutcome.CONDITION_FAILED


def _reason(failure: Exception | None) -> str:
    """Return the code of a failure; with DynamoDB's own words for an invalid call, which name no secret."""
    if not isinstance(failure, ClientError):
        return type(failure).__name__
    if outcome_of(failure) is not CallOutcome.INVALID:
        return _code(failure)
    return f"{_code(failure)}: {failure.response['Error'].get('Message') or 'no reason given'}"


def _code(error: ClientError) -> str:
    return error.response["Error"]["Code"]


def _reasons(error: ClientError) -> Sequence[Mapping[str, Any]]:
    """Return the reasons of a cancelled transaction, one per action; else one, with the stored item."""
    if _code(error) == "TransactionCanceledException":
        reasons: Sequence[Mapping[str, Any]] = error.response.get("CancellationReasons", [])
        return reasons
    return [{"Code": _code(error), "Item": error.response.get("Item")}]
