import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

from pydantic import Field, SecretStr

from delegation.environment import EnvironmentSettings
from delegation.polaris.answers import PolarisError, PolarisMisconfigured, PolarisUnavailable
from delegation.polaris.client import PolarisClient
from delegation.polaris.requests import DEFAULT_SCOPE, ClientCredentials, OAuth2TokenSource
from delegation.polaris.transport import Transport
from delegation.timestamps import utc_now

PENDING = "AWSPENDING"
"""The staging label of the version to which a secret is being rotated."""
_TRANSIENT = {"InternalServiceError", "InternalServiceErrorException", "ThrottlingException", "RequestTimeout"}


class SecretsManager(Protocol):
    """The needed call of AWS Secrets Manager's client in boto3."""

    def get_secret_value(self, **which: str) -> Mapping[str, Any]: ...


class PolarisSettings(EnvironmentSettings):
    """Settings; `secret_arn` names a secret `{"client_id": …, "client_secret": …}` in AWS Secrets Manager."""

    url: str = Field(alias="DELEGATION_POLARIS_URL", pattern=r"^https?://[^/]+")
    secret_arn: str = Field(alias="DELEGATION_POLARIS_SECRET_ARN", min_length=1)
    scope: str = Field(DEFAULT_SCOPE, alias="DELEGATION_POLARIS_SCOPE")
    realm: str | None = Field(None, alias="DELEGATION_REALM")
    token_url: str | None = Field(None, alias="DELEGATION_POLARIS_TOKEN_URL", pattern=r"^https?://[^/]+")

    @property
    def tokens_url(self) -> str:
        """The token endpoint, by default Polaris' own."""
        return self.token_url or f"{self.url.rstrip('/')}/v1/oauth/tokens"

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
            self.tokens_url,
            lambda: read_credentials(secrets_manager, self.secret_arn),
            clock=clock,
            scope=self.scope,
            realm=self.realm,
            transport=transport,
            pending=lambda: pending_credentials(secrets_manager, self.secret_arn),
        )
        return PolarisClient(self.url, token, realm=self.realm, transport=transport)


def read_credentials(secrets_manager: SecretsManager, secret_arn: str) -> ClientCredentials:
    """Return the principal's credentials. Raises PolarisMisconfigured if the secret is unreadable or malformed."""
    return credentials_of(_read(secrets_manager, SecretId=secret_arn), secret_arn)


def pending_credentials(secrets_manager: SecretsManager, secret_arn: str) -> ClientCredentials | None:
    """Return the credentials of a rotation in progress, None without one. Polaris ends a secret that `root` had reset
    as soon as it is rotated, before the new one is AWSCURRENT. Raises like `read_credentials`."""
    try:
        text = _read(secrets_manager, SecretId=secret_arn, VersionStage=PENDING)
    except _NoSuchVersion:
        return None
    return None if text is None else credentials_of(text, secret_arn)


class _NoSuchVersion(PolarisMisconfigured):
    """The secret has no version with this label, or does not exist."""


def _read(secrets_manager: SecretsManager, **which: str) -> str | None:
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - commands do without

    try:
        text: str | None = secrets_manager.get_secret_value(**which).get("SecretString")
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        kind: type[PolarisError] = PolarisUnavailable if code in _TRANSIENT else PolarisMisconfigured
        kind = _NoSuchVersion if code == "ResourceNotFoundException" else kind
        raise kind(f"the secret {which['SecretId']} with Polaris' credentials cannot be read: {code}") from error
    except BotoCoreError as error:
        raise PolarisUnavailable(f"the call to Secrets Manager failed: {type(error).__name__}") from error
    return text


def credentials_of(text: str | None, secret_arn: str) -> ClientCredentials:
    """Return the credentials in the text of a secret. Raises PolarisMisconfigured for any other text."""
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
