"""API Gateway's own answers have the form and the codes of the service's."""

import json
from typing import Any

import pytest

from delegation.edge.codes import codes
from delegation.wire.responses import ERROR_PAGE
from infra.gateway_answers import ANSWERS, GatewayAnswer


def test_every_response_type_of_api_gateway_has_an_answer(node: str) -> None:
    """API Gateway developer guide, "Gateway response types"; DEFAULT_4XX would answer as to a bad request."""
    from aws_cdk.aws_apigateway import ResponseType

    types = {getattr(ResponseType, name).response_type for name in dir(ResponseType) if name.isupper()}
    assert ANSWERS.keys() == types


@pytest.mark.parametrize(("name", "answer"), ANSWERS.items())
def test_api_gateways_own_answer_is_an_error_response_with_a_described_code(
    node: str, name: str, answer: GatewayAnswer
) -> None:
    from infra.constructs.api import template

    body: dict[str, Any] = json.loads(template(answer).replace("$context.error.messageString", '"said by API Gateway"'))
    assert body["error_code"] in {code for chapter in codes().values() for code in chapter}, name
    assert body["type"] == f"{ERROR_PAGE}#{body['error_code']}"
    assert body.keys() == {"error_code", "message", "type"}
