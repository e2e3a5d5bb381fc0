"""The rotation of the secret in Polaris: off by default, by a function that Secrets Manager alone may invoke."""

from typing import Any

import pytest
from pydantic import ValidationError

from infra.environment.context import default_context
from infra.environment.functions import ROTATION
from infra.operations.alarms import SECRET_ROTATION
from infra.settings import Settings
from tests.infra.conftest import TEMPLATES_ALONE, SynthesizedStack

DAYS = "delegation:polaris-secret-rotation-days"


@pytest.fixture(scope="module")
def rotating(everything: dict[str, SynthesizedStack]) -> SynthesizedStack:
    return everything["service"]


def test_without_the_setting_nothing_rotates(service: SynthesizedStack) -> None:
    types = {body["Type"] for body in service.document["Resources"].values()}
    assert "AWS::SecretsManager::RotationSchedule" not in types
    handlers = {body["Properties"]["Handler"] for body in service.resources("AWS::Lambda::Function").values()}
    assert ROTATION.handler not in handlers


def test_the_secret_is_rotated_every_so_many_days_and_not_at_once(rotating: SynthesizedStack) -> None:
    schedule = rotating.one("AWS::SecretsManager::RotationSchedule")["Properties"]
    assert schedule["RotationRules"] == {"ScheduleExpression": "rate(30 days)"}
    assert schedule["RotateImmediatelyOnUpdate"] is False
    function = rotating.one("AWS::Lambda::Function", Handler=ROTATION.handler)["Properties"]
    variables = function["Environment"]["Variables"]
    assert schedule["SecretId"] == variables["DELEGATION_POLARIS_SECRET_ARN"]
    assert "VpcConfig" in function


def test_secrets_manager_may_invoke_the_function_for_this_secret_alone(rotating: SynthesizedStack) -> None:
    schedule = rotating.one("AWS::SecretsManager::RotationSchedule")["Properties"]
    allowed = rotating.one("AWS::Lambda::Permission", Principal="secretsmanager.amazonaws.com")["Properties"]
    assert allowed["SourceArn"] == schedule["SecretId"]
    assert allowed["FunctionName"] == schedule["RotationLambdaARN"]


def test_a_failed_step_raises_an_alarm(rotating: SynthesizedStack) -> None:
    alarm = rotating.one("AWS::CloudWatch::Alarm", AlarmName=f"polaris-delegation-prod-{SECRET_ROTATION.name}")
    assert alarm["Properties"]["AlarmDescription"] == SECRET_ROTATION.description(None)
    [dimension] = alarm["Properties"]["Dimensions"]
    named = rotating.document["Resources"][dimension["Value"]["Ref"]]["Properties"]
    assert named["Handler"] == ROTATION.handler
    assert alarm["Properties"]["AlarmActions"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({DAYS: 0}, "greater than or equal to 1"),
        ({DAYS: 30, "delegation:polaris-token-url": "https://issuer.lake.io/token"}, "polaris-token-url"),
    ],
)
def test_a_rotation_that_cannot_work_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Settings.from_context(default_context() | TEMPLATES_ALONE | changed)
