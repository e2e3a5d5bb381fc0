"""Reading of requests' bodies and writing of JSON answers, for both APIs of the catalog."""

import json
from collections.abc import Mapping
from typing import Any

from werkzeug.wrappers import Request, Response

from infra.local.catalog.errors import RestError, bad_request


def body_of(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request; raises RestError 400 for anything else."""
    try:
        body = json.loads(request.get_data())
    except (ValueError, RecursionError) as error:
        raise RestError(400, "JsonParseException", f"Invalid JSON: {error}") from None
    if not isinstance(body, dict):
        raise bad_request("The body is not a JSON object")
    return body


def json_answer(status: int, body: Mapping[str, Any]) -> Response:
    """Return a JSON answer."""
    return Response(json.dumps(body), status, content_type="application/json")


def empty(status: int) -> Response:
    """Return an answer without a body."""
    return Response(b"", status)


def no_such_route(path: str) -> Response:
    """Return the answer to an unknown path."""
    return json_answer(404, RestError(404, "NotFoundException", f"HTTP 404 Not Found: {path}").body())


def method_not_allowed() -> Response:
    """Return the answer to a method that the path does not have."""
    return json_answer(405, RestError(405, "NotAllowedException", "HTTP 405 Method Not Allowed").body())
