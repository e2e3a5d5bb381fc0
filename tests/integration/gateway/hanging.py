"""A DynamoDB that accepts connections and never answers, and the gateway's real handler behind the local front."""

import contextlib
import gc
import json
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Self

from delegation.handlers import gateway as handler
from infra.local.lambdas.functions import Invocation
from infra.local.processes.programs import LOOPBACK


class HangingServer:
    """Accepts every connection and answers nothing; `requests` counts those on which something was sent."""

    def __init__(self) -> None:
        self.requests = 0
        self._listening = socket.create_server((LOOPBACK, 0))
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def url(self) -> str:
        host, port = self._listening.getsockname()
        return f"http://{host}:{port}"

    def start(self) -> Self:
        self._begin(self._accept)
        return self

    def stop(self) -> None:
        """Close everything, which ends the threads."""
        for each in (self._listening, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._open.append(connection)
                self._begin(self._read, connection)

    def _read(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            is_new = True
            while connection.recv(65_536):
                self.requests += is_new
                is_new = False

    def _begin(self, work, *arguments) -> None:  # type: ignore[no-untyped-def]
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()


class HandlerInThisProcess:
    """The gateway's function, invoked without a process of its own; see Invoked."""

    def invoke(self, payload: bytes) -> Invocation:
        context = SimpleNamespace(
            function_name="gateway", memory_limit_in_mb="512", invoked_function_arn="arn", aws_request_id="r"
        )
        return Invocation("r", json.dumps(handler.handler(json.loads(payload), context)).encode())


@contextlib.contextmanager
def fresh_handler() -> Iterator[HandlerInThisProcess]:
    """Have the handler read its settings anew, and forget them afterwards."""
    handler._gateway.cache_clear()
    try:
        yield HandlerInThisProcess()
    finally:
        handler._gateway.cache_clear()
        gc.unfreeze()
