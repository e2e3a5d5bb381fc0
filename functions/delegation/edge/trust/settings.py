"""Settings of the authorizer."""

from collections.abc import Callable
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from delegation.edge.trust.certificates import (
    CertificateSource,
    is_signed_by,
    load_authority,
    load_revocation_list,
    parse_name,
    parse_serials,
)
from delegation.edge.trust.tokens import public_key
from delegation.environment import EnvironmentSettings

_URL: Final = r"^https?://[^/\s]+\S*$"
_SCOPE: Final = r"^[\x21-\x7e]+$"


def _readable_by(parse: Callable[[str], object]) -> AfterValidator:
    """Return a validator that keeps the text if `parse` accepts it; `parse` raises ValueError otherwise."""

    def check(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(check)


_Name = Annotated[str, _readable_by(parse_name)]


class AuthorizerSettings(EnvironmentSettings):
    """Which client certificate and which tokens the authorizer admits.

    Names are in RFC 4514's format; without `client_serials` every certificate of the name is admitted. `client_ca` is
    the certificate of `client_issuer`, which must have signed `client_crl`. `client_next_*` name a second certificate
    of Polaris, admitted beside the first while it is replaced. `operator_subjects` (separated by semicolons) admit
    operators, whose tokens have `operator_scope`. Exactly one of `token_jwks_url` and `token_public_key` (PEM) is set;
    `token_next_public_key` is admitted beside the latter while the issuer replaces its key.
    """

    client_subject: _Name = Field(alias="DELEGATION_CLIENT_SUBJECT")
    client_issuer: _Name = Field(alias="DELEGATION_CLIENT_ISSUER")
    client_serials: Annotated[str, _readable_by(parse_serials)] = Field("", alias="DELEGATION_CLIENT_SERIALS")
    client_certificate_source: CertificateSource = Field(
        CertificateSource.APIGATEWAY, alias="DELEGATION_CLIENT_CERTIFICATE_SOURCE"
    )
    client_crl: Annotated[str, _readable_by(lambda text: load_revocation_list(text.encode()))] | None = Field(
        None, alias="DELEGATION_CLIENT_CRL"
    )
    client_ca: Annotated[str, _readable_by(load_authority)] | None = Field(None, alias="DELEGATION_CLIENT_CA")
    client_next_subject: _Name | None = Field(None, alias="DELEGATION_CLIENT_NEXT_SUBJECT")
    client_next_issuer: _Name | None = Field(None, alias="DELEGATION_CLIENT_NEXT_ISSUER")
    operator_subjects: tuple[_Name, ...] = Field((), alias="DELEGATION_OPERATOR_SUBJECTS")
    operator_issuer: _Name | None = Field(None, alias="DELEGATION_OPERATOR_ISSUER")
    operator_scope: str = Field("manage_tasks", alias="DELEGATION_OPERATOR_SCOPE", pattern=_SCOPE)
    operators_may_submit: bool = Field(False, alias="DELEGATION_OPERATORS_MAY_SUBMIT")
    token_issuer: str = Field(alias="DELEGATION_TOKEN_ISSUER", min_length=1)
    token_jwks_url: str | None = Field(None, alias="DELEGATION_TOKEN_JWKS_URL", pattern=_URL)
    token_public_key: Annotated[str, _readable_by(public_key)] | None = Field(None, alias="DELEGATION_TOKEN_PUBLIC_KEY")
    token_next_public_key: Annotated[str, _readable_by(public_key)] | None = Field(
        None, alias="DELEGATION_TOKEN_NEXT_PUBLIC_KEY"
    )
    token_audience: str | None = Field(None, alias="DELEGATION_TOKEN_AUDIENCE")
    token_scope: str = Field("execute_tasks", alias="DELEGATION_TOKEN_SCOPE", pattern=_SCOPE)
    token_leeway_seconds: int = Field(30, alias="DELEGATION_TOKEN_LEEWAY_SECONDS", ge=0, le=300)
    jwks_timeout_seconds: float = Field(3.0, alias="DELEGATION_TOKEN_JWKS_TIMEOUT_SECONDS", gt=0, le=8)

    @field_validator("operator_subjects", mode="before")
    @classmethod
    def _separated(cls, value: object) -> object:
        # Not commas: they separate the parts of a name.
        return tuple(part.strip() for part in value.split(";") if part.strip()) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _next_key_follows_a_key(self) -> Self:
        if self.token_next_public_key is not None and self.token_public_key is None:
            raise ValueError(
                "DELEGATION_TOKEN_NEXT_PUBLIC_KEY needs DELEGATION_TOKEN_PUBLIC_KEY, which it will replace"
            )
        return self

    @model_validator(mode="after")
    def _list_is_signed(self) -> Self:
        if self.client_crl is not None:
            authority = None if self.client_ca is None else load_authority(self.client_ca)
            revoked = load_revocation_list(self.client_crl.encode())
            if not is_signed_by(revoked, authority, parse_name(self.client_issuer)):
                raise ValueError(
                    "DELEGATION_CLIENT_CRL must be signed by DELEGATION_CLIENT_CA, the certificate of "
                    "DELEGATION_CLIENT_ISSUER"
                )
        return self

    @model_validator(mode="after")
    def _one_key_source(self) -> Self:
        if (self.token_jwks_url is None) == (self.token_public_key is None):
            raise ValueError("exactly one of DELEGATION_TOKEN_JWKS_URL and DELEGATION_TOKEN_PUBLIC_KEY must be set")
        return self
