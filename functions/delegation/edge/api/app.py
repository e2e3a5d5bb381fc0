"""The API: Powertools' event handler over `routes`, with every error answered as an ErrorResponse."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.event_handler import APIGatewayRestResolver, Response
from aws_lambda_powertools.event_handler.exceptions import NotFoundError
from aws_lambda_powertools.utilities.typing import LambdaContext

from delegation.edge.answers import BASE_PATH, RETRY_AFTER_SECONDS
from delegation.edge.api.description import Description
from delegation.edge.api.endpoints import (
    APPROVE,
    CANCEL,
    CONFIG,
    DESCRIPTION,
    DISMISS_TOMBSTONE,
    ENDPOINTS,
    ESTIMATE,
    EXECUTE,
    HEALTH,
    LIST,
    PAGE,
    PAUSE,
    PAUSES,
    PLACE,
    PURGE_TOMBSTONE,
    RECEIPT,
    RESEND,
    RESTORE_TOMBSTONE,
    RESUME,
    RETRY,
    STATUS,
    SUBMIT,
    TOMBSTONE,
    TOMBSTONES,
    VERSIONS,
    Endpoint,
)
from delegation.edge.api.health import HealthCheck
from delegation.edge.api.management import Management
from delegation.edge.api.routes import Dependencies, Event, Routes, Served
from delegation.edge.errors import MethodNotAllowed, route_not_found
from delegation.edge.problems import problem_of
from delegation.edge.telemetry import Telemetry, request_id_of
from delegation.errors import DelegationError
from delegation.metrics import MetricLines

if TYPE_CHECKING:
    from delegation.edge.api.lists import Lists
    from delegation.edge.api.pausing import Pausing
    from delegation.edge.api.tombstones import TombstoneRoutes

ApiHandler = Callable[[dict[str, Any], LambdaContext], dict[str, Any]]

_PATHS: Final = {
    each.path: re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(each.path)) + "/?") for each in ENDPOINTS
}
"""The paths as patterns; a path may end with a slash."""


def create_app(deps: Dependencies, *, logger: Logger, metrics: MetricLines) -> ApiHandler:
    """Return a handler for API Gateway's REST proxy events, with or without BASE_PATH in their path."""
    telemetry = Telemetry(logger, metrics)
    # Debug mode prints whole events, which carry credentials; no environment variable may switch it on.
    app = APIGatewayRestResolver(strip_prefixes=[BASE_PATH], debug=False)
    _add_routes(app, deps, telemetry)
    _add_error_handlers(app, telemetry)

    def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        telemetry.begin(request_id_of(event))
        return app.resolve(event, context)

    return handle


def _add_routes(app: APIGatewayRestResolver, deps: Dependencies, telemetry: Telemetry) -> None:
    routes = Routes(deps, telemetry, deps.types.forms_by_operation)
    management, health = Management(deps, telemetry), HealthCheck(deps, telemetry)
    description = Description(telemetry)
    in_context: Mapping[Endpoint, Callable[[Event, LambdaContext], Served]] = {
        EXECUTE: routes.execute,
        SUBMIT: routes.submit,
        LIST: lambda event, _context: _lists(deps, telemetry).tasks(event),
        TOMBSTONES: lambda event, _context: _tombstones(deps, telemetry).list(event),
        PAUSES: lambda event, _context: _pausing(deps, telemetry).shown(event),
        PAUSE: lambda event, _context: _pausing(deps, telemetry).pause(event),
        RESUME: lambda event, _context: _pausing(deps, telemetry).resume(event),
        CONFIG: lambda event, _context: routes.config(event),
        HEALTH: lambda event, _context: health.health(event),
        DESCRIPTION: lambda event, _context: description.openapi(event),
        PAGE: lambda event, _context: description.page(event),
    }
    of_task: Mapping[Endpoint, Callable[[Event, str], Served]] = {
        STATUS: routes.status,
        VERSIONS: management.versions,
        RECEIPT: management.receipt,
        ESTIMATE: management.estimate,
        PLACE: management.place,
        CANCEL: management.cancel,
        RETRY: management.retry,
        RESEND: management.resend,
        APPROVE: management.approve,
    }
    of_tombstone: Mapping[Endpoint, Callable[[Event, str], Served]] = {
        TOMBSTONE: lambda event, found: _tombstones(deps, telemetry).show(event, found),
        RESTORE_TOMBSTONE: lambda event, found: _tombstones(deps, telemetry).restore(event, found),
        PURGE_TOMBSTONE: lambda event, found: _tombstones(deps, telemetry).purge(event, found),
        DISMISS_TOMBSTONE: lambda event, found: _tombstones(deps, telemetry).dismiss(event, found),
    }
    for endpoint, run in in_context.items():
        app.route(endpoint.path, method=endpoint.method)(_answering(app, endpoint, run))
    for endpoint, read in {**of_task, **of_tombstone}.items():
        app.route(_rule(endpoint), method=endpoint.method)(_answering_for_id(app, endpoint, read))


