"""Settings of the authorizer: environment variables, read once in the entry point, bad ones named."""

from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, model_validator

from delegation.edge.trust.certificates import CertificateSource, load_revocation_list, parse_name, parse_serials
from delegation.edge.trust.tokens import public_key
from delegation.environment import EnvironmentSettings

REQUIRED_SCOPE: Final = "execute_tasks"
_URL: Final = r"^https?://[^/\s]+\S*$"


def _name(text: str) -> str:
    parse_name(text)
    return text


def _serials(text: str) -> str:
    parse_serials(text)
    return text


def _public_key(text: str) -> str:
    public_key(text)
    return text


def _revocation_list(text: str) -> str:
    load_revocation_list(text.encode())
    return text


class AuthorizerSettings(EnvironmentSettings):
    """Whom the authorizer admits.

    Names are RFC 4514 text; `client_serials` hexadecimal, separated by commas, none for any. Exactly one of
    `token_jwks_url` and `token_public_key` (PEM) says how signatures are checked.
    """

    client_subject: Annotated[str, AfterValidator(_name)] = Field(alias="DELEGATION_CLIENT_SUBJECT")
    client_issuer: Annotated[str, AfterValidator(_name)] = Field(alias="DELEGATION_CLIENT_ISSUER")
    client_serials: Annotated[str, AfterValidator(_serials)] = Field("", alias="DELEGATION_CLIENT_SERIALS")
    client_certificate_source: CertificateSource = Field(
        CertificateSource.APIGATEWAY, alias="DELEGATION_CLIENT_CERTIFICATE_SOURCE"
    )
    client_crl: Annotated[str, AfterValidator(_revocation_list)] | None = Field(None, alias="DELEGATION_CLIENT_CRL")
    token_issuer: str = Field(alias="DELEGATION_TOKEN_ISSUER", min_length=1)
    token_jwks_url: str | None = Field(None, alias="DELEGATION_TOKEN_JWKS_URL", pattern=_URL)
    token_public_key: Annotated[str, AfterValidator(_public_key)] | None = Field(
        None, alias="DELEGATION_TOKEN_PUBLIC_KEY"
    )
    token_audience: str | None = Field(None, alias="DELEGATION_TOKEN_AUDIENCE")
    token_scope: str = Field(REQUIRED_SCOPE, alias="DELEGATION_TOKEN_SCOPE", pattern=r"^[\x21-\x7e]+$")
    token_leeway_seconds: int = Field(30, alias="DELEGATION_TOKEN_LEEWAY_SECONDS", ge=0, le=300)
    jwks_timeout_seconds: float = Field(3.0, alias="DELEGATION_TOKEN_JWKS_TIMEOUT_SECONDS", gt=0, le=8)

    @model_validator(mode="after")
    def _one_key_source(self) -> Self:
        if (self.token_jwks_url is None) == (self.token_public_key is None):
            raise ValueError("exactly one of DELEGATION_TOKEN_JWKS_URL and DELEGATION_TOKEN_PUBLIC_KEY must be set")
        return self
