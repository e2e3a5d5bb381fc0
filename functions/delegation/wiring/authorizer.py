"""The authorizer."""

from datetime import timedelta

from delegation.edge.trust.authorizer import Authorizer, Identity
from delegation.edge.trust.certificates import (
    CertificatePin,
    load_authority,
    load_revocation_list,
    parse_name,
    parse_serials,
)
from delegation.edge.trust.jwks import JwksKeys, https_get
from delegation.edge.trust.permissions import ALL, Permission
from delegation.edge.trust.settings import AuthorizerSettings
from delegation.edge.trust.tokens import KeySource, StaticKeys, TokenVerifier, public_key
from delegation.timestamps import utc_now


def authorizer(settings: AuthorizerSettings | None = None) -> Authorizer:
    """Return the authorizer; pydantic's ValidationError names a setting that is wrong."""
    settings = settings or AuthorizerSettings.read()
    return Authorizer(
        identities=(_polaris(settings), *_operators(settings)),
        source=settings.client_certificate_source,
        tokens=TokenVerifier(
            _keys(settings),
            issuer=settings.token_issuer,
            audience=settings.token_audience,
            clock=utc_now,
            leeway=timedelta(seconds=settings.token_leeway_seconds),
        ),
        clock=utc_now,
    )


def _polaris(settings: AuthorizerSettings) -> Identity:
    pins = [_pin(settings, settings.client_subject, settings.client_issuer, settings.client_serials)]
    if settings.client_next_subject or settings.client_next_issuer:
        subject = settings.client_next_subject or settings.client_subject
        pins.append(_pin(settings, subject, settings.client_next_issuer or settings.client_issuer))
    return Identity(tuple(pins), settings.token_scope)


def _operators(settings: AuthorizerSettings) -> tuple[Identity, ...]:
    issuer = settings.operator_issuer or settings.client_issuer
    pins = tuple(_pin(settings, subject, issuer) for subject in settings.operator_subjects)
    permissions = ALL if settings.operators_may_submit else ALL - {Permission.SUBMIT}
    return (Identity(pins, settings.operator_scope, permissions),) if pins else ()


def _pin(settings: AuthorizerSettings, subject: str, issuer: str, serials: str = "") -> CertificatePin:
    """Return a pin; the revocation list is that of `client_issuer`, so it decides on no other issuer's certificates."""
    listed = settings.client_crl is not None and parse_name(issuer) == parse_name(settings.client_issuer)
    return CertificatePin(
        subject=parse_name(subject),
        issuer=parse_name(issuer),
        serials=parse_serials(serials) or None,
        revoked=load_revocation_list(str(settings.client_crl).encode()) if listed else None,
        authority=load_authority(settings.client_ca) if listed and settings.client_ca is not None else None,
    )


def _keys(settings: AuthorizerSettings) -> KeySource:
    keys = [text for text in (settings.token_public_key, settings.token_next_public_key) if text is not None]
    if keys:
        return StaticKeys(tuple(public_key(text) for text in keys))
    return JwksKeys(str(settings.token_jwks_url), get=https_get(settings.jwks_timeout_seconds), clock=utc_now)
