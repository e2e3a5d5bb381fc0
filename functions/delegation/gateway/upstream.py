"""The seam to the catalog behind the gateway."""

from typing import Protocol

from delegation.gateway.messages import CatalogAnswer, CatalogRequest


class Upstream(Protocol):
    """Sends a request to the catalog at an address that bypasses the gateway's rule."""

    def send(self, request: CatalogRequest, *, timeout: float) -> CatalogAnswer:
        """Send once, with hop-by-hop headers removed (RFC 9110, Section 7.6.1), and return the answer unchanged.

        `timeout` is in seconds. Raises CatalogUnavailable if the request was not sent, and CatalogOutcomeUnknown if it
        may have been performed.
        """
