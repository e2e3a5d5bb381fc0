"""Runs the local stack's programs, which end with the process that started them, and HTTP servers on loopback ports."""

import contextlib
import http.client
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Self
from urllib.parse import SplitResult

from werkzeug.serving import WSGIRequestHandler, make_server

import delegation
import infra
from infra.local.errors import CannotStartError
from infra.local.processes import tether

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


LOOPBACK = "127.0.0.1"
HOP_BY_HOP = frozenset({"connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade"})
"""Headers that a proxy does not pass on (RFC 9110, Section 7.6.1)."""


def free_port() -> int:
    """Return a TCP port of the loopback interface that is free at the moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int, method: str = "GET", path: str = "/", headers: Mapping[str, str] = MappingProxyType({})) -> bool:
    """Return whether an HTTP server on a loopback port answers, with any status."""
    with contextlib.closing(http.client.HTTPConnection(LOOPBACK, port, timeout=5)) as connection:
        try:
            connection.request(method, path, headers=dict(headers))
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        return True


def connection_to(server: SplitResult, *, timeout_seconds: float) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if server.scheme == "https" else http.client.HTTPConnection
    return kind(server.netloc, timeout=timeout_seconds)


def import_path() -> str:
    """Return a PYTHONPATH on which another interpreter finds `delegation` and `infra`."""
    return os.pathsep.join(str(Path(str(package.__file__)).parents[1]) for package in (delegation, infra))


class TetheredProcess:
    """A program in a separate process group, which ends with this process (tether.py)."""

    def __init__(self, popen: "subprocess.Popen[bytes]", log: Path) -> None:
        self._popen = popen
        self.log = log

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        log: Path,
        errors: Path | None = None,
        cwd: Path | None = None,
    ) -> Self:
        """Start `argv` in `cwd` with exactly `env`; write its output to `log`, and stderr to `errors` if given."""
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-I", "-S", str(Path(tether.__file__)), *argv]
        with log.open("ab") as output, contextlib.ExitStack() as stack:
            stderr = stack.enter_context(errors.open("ab")) if errors else subprocess.STDOUT
            popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=stderr,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        return cls(popen, log)

    @property
    def pid(self) -> int:
        """The process id of the tether, which is also the process group's id."""
        return self._popen.pid

    def poll(self) -> int | None:
        """Return the exit status, or None while the program runs."""
        return self._popen.poll()

    def wait(self, timeout_seconds: float | None = None) -> int:
        """Wait for the program, then kill the rest of its group; raises `subprocess.TimeoutExpired`."""
        status = self._popen.wait(timeout_seconds)
        self._signal(signal.SIGKILL)
        if self._popen.stdin:
            self._popen.stdin.close()
        return status

    def stop(self, grace_seconds: float = 5.0) -> int:
        """End the whole group with SIGTERM, after `grace_seconds` with SIGKILL; may be called again."""
        if self._popen.poll() is None:
            self._signal(signal.SIGTERM)
        try:
            return self.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.wait()

    def kill(self) -> None:
        """Send SIGKILL to the whole group, without waiting."""
        self._signal(signal.SIGKILL)

    def tail(self, lines: int = 5) -> str:
        """Return the last lines of the program's log, for an error message."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def wait_until(self, part: str, ready: Callable[[], bool], *, timeout_seconds: float) -> None:
        """Wait until `ready()` is true; raise `CannotStartError` if the program ends first or takes too long."""
        deadline = time.monotonic() + timeout_seconds
        while not ready():
            if (status := self.poll()) is not None:
                self.stop()
                raise CannotStartError(part, f"it ended with status {status}: {self.tail() or 'its log is empty'}")
            if time.monotonic() > deadline:
                self.stop()
                raise CannotStartError(part, f"no answer within {timeout_seconds:.0f} s; see {self.log}")
            time.sleep(0.05)

    def _signal(self, number: signal.Signals) -> None:
        # The error means that the group has ended already.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, number)


class ServerProcess:
    """A server in a process of its own, on a free port; a subclass starts it and sets `_process` when it answers."""

    def __init__(self, *, log: Path) -> None:
        self._log = log
        self._port = 0
        self._process: TetheredProcess | None = None

    @property
    def url(self) -> str:
        """The endpoint; valid once started."""
        return f"http://{LOOPBACK}:{self._port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ValueError("the server is not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End the process, which loses what it holds; may be called again."""
        if self._process:
            self._process.stop()
            self._process = None


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
