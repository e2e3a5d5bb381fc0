"""What a service supports: `GET /v1/config`."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from delegation.timestamps import parse_duration
from delegation.wire.responses import Answer

KEY_SUPPORTED = "idempotency-key-supported"
KEY_LIFETIME = "idempotency-key-lifetime"


class ServiceConfig(Answer):
    """`GET /v1/config`: the Iceberg REST protocol's CatalogConfig with the proposal's two properties."""

    properties: Mapping[str, Any] | None = None
    endpoints: tuple[str, ...] = ()

    @property
    def same_key_window(self) -> timedelta | None:
        """How long a key may be sent again, None when same-key retries must not be made.

        Both properties have to be there and valid (idempotency-key.txt, Discovery, "Client behavior").
        """
        properties = self.properties or {}
        lifetime = properties.get(KEY_LIFETIME)
        if properties.get(KEY_SUPPORTED) != "true" or not isinstance(lifetime, str) or not lifetime.startswith("P"):
            return None
        try:
            return parse_duration(lifetime)
        except ValueError:
            return None
