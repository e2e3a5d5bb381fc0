"""The answer of `GET /v1/config`."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import ConfigDict

from delegation.timestamps import parse_duration
from delegation.wire.described import described
from delegation.wire.responses import Answer

KEY_SUPPORTED = "idempotency-key-supported"
KEY_LIFETIME = "idempotency-key-lifetime"


_DURATION: Final = {"type": "string", "format": "duration", "examples": ["PT30M"]}


class ServiceConfig(Answer):
    """CatalogConfig (Iceberg REST Catalog API) with the two properties of the Idempotency-Key proposal.

    Idempotency is advertised twice: in `properties` as the proposal has it, and at the top level for Iceberg clients.
    """

    model_config = ConfigDict(json_schema_extra={"required": ["defaults", "overrides", "properties", "endpoints"]})

    properties: Annotated[
        Mapping[str, Any] | None,
        described(
            required=[KEY_SUPPORTED],
            properties={KEY_SUPPORTED: {"type": "string", "enum": ["true", "false"]}, KEY_LIFETIME: _DURATION},
        ),
    ] = None
    endpoints: tuple[str, ...] = ()

    @property
    def same_key_window(self) -> timedelta | None:
        """How long a request may be retried with its key, None if not at all (Idempotency-Key proposal, Discovery)."""
        properties = self.properties or {}
        lifetime = properties.get(KEY_LIFETIME)
        if properties.get(KEY_SUPPORTED) != "true" or not isinstance(lifetime, str) or not lifetime.startswith("P"):
            return None
        try:
            return parse_duration(lifetime)
        except ValueError:
            return None
