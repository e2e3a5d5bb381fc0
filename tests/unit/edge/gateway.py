"""Events as API Gateway sends them, and the context of an AWS Lambda invocation."""

import json
from dataclasses import dataclass
from typing import Any

from tests.paths import ROOT

EVENTS = ROOT / "events"
BASE = "/delegation-service/api"


def sample(name: str) -> dict[str, Any]:
    """Return a sample event of `events/`."""
    return json.loads((EVENTS / f"{name}.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Context:
    """The context that Lambda's Python runtime passes with the event."""

    aws_request_id: str = "c6af9ac6-7b61-11e6-9a41-93e8deadbeef"
    function_name: str = "delegation-api"
    function_version: str = "$LATEST"
    memory_limit_in_mb: str = "1769"
    invoked_function_arn: str = "arn:aws:lambda:eu-central-1:123456789012:function:delegation-api"
    remaining_ms: int = 29_000

    def get_remaining_time_in_millis(self) -> int:
        return self.remaining_ms


def request(
    method: str,
    path: str,
    body: Any = None,
    *,
    headers: dict[str, str] | None = None,
    client_id: str | None = "polaris",
    base: str = BASE,
    query: dict[str, str] | None = None,
    permissions: str | None = "read submit manage",
) -> dict[str, Any]:
    """Return a REST proxy event; a `body` that is not text is sent as JSON."""
    context = {"client_id": client_id, "principalId": client_id}
    if permissions is not None:
        context["permissions"] = permissions
    text = body if body is None or isinstance(body, str) else json.dumps(body)
    sent = {"Content-Type": "application/json", **(headers or {})}
    return {
        "resource": "/{proxy+}",
        "path": base + path,
        "httpMethod": method,
        "headers": sent,
        "multiValueHeaders": {name: [value] for name, value in sent.items()},
        "queryStringParameters": query,
        "multiValueQueryStringParameters": None if query is None else {name: [query[name]] for name in query},
        "pathParameters": {"proxy": path.removeprefix("/")},
        "stageVariables": None,
        "requestContext": {
            "requestId": "41b45ea3-70b5-11e6-b7bd-69b5aaebc7d9",
            "stage": "live",
            "path": base + path,
            "httpMethod": method,
            "identity": {"sourceIp": "192.0.2.1"},
            **({} if client_id is None else {"authorizer": context}),
        },
        "body": text,
        "isBase64Encoded": False,
    }
