"""Serving on a loopback port: one thread for each connection, and invocations that may outlast their answer."""

import contextlib
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from infra.local.front.apigateway import TOO_LARGE, ApiRequest, Response
from infra.local.front.http11 import HttpHandler
from infra.local.processes.programs import LOOPBACK


class ConnectionServer(socketserver.ThreadingTCPServer):
    """One thread per connection; a subclass may make another connection of an accepted socket, as TLS does."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    handler: type[HttpHandler] = HttpHandler

    def __init__(self, port: int, answer: Callable[[ApiRequest], Response], *, too_large: Response = TOO_LARGE) -> None:
        self.answer = answer
        self.too_large = too_large
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__((LOOPBACK, port), self.handler)

    def connected(self, accepted: socket.socket) -> socket.socket | None:
        """Return the connection to read requests from, None if it was refused; runs in the connection's thread."""
        return accepted

    def finish_request(self, request: Any, client_address: Any) -> None:
        connection = self.connected(request)
        if connection is None:
            return
        with self._lock:
            self._open.add(connection)
        try:
            with contextlib.suppress(ConnectionError, TimeoutError, ssl.SSLError):
                self.handler(connection, client_address, self)
        finally:
            with self._lock:
                self._open.discard(connection)
            if connection is not request:  # an accepted socket is closed by socketserver
                connection.close()

    def close(self) -> None:
        """Close the listening port, and shut down open connections so that their threads end."""
        self.server_close()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class ServedFront:
    """A server in threads of this process, with threads for the functions that it invokes."""

    def __init__(self, name: str, server: ConnectionServer) -> None:
        self._name = name
        self._server = server
        # An invocation continues after a 504, so there are more threads than connections.
        self._calls = ThreadPoolExecutor(2 * server.request_queue_size, thread_name_prefix=name)
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """The host and port."""
        return f"{LOOPBACK}:{self._server.server_address[1]}"

    def start(self) -> Self:
        """Serve in threads of this process."""
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name=self._name, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close the port and every connection; may be called again."""
        if self._thread:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.close()
        self._calls.shutdown(wait=False)
