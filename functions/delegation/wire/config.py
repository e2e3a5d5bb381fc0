"""The answer of `GET /v1/config`."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from delegation.timestamps import parse_duration
from delegation.wire.responses import Answer

KEY_SUPPORTED = "idempotency-key-supported"
KEY_LIFETIME = "idempotency-key-lifetime"


class ServiceConfig(Answer):
    """CatalogConfig (Iceberg REST Catalog API) with the two properties of the Idempotency-Key proposal."""

    properties: Mapping[str, Any] | None = None
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
