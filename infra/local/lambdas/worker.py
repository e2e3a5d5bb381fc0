"""One warm Lambda execution environment: `python -m infra.local.lambdas.worker FD`, FD one end of a socket pair.

It imports the handler that `_HANDLER` names ("package.module.attribute"), reports the import, then runs one invocation
after the other. Results and errors have the form of AWS' Python runtime interface client
(aws/aws-lambda-python-runtime-interface-client, `bootstrap`). It ends with its parent. A frame on the socket is a
four-byte big-endian length, then the bytes.
"""

import importlib
import json
import logging
import os
import queue
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from infra.local.processes.tether import die_with_parent

_LENGTH = struct.Struct(">I")


def send(channel: socket.socket, *frames: bytes) -> None:
    """Send frames; raises `OSError` if the other end is closed."""
    channel.sendall(b"".join(_LENGTH.pack(len(frame)) + frame for frame in frames))


def receive(channel: socket.socket, *, deadline: float | None = None) -> bytes:
    """Return the next frame; raise `EOFError` if the other end is closed, `TimeoutError` at `deadline` (monotonic)."""
    (length,) = _LENGTH.unpack(_exactly(channel, _LENGTH.size, deadline))
    return _exactly(channel, length, deadline)


def _exactly(channel: socket.socket, size: int, deadline: float | None) -> bytes:
    received = bytearray()
    while len(received) < size:
        if deadline is not None:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            channel.settimeout(remaining)
        try:
            part = channel.recv(min(size - len(received), 1 << 20))
        except ConnectionError as exc:
            raise EOFError from exc
        if not part:
            raise EOFError
        received += part
    return bytes(received)


LambdaHandler = Callable[[Any, "LambdaContext"], Any]


@dataclass(frozen=True, slots=True)
class LambdaContext:
    """The second argument of a handler (Lambda developer guide, "Python context object")."""

    aws_request_id: str
    invoked_function_arn: str
    deadline_ms: int
    function_name: str
    function_version: str
    # A string, as the real one is.
    memory_limit_in_mb: str
    log_group_name: str
    log_stream_name: str
    client_context: None = None
    identity: None = None
    tenant_id: None = None

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until this invocation is killed, at least 0."""
        return max(0, self.deadline_ms - time.time_ns() // 1_000_000)


def _context(invocation: dict[str, Any]) -> LambdaContext:
    return LambdaContext(
        aws_request_id=invocation["request_id"],
        invoked_function_arn=invocation["function_arn"],
        deadline_ms=invocation["deadline_ms"],
        function_name=os.environ["AWS_LAMBDA_FUNCTION_NAME"],
        function_version=os.environ["AWS_LAMBDA_FUNCTION_VERSION"],
        memory_limit_in_mb=os.environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"],
        log_group_name=os.environ["AWS_LAMBDA_LOG_GROUP_NAME"],
        log_stream_name=os.environ["AWS_LAMBDA_LOG_STREAM_NAME"],
    )


def _encode(value: object) -> object:
    # As AWS' client does, because boto3's DynamoDB resource returns decimals.
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _failure(error_type: str, message: str, request_id: str, trace: list[str]) -> bytes:
    """Return an error in the form of Lambda's Invoke; also log it, as the real runtime does."""
    sys.stdout.write(f"[ERROR] {error_type}: {message}\n{''.join(trace)}\n")
    payload = {"errorMessage": message, "errorType": error_type, "requestId": request_id, "stackTrace": trace}
    return json.dumps(payload).encode()


def _load(name: str) -> LambdaHandler:
    module, _, attribute = name.rpartition(".")
    handler: LambdaHandler = getattr(importlib.import_module(module), attribute)
    return handler


def _run(handler: LambdaHandler, invocation: dict[str, Any], event: bytes) -> tuple[bytes, bytes]:
    """Run the handler once; return the kind of error (empty for none) and the payload."""
    request_id = invocation["request_id"]
    try:
        result = handler(json.loads(event), _context(invocation))
    except Exception as exc:  # noqa: BLE001  a runtime reports whatever its handler raises
        frames = traceback.format_tb(exc.__traceback__)[1:]
        return b"Unhandled", _failure(type(exc).__name__, str(exc), request_id, frames)
    try:
        return b"", json.dumps(result, default=_encode).encode()
    except (TypeError, ValueError) as exc:
        message = f"Unable to marshal response: {exc}"
        return b"Unhandled", _failure("Runtime.MarshalError", message, request_id, [])


def _read(channel: socket.socket, inbox: "queue.SimpleQueue[tuple[bytes, bytes]]") -> None:
    try:
        while True:
            inbox.put((receive(channel), receive(channel)))
    except EOFError:
        # The parent has ended, so the handler ends too, as when AWS reclaims an environment.
        os._exit(0)


def main(descriptor: int) -> None:
    """Serve until the parent closes its end."""
    die_with_parent()
    logging.basicConfig(stream=sys.stdout, format="[%(levelname)s]\t%(asctime)s\t%(name)s\t%(message)s")
    channel = socket.socket(fileno=descriptor)
    inbox: queue.SimpleQueue[tuple[bytes, bytes]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(channel, inbox), daemon=True).start()
    try:
        handler = _load(os.environ["_HANDLER"])
    except Exception as exc:  # noqa: BLE001  whatever importing raises is the answer to the invocation
        kind = "Runtime.ImportModuleError" if isinstance(exc, ImportError) else "Runtime.InitError"
        message = f"Unable to import module {os.environ['_HANDLER']!r}: {type(exc).__name__}: {exc}"
        send(channel, b"Unhandled", _failure(kind, message, "", traceback.format_tb(exc.__traceback__)))
        return
    send(channel, b"", b"null")
    while True:
        invocation, event = inbox.get()
        send(channel, *_run(handler, json.loads(invocation), event))


if __name__ == "__main__":
    main(int(sys.argv[1]))
