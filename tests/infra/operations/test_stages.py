"""Two stages in one account and region share no name, and the end of one takes nothing from the other."""

import json
from typing import Any

from infra.environment.resources import metric_dimensions, resource_name, service_name


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


def test_the_end_of_a_stage_leaves_the_accounts_log_role(service: Any) -> None:
    account = service.one("AWS::ApiGateway::Account")
    role = service.document["Resources"][account["Properties"]["CloudWatchRoleArn"]["Fn::GetAtt"][0]]
    assert {account["DeletionPolicy"], role["DeletionPolicy"]} == {"Retain"}


def test_a_log_that_outlives_its_stack_is_not_in_the_way_of_the_next(service: Any) -> None:
    named = [
        json.dumps(body["Properties"]["LogGroupName"])
        for body in service.resources("AWS::Logs::LogGroup").values()
        if "LogGroupName" in body["Properties"]
    ]
    assert len(named) == 2
    assert all("RestApi" in name or "AWS::StackId" in name for name in named)


def test_alarms_may_publish_to_the_topic_that_is_created_for_them(service: Any) -> None:
    policy = service.one("AWS::SNS::TopicPolicy")["Properties"]["PolicyDocument"]["Statement"]
    (allowed,) = [one for one in policy if one["Effect"] == "Allow"]
    assert allowed["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert "aws:SourceAccount" in allowed["Condition"]["StringEquals"]
    for body in service.resources("AWS::CloudWatch::Alarm").values():
        assert body["Properties"]["AlarmActions"] == [allowed["Resource"]]
