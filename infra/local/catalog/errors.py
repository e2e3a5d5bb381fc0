"""The catalog's answers: JSON, and errors with the statuses, types and messages of Polaris 1.7."""

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from werkzeug.wrappers import Request, Response

from infra.local.errors import LocalStackError


class RestError(LocalStackError):
    """An error answer: the HTTP `status` and the `type` of the exception's class in Polaris."""

    code = "LOCAL_CATALOG"

    def __init__(self, status: int, type_: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.type = type_

    def body(self) -> dict[str, Any]:
        return {"error": {"message": str(self), "type": self.type, "code": self.status}}


commit_failed = partial(RestError, 409, "CommitFailedException")
bad_request = partial(RestError, 400, "BadRequestException")
invalid_argument = partial(RestError, 400, "IllegalArgumentException")
already_exists_admin = partial(RestError, 409, "AlreadyExistsException")
commit_conflict = partial(RestError, 409, "CommitConflictException")
"""To a change of an entity that another change has overtaken."""
not_found = partial(RestError, 404, "NotFoundException")
"""To an unknown principal, role or catalog."""
unavailable = partial(RestError, 503, "ServiceUnavailableException")
"""To a change that the catalog's own store did not take, and that changed nothing."""


def no_such_table(name: str) -> RestError:
    return RestError(404, "NoSuchTableException", f"Table does not exist: {name}")


def no_such_view(name: str) -> RestError:
    return RestError(404, "NoSuchViewException", f"View does not exist: {name}")


def no_such_namespace(name: str) -> RestError:
    return RestError(404, "NoSuchNamespaceException", f"Namespace does not exist: {name}")


def already_exists(what: str) -> RestError:
    return RestError(409, "AlreadyExistsException", f"{what} already exists")


def outcome_unknown(reason: str, *, newer: bool) -> RestError:
    """Return the answer to a change of which the catalog does not know whether it was made; before a `newer` Polaris it
    has the status of a refusal."""
    return RestError(500 if newer else 400, "CommitStateUnknownException", reason)


def invalid_value(reason: str) -> RestError:
    """Return the answer of bean validation (IcebergConstraintViolationExceptionMapper)."""
    return RestError(400, "ConstraintViolationException", f"Invalid value: {reason}")


def forbidden(principal: str, roles: Iterable[str], grants_by: Iterable[str], operation: str) -> RestError:
    """Return PolarisAuthorizerImpl's answer, which names what the token activates and not what is missing."""
    reason = (
        f"Principal '{principal}' with activated PrincipalRoles '[{', '.join(roles)}]' and activated grants via "
        f"'[{', '.join(grants_by)}]' is not authorized for op {operation}"
    )
    return RestError(403, "ForbiddenException", reason)


def location_missing(location: str) -> RestError:
    return RestError(400, "NotFoundException", f"Location does not exist: {location}")


def purge_not_enabled(name: str) -> RestError:
    """Return the answer to a drop that would delete files where Polaris may not."""
    return RestError(
        403,
        "ForbiddenException",
        f"Unable to purge entity: {name}. To enable this feature, set the Polaris configuration "
        "DROP_WITH_PURGE_ENABLED or the catalog configuration polaris.config.drop-with-purge.enabled",
    )


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
    return Response(json.dumps(body), status, content_type="application/json")


def empty(status: int) -> Response:
    return Response(b"", status)


def no_such_route(path: str) -> Response:
    return json_answer(404, RestError(404, "NotFoundException", f"HTTP 404 Not Found: {path}").body())


def method_not_allowed() -> Response:
    return json_answer(405, RestError(405, "NotAllowedException", "HTTP 405 Method Not Allowed").body())
