"""The gateway responses that give API Gateway's own answers the form of the proposal's ErrorResponse."""

import json

from aws_cdk import aws_apigateway as apigateway

from infra.gateway_answers import ANSWERS, GatewayAnswer


def template(answer: GatewayAnswer) -> str:
    """Return a mapping template for an ErrorResponse; messageString is API Gateway's text, quoted as JSON."""
    message = "$context.error.messageString" if answer.message is None else json.dumps(answer.message)
    return f'{{"error_code":"{answer.error_code}","message":{message},"type":"{answer.type}"}}'


def add_gateway_responses(api: apigateway.RestApi) -> None:
    """Set every answer that the gateway may return without invoking the function."""
    for name, answer in ANSWERS.items():
        headers = {header: f"'{value}'" for header, value in answer.headers.items()}
        api.add_gateway_response(
            name.title().replace("_", ""),
            type=apigateway.ResponseType.of(name),
            status_code=None if answer.status is None else str(answer.status),
            response_headers=headers or None,
            templates={"application/json": template(answer)},
        )
