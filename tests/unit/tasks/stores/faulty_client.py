"""A DynamoDB client whose calls fail on demand, before or after they took effect."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    ReadTimeoutError,
)

URL = "https://dynamodb.us-east-1.amazonaws.com"
WRITES = frozenset({"put_item", "transact_write_items"})


def answered(code: str, status: int = 400) -> Callable[[str], Exception]:
    """Return an error that the service returns for any operation."""

    def build(operation: str) -> Exception:
        metadata = {"HTTPStatusCode": status, "RequestId": "r", "HostId": "", "HTTPHeaders": {}, "RetryAttempts": 0}
        return ClientError({"Error": {"Code": code, "Message": ""}, "ResponseMetadata": metadata}, operation)

    return build


def cancelled(*reasons: str) -> Callable[[str], Exception]:
    """Return a transaction cancelled for these reasons; a single write raises the first of them."""

    def build(operation: str) -> Exception:
        if operation == "put_item":
            single = {"ThrottlingError": "ThrottlingException"}.get(reasons[0], reasons[0] + "Exception")
            return answered(single)(operation)
        metadata = {"HTTPStatusCode": 400, "RequestId": "r", "HostId": "", "HTTPHeaders": {}, "RetryAttempts": 0}
        response: Any = {
            "Error": {"Code": "TransactionCanceledException", "Message": ""},
            "CancellationReasons": [{"Code": reason} for reason in reasons],
            "ResponseMetadata": metadata,
        }
        return ClientError(response, operation)

    return build


def read_timeout(_operation: str) -> Exception:
    return ReadTimeoutError(endpoint_url=URL)


def connection_closed(_operation: str) -> Exception:
    return ConnectionClosedError(endpoint_url=URL)


def connect_timeout(_operation: str) -> Exception:
    return ConnectTimeoutError(endpoint_url=URL)


def no_credentials_now(_operation: str) -> Exception:
    return CredentialRetrievalError(provider="container-role", error_msg="timed out")


def no_connection(_operation: str) -> Exception:
    return EndpointConnectionError(endpoint_url=URL)


@dataclass(frozen=True)
class Fault:
    """A failing call; `applied` is whether it took effect first."""

    error: Callable[[str], Exception]
    applied: bool = False


class FaultyClient:
    """Passes calls to a client; the next write (or read) fails as `writes` (or `reads`) define, None lets one pass.

    Between the tries of a write `between` may act, as a rival would.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.writes: list[Fault | None] = []
        self.reads: list[Fault | None] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.between: list[Callable[[], object]] = []

    def __getattr__(self, operation: str) -> Any:
        def call(**arguments: Any) -> Any:
            self.calls.append((operation, arguments))
            waiting = self.writes if operation in WRITES else self.reads
            fault = waiting.pop(0) if waiting else None
            if fault is None:
                return getattr(self._client, operation)(**arguments)
            if fault.applied:
                getattr(self._client, operation)(**arguments)
            if self.between:
                self.between.pop(0)()
            raise fault.error(operation)

        return call

    def tried(self, *operations: str) -> list[dict[str, Any]]:
        return [arguments for operation, arguments in self.calls if operation in operations]
