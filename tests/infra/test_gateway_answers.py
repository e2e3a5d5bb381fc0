"""API Gateway's own answers have the form and the codes of the service's."""

import json
from typing import Any

import pytest
from aws_cdk import aws_apigateway as apigateway

from delegation.edge.codes import codes
from delegation.wire.responses import ERROR_PAGE
from infra.constructs.gateway_responses import template
from infra.gateway_answers import ANSWERS, GatewayAnswer


def test_every_response_type_of_api_gateway_has_an_answer() -> None:
    """API Gateway developer guide, "Gateway response types"; DEFAULT_4XX would answer as to a bad request."""
    types = [value for name in dir(apigateway.ResponseType) if name.isupper() for value in [_type_of(name)]]
    assert ANSWERS.keys() == set(types)


def _type_of(name: str) -> str:
    found: str = getattr(apigateway.ResponseType, name).response_type
    return found


@pytest.mark.parametrize(("name", "answer"), ANSWERS.items())
def test_api_gateways_own_answer_is_an_error_response_with_a_described_code(name: str, answer: GatewayAnswer) -> None:
    body: dict[str, Any] = json.loads(template(answer).replace("$context.error.messageString", '"said by API Gateway"'))
    assert body["error_code"] in {code for chapter in codes().values() for code in chapter}, name
    assert body["type"] == f"{ERROR_PAGE}#{body['error_code']}"
    assert body.keys() == {"error_code", "message", "type"}
