"""The rotation function as deployed, on Secrets Manager in moto and the stand-in for Polaris."""

import json
from typing import Any

import httpx
import pytest

from delegation.handlers import rotate_secret
from delegation.polaris.answers import PolarisMisconfigured
from delegation.polaris.rotation import RotationStep
from delegation.polaris.transport import Transport
from delegation.wiring import rotation as wiring
from infra.environment.functions import ROTATION
from infra.environment.resources import Resources, environment
from tests.paths import ROOT
from tests.unit.polaris import test_rotation as rotation
from tests.unit.polaris.test_rotation import TOKENS, URL, RotatingProcesses

catalog, site = rotation.catalog, rotation.site
"""The fixtures: the stand-in, and a secret."""


@pytest.fixture
def deployed(site: RotatingProcesses, monkeypatch: pytest.MonkeyPatch) -> RotatingProcesses:
    """The function with the variables of its table."""
    resources = Resources(realm="POLARIS", polaris_url=URL, polaris_secret_arn=site.arn)
    for name, value in environment(ROTATION.name, resources).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", ROTATION.name)
    monkeypatch.setattr(wiring, "Transport", lambda: Transport(httpx.Client(transport=site.http)))
    rotate_secret.secret_rotation.cache_clear()
    return site


def invoke(**changed: Any) -> None:
    event = json.loads((ROOT / "events" / "rotate_secret.json").read_text()) | changed
    context: Any = None
    rotate_secret.handler(event, context)


def test_the_four_steps_rotate_the_secret(deployed: RotatingProcesses, caplog: pytest.LogCaptureFixture) -> None:
    deployed.begin(TOKENS[0])
    for step in RotationStep:
        invoke(Step=step, SecretId=deployed.arn, ClientRequestToken=TOKENS[0])
    made = deployed.value()
    assert made != "first"
    deployed.require_usable()
    logged = [vars(record) for record in caplog.records if record.message == "rotated"]
    assert [line["step"] for line in logged] == list(RotationStep)
    assert not [line for line in logged if made in str(line) or "first" in str(line)]


def test_a_failed_step_is_logged_by_its_code_and_raised(deployed, caplog):
    with pytest.raises(PolarisMisconfigured, match="not enabled"):
        invoke(SecretId=deployed.arn)
    [line] = [vars(record) for record in caplog.records if record.message == "not rotated"]
    assert (line["error_code"], line["step"]) == ("POLARIS_MISCONFIGURED", "createSecret")
