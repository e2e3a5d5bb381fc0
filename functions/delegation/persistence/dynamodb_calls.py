"""DynamoDB calls with the answers persistence needs: done, refused, nothing happened, or not known."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from botocore.config import Config
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from delegation.persistence.errors import BackendUnavailable, OutcomeUnknown

_NOT_TAKEN: Final = frozenset({
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "TransactionConflictException",
})  # fmt: skip
_NOT_SENT: Final = (ConnectTimeoutError, EndpointConnectionError)
_UNREACHABLE: Final = (HTTPClientError, BotoConnectionError)


def client_config(**more: Any) -> Config:
    """What Calls needs of botocore: no repeats of its own, or an applied call would go unnoticed."""
    return Config(**{"connect_timeout": 2, "read_timeout": 5, "retries": {"total_max_attempts": 1}, **more})


@dataclass(frozen=True, slots=True)
class ConditionFailed:
    """The condition did not hold; `item` is the row that stands there, empty if none does."""

    item: Mapping[str, Any]


class Calls:
    """A boto3 DynamoDB client and the waiting between tries (`sleep`, `draw`), which tests replace."""

    def __init__(
        self,
        client: Any,
        *,
        tries: int = 8,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._sleep = sleep
        self._draw = draw
        self.tries = tries

    def repeatable(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """A read, or a write that does no more when done twice. Raises BackendUnavailable."""
        failure: Exception | None = None
        for attempt in range(self.tries):
            self.wait(attempt)
            try:
                answer: dict[str, Any] = getattr(self._client, operation)(**arguments)
            except ClientError as error:
                failure = error
                if not (_is_server_error(error) or _code(error) in _NOT_TAKEN):
                    break
            except _UNREACHABLE as error:
                failure = error
            else:
                return answer
        raise BackendUnavailable(f"{operation} failed: {_reason(failure)}") from failure

    def conditional(self, operation: str, **arguments: Any) -> ConditionFailed | None:
        """A write on a condition: None if applied. Repeated only while it certainly was not taken.

        Raises BackendUnavailable, and OutcomeUnknown at the first answer that leaves it open.
        """
        failure: Exception | None = None
        for attempt in range(self.tries):
            self.wait(attempt)
            try:
                getattr(self._client, operation)(**arguments)
            except ClientError as error:
                if _code(error) == "ConditionalCheckFailedException":
                    return ConditionFailed(_standing(error))
                if _is_server_error(error):
                    raise OutcomeUnknown(f"{operation} was answered {_code(error)}") from error
                failure = error
                if _code(error) not in _NOT_TAKEN:
                    break
            except _NOT_SENT as error:
                failure = error
            except _UNREACHABLE as error:
                raise OutcomeUnknown(f"{operation} got no answer: {type(error).__name__}") from error
            else:
                return None
        raise BackendUnavailable(f"{operation} was not taken: {_reason(failure)}") from failure

    def wait(self, attempt: int) -> None:
        """Wait before try number `attempt`, not at all before the first."""
        if attempt:
            self._sleep(min(0.025 * 2**attempt, 1.0) * (0.5 + self._draw() / 2))


def _reason(failure: Exception | None) -> str:
    return _code(failure) if isinstance(failure, ClientError) else type(failure).__name__


def _code(error: ClientError) -> str:
    return error.response["Error"]["Code"]


def _is_server_error(error: ClientError) -> bool:
    # By status too: what stands before DynamoDB answers 502 to 504 with codes of its own.
    status: int = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status >= 500 or _code(error) in {"InternalServerError", "ServiceUnavailable"}


def _standing(error: ClientError) -> Mapping[str, Any]:
    answer: Mapping[str, Any] = error.response
    item: Mapping[str, Any] = answer.get("Item", {})
    return item
