import ssl

import pytest
from pydantic import ValidationError

from delegation.client.client import DelegationClient
from delegation.client.errors import ClientMisconfigured
from delegation.client.settings import ClientSettings

ENVIRONMENT = {
    "DELEGATION_EDGE_URL": "https://edge.test/delegation-service/api",
    "DELEGATION_TOKEN_URL": "https://issuer.test/oauth/tokens",
    "DELEGATION_CLIENT_ID": "polaris",
    "DELEGATION_CLIENT_SECRET": "hunter2",
    "DELEGATION_REALM": "POLARIS",
}


@pytest.fixture
def environment(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_settings_are_read_from_the_environment_and_hide_the_secret(environment):
    settings = ClientSettings.read()
    assert settings.scope == "execute_tasks"
    assert settings.client_secret.get_secret_value() == "hunter2"
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_missing_setting_is_refused(environment, name):
    environment.delenv(name)
    with pytest.raises(ValidationError, match=name) as caught:
        ClientSettings.read()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["DELEGATION_EDGE_URL", "DELEGATION_TOKEN_URL"])
def test_addresses_must_be_urls(environment, name):
    environment.setenv(name, "edge.test")
    with pytest.raises(ValidationError, match=name):
        ClientSettings.read()


def test_missing_certificate_is_named(environment, tmp_path):
    environment.setenv("DELEGATION_CLIENT_CERT", str(tmp_path / "absent.pem"))
    with pytest.raises(ClientMisconfigured, match=r"absent\.pem"):
        DelegationClient.connect(ClientSettings.read())


def test_unreadable_authority_is_named(environment, tmp_path):
    ca = tmp_path / "ca.pem"
    ca.write_text("no certificate")
    environment.setenv("DELEGATION_CA_CERT", str(ca))
    with pytest.raises(ClientMisconfigured, match=r"ca\.pem"):
        DelegationClient.connect(ClientSettings.read())


def test_service_certificates_are_verified(environment):
    context = ClientSettings.read().mutual_tls()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
