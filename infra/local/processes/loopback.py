"""HTTP servers on loopback ports that run in threads of this process."""

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from werkzeug.serving import WSGIRequestHandler, make_server

from infra.local.processes.programs import LOOPBACK

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


class ConnectionsServer(socketserver.ThreadingTCPServer):
    """One thread per connection; closing it shuts down the open ones, so that their threads end."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, port: int, handler: type[socketserver.BaseRequestHandler]) -> None:
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__((LOOPBACK, port), handler)

    @contextlib.contextmanager
    def opened(self, connection: socket.socket) -> Iterator[None]:
        """Count a connection as open in this block."""
        with self._lock:
            self._open.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(connection)

    def server_close(self) -> None:
        super().server_close()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class LoopbackServer:
    """Starts and stops a server; its port is bound at construction, so `url` is known before `start`."""

    def __init__(self, server: socketserver.TCPServer) -> None:
        self._server = server
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._server.server_address[1]}"

    def start(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop serving and close the port; may be called again."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.server_close()


class _QuietHandler(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing, because URLs and headers may contain what must not be logged."""


class WsgiServer(LoopbackServer):
    """Serves `app`, one thread per request."""

    def __init__(self, app: "WSGIApplication", *, port: int = 0) -> None:
        super().__init__(make_server(LOOPBACK, port, app, threaded=True, request_handler=_QuietHandler))
