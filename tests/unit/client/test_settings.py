import json
import os
import re
import ssl

import pytest

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


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    """Without the settings of the person who runs the tests."""
    for name in list(os.environ):
        if name.startswith("DELEGATION_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


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
    with pytest.raises(ClientMisconfigured, match=name) as caught:
        ClientSettings.read()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["DELEGATION_EDGE_URL", "DELEGATION_TOKEN_URL"])
def test_addresses_must_be_urls(environment, name):
    environment.setenv(name, "edge.test")
    with pytest.raises(ClientMisconfigured, match=name):
        ClientSettings.read()


@pytest.mark.parametrize(("name", "file"), [("CLIENT_CERT", "absent.pem"), ("CA_CERT", "ca.pem")])
def test_a_missing_or_unreadable_certificate_is_named(environment, tmp_path, name, file):
    (tmp_path / "ca.pem").write_text("no certificate")
    environment.setenv(f"DELEGATION_{name}", str(tmp_path / file))
    with pytest.raises(ClientMisconfigured, match=re.escape(file)):
        DelegationClient.connect(ClientSettings.read())


def test_service_certificates_are_verified(environment):
    context = ClientSettings.read().mutual_tls()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


STACK = {
    "edge_url": "https://stack.test/delegation-service/api",
    "token_url": "https://stack.test/tokens",
    "client_id": "polaris",
    "client_secret": "hunter3",
    "scope": "execute_tasks",
    "realm": "LOCAL",
    "polaris_url": "https://stack.test/polaris",
}


def write_stack(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(STACK))
    return path


def write_profile(tmp_path, text):
    path = tmp_path / ".config" / "delegation" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_variable_names_another_stack(tmp_path, monkeypatch):
    write_stack(tmp_path / ".local" / "stack.json").write_text("{}")
    monkeypatch.setenv("DELEGATION_STACK", str(write_stack(tmp_path / "other" / "stack.json")))
    assert ClientSettings.read().edge_url == "https://stack.test/delegation-service/api"


def test_the_stack_of_the_working_directory_is_found_and_the_environment_precedes_it(tmp_path, monkeypatch):
    write_stack(tmp_path / ".local" / "stack.json")
    assert ClientSettings.read().realm == "LOCAL"
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    assert ClientSettings.read().realm == "POLARIS"


def test_a_profile_has_what_the_environment_lacks(tmp_path, environment):
    environment.delenv("DELEGATION_REALM")
    write_profile(tmp_path, '[profiles.default]\nrealm = "PROFILE"\nclient_id = "other"\nclient_cert = "a.pem"\n')
    settings = ClientSettings.read()
    assert (settings.realm, settings.client_id) == ("PROFILE", "polaris")
    assert settings.client_cert == tmp_path / ".config" / "delegation" / "a.pem"
    assert ClientSettings.at("https://given.test").realm == "PROFILE"


def test_a_profile_may_name_a_stack(tmp_path):
    write_stack(tmp_path / ".config" / "delegation" / "laptop.json")
    write_profile(tmp_path, '[profiles.default]\nstack = "laptop.json"\n')
    assert ClientSettings.read().realm == "LOCAL"


def test_without_any_setting_the_error_says_what_lacks_and_what_to_do(tmp_path):
    with pytest.raises(ClientMisconfigured) as caught:
        ClientSettings.read()
    *said, next_step = str(caught.value).splitlines()
    assert said == [
        "the connection to the service: 2 settings are wrong",
        "  edge_url (DELEGATION_EDGE_URL): is not set",
        "  .local/stack.json: does not exist",
    ]
    assert "make up" in next_step


@pytest.mark.parametrize("content", ["{", "[]", '{"client_secret": "hunter3"}'])
def test_a_stack_that_cannot_be_used_is_named_without_its_secrets(tmp_path, content):
    write_stack(tmp_path / ".local" / "stack.json").write_text(content)
    with pytest.raises(ClientMisconfigured, match=r"stack\.json") as caught:
        ClientSettings.read()
    assert "hunter3" not in str(caught.value)
