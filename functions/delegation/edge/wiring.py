"""The edge's dependencies from the environment, built once a process by the handlers."""

from datetime import timedelta

import httpx
from aws_lambda_powertools import Logger, Metrics, Tracer

from delegation import wiring
from delegation.edge.app import Handler, create_app
from delegation.edge.authorizer import Authorizer
from delegation.edge.identity import CertificatePin, load_revocation_list, parse_name, parse_serials
from delegation.edge.jwks import JwksKeys
from delegation.edge.routes import Dependencies
from delegation.edge.settings import ApiSettings, AuthorizerSettings
from delegation.edge.tokens import KeySource, StaticKey, TokenVerifier, public_key
from delegation.settings import IDEMPOTENCY_LIFETIME, RequestSettings


def authorizer(settings: AuthorizerSettings | None = None, *, http: httpx.Client | None = None) -> Authorizer:
    """The authorizer that the environment describes; pydantic's ValidationError names a setting that is wrong."""
    settings = settings or AuthorizerSettings()
    revoked = None if settings.client_crl is None else load_revocation_list(settings.client_crl.encode())
    return Authorizer(
        pin=CertificatePin(
            subject=parse_name(settings.client_subject),
            issuer=parse_name(settings.client_issuer),
            serials=parse_serials(settings.client_serials) or None,
            revoked=revoked,
        ),
        source=settings.client_certificate_source,
        tokens=TokenVerifier(
            _keys(settings, http),
            issuer=settings.token_issuer,
            audience=settings.token_audience,
            scope=settings.token_scope,
            clock=wiring.utc_now,
            leeway=timedelta(seconds=settings.token_leeway_seconds),
        ),
        clock=wiring.utc_now,
    )


def api_dependencies() -> Dependencies:
    """What the API works with on AWS."""
    tasks = wiring.task_service(wiring.dispatch_queue())
    return Dependencies(
        submissions=wiring.submissions(tasks),
        tasks=tasks,
        realm=RequestSettings().realm,
        idempotency_lifetime=IDEMPOTENCY_LIFETIME,
        clock=wiring.utc_now,
    )


def api(logger: Logger) -> Handler:
    """The API on AWS. Traces, if asked for, hold neither answers nor errors: both may show what a request held."""
    settings = ApiSettings()
    handle = create_app(api_dependencies(), logger=logger, metrics=Metrics(namespace=settings.metrics_namespace))
    if not settings.tracing:
        return handle
    traced: Handler = Tracer().capture_lambda_handler(handle, capture_response=False, capture_error=False)
    return traced


def _keys(settings: AuthorizerSettings, http: httpx.Client | None) -> KeySource:
    if settings.token_public_key is not None:
        return StaticKey(public_key(settings.token_public_key))
    client = http or httpx.Client(timeout=settings.jwks_timeout_seconds, follow_redirects=False)
    return JwksKeys(str(settings.token_jwks_url), http=client, clock=wiring.utc_now)
