"""The rotation of the service's client secret in Polaris."""

from delegation.polaris.management import PolarisManagement, management_url
from delegation.polaris.requests import ClientCredentials, OAuth2TokenSource
from delegation.polaris.rotation import OwnPrincipal, SecretRotation
from delegation.polaris.settings import PolarisSettings
from delegation.polaris.transport import Transport
from delegation.timestamps import utc_now
from delegation.wiring.clients import PATIENT, aws


def secret_rotation() -> SecretRotation:
    settings = PolarisSettings.read()
    transport = Transport()

    def principal(credentials: ClientCredentials) -> OwnPrincipal:
        tokens = OAuth2TokenSource(
            settings.tokens_url,
            lambda: credentials,
            clock=utc_now,
            scope=settings.scope,
            realm=settings.realm,
            transport=transport,
        )
        management = PolarisManagement(management_url(settings.url), tokens, realm=settings.realm, transport=transport)
        return OwnPrincipal(management, tokens)

    return SecretRotation(aws("secretsmanager", PATIENT), principal)
