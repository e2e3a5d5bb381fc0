"""The secret in Secrets Manager is one that Polaris accepts, whichever call of a rotation is the last of a process."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import boto3
import httpx
import pytest
from botocore.exceptions import ClientError, NoCredentialsError
from moto.core import DEFAULT_ACCOUNT_ID as ACCOUNT_ID
from moto.secretsmanager.models import secretsmanager_backends
from pydantic import SecretStr

from delegation.polaris.answers import (
    PolarisMisconfigured,
    PolarisUnauthorized,
    PolarisUnavailable,
    PolarisUnexpectedAnswer,
    SecretOutcomeUnknown,
)
from delegation.polaris.management import PolarisManagement, management_url
from delegation.polaris.requests import ClientCredentials, OAuth2TokenSource, subject_of
from delegation.polaris.rotation import BEGUN, OwnPrincipal, RotationEvent, RotationStep, SecretRotation
from delegation.polaris.settings import PolarisSettings
from delegation.polaris.transport import Transport
from delegation.storage.memory import Killed
from delegation.timestamps import utc_now
from infra.local.catalog.access import LocalPrincipal
from infra.local.catalog.server import LocalCatalog
from infra.local.s3.requests import VendedKeys
from tests.aws import mock_aws

CALLS = 13
"""The calls of a rotation: of its four steps, to Secrets Manager and to Polaris."""
URL = "http://polaris.test/api/catalog"
TOKENS = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


def text_of(secret: str) -> str:
    return json.dumps({"client_id": "service-id", "client_secret": secret})


class RotatingProcesses:
    """A catalog, a secret, and processes of which one is killed at its n-th call, before it or after it."""

    def __init__(self, catalog: LocalCatalog) -> None:
        self.catalog = catalog
        self.http = httpx.WSGITransport(app=with_raw_path(catalog))
        self.secrets = boto3.client("secretsmanager", region_name="us-east-1")
        self.arn = self.secrets.create_secret(Name="polaris", SecretString=text_of("first"))["ARN"]
        self.kill_at: tuple[int, str] | None = None
        self.calls = 0

    def store(self, secret: str) -> None:
        self.secrets.put_secret_value(SecretId=self.arn, SecretString=text_of(secret))

    def begin(self, token: str) -> None:
        """Begin a rotation as Secrets Manager does: with a version that has a label and no value yet."""
        secret = secretsmanager_backends[ACCOUNT_ID]["us-east-1"].secrets[self.arn]
        secret.rotation_requested = secret.rotation_enabled = True
        secret.remove_version_stages_from_old_versions(["AWSPENDING"])
        secret.versions[token] = {"version_id": token, "createdate": 0, "version_stages": ["AWSPENDING"]}

    def rotate(self, token: str, *steps: RotationStep) -> None:
        rotation = SecretRotation(_Counted(self), self.principal)
        for step in steps or RotationStep:
            rotation.perform(RotationEvent(step, self.arn, token))

    def principal(self, credentials: ClientCredentials) -> OwnPrincipal:
        transport = Transport(httpx.Client(transport=_CountedTransport(self)), sleep=lambda _seconds: None)
        tokens = OAuth2TokenSource(
            f"{URL}/v1/oauth/tokens", lambda: credentials, clock=utc_now, realm="POLARIS", transport=transport
        )
        return OwnPrincipal(
            PolarisManagement(management_url(URL), tokens, realm="POLARIS", transport=transport), tokens
        )

    def counted(self, call: Callable[[], Any]) -> Any:
        """Make a call, unless this process is killed before it; it may be killed after it."""
        self.calls += 1
        if self.kill_at == (self.calls, "before"):
            raise Killed
        number = self.calls
        try:
            return call()
        finally:
            if self.kill_at == (number, "after"):
                raise Killed

    def value(self, stage: str = "AWSCURRENT") -> str:
        text = self.secrets.get_secret_value(SecretId=self.arn, VersionStage=stage)["SecretString"]
        return str(json.loads(text)["client_secret"])

    def require_usable(self) -> None:
        """Sign in as any process of the service does."""
        settings = PolarisSettings(url=URL, secret_arn=self.arn, realm="POLARIS")
        client = settings.client(self.secrets, transport=Transport(httpx.Client(transport=self.http)))
        client.sign_in()

    def labels(self, label: str) -> list[str]:
        stages = self.secrets.describe_secret(SecretId=self.arn)["VersionIdsToStages"]
        return [version for version, labels in stages.items() if label in labels]


class _Counted:
    def __init__(self, site: RotatingProcesses) -> None:
        self._site = site

    def __getattr__(self, operation: str) -> Any:
        return lambda **arguments: self._site.counted(lambda: getattr(self._site.secrets, operation)(**arguments))


class _CountedTransport(httpx.BaseTransport):
    def __init__(self, site: RotatingProcesses) -> None:
        self._site = site

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._site.counted(lambda: self._site.http.handle_request(request))  # type: ignore[no-any-return]


def with_raw_path(catalog: LocalCatalog) -> Any:
    return lambda environ, start: catalog({**environ, "REQUEST_URI": environ["PATH_INFO"]}, start)


@pytest.fixture(scope="module")
def catalog() -> Iterator[LocalCatalog]:
    nothing: Any = None
    made = LocalCatalog(
        name="lake",
        location="s3://lake/wh",
        s3=nothing,
        sts=nothing,
        keys=VendedKeys(),
        s3_endpoint="http://127.0.0.1:1",
        region="us-east-1",
        principals=[LocalPrincipal("delegation", "service-id", SecretStr("first"), frozenset())],
        root=SecretStr("root"),
    )
    yield made
    made.stop()


@pytest.fixture
def site(catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch) -> Iterator[RotatingProcesses]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    catalog.access.reset("delegation", None, "first")
    with mock_aws():
        yield RotatingProcesses(catalog)


def test_a_rotation_replaces_the_secret_and_the_former_one_serves_until_the_next(site: RotatingProcesses) -> None:
    for token in TOKENS:
        former = site.value()
        site.begin(token)
        site.rotate(token)
        assert site.value() != former
        assert site.value("AWSPREVIOUS") == former
        site.require_usable()
        site.principal(ClientCredentials("service-id", SecretStr(former))).sign_in()
    with pytest.raises(PolarisUnauthorized):
        site.principal(ClientCredentials("service-id", SecretStr("first"))).sign_in()


def test_a_step_that_was_done_changes_nothing(site: RotatingProcesses) -> None:
    site.begin(TOKENS[0])
    for step in RotationStep:
        site.rotate(TOKENS[0], step)
        site.rotate(TOKENS[0], step)
    made = site.value()
    site.rotate(TOKENS[0])
    assert site.value() == made
    assert site.labels(BEGUN) == site.labels("AWSPREVIOUS")


def test_the_matrix_below_is_complete(site: RotatingProcesses) -> None:
    site.begin(TOKENS[0])
    site.rotate(TOKENS[0])
    assert site.calls == CALLS  # otherwise change the number


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_a_crash_at_any_call_leaves_a_secret_that_works(site: RotatingProcesses, call: int, when: str) -> None:
    """The steps are repeated twice; without a clear answer of Polaris the rotation stops, and says what to do."""
    site.begin(TOKENS[0])
    site.kill_at = (call, when)
    with pytest.raises(Killed):
        site.rotate(TOKENS[0])
    site.require_usable()
    for _ in range(2):
        try:
            site.rotate(TOKENS[0])
        except SecretOutcomeUnknown:
            assert site.value() == "first"
        else:
            assert site.value() != "first"
        site.require_usable()


def test_after_a_lost_answer_the_operators_reset_makes_the_next_rotation_possible(site: RotatingProcesses) -> None:
    site.begin(TOKENS[0])
    # describe, pending, current, token, label: the sixth call is the rotation.
    site.kill_at = (6, "after")
    with pytest.raises(Killed):
        site.rotate(TOKENS[0])
    with pytest.raises(SecretOutcomeUnknown, match="Secret rotation"):
        site.rotate(TOKENS[0])
    site.catalog.access.reset("delegation", None, "reset-by-root")
    site.store("reset-by-root")
    site.rotate(TOKENS[0])
    assert site.value() not in {"first", "reset-by-root"}
    site.require_usable()


def test_a_refusal_does_not_block_the_next_attempt(site: RotatingProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    site.begin(TOKENS[0])
    with monkeypatch.context() as refusing:
        refusing.setattr(OwnPrincipal, "rotate", Mock(side_effect=PolarisUnavailable("503")))
        with pytest.raises(PolarisUnavailable):
            site.rotate(TOKENS[0])
    assert site.labels(BEGUN) == []
    site.rotate(TOKENS[0])
    assert site.value() != "first"


def test_a_secret_that_the_rotation_ended_at_once_is_replaced_by_the_pending_one(site: RotatingProcesses) -> None:
    """Polaris does so with the secret of a principal that root has reset."""
    site.begin(TOKENS[0])
    site.rotate(TOKENS[0], RotationStep.CREATE)
    site.catalog.access.principals.get("delegation").secrets = (site.value("AWSPENDING"),)
    assert site.value() == "first"
    site.require_usable()


@pytest.mark.parametrize("field", ["Step", "SecretId", "ClientRequestToken"])
def test_an_event_of_another_kind_is_refused(field: str) -> None:
    event = {"Step": "createSecret", "SecretId": "arn", "ClientRequestToken": TOKENS[0]}
    assert RotationEvent.of(event) == RotationEvent(RotationStep.CREATE, "arn", TOKENS[0])
    with pytest.raises(PolarisMisconfigured, match=field):
        RotationEvent.of(event | {field: None})


def test_a_version_that_is_not_pending_is_refused(site: RotatingProcesses) -> None:
    with pytest.raises(PolarisMisconfigured, match="not enabled"):
        site.rotate(TOKENS[0])
    site.begin(TOKENS[0])
    with pytest.raises(PolarisMisconfigured, match="no version"):
        site.rotate(TOKENS[1])


@pytest.mark.parametrize(
    ("failure", "kind", "reason"),
    [
        (NoCredentialsError(), PolarisUnavailable, "NoCredentialsError"),
        (
            ClientError({"Error": {"Code": "AccessDeniedException"}}, "DescribeSecret"),
            PolarisMisconfigured,
            "AccessDeniedException",
        ),
    ],
)
def test_a_failed_call_is_named_with_its_reason(failure: Exception, kind: type[Exception], reason: str) -> None:
    """Without credentials no call is sent, so nothing fails to answer."""
    rotation = SecretRotation(Mock(describe_secret=Mock(side_effect=failure)), Mock())
    with pytest.raises(kind, match=f"describe_secret to Secrets Manager failed: {reason}"):
        rotation.perform(RotationEvent(RotationStep.CREATE, "arn", TOKENS[0]))


@pytest.mark.parametrize("token", ["opaque", "a.b.c", "a.e30.c"])
def test_a_token_that_names_nobody_is_not_quoted(token: str) -> None:
    with pytest.raises(PolarisUnexpectedAnswer) as refused:
        subject_of(token)
    assert token not in str(refused.value)
