"""Settings of the Polaris client."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import Field, SecretStr

from delegation.environment import EnvironmentSettings
from delegation.polaris.client import PolarisClient
from delegation.polaris.errors import PolarisMisconfigured, PolarisUnavailable
from delegation.polaris.tokens import DEFAULT_SCOPE, ClientCredentials, OAuth2TokenSource
from delegation.polaris.transport import Transport
from delegation.timestamps import utc_now

_TRANSIENT = {"InternalServiceError", "InternalServiceErrorException", "ThrottlingException", "RequestTimeout"}


class SecretsManager(Protocol):
    """The needed call of AWS Secrets Manager's client in boto3."""

    def get_secret_value(self, *, SecretId: str) -> Mapping[str, Any]: ...  # noqa: N803 - boto3's name


class PolarisSettings(EnvironmentSettings):
    """Settings; `secret_arn` is of a secret `{"client_id": …, "client_secret": …}` in AWS Secrets Manager."""

    url: str = Field(alias="DELEGATION_POLARIS_URL", pattern=r"^https?://[^/]+")
    secret_arn: str = Field(alias="DELEGATION_POLARIS_SECRET_ARN", min_length=1)
    scope: str = Field(DEFAULT_SCOPE, alias="DELEGATION_POLARIS_SCOPE")
    realm: str | None = Field(None, alias="DELEGATION_REALM")
    token_url: str | None = Field(None, alias="DELEGATION_POLARIS_TOKEN_URL", pattern=r"^https?://[^/]+")

    def client(
        self,
        secrets_manager: SecretsManager,
        *,
        clock: Callable[[], datetime] = utc_now,
        transport: Transport | None = None,
    ) -> PolarisClient:
        """Return a client with the service's principal; the secret is read for every new token."""
        transport = transport or Transport()
        token = OAuth2TokenSource(
            self.token_url or f"{self.url.rstrip('/')}/v1/oauth/tokens",
            lambda: read_credentials(secrets_manager, self.secret_arn),
            clock=clock,
            scope=self.scope,
            realm=self.realm,
            transport=transport,
        )
        return PolarisClient(self.url, token, realm=self.realm, transport=transport)


def read_credentials(secrets_manager: SecretsManager, secret_arn: str) -> ClientCredentials:
    """Return the principal's credentials; raises PolarisMisconfigured if the secret is unreadable or malformed."""
    try:
        text = secrets_manager.get_secret_value(SecretId=secret_arn).get("SecretString")
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        kind = PolarisUnavailable if code in _TRANSIENT else PolarisMisconfigured
        raise kind(f"the secret {secret_arn} with Polaris' credentials cannot be read: {code}") from error
    except BotoCoreError as error:
        raise PolarisUnavailable(f"Secrets Manager did not answer: {type(error).__name__}") from error
    try:
        body = json.loads(text or "")
    except ValueError:
        body = None  # the parser's error would quote the secret
    fields = [body.get(name) for name in ("client_id", "client_secret")] if isinstance(body, dict) else []
    match fields:
        case [str(client_id), str(client_secret)] if client_id and client_secret:
            return ClientCredentials(client_id, SecretStr(client_secret))
        case _:
            raise PolarisMisconfigured(f"the secret {secret_arn} needs the string fields client_id and client_secret")
