"""Relays on another address of this machine, for functions that run in containers and cannot reach its loopback."""

import socket
import threading
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit, urlunsplit

from infra.local.processes.programs import LOOPBACK

_BLOCK = 1 << 16


class Relays:
    """`reach` returns a URL of a loopback server as others reach it: the same, or by a relay on `address`."""

    def __init__(self, address: str, cleanup: ExitStack) -> None:
        self._address = address
        self._cleanup = cleanup

    def reach(self, url: str) -> str:
        """Return the URL with the address; a relay listens on the same port of it from now on."""
        if self._address == LOOPBACK:
            return url
        parts = urlsplit(url)
        listener = socket.create_server((self._address, parts.port or 80))
        self._cleanup.callback(listener.close)
        threading.Thread(target=_accept, args=(listener, (LOOPBACK, parts.port or 80)), daemon=True).start()
        return urlunsplit(parts._replace(netloc=f"{self._address}:{parts.port}"))


def _accept(listener: socket.socket, target: tuple[str, int]) -> None:
    with suppress(OSError):  # the listener was closed
        while True:
            accepted, _ = listener.accept()
            threading.Thread(target=_relay, args=(accepted, target), daemon=True).start()


def _relay(accepted: socket.socket, target: tuple[str, int]) -> None:
    with accepted, suppress(OSError), socket.create_connection(target) as made:
        back = threading.Thread(target=_copy, args=(made, accepted), daemon=True)
        back.start()
        _copy(accepted, made)
        back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while block := source.recv(_BLOCK):
            sink.sendall(block)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
