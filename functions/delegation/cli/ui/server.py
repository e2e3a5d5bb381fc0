"""The status page's server: on the loopback interface only, below a random path, for reading only.

Other users of the machine and pages of other sites must not read what the operator may: the path is a secret of each
start, the Host header has to name the loopback address (so no other name resolves to it), and a request that a browser
marks as another site's is refused. The page itself holds no secret: its links are relative, and no referrer is sent.
"""

import secrets
from collections.abc import Callable
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final

from delegation.cli.ui.pages import PageAnswer

LOOPBACK: Final = "127.0.0.1"
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_REFUSED: Final = PageAnswer(404, "text/plain; charset=utf-8", b"Open the address that `delegation ui` printed.\n")


class StatusServer(ThreadingHTTPServer):
    """Serves `answer`, which is given the path below the secret one, until it is shut down."""

    daemon_threads = True

    def __init__(self, answer: Callable[[str], PageAnswer], port: int = 0) -> None:
        """`port` 0 is any free one; raises OSError for one that is taken."""
        self.answer = answer
        self.secret = secrets.token_urlsafe(24)
        super().__init__((LOOPBACK, port), StatusRequest)

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://{LOOPBACK}:{self.server_port}/{self.secret}/"


class StatusRequest(BaseHTTPRequestHandler):
    """One request of a browser."""

    server: StatusServer
    server_version: ClassVar[str] = "delegation"  # type: ignore[misc]
    sys_version: ClassVar[str] = ""  # type: ignore[misc]

    def do_GET(self) -> None:
        """Answer below the secret path, to this page alone."""
        _, _, rest = self.path.partition("/")
        secret, slash, target = rest.partition("/")
        found = _REFUSED
        if slash and compare_digest(secret.encode(), self.server.secret.encode()) and self._is_own():
            found = self.server.answer(target)
        self.send_response(found.status)
        for name, value in {**_HEADERS, "Content-Type": found.content_type, "Content-Length": len(found.body)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(found.body)

    def _is_own(self) -> bool:
        """Whether the browser asked for the loopback address, and no other site asked it to."""
        port = self.server.server_port
        hosts = {f"{LOOPBACK}:{port}", f"localhost:{port}"}
        origin = self.headers.get("Origin")
        site = self.headers.get("Sec-Fetch-Site", "none")
        return (
            self.headers.get("Host") in hosts
            and (origin is None or origin.removeprefix("http://") in hosts)
            and site in {"none", "same-origin"}
        )

    def log_message(self, *_arguments: Any) -> None:
        """Print nothing: the path is a secret."""
