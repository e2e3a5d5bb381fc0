"""The API: each request goes to the operation of its method and path; every error is answered as an ErrorResponse."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext

from delegation.edge.answers import BASE_PATH, RETRY_AFTER_SECONDS, ApiResponse, problem_of
from delegation.edge.api import VERSION, endpoints
from delegation.edge.api.endpoints import ENDPOINTS, Endpoint, caller_of, check_request_id
from delegation.edge.api.routes import Dependencies, Event, Routes
from delegation.edge.errors import MethodNotAllowed, route_not_found
from delegation.edge.telemetry import Telemetry, request_id_of
from delegation.edge.trust.permissions import Permission
from delegation.metrics import MetricLines
from delegation.wire.responses import render_json
from polaris_common.errors import DelegationError

if TYPE_CHECKING:
    from delegation.edge.api.lists import Lists
    from delegation.edge.api.management import Management, Pausing
    from delegation.edge.api.tombstones import TombstoneRoutes


_JSON: Final[Mapping[str, str]] = {}
_HTML: Final[Mapping[str, str]] = {
    "Content-Type": "text/html; charset=utf-8",
    # The page has no script and loads nothing.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
}


def _described(event: Event, name: str, headers: Mapping[str, str] = _JSON) -> ApiResponse:
    """Return a file byte for byte; infra/package/description.py makes it when the package is built. `openapi.json`
    equals docs/openapi.yaml; `docs.html` has an anchor for every error code (`type` of an ErrorResponse)."""
    check_request_id(event)
    return ApiResponse(200, resources.files("delegation.edge.api").joinpath(name).read_bytes(), headers=headers)


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The health of the service; without a token only whether it is up, which the first check decides."""

    deps: Dependencies

    def health(self, event: Event) -> ApiResponse:
        """Return 200 if the service is up, and 503 if a request would fail."""
        check_request_id(event)
        caller = caller_of(event)
        in_full = caller is not None and Permission.READ in caller.permissions
        names = list(self.deps.checks) if in_full else list(self.deps.checks)[:1]
        parts = [checked(name, self.deps.checks[name]) for name in names]
        status = "up" if all(each["ok"] for each in parts) else "down"
        body: dict[str, Any] = {"status": status}
        if in_full:
            body |= {"version": VERSION, "realm": self.deps.realm, "dependencies": parts, "paused": self._paused()}
            body["maintenance"] = self.deps.maintenance()
        answer = 200 if status == "up" else 503
        return ApiResponse(answer, render_json(body), headers={} if status == "up" else {"Retry-After": "5"})

    def _paused(self) -> list[Mapping[str, Any]]:
        """Return what is paused; nothing if that cannot be read now: the check of the task table then fails."""
        try:
            return [pause.document() for pause in self.deps.pauses().shown().pauses]
        except DelegationError:
            return []


def checked(name: str, check: Callable[[], object]) -> Mapping[str, Any]:
    """Return the result of a check: `ok`, and the error's code if it failed."""
    try:
        check()
    except DelegationError as error:
        return {"name": name, "ok": False, "error_code": error.code}
    return {"name": name, "ok": True, "error_code": None}


ApiHandler = Callable[[dict[str, Any], LambdaContext], dict[str, Any]]
Operation = Callable[[Event, LambdaContext, str], ApiResponse]
"""Answers a request with the id in its path, empty for a path without one."""


def create_app(deps: Dependencies, *, logger: Logger, metrics: MetricLines) -> ApiHandler:
    """Return a handler for API Gateway's REST proxy events, with or without BASE_PATH in their path."""
    telemetry = Telemetry(logger, metrics)
    operations = _operations(deps, telemetry)

    def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        telemetry.begin(request_id_of(event))
        operation = "unknown"
        try:
            endpoint, identifier = _route(event)
            operation = endpoint.operation
            response = operations[endpoint](event, context, identifier)
            telemetry.answered(operation, response)
            return _response(event, response)
        except DelegationError as error:
            problem = problem_of(error)
            telemetry.refused(operation, problem, error)
        except Exception as error:  # noqa: BLE001 - a bug, which is logged and answered with 500
            problem = problem_of(error)
            telemetry.crashed(operation, problem, error)
        return _response(event, ApiResponse(problem.status, problem.body, headers=problem.headers))

    return handle


