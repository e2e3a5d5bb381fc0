"""Relays on another address of this machine, for functions that run in containers and cannot reach its loopback."""

from contextlib import ExitStack
from urllib.parse import urlsplit, urlunsplit

from infra.local.processes.programs import LOOPBACK
from tests.chaos.proxies import Relay


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
        port = parts.port or 80
        relay = Relay((LOOPBACK, port), on=(self._address, port)).start()
        self._cleanup.callback(relay.stop)
        return urlunsplit(parts._replace(netloc=f"{self._address}:{parts.port}"))
