"""Settings of a client: addresses, certificates and the OAuth2 client."""

import contextlib
import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import httpx
from pydantic import Field, SecretStr

from delegation.client.errors import ClientMisconfigured
from delegation.environment import EnvironmentSettings

BASE_PATH = "/delegation-service/api"


class ClientSettings(EnvironmentSettings):
    """Settings of a client; the fields are also those of a local stack's stack.json.

    `edge_url` ends with `/delegation-service/api`. Files are in PEM; `ca_cert` is the authority of the service's
    certificate, None for a public one.
    """

    edge_url: str = Field(alias="DELEGATION_EDGE_URL", pattern=r"^https?://[^/]+")
    ca_cert: Path | None = Field(None, alias="DELEGATION_CA_CERT")
    client_cert: Path | None = Field(None, alias="DELEGATION_CLIENT_CERT")
    client_key: Path | None = Field(None, alias="DELEGATION_CLIENT_KEY")
    token_url: str = Field(alias="DELEGATION_TOKEN_URL", pattern=r"^https?://[^/]+")
    client_id: str = Field(alias="DELEGATION_CLIENT_ID", min_length=1)
    client_secret: SecretStr = Field(alias="DELEGATION_CLIENT_SECRET")
    scope: str = Field("execute_tasks", alias="DELEGATION_SCOPE")
    realm: str = Field(alias="DELEGATION_REALM", min_length=1)

    @classmethod
    def at(cls, edge_url: str) -> Self:
        """Read the other settings from the environment; raises pydantic's ValidationError, which names the variable."""
        aliases = (field.alias for field in cls.model_fields.values() if field.alias)
        given = {alias: value for alias in aliases if (value := os.environ.get(alias))}
        return cls.model_validate(given | {"DELEGATION_EDGE_URL": edge_url})

    def mutual_tls(self) -> ssl.SSLContext:
        """Return the context for the service; raises ClientMisconfigured if a file cannot be used."""
        with self._readable():
            context = (
                ssl.create_default_context(cafile=str(self.ca_cert)) if self.ca_cert else httpx.create_ssl_context()
            )
            if self.client_cert is not None:
                context.load_cert_chain(self.client_cert, self.client_key)
        return context

    def token_tls(self) -> ssl.SSLContext:
        """Return the context for the token endpoint, which trusts public authorities and `ca_cert`; raises as above."""
        context = httpx.create_ssl_context()
        if self.ca_cert is not None:
            with self._readable():
                context.load_verify_locations(self.ca_cert)
        return context

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:  # ssl.SSLError is one
            files = f"ca_cert {self.ca_cert}, client_cert {self.client_cert}, client_key {self.client_key}"
            reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
            raise ClientMisconfigured(f"the certificates cannot be used ({files}): {reason}") from error