def _route(event: Event) -> tuple[Endpoint, str]:
    """Return the operation of a request, and the id in its path. Raises EdgeError or MethodNotAllowed."""
    path, method = event["path"].rstrip("/"), event["httpMethod"].upper()
    parts = (path.removeprefix(BASE_PATH) if path.startswith(f"{BASE_PATH}/") else path).split("/")
    allowed = []
    for endpoint in ENDPOINTS:
        pairs = list(zip(parts, endpoint.path.split("/"), strict=False))
        if len(parts) != endpoint.path.count("/") + 1 or any(
            not given if part.startswith("{") else given != part for given, part in pairs
        ):
            continue
        if endpoint.method == method:
            return endpoint, "".join(given for given, part in pairs if part.startswith("{"))
        allowed.append(endpoint.method)
    raise MethodNotAllowed(allowed) if allowed else route_not_found()


def _operations(deps: Dependencies, telemetry: Telemetry) -> Mapping[Endpoint, Operation]:
    routes = Routes(deps, telemetry, deps.types.forms_by_operation)
    health = HealthCheck(deps)
    lists, tombstones = partial(_lists, deps), partial(_tombstones, deps)
    management, pausing = partial(_management, deps), partial(_pausing, deps)
    return {
        endpoints.EXECUTE: lambda event, context, _id: routes.execute(event, context),
        endpoints.SUBMIT: lambda event, context, _id: routes.submit(event, context),
        endpoints.LIST: lambda event, _context, _id: lists().tasks(event),
        endpoints.TOMBSTONES: lambda event, _context, _id: tombstones().list(event),
        endpoints.PAUSES: lambda event, _context, _id: pausing().shown(event),
        endpoints.PAUSE: lambda event, _context, _id: pausing().pause(event),
        endpoints.RESUME: lambda event, _context, _id: pausing().resume(event),
        endpoints.CONFIG: lambda event, _context, _id: routes.config(event),
        endpoints.HEALTH: lambda event, _context, _id: health.health(event),
        endpoints.DESCRIPTION: lambda event, _context, _id: _described(event, "openapi.json"),
        endpoints.PAGE: lambda event, _context, _id: _described(event, "docs.html", _HTML),
        endpoints.STATUS: lambda event, _context, task_id: routes.status(event, task_id),
        endpoints.VERSIONS: lambda event, _context, task_id: management().versions(event, task_id),
        endpoints.RECEIPT: lambda event, _context, task_id: management().receipt(event, task_id),
        endpoints.ESTIMATE: lambda event, _context, task_id: management().estimate(event, task_id),
        endpoints.PLACE: lambda event, _context, task_id: management().place(event, task_id),
        endpoints.CANCEL: lambda event, _context, task_id: management().cancel(event, task_id),
        endpoints.RETRY: lambda event, _context, task_id: management().retry(event, task_id),
        endpoints.RESEND: lambda event, _context, task_id: management().resend(event, task_id),
        endpoints.APPROVE: lambda event, _context, task_id: management().approve(event, task_id),
        endpoints.TOMBSTONE: lambda event, _context, tombstone_id: tombstones().show(event, tombstone_id),
        endpoints.RESTORE_TOMBSTONE: lambda event, _context, tombstone_id: tombstones().restore(event, tombstone_id),
        endpoints.PURGE_TOMBSTONE: lambda event, _context, tombstone_id: tombstones().purge(event, tombstone_id),
        endpoints.DISMISS_TOMBSTONE: lambda event, _context, tombstone_id: tombstones().dismiss(event, tombstone_id),
    }


def _lists(deps: Dependencies) -> "Lists":
    from delegation.edge.api.lists import Lists  # noqa: PLC0415 - a cold start does not need it

    return Lists(deps)


def _tombstones(deps: Dependencies) -> "TombstoneRoutes":
    from delegation.edge.api.tombstones import TombstoneRoutes  # noqa: PLC0415 - a cold start does not need it

    return TombstoneRoutes(deps)


def _management(deps: Dependencies) -> "Management":
    from delegation.edge.api.management import Management  # noqa: PLC0415 - a cold start does not need it

    return Management(deps)


def _pausing(deps: Dependencies) -> "Pausing":
    from delegation.edge.api.management import Pausing  # noqa: PLC0415 - a cold start does not need it

    return Pausing(deps)


def _response(event: Event, served: ApiResponse) -> dict[str, Any]:
    """Return the answer for API Gateway's REST proxy; text, because without binary media types it decodes no Base64."""
    headers = {
        "Cache-Control": "no-store",
        "Content-Type": "application/json",
        "X-Content-Type-Options": "nosniff",
        "X-Request-ID": request_id_of(event),
        **({"Retry-After": str(RETRY_AFTER_SECONDS[served.status])} if served.status in RETRY_AFTER_SECONDS else {}),
        **served.headers,
    }
    return {
        "statusCode": served.status,
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "body": served.body.decode(),
        "isBase64Encoded": False,
    }
