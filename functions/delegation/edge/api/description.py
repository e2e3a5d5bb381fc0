"""The description of the API, as OpenAPI and as a page for people; both are files of this package."""

from dataclasses import dataclass
from importlib import resources
from typing import Final

from delegation.edge.api.callers import check_request_id
from delegation.edge.api.endpoints import DESCRIPTION, PAGE, Endpoint
from delegation.edge.api.routes import Event, Served
from delegation.edge.telemetry import Telemetry

_HTML: Final = {
    "Content-Type": "text/html; charset=utf-8",
    # The page has no script and loads nothing.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
}


@dataclass(frozen=True, slots=True)
class Description:
    """The files, sent byte for byte; infra/package/description.py makes them when the package is built."""

    telemetry: Telemetry

    def openapi(self, event: Event) -> Served:
        """Return the OpenAPI document as JSON; it equals docs/openapi.yaml."""
        return self._file(event, DESCRIPTION, "openapi.json")

    def page(self, event: Event) -> Served:
        """Return the page, in which every error code has an anchor (`type` of an ErrorResponse)."""
        found = self._file(event, PAGE, "docs.html")
        return Served(found.status, found.body, _HTML)

    def _file(self, event: Event, endpoint: Endpoint, name: str) -> Served:
        check_request_id(event)
        body = resources.files("delegation.edge.api").joinpath(name).read_bytes()
        self.telemetry.served(endpoint.operation, 200)
        return Served(200, body, {})
