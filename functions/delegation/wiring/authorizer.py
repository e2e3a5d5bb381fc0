from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from delegation.edge.trust.authorizer import (
    Authorizer,
    CertificatePin,
    CertificateReader,
    Identity,
    load_authorities,
    parse_name,
    parse_serials,
)
from delegation.edge.trust.permissions import ALL, OF_POLARIS, Permission
from delegation.edge.trust.revocation import (
    PublishedLists,
    RevocationCheck,
    StaticLists,
    policy_of,
    s3_fetch,
    verified_list,
)
from delegation.edge.trust.settings import AuthorizerSettings
from delegation.edge.trust.tokens import (
    JwksKeys,
    KeySource,
    StaticKeys,
    TokenVerifier,
    TrustedIssuer,
    https_get,
    public_key,
)


def now() -> datetime:
    """Return the time. `delegation.timestamps` has the same; it would be loaded at a cold start for this alone."""
    return datetime.now(UTC)


def authorizer(settings: AuthorizerSettings | None = None) -> Authorizer:
    """Return the authorizer. ValidationError names a wrong setting."""
    settings = settings or AuthorizerSettings.read()
    check = _revocation(settings)
    return Authorizer(
        identities=(_polaris(settings, check), *_operators(settings, check)),
        certificates=CertificateReader(settings.client_certificate_source, frozenset(settings.client_vpc_endpoints)),
        tokens=TokenVerifier(_issuers(settings), clock=now, leeway=timedelta(seconds=settings.token_leeway_seconds)),
        clock=now,
        binding=settings.token_binding,
    )


def _polaris(settings: AuthorizerSettings, check: RevocationCheck | None) -> Identity:
    pins = [_pin(check, settings.client_subject, settings.client_issuer, settings.client_serials)]
    if settings.client_next_subject or settings.client_next_issuer or settings.client_next_serials:
        subject = settings.client_next_subject or settings.client_subject
        issuer = settings.client_next_issuer or settings.client_issuer
        pins.append(_pin(check, subject, issuer, settings.client_next_serials))
    permissions = OF_POLARIS | {Permission.MANAGE} if settings.polaris_may_manage else OF_POLARIS
    return Identity(tuple(pins), settings.token_scope, frozenset(settings.token_client_ids), permissions)


def _operators(settings: AuthorizerSettings, check: RevocationCheck | None) -> tuple[Identity, ...]:
    pins = tuple(
        _pin(check, subject, issuer) for subject in settings.operator_subjects for issuer in settings.operator_issuers
    )
    permissions = ALL if settings.operators_may_submit else ALL - {Permission.SUBMIT}
    clients = frozenset(settings.operator_client_ids)
    return (Identity(pins, settings.operator_scope, clients, permissions),) if pins else ()


def _pin(check: RevocationCheck | None, subject: str, issuer: str, serials: str = "") -> CertificatePin:
    return CertificatePin(
        subject=parse_name(subject),
        issuer=parse_name(issuer),
        serials=parse_serials(serials) or None,
        revocation=check,
    )


def _revocation(settings: AuthorizerSettings) -> RevocationCheck | None:
    authorities = () if settings.client_ca is None else load_authorities(settings.client_ca)
    if settings.client_crl is not None:
        listed = verified_list(settings.client_crl.encode(), authorities)
        return RevocationCheck(StaticLists((listed,)), settings.revocation_outdated, authorities)
    if not settings.revocation_lists:
        return None
    # Imported here: boto3 would lengthen the cold start of every authorizer without such lists.
    from delegation.wiring.clients import WHILE_A_CALLER_WAITS, aws  # noqa: PLC0415

    refresh = timedelta(seconds=settings.revocation_refresh_seconds)
    published = PublishedLists(
        settings.revocation_lists,
        fetch=s3_fetch(aws("s3", WHILE_A_CALLER_WAITS)),
        authorities=authorities,
        clock=now,
        policy=policy_of(refresh, timedelta(seconds=settings.revocation_max_age_seconds)),
    )
    return RevocationCheck(published, settings.revocation_outdated, authorities)


def _issuers(settings: AuthorizerSettings) -> tuple[TrustedIssuer, ...]:
    """Return the issuer and the next one; the next one has its own keys, or the first one's if it names none."""
    own = (
        [settings.token_public_key]
        if settings.token_next_issuer
        else [
            settings.token_public_key,
            settings.token_next_public_key,
        ]
    )
    first = _keys(settings, settings.token_jwks_url, own)
    issuers = (TrustedIssuer(settings.token_issuer, first, settings.token_audience),)
    if settings.token_next_issuer is None:
        return issuers
    has_keys = settings.token_next_jwks_url is not None or settings.token_next_public_key is not None
    following = _keys(settings, settings.token_next_jwks_url, [settings.token_next_public_key]) if has_keys else first
    audience = settings.token_next_audience or settings.token_audience
    return (*issuers, TrustedIssuer(settings.token_next_issuer, following, audience))


def _keys(settings: AuthorizerSettings, url: str | None, static: Sequence[str | None]) -> KeySource:
    """Return the keys that an issuer publishes, otherwise those of its settings."""
    if url is not None:
        return JwksKeys(url, get=https_get(settings.jwks_timeout_seconds), clock=now)
    return StaticKeys(tuple(public_key(text) for text in static if text is not None))
