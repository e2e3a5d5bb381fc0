import json
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from pydantic import ValidationError

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import PolarisMisconfigured, PolarisUnavailable
from delegation.polaris.settings import PolarisSettings, read_credentials
from tests.aws import mock_aws
from tests.kit.clocks import Clock
from tests.unit.polaris.scripted import Server, raw_json, table_answer

NAMES = ("URL", "SECRET_ARN", "SCOPE", "TOKEN_URL")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(f"DELEGATION_POLARIS_{name}", raising=False)
    monkeypatch.delenv("DELEGATION_REALM", raising=False)
    monkeypatch.setenv("DELEGATION_POLARIS_URL", "https://polaris.test/api/catalog/")
    monkeypatch.setenv("DELEGATION_POLARIS_SECRET_ARN", "arn:secret")


@pytest.mark.parametrize(
    ("name", "value"), [("URL", "polaris"), ("URL", ""), ("SECRET_ARN", ""), ("TOKEN_URL", "ftp://x")]
)
def test_an_invalid_setting_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"DELEGATION_POLARIS_{name}", value)
    with pytest.raises(ValidationError, match=name):
        PolarisSettings.read()


class Secrets:
    def __init__(self, answer: str | Exception) -> None:
        self.answer = answer

    def get_secret_value(self, *, SecretId: str) -> dict[str, Any]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return {"ARN": SecretId, "SecretString": self.answer}


@pytest.mark.parametrize(
    ("token_url", "path"), [(None, "/api/catalog/v1/oauth/tokens"), ("https://idp.test/token", "/token")]
)
def test_the_client_uses_every_setting(
    monkeypatch: pytest.MonkeyPatch, server: Server, clock: Clock, token_url: str | None, path: str
) -> None:
    monkeypatch.setenv("DELEGATION_REALM", "prod")
    monkeypatch.setenv("DELEGATION_POLARIS_SCOPE", "PRINCIPAL_ROLE:purger")
    if token_url:
        monkeypatch.setenv("DELEGATION_POLARIS_TOKEN_URL", token_url)
    server.answer("POST", path, raw_json('{"access_token": "t", "expires_in": 60}'))
    server.answer("GET", "/api/catalog/v1/config", raw_json('{"overrides": {"prefix": "lake"}}'))
    server.answer("GET", "/api/catalog/v1/lake/namespaces/ns/tables/orders", table_answer())
    secrets = Secrets('{"client_id": "i", "client_secret": "s"}')
    settings = PolarisSettings.read()
    client = settings.client(secrets, clock=clock, transport=server.transport)
    assert server.requests == []
    client.load_table(TableIdentifier("lake", ("ns",), "orders"))
    [token] = server.asked("POST", path)
    assert b"client_id=i&client_secret=s&scope=PRINCIPAL_ROLE%3Apurger" in token.content
    assert {request.headers["Polaris-Realm"] for request in server.requests} == {"prod"}


def test_the_secret_is_read_from_secrets_manager() -> None:
    with mock_aws():
        manager = boto3.client(
            "secretsmanager", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b"
        )
        text = json.dumps({"client_id": "purger", "client_secret": "pssst"})
        arn = manager.create_secret(Name="polaris", SecretString=text)["ARN"]
        credentials = read_credentials(manager, arn)
    assert (credentials.client_id, credentials.client_secret.get_secret_value()) == ("purger", "pssst")


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (ClientError({"Error": {"Code": "AccessDeniedException"}}, "GetSecretValue"), PolarisMisconfigured),
        (ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "GetSecretValue"), PolarisMisconfigured),
        (ClientError({"Error": {"Code": "ThrottlingException"}}, "GetSecretValue"), PolarisUnavailable),
        (EndpointConnectionError(endpoint_url="https://secrets.test"), PolarisUnavailable),
        ("[]", PolarisMisconfigured),
        ('{"client_id": "", "client_secret": "x"}', PolarisMisconfigured),
        ('{"client_id": 7, "client_secret": "x"}', PolarisMisconfigured),
    ],
)
def test_an_unreadable_or_malformed_secret_is_an_error(failure: str | Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"Secrets Manager|arn:secret"):
        read_credentials(Secrets(failure), "arn:secret")
