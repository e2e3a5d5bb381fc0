"""A receiver of callbacks: a real HTTPS server on this machine that answers as its script says."""

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from infra.local.identities import CertificateAuthority, KeyPair

OK, SLOW, DRIP, HANG_UP, REDIRECT, GARBAGE = 200, "slow", "drip", "hang up", "redirect", "garbage"


@dataclass
class Receiver:
    """`script` says how each request in turn is answered, the rest with 200; `received` has what came."""

    port: int = 0
    script: list[int | str] = field(default_factory=list)
    received: list[tuple[Mapping[str, str], bytes]] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    authorities: str = ""
    released: threading.Event = field(default_factory=threading.Event)
    on_request: Callable[[], object] = lambda: None

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/hooks/catalog?id=7"

    @property
    def keys(self) -> set[str]:
        return {headers["Idempotency-Key"] for headers, _ in self.received}

    @property
    def bodies(self) -> set[bytes]:
        return {body for _, body in self.received}


@contextmanager
def receiving(folder: Path) -> Iterator[Receiver]:
    """A receiver with a certificate of an authority of its own, whose PEM is `authorities`."""
    authority = CertificateAuthority.create(folder)
    with serving(authority.issue_server(hosts=("localhost", "127.0.0.1"))) as receiver:
        receiver.authorities = authority.files.cert.read_text()
        yield receiver


@contextmanager
def serving(files: KeyPair, port: int = 0) -> Iterator[Receiver]:
    """A receiver with this certificate on a port, by default a free one."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.received.append((dict(self.headers.items()), body))
            receiver.targets.append(self.path)
            action = receiver.script.pop(0) if receiver.script else OK
            receiver.on_request()
            self._answer(action)

        def do_GET(self) -> None:
            raise AssertionError("a redirect was followed")

        def _answer(self, action: int | str) -> None:
            match action:
                case "slow":
                    receiver.released.wait(30)
                case "drip":
                    with suppress(OSError):
                        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                        while not receiver.released.wait(0.02):
                            self.wfile.write(b"X")
                case "hang up":
                    self.connection.close()
                case "garbage":
                    self.wfile.write(b"hello\r\n\r\n")
                case "redirect":
                    self.send_response(307)
                    self.send_header("Location", receiver.url)
                    self.end_headers()
                case status:
                    self.send_response(int(status))
                    self.end_headers()

        def log_message(self, *_arguments: Any) -> None:
            """Print nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_arguments: Any) -> None:
            """Print nothing: a client that ends the connection is part of the tests."""

    server = Server(("127.0.0.1", port), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
