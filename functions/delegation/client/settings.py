"""How a caller reaches the service: addresses, certificates and OAuth2 client; read once, in an entry point."""

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
from pydantic import Field, SecretStr

from delegation.client.errors import ClientMisconfigured
from delegation.environment import EnvironmentSettings

BASE_PATH = "/delegation-service/api"


class ClientSettings(EnvironmentSettings):
    """Settings of the client; also the field names of a local stack's stack.json.

    `edge_url` ends with the API's base path `/delegation-service/api`. `ca_cert` is who signed the service's
    certificate (None: the usual authorities); `client_cert` and `client_key` are this side's, PEM files.
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

    def mutual_tls(self) -> ssl.SSLContext:
        """The context for the service: its authority, and our certificate. Raises ClientMisconfigured."""
        with self._readable():
            context = (
                ssl.create_default_context(cafile=str(self.ca_cert)) if self.ca_cert else httpx.create_ssl_context()
            )
            if self.client_cert is not None:
                context.load_cert_chain(self.client_cert, self.client_key)
        return context

    def token_tls(self) -> ssl.SSLContext:
        """The context for the token endpoint: a public one, or behind the service's authority. Raises as above."""
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
