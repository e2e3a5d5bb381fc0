"""The authorizer."""

from datetime import timedelta

from delegation.edge.trust.authorizer import Authorizer
from delegation.edge.trust.certificates import (
    CertificatePin,
    load_authority,
    load_revocation_list,
    parse_name,
    parse_serials,
)
from delegation.edge.trust.jwks import JwksKeys, https_get
from delegation.edge.trust.settings import AuthorizerSettings
from delegation.edge.trust.tokens import KeySource, StaticKey, TokenVerifier, public_key
from delegation.timestamps import utc_now


def authorizer(settings: AuthorizerSettings | None = None) -> Authorizer:
    """Return the authorizer; pydantic's ValidationError names a setting that is wrong."""
    settings = settings or AuthorizerSettings.read()
    revoked = None if settings.client_crl is None else load_revocation_list(settings.client_crl.encode())
    return Authorizer(
        pin=CertificatePin(
            subject=parse_name(settings.client_subject),
            issuer=parse_name(settings.client_issuer),
            serials=parse_serials(settings.client_serials) or None,
            revoked=revoked,
            authority=None if settings.client_ca is None else load_authority(settings.client_ca),
        ),
        source=settings.client_certificate_source,
        tokens=TokenVerifier(
            _keys(settings),
            issuer=settings.token_issuer,
            audience=settings.token_audience,
            scope=settings.token_scope,
            clock=utc_now,
            leeway=timedelta(seconds=settings.token_leeway_seconds),
        ),
        clock=utc_now,
    )


def _keys(settings: AuthorizerSettings) -> KeySource:
    if settings.token_public_key is not None:
        return StaticKey(public_key(settings.token_public_key))
    return JwksKeys(str(settings.token_jwks_url), get=https_get(settings.jwks_timeout_seconds), clock=utc_now)
