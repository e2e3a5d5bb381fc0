"""The probe as deployed: a secret in moto, a handshake with certificates; a front that answers, refuses or is gone."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from delegation.handlers import probe_front
from infra.environment.functions import PROBE
from infra.environment.resources import Resources, environment
from infra.local.front.apigateway import LocalApiGateway
from infra.local.front.https import Front, TlsFiles
from infra.local.identities import CertificateAuthority, KeyPair
from infra.local.lambdas.functions import Invocation
from tests.paths import ROOT

BASE = "/delegation-service/api"
UP = {"statusCode": 200, "body": json.dumps({"status": "up"})}
DOWN = {"statusCode": 503, "body": json.dumps({"status": "down"})}


class Function:
    """Answers as the API's function does; `paths` has what it was asked for."""

    def __init__(self, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.answer = answer
        self.paths: list[str] = []

    def invoke(self, payload: bytes) -> Invocation:
        event = json.loads(payload)
        self.paths.append(event["path"])
        return Invocation("r-1", json.dumps(self.answer(event)).encode())


def admitted(event: dict[str, Any]) -> dict[str, Any]:
    statement = {"Action": "execute-api:Invoke", "Effect": "Allow", "Resource": event["methodArn"]}
    return {"principalId": "anonymous", "policyDocument": {"Statement": [statement]}, "context": {}}


class ProbedFront:
    """A front with its authority, the probe's secret, and what the probe printed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answered = UP
        self.api = Function(lambda _event: self.answered)
        self.authority = CertificateAuthority.create(folder / "pki")
        server = self.authority.issue_server()
        self.front = Front(
            api=self.api,  # type: ignore[arg-type]
            authorizer=Function(admitted),  # type: ignore[arg-type]
            tls=TlsFiles(server.cert, server.key, self.authority.files.cert),
            gateway=LocalApiGateway("localhost", BASE, "us-east-1", "123456789012"),
        ).start()
        self.secrets = boto3.client("secretsmanager", region_name="us-east-1")
        arn = self.secrets.create_secret(Name="probe", SecretString="{}")["ARN"]
        self.secret_arn = arn
        self.store(self.authority.issue_client("probe"), self.authority.files.cert)
        port = self.front.url.rpartition(":")[2].partition("/")[0]
        resources = Resources(
            probe_url=f"https://localhost:{port}{BASE}", probe_address="127.0.0.1", probe_secret_arn=arn
        )
        for name, value in environment(PROBE.name, resources).items():
            monkeypatch.setenv(name, value)
        probe_front._probe.cache_clear()

    def store(self, pair: KeyPair, authority: Path) -> None:
        parts = {"certificate": pair.cert, "key": pair.key, "authority": authority}
        document = {name: path.read_text() for name, path in parts.items()}
        self.secrets.put_secret_value(SecretId=self.secret_arn, SecretString=json.dumps(document))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProbedFront]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with mock_aws():
        found = ProbedFront(tmp_path, monkeypatch)
        yield found
        found.front.stop()


def probed(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], printed: list[str] | None = None
) -> tuple[bool, str | None, float]:
    """Invoke the function; return what it answered, the reason in its log and the metric that it `printed`."""
    caplog.clear()
    capsys.readouterr()
    context: Any = None
    answer = probe_front.handler(json.loads((ROOT / "events" / "probe_front.json").read_text()), context)
    reasons = [vars(record)["reason"] for record in caplog.records if record.message == "the probe failed"]
    [text] = [one for one in capsys.readouterr().out.splitlines() if '"_aws"' in one]
    if printed is not None:
        printed.append(text)
    line = json.loads(text)
    assert line["seconds"] >= 0
    return answer["succeeded"], (reasons or [None])[0], line["ProbesSucceeded"][0]


def test_a_probe_goes_the_way_of_a_caller(site: ProbedFront, caplog: Any, capsys: Any) -> None:
    assert probed(caplog, capsys) == (True, None, 1.0)
    assert site.api.paths == [f"{BASE}/v1/health"]


def test_a_service_that_is_down_fails_the_probe(site: ProbedFront, caplog: Any, capsys: Any) -> None:
    site.answered = DOWN
    assert probed(caplog, capsys) == (False, "GET /v1/health returned 503", 0.0)
    site.answered = {"statusCode": 200, "body": "<html>"}
    assert probed(caplog, capsys) == (False, "GET /v1/health returned 200 without JSON", 0.0)


def test_a_certificate_of_another_authority_fails_the_handshake_until_it_is_replaced(site, tmp_path, caplog, capsys):
    other = CertificateAuthority.create(tmp_path / "other", name="Another CA")
    site.store(other.issue_client("probe"), site.authority.files.cert)
    succeeded, reason, metric = probed(caplog, capsys)
    assert (succeeded, metric) == (False, 0.0)
    assert reason.startswith(("the TLS handshake with localhost failed", "127.0.0.1:"))
    site.store(site.authority.issue_client("probe"), other.files.cert)
    _, reason, metric = probed(caplog, capsys)
    assert (metric, reason.startswith("the certificate of localhost is refused: ")) == (0.0, True)
    site.store(site.authority.issue_client("probe"), site.authority.files.cert)
    assert probed(caplog, capsys) == (True, None, 1.0)


def test_a_front_that_is_gone_fails_the_probe(site, monkeypatch, caplog, capsys):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    monkeypatch.setenv("DELEGATION_PROBE_URL", f"https://localhost:{port}{BASE}")
    probe_front._probe.cache_clear()
    assert probed(caplog, capsys) == (False, f"127.0.0.1:{port} cannot be reached: ConnectionRefusedError", 0.0)


@pytest.mark.parametrize("text", ["{}", "no json", '{"certificate": "SECRET-PEM", "key": "SECRET-KEY"}'])
def test_a_secret_that_is_no_certificate_is_named_without_its_text(site, text, caplog, capsys):
    site.secrets.put_secret_value(SecretId=site.secret_arn, SecretString=text)
    succeeded, reason, _ = probed(caplog, capsys)
    assert not succeeded
    assert "the probe's secret must be JSON" in reason
    assert "SECRET" not in caplog.text


def test_a_secret_that_may_not_be_read_fails_the_probe(site: ProbedFront, caplog: Any, capsys: Any) -> None:
    site.secrets.delete_secret(SecretId=site.secret_arn, ForceDeleteWithoutRecovery=True)
    _, reason, metric = probed(caplog, capsys)
    assert (reason, metric) == ("the probe's secret cannot be read: ResourceNotFoundException", 0.0)


def test_the_key_is_in_no_file_afterwards(site, tmp_path, monkeypatch, caplog, capsys):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    assert probed(caplog, capsys)[0]
    assert list(scratch.rglob("*")) == []
