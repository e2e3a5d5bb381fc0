import re
from collections.abc import Callable, Collection
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from delegation.edge.trust.authorizer import CertificateSource, load_authorities, parse_name, parse_serials
from delegation.edge.trust.revocation import Listed, OutdatedList, s3_object, verified_list
from delegation.edge.trust.tokens import TokenBinding, public_key
from delegation.environment import EnvironmentSettings

_URL: Final = r"^https?://[^/\s]+\S*$"
_SCOPE: Final = r"^[\x21-\x7e]+$"
_ENDPOINT: Final = re.compile(r"vpce-[0-9a-z]+", re.ASCII)
_ANY_PRINCIPAL: Final = "PRINCIPAL_ROLE:"


def readable_by(parse: Callable[[str], object]) -> AfterValidator:
    """Return a validator that keeps the text if `parse` accepts it; `parse` raises ValueError otherwise."""

    def check(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(check)


def separated_by(separator: str) -> BeforeValidator:
    def split(value: object) -> object:
        if not isinstance(value, str):
            return value
        return tuple(part.strip() for part in value.split(separator) if part.strip())

    return BeforeValidator(split)


def require_clients(scope: str, clients: Collection[str], setting: str) -> None:
    """Raise ValueError if any principal of Polaris could get the scope and no client is pinned. Polaris' token broker
    gives every principal the scope `PRINCIPAL_ROLE:ALL` or that of its roles."""
    if scope.startswith(_ANY_PRINCIPAL) and not clients:
        raise ValueError(
            f"{setting} must name the admitted client, because any principal of Polaris gets the scope {scope}"
        )


def require_authorities(authorities: str | None, issuers: Collection[str], setting: str) -> None:
    """Raise ValueError unless each issuer, a distinguished name, has a certificate among the authorities' PEMs."""
    named = [] if authorities is None else [authority.subject for authority in load_authorities(authorities)]
    for issuer in issuers:
        if parse_name(issuer) not in named:
            raise ValueError(f"{setting} lacks the certificate of {issuer}, whose revocation list must be verified")


def _endpoint(text: str) -> None:
    if not _ENDPOINT.fullmatch(text):
        raise ValueError("VPC endpoints have ids such as vpce-0a1b2c3d4e5f")


_Name = Annotated[str, readable_by(parse_name)]
_Serials = Annotated[str, readable_by(parse_serials)]
_Key = Annotated[str, readable_by(public_key)]


class CertificateSettings(EnvironmentSettings):
    """The client certificates that the authorizer admits, and how it checks their revocation.

    Names are in RFC 4514's format; without `client_serials` every certificate of the name is admitted. `client_next_*`
    name a second certificate of Polaris, admitted during a replacement. `operator_subjects` (separated by semicolons)
    admit operators, whose tokens have `operator_scope`. `client_vpc_endpoints` names the VPC endpoints that only the
    ALB reaches. `client_ca` has the issuers' certificates, which must have signed the revocation lists: `client_crl`,
    or the objects of `revocation_lists` (`s3://bucket/key`, separated by commas).
    """

    client_subject: _Name = Field(alias="DELEGATION_CLIENT_SUBJECT")
    client_issuer: _Name = Field(alias="DELEGATION_CLIENT_ISSUER")
    client_serials: _Serials = Field("", alias="DELEGATION_CLIENT_SERIALS")
    client_next_subject: _Name | None = Field(None, alias="DELEGATION_CLIENT_NEXT_SUBJECT")
    client_next_issuer: _Name | None = Field(None, alias="DELEGATION_CLIENT_NEXT_ISSUER")
    client_next_serials: _Serials = Field("", alias="DELEGATION_CLIENT_NEXT_SERIALS")
    client_certificate_source: CertificateSource = Field(
        CertificateSource.APIGATEWAY, alias="DELEGATION_CLIENT_CERTIFICATE_SOURCE"
    )
    client_vpc_endpoints: Annotated[tuple[Annotated[str, readable_by(_endpoint)], ...], separated_by(",")] = Field(
        (), alias="DELEGATION_CLIENT_VPC_ENDPOINTS"
    )
    client_ca: Annotated[str, readable_by(load_authorities)] | None = Field(None, alias="DELEGATION_CLIENT_CA")
    client_crl: str | None = Field(None, alias="DELEGATION_CLIENT_CRL")
    revocation_lists: Annotated[tuple[Annotated[str, readable_by(s3_object)], ...], separated_by(",")] = Field(
        (), alias="DELEGATION_REVOCATION_LISTS"
    )
    revocation_outdated: OutdatedList = Field(OutdatedList.REFUSE, alias="DELEGATION_REVOCATION_OUTDATED")
    revocation_refresh_seconds: int = Field(300, alias="DELEGATION_REVOCATION_REFRESH_SECONDS", ge=1, le=86_400)
    revocation_max_age_seconds: int = Field(3600, alias="DELEGATION_REVOCATION_MAX_AGE_SECONDS", ge=1, le=604_800)
    operator_subjects: Annotated[tuple[_Name, ...], separated_by(";")] = Field((), alias="DELEGATION_OPERATOR_SUBJECTS")
    operator_issuer: _Name | None = Field(None, alias="DELEGATION_OPERATOR_ISSUER")
    operator_next_issuer: _Name | None = Field(None, alias="DELEGATION_OPERATOR_NEXT_ISSUER")

    @property
    def operator_issuers(self) -> tuple[str, ...]:
        """The authorities of operators' certificates: their own, otherwise those of Polaris' certificates."""
        first, following = self.operator_issuer, self.operator_next_issuer
        if first is None:
            first, following = self.client_issuer, following or self.client_next_issuer
        return (first,) if following is None else (first, following)

    @model_validator(mode="after")
    def _alb_has_endpoints(self) -> Self:
        behind_alb = self.client_certificate_source is CertificateSource.ALB
        if behind_alb != bool(self.client_vpc_endpoints):
            raise ValueError(
                "set both DELEGATION_CLIENT_CERTIFICATE_SOURCE=alb and DELEGATION_CLIENT_VPC_ENDPOINTS, or neither: "
                "headers of a load balancer are accepted only from VPC endpoints that nothing else reaches"
            )
        return self

    @model_validator(mode="after")
    def _list_is_signed(self) -> Self:
        if self.client_crl is None:
            return self
        if self.revocation_lists:
            raise ValueError("only one of DELEGATION_REVOCATION_LISTS and DELEGATION_CLIENT_CRL can be set")
        authorities = load_authorities(self.client_ca) if self.client_ca is not None else ()
        try:
            listed = verified_list(self.client_crl.encode(), authorities)
        except ValueError as error:
            raise ValueError(f"DELEGATION_CLIENT_CRL: the revocation list {error}") from None
        if listed.listed.issuer != parse_name(self.client_issuer) or listed.of is Listed.AUTHORITIES:
            raise ValueError(
                "DELEGATION_CLIENT_CRL must be signed by DELEGATION_CLIENT_CA for DELEGATION_CLIENT_ISSUER, and name "
                "client certificates"
            )
        for issuer in self._admitted_issuers:
            if parse_name(issuer) != listed.listed.issuer:
                raise ValueError(
                    f"DELEGATION_CLIENT_CRL covers no certificate of {issuer}, so these would be admitted unchecked: "
                    "set DELEGATION_REVOCATION_LISTS with the lists of every issuer instead"
                )
        return self

    @model_validator(mode="after")
    def _lists_can_be_verified(self) -> Self:
        if not self.revocation_lists:
            return self
        require_authorities(self.client_ca, self._admitted_issuers, "DELEGATION_CLIENT_CA")
        return self

    @property
    def _admitted_issuers(self) -> frozenset[str]:
        issuers = [self.client_issuer, *([self.client_next_issuer] if self.client_next_issuer else [])]
        return frozenset([*issuers, *(self.operator_issuers if self.operator_subjects else ())])


class TokenSettings(EnvironmentSettings):
    """The tokens that the authorizer admits; exactly one of `token_jwks_url` and `token_public_key` (PEM) is set.
    `token_next_*` admit a second client, public key or issuer beside the first; the next issuer has its own JWKS or
    public key, else the first one's. Clients must be pinned if Polaris gives the scope to every principal.
    `operator_client_ids` are separated by commas."""

    token_issuer: str = Field(alias="DELEGATION_TOKEN_ISSUER", min_length=1)
    token_jwks_url: str | None = Field(None, alias="DELEGATION_TOKEN_JWKS_URL", pattern=_URL)
    token_public_key: _Key | None = Field(None, alias="DELEGATION_TOKEN_PUBLIC_KEY")
    token_audience: str | None = Field(None, alias="DELEGATION_TOKEN_AUDIENCE")
    token_client_id: str | None = Field(None, alias="DELEGATION_TOKEN_CLIENT_ID")
    token_next_issuer: str | None = Field(None, alias="DELEGATION_TOKEN_NEXT_ISSUER")
    token_next_jwks_url: str | None = Field(None, alias="DELEGATION_TOKEN_NEXT_JWKS_URL", pattern=_URL)
    token_next_public_key: _Key | None = Field(None, alias="DELEGATION_TOKEN_NEXT_PUBLIC_KEY")
    token_next_audience: str | None = Field(None, alias="DELEGATION_TOKEN_NEXT_AUDIENCE")
    token_next_client_id: str | None = Field(None, alias="DELEGATION_TOKEN_NEXT_CLIENT_ID")
    token_scope: str = Field("execute_tasks", alias="DELEGATION_TOKEN_SCOPE", pattern=_SCOPE)
    token_binding: TokenBinding = Field(TokenBinding.OPTIONAL, alias="DELEGATION_TOKEN_BINDING")
    token_leeway_seconds: int = Field(30, alias="DELEGATION_TOKEN_LEEWAY_SECONDS", ge=0, le=300)
    jwks_timeout_seconds: float = Field(3.0, alias="DELEGATION_TOKEN_JWKS_TIMEOUT_SECONDS", gt=0, le=8)
    operator_scope: str = Field("manage_tasks", alias="DELEGATION_OPERATOR_SCOPE", pattern=_SCOPE)
    operator_client_ids: Annotated[tuple[str, ...], separated_by(",")] = Field(
        (), alias="DELEGATION_OPERATOR_CLIENT_IDS"
    )
    operators_may_submit: bool = Field(False, alias="DELEGATION_OPERATORS_MAY_SUBMIT")
    polaris_may_manage: bool = Field(False, alias="DELEGATION_POLARIS_MAY_MANAGE")

    @property
    def token_client_ids(self) -> tuple[str, ...]:
        """The pinned clients of Polaris, none if any client of the issuer is admitted."""
        return tuple(
            client_id for client_id in (self.token_client_id, self.token_next_client_id) if client_id is not None
        )

    @model_validator(mode="after")
    def _one_key_source(self) -> Self:
        if (self.token_jwks_url is None) == (self.token_public_key is None):
            raise ValueError("exactly one of DELEGATION_TOKEN_JWKS_URL and DELEGATION_TOKEN_PUBLIC_KEY must be set")
        return self

    @model_validator(mode="after")
    def _next_follows_a_first(self) -> Self:
        if self.token_next_public_key is not None and self.token_public_key is None and self.token_next_issuer is None:
            raise ValueError(
                "DELEGATION_TOKEN_NEXT_PUBLIC_KEY needs the key that it will replace (DELEGATION_TOKEN_PUBLIC_KEY) or "
                "its issuer (DELEGATION_TOKEN_NEXT_ISSUER)"
            )
        if self.token_next_issuer == self.token_issuer:
            raise ValueError("DELEGATION_TOKEN_NEXT_ISSUER must be another issuer than DELEGATION_TOKEN_ISSUER")
        if self.token_next_issuer is None and (self.token_next_jwks_url or self.token_next_audience):
            raise ValueError(
                "DELEGATION_TOKEN_NEXT_JWKS_URL and DELEGATION_TOKEN_NEXT_AUDIENCE need DELEGATION_TOKEN_NEXT_ISSUER"
            )
        if self.token_next_client_id is not None and self.token_client_id is None:
            raise ValueError("DELEGATION_TOKEN_NEXT_CLIENT_ID needs DELEGATION_TOKEN_CLIENT_ID, which it will replace")
        return self

    @model_validator(mode="after")
    def _clients_are_pinned(self) -> Self:
        require_clients(self.token_scope, self.token_client_ids, "DELEGATION_TOKEN_CLIENT_ID")
        return self


class AuthorizerSettings(CertificateSettings, TokenSettings):
    @model_validator(mode="after")
    def _operators_clients_are_pinned(self) -> Self:
        if self.operator_subjects:
            require_clients(self.operator_scope, self.operator_client_ids, "DELEGATION_OPERATOR_CLIENT_IDS")
        return self
