"""POST over HTTPS to an address that was checked: no redirect is followed, no proxy used, and a total time kept.

The standard library's client, because the connection has to be made to a checked address, with the host's name in TLS;
httpx has no public means for that.
"""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

from delegation.notifications.addresses import Resolve, checked, require_callable, resolve
from delegation.notifications.errors import NotificationError, callback_unreachable

TOTAL_SECONDS: Final = 10.0
_CONNECT_SECONDS: Final = 3.0
_UNANSWERED: Final = "its receiver did not answer"

Post = Callable[[str, Mapping[str, str], bytes], int]
"""Sends a body with headers to a URL and returns the status; raises NotificationError."""


def tls(authorities: str | None = None) -> ssl.SSLContext:
    """Return a context that trusts the public authorities, and those of a PEM text."""
    context = ssl.create_default_context()
    if authorities:
        context.load_verify_locations(cadata=authorities)
    return context


class _CheckedConnection(HTTPSConnection):
    """A connection to one of the addresses of its host, all of which were checked; so is the one that it reached."""

    def __init__(self, host: str, port: int, post: "HttpsPost") -> None:
        super().__init__(host, port, timeout=post.total_seconds, context=post.context)
        self._post = post
        self.late = threading.Event()

    def connect(self) -> None:
        """Connect to the first address that answers; the certificate has to be the host's."""
        plain = self._reach()
        try:
            peer = str(plain.getpeername()[0])
            require_callable(peer, private=self._post.private, loopback=self._post.loopback)
            plain.settimeout(self._post.total_seconds)
            sock = self._post.context.wrap_socket(plain, server_hostname=self.host, do_handshake_on_connect=False)
        except BaseException:
            plain.close()
            raise
        self.sock = sock
        if self.late.is_set():
            raise TimeoutError
        sock.do_handshake()

    def _reach(self) -> socket.socket:
        failure: OSError | None = None
        found = self._post.resolve(self.host, self.port)
        for address in checked(found, private=self._post.private, loopback=self._post.loopback):
            try:
                return socket.create_connection((address, self.port), timeout=_CONNECT_SECONDS)
            except OSError as error:
                failure = error
            if self.late.is_set():
                raise TimeoutError
        raise failure or OSError("no address")

    def end(self) -> None:
        """End the connection from another thread, because its time is over."""
        self.late.set()
        if self.sock is not None:
            with contextlib.suppress(OSError):
                # The method of the plain socket: that of TLS would first have later writes sent as plain text.
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class HttpsPost:
    """A Post; `private` allows private addresses, `loopback` those of this machine."""

    context: ssl.SSLContext
    private: bool = False
    loopback: bool = False
    resolve: Resolve = resolve
    total_seconds: float = TOTAL_SECONDS

    def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """Send the body, and return the status of the answer, whose body is not read; see Post."""
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection = _CheckedConnection(parts.hostname or "", parts.port or 443, self)
        # A socket's own time-out starts anew with every byte that arrives.
        timer = threading.Timer(self.total_seconds, connection.end)
        timer.daemon = True
        timer.start()
        try:
            with contextlib.closing(connection):
                connection.request("POST", target, body, dict(headers))
                status = connection.getresponse().status
        except ssl.SSLCertVerificationError as error:
            raise callback_unreachable(f"its certificate is refused: {error.verify_message}") from None
        except (OSError, HTTPException, ValueError) as error:
            is_slow = connection.late.is_set() or isinstance(error, TimeoutError)
            raise self._slow() if is_slow else callback_unreachable(f"{_UNANSWERED}: {type(error).__name__}") from None
        finally:
            timer.cancel()
        if connection.late.is_set():
            raise self._slow()  # the end of the connection looks like the end of the answer's headers
        return status

    def _slow(self) -> NotificationError:
        return callback_unreachable(f"{_UNANSWERED}: no answer within {self.total_seconds:g} s")
