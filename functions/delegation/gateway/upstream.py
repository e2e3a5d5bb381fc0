from typing import Protocol

from delegation.gateway.messages import CatalogAnswer, CatalogRequest


class Upstream(Protocol):
    """Sends a request to the catalog at an address that bypasses the gateway's rule."""

    def send(self, request: CatalogRequest, *, timeout: float) -> CatalogAnswer:
        """Send once, without hop-by-hop headers (RFC 9110, 7.6.1), and return the answer unchanged. `timeout` is in
        seconds. Raises CatalogUnavailable if nothing was sent, CatalogOutcomeUnknown if it may have been."""
