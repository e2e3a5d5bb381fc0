"""The deployed HTTPS front."""

import json
from typing import Any

from infra.environment.functions import FUNCTIONS


def test_authorizer_answers_are_not_cached(service: Any) -> None:
    authorizer = service.one("AWS::ApiGateway::Authorizer")["Properties"]
    assert authorizer["Type"] == "REQUEST"
    assert authorizer["AuthorizerResultTtlInSeconds"] == 0
    # The authorizer itself refuses a request without a token, except for the open methods.
    assert not authorizer.get("IdentitySource")


def test_every_route_has_the_authorizer_and_invokes_the_function(service: Any) -> None:
    (authorizer_id,) = service.resources("AWS::ApiGateway::Authorizer")
    methods = [body["Properties"] for body in service.resources("AWS::ApiGateway::Method").values()]
    parts = {
        name: body["Properties"]["PathPart"] for name, body in service.resources("AWS::ApiGateway::Resource").items()
    }
    assert {parts[method["ResourceId"]["Ref"]] for method in methods} == {"api", "{proxy+}"}
    for method in methods:
        assert method["HttpMethod"] == "ANY"
        assert method["AuthorizationType"] == "CUSTOM"
        assert method["AuthorizerId"] == {"Ref": authorizer_id}
        assert method["Integration"]["Type"] == "AWS_PROXY"
        assert method["Integration"]["TimeoutInMillis"] == 29_000


def test_no_log_contains_a_body_or_a_header(service: Any) -> None:
    stage = service.one("AWS::ApiGateway::Stage")["Properties"]
    assert stage["TracingEnabled"] is True
    (settings,) = stage["MethodSettings"]
    assert (settings["DataTraceEnabled"], settings["LoggingLevel"]) == (False, "ERROR")
    fields = json.loads(stage["AccessLogSetting"]["Format"])
    assert not {"authorization", "authorizer", "body", "header", "querystring"} & {
        part.lower() for value in fields.values() for part in value.removeprefix("$context.").split(".")
    }


def test_the_gateways_own_answers_are_error_responses(service: Any) -> None:
    answers = {
        body["Properties"]["ResponseType"]: body["Properties"]
        for body in service.resources("AWS::ApiGateway::GatewayResponse").values()
    }
    assert {"DEFAULT_4XX", "DEFAULT_5XX", "UNAUTHORIZED", "ACCESS_DENIED", "REQUEST_TOO_LARGE"} <= set(answers)
    for answer in answers.values():
        text = answer["ResponseTemplates"]["application/json"].replace("$context.error.messageString", '"text"')
        assert set(json.loads(text)) == {"error_code", "message", "type"}
    assert answers["UNAUTHORIZED"]["StatusCode"] == "401"
    assert answers["MISSING_AUTHENTICATION_TOKEN"]["StatusCode"] == "404"
    assert answers["THROTTLED"]["ResponseParameters"] == {"gatewayresponse.header.Retry-After": "'2'"}


def test_only_api_gateway_and_the_schedule_may_invoke_functions(service: Any) -> None:
    permissions = [body["Properties"] for body in service.resources("AWS::Lambda::Permission").values()]
    invoked = {
        service.document["Resources"][one["FunctionName"]["Fn::GetAtt"][0]]["Properties"]["Handler"]: one["Principal"]
        for one in permissions
    }
    assert invoked == {
        FUNCTIONS["api"].handler: "apigateway.amazonaws.com",
        FUNCTIONS["authorizer"].handler: "apigateway.amazonaws.com",
        FUNCTIONS["sweeper"].handler: "events.amazonaws.com",
    }
    assert all("SourceArn" in one for one in permissions)