def _lists(deps: Dependencies, telemetry: Telemetry) -> "Lists":
    from delegation.edge.api.lists import Lists  # noqa: PLC0415 - a cold start needs none of it

    return Lists(deps, telemetry)


def _tombstones(deps: Dependencies, telemetry: Telemetry) -> "TombstoneRoutes":
    from delegation.edge.api.tombstones import TombstoneRoutes  # noqa: PLC0415 - a cold start needs none of it

    return TombstoneRoutes(deps, telemetry)


def _pausing(deps: Dependencies, telemetry: Telemetry) -> "Pausing":
    from delegation.edge.api.pausing import Pausing  # noqa: PLC0415 - a cold start needs none of it

    return Pausing(deps, telemetry)


def _answering(
    app: APIGatewayRestResolver, endpoint: Endpoint, run: Callable[[Event, LambdaContext], Served]
) -> Callable[[], Response[str]]:
    def answer() -> Response[str]:
        app.context["operation"] = endpoint.operation
        return _response(app, run(app.current_event.raw_event, app.lambda_context))

    return answer


def _answering_for_id(
    app: APIGatewayRestResolver, endpoint: Endpoint, run: Callable[[Event, str], Served]
) -> Callable[[str], Response[str]]:
    def answer(found: str) -> Response[str]:
        app.context["operation"] = endpoint.operation
        return _response(app, run(app.current_event.raw_event, found))

    return answer


def _add_error_handlers(app: APIGatewayRestResolver, telemetry: Telemetry) -> None:
    """Answer every error with an ErrorResponse; one that is not a DelegationError is logged as a bug."""

    def answer(error: Exception, record: Callable[..., None]) -> Response[str]:
        problem = problem_of(error)
        record(app.context.get("operation", "unknown"), problem, error)
        return _response(app, Served(problem.status, problem.body, problem.headers))

    def expected(error: DelegationError) -> Response[str]:
        return answer(error, telemetry.refused)

    def unexpected(error: Exception) -> Response[str]:
        return answer(error, telemetry.crashed)

    def not_found(_error: NotFoundError) -> Response[str]:
        event = app.current_event
        allowed = _methods_of(event.path.removeprefix(BASE_PATH))
        # No route matches a task id with a line break, for example.
        other = allowed and event.http_method.upper() not in allowed
        return expected(MethodNotAllowed(allowed) if other else route_not_found())

    app.exception_handler(DelegationError)(expected)
    app.exception_handler(Exception)(unexpected)
    app.exception_handler(NotFoundError)(not_found)


def _rule(endpoint: Endpoint) -> str:
    """Return the endpoint's path in Powertools' notation."""
    return re.sub(r"\{\w+\}", "<found>", endpoint.path)


def _methods_of(path: str) -> list[str]:
    """Return the methods that a path's resource supports, none if there is no such resource."""
    return [each.method for each in ENDPOINTS if _PATHS[each.path].fullmatch(path)]


def _response(app: APIGatewayRestResolver, served: Served) -> Response[str]:
    content_type = served.headers.get("Content-Type", "application/json")
    headers = {
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "X-Request-ID": request_id_of(app.current_event.raw_event),
        **({"Retry-After": str(RETRY_AFTER_SECONDS[served.status])} if served.status in RETRY_AFTER_SECONDS else {}),
        **served.headers,
    }
    # Powertools sends bytes as base64, which a REST API without binary media types does not decode; so text.
    return Response(served.status, content_type, served.body.decode(), headers=headers)
