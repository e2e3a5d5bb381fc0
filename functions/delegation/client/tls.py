"""TLS contexts whose certificates are read again when their files change, so that a client outlives their rotation."""

import contextlib
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx

from delegation.client.errors import ClientMisconfigured

Seen = tuple[tuple[int, int, int] | None, ...]


class ClientTls:
    """A context of TLS with a client certificate; thread-safe.

    `refresh` has the next handshake use what the files hold by then; connections that are open stay. A file that is
    half written, or a certificate whose key is not there yet, leaves the former one in use until the next refresh.
    """

    def __init__(
        self,
        ca_cert: Path | None,
        client_cert: Path | None = None,
        client_key: Path | None = None,
        *,
        and_public: bool = False,
    ) -> None:
        """Read the files; `ca_cert` (None: the public authorities) and, with `and_public`, the public ones are trusted.

        Raises ClientMisconfigured if a file cannot be used.
        """
        self._ca_cert, self._client_cert, self._client_key = ca_cert, client_cert, client_key
        self._files = tuple(path for path in (ca_cert, client_cert, client_key) if path is not None)
        self._lock = threading.Lock()
        with self._readable():
            self._seen = self._state()
            is_private = ca_cert is not None and not and_public
            self.context = ssl.create_default_context(cafile=str(ca_cert)) if is_private else httpx.create_ssl_context()
            if and_public and ca_cert is not None:
                self.context.load_verify_locations(ca_cert)
            self._load_certificate(self.context)

    def refresh(self) -> None:
        """Load what changed since the last call, if it can be used."""
        with self._lock, contextlib.suppress(OSError):  # ssl.SSLError is one
            state = self._state()
            if state == self._seen:
                return
            # A trial first: a pair that does not match would leave the context with half of it.
            self._load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
            if self._ca_cert is not None:
                self.context.load_verify_locations(self._ca_cert)
            self._load_certificate(self.context)
            self._seen = state

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        if self._client_cert is not None:
            context.load_cert_chain(self._client_cert, self._client_key)

    def _state(self) -> Seen:
        """Return what changes with each file: inode, time in nanoseconds, size; None for one that is not there."""
        return tuple(_signature(path) for path in self._files)

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            files = f"ca_cert {self._ca_cert}, client_cert {self._client_cert}, client_key {self._client_key}"
            reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
            raise ClientMisconfigured(f"the certificates cannot be used ({files}): {reason}") from error


def blocking_client(tls: ClientTls, timeout: httpx.Timeout) -> httpx.Client:
    """Return an HTTP client whose handshakes use the certificates as they are by then."""
    return httpx.Client(verify=tls.context, timeout=timeout, event_hooks={"request": [lambda _request: tls.refresh()]})


def asyncio_client(tls: ClientTls, timeout: httpx.Timeout) -> httpx.AsyncClient:
    async def refresh(_request: httpx.Request) -> None:
        tls.refresh()

    return httpx.AsyncClient(verify=tls.context, timeout=timeout, event_hooks={"request": [refresh]})


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
