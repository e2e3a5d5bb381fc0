"""Two stages in one account and region share no name, and the end of one takes nothing from the other."""

import json
from typing import Any

from infra.naming import metric_dimensions, resource_name, service_name


def test_names_have_the_stage() -> None:
    assert service_name("dev") == "polaris-delegation-dev"
    assert resource_name("dev", "SweeperErrors") == "polaris-delegation-dev-SweeperErrors"
    assert metric_dimensions("dev") == {"service": "polaris-delegation-dev"}


def test_the_api_and_the_alarms_are_named_after_the_stage(service: Any) -> None:
    assert service.one("AWS::ApiGateway::RestApi")["Properties"]["Name"] == "polaris-delegation-prod"
    names = [body["Properties"]["AlarmName"] for body in service.resources("AWS::CloudWatch::Alarm").values()]
    assert len(set(names)) == len(names)
    assert all(name.startswith("polaris-delegation-prod-") for name in names)


def test_functions_and_jobs_write_metrics_of_their_stage_and_alarms_watch_those(service: Any) -> None:
    for body in service.resources("AWS::Lambda::Function").values():
        variables = body["Properties"]["Environment"]["Variables"]
        assert variables["POWERTOOLS_SERVICE_NAME"] == "polaris-delegation-prod"
        if "DELEGATION_EMR_SPARK_PARAMETERS" in variables:
            parameters = json.dumps(variables["DELEGATION_EMR_SPARK_PARAMETERS"])
            assert "driverEnv.POWERTOOLS_SERVICE_NAME=polaris-delegation-prod" in parameters
    watched = [
        body["Properties"]["Dimensions"]
        for body in service.resources("AWS::CloudWatch::Alarm").values()
        if body["Properties"].get("Namespace") == "PolarisDelegation"
    ]
    assert watched
    assert all(one == [{"Name": "service", "Value": "polaris-delegation-prod"}] for one in watched)
