"""One table from error classes to HTTP, and the ErrorResponse (delegation-service.txt, appendix) made from it.

An error finds its row by its class, or by the nearest ancestor that is the root of a FAMILY. Whatever has no row is 500
and shows nothing of itself.
"""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from delegation.driving.dispatch import ExecutionNotStarted, MalformedDispatch
from delegation.driving.jobs import JobRefused, JobServiceUnavailable
from delegation.driving.steps import MalformedStep
from delegation.edge import errors as edge
from delegation.edge.models import ErrorResponse, render
from delegation.errors import DelegationError
from delegation.idempotency import canonical
from delegation.idempotency import errors as idempotency
from delegation.persistence import errors as persistence
from delegation.plugins import BadPlugin
from delegation.polaris import errors as polaris
from delegation.purge import attempt, manifest_errors, objectstore
from delegation.purge import errors as purge
from delegation.purge.behavior.options import InvalidPurgeProperty, PurgePropertyNotAllowed
from delegation.tasks import behaviors
from delegation.tasks import dynamodb as tasks_dynamodb
from delegation.tasks import errors as tasks
from delegation.tasks import policy as tasks_policy
from delegation.tasks.leases import WorkOutlivedLease

RETRY_AFTER_SECONDS: Final = 2
INTERNAL_ERROR: Final = "INTERNAL_ERROR"
_INTERNAL_MESSAGE: Final = "the service failed unexpectedly; its log has the reason under this request's X-Request-ID"
_AUTHENTICATE: Final = {"WWW-Authenticate": "Bearer"}
_RETRY: Final = {"Retry-After": str(RETRY_AFTER_SECONDS)}


@dataclass(frozen=True, slots=True)
class Rule:
    """How a class of errors is told: `error_code` None means the class's own; `message` None means the error's text."""

    status: int
    error_code: str | None = None
    message: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as an HTTP answer; `error` is its code, for logs and metrics."""

    status: int
    error: str
    body: bytes
    headers: Mapping[str, str]


_INTERNAL: Final = Rule(500, INTERNAL_ERROR, _INTERNAL_MESSAGE)
_UNAVAILABLE: Final = Rule(503, headers=_RETRY)
_TABLE_NOT_FOUND: Final = Rule(404, "TABLE_NOT_FOUND")

FAMILIES: Final[Mapping[type[DelegationError], Rule]] = {
    purge.PurgeRefused: Rule(409),
    polaris.PolarisError: Rule(502),
    objectstore.ObjectStoreError: Rule(502),
    attempt.AttemptEnded: _INTERNAL,
    persistence.PersistenceError: _INTERNAL,
}
"""Classes whose subclasses, also future ones, are told alike unless TABLE says otherwise."""

TABLE: Final[Mapping[type[DelegationError], Rule]] = {
    **FAMILIES,
    # Requests
    edge.EdgeError: Rule(400),
    edge.BadRequest: Rule(400),
    edge.InvalidJson: Rule(400),
    edge.PayloadTooLarge: Rule(413),
    edge.UnsupportedMediaType: Rule(415, headers={"Accept": "application/json"}),
    edge.RealmMismatch: Rule(403),
    edge.RouteNotFound: Rule(404),
    edge.MethodNotAllowed: Rule(405),
    edge.CallerUnknown: Rule(401, headers=_AUTHENTICATE),
    edge.Unauthorized: Rule(401, headers=_AUTHENTICATE),
    edge.Forbidden: Rule(403),
    edge.CertificateRefused: Rule(403),
    edge.ScopeMissing: Rule(403),
    edge.KeysUnavailable: _UNAVAILABLE,
    canonical.NotCanonicalizable: Rule(400),
    InvalidPurgeProperty: Rule(400),
    PurgePropertyNotAllowed: Rule(403),
    # Idempotency (idempotency-key.txt, Status Codes)
    idempotency.IdempotencyError: _INTERNAL,
    idempotency.RequestInProgress: Rule(409, headers=_RETRY),
    idempotency.KeyConflict: Rule(422),
    idempotency.TaskConflict: Rule(409),
    idempotency.RecordConflict: _UNAVAILABLE,
    # Tasks and their store
    tasks.TaskError: _INTERNAL,
    tasks.TaskNotFound: Rule(404),
    tasks.TaskExists: Rule(409),
    tasks.StaleTask: _UNAVAILABLE,
    tasks.RevisionConflict: _UNAVAILABLE,
    tasks.LeaseLost: _INTERNAL,
    tasks.IllegalTransition: _INTERNAL,
    tasks.RunCancelled: _INTERNAL,
    tasks.RunHandedOver: _INTERNAL,
    tasks.TaskFailed: _INTERNAL,
    behaviors.IllegalResult: _INTERNAL,
    tasks.MalformedRecord: _INTERNAL,
    tasks.StoreUnavailable: _UNAVAILABLE,
    tasks.OutcomeUnknown: _UNAVAILABLE,
    tasks_dynamodb.CompanionRefused: _UNAVAILABLE,
    tasks_policy.InvalidProperty: _INTERNAL,
    BadPlugin: _INTERNAL,
    WorkOutlivedLease: _INTERNAL,
    # Polaris, while an identity-only request is completed
    polaris.NoSuchTable: _TABLE_NOT_FOUND,
    polaris.NoSuchNamespace: _TABLE_NOT_FOUND,
    polaris.NoSuchCatalog: _TABLE_NOT_FOUND,
    polaris.TableMetadataMissing: Rule(409),
    # Purging
    purge.PurgeError: Rule(500),
    purge.CorruptMetadata: Rule(500),
    purge.ManifestMissing: Rule(500),
    purge.PlanTampered: Rule(500),
    purge.TableGone: Rule(500),
    purge.NeighbourChanged: Rule(500),
    purge.EngineFailed: Rule(500),
    purge.FilesNotDeleted: Rule(500),
    purge.FilesNotDeletedYet: Rule(500),
    purge.FilesThrottled: Rule(500),
    manifest_errors.CorruptManifestError: Rule(500),
    manifest_errors.ManifestMismatchError: Rule(500),
    # Driving: never in a request's way
    MalformedDispatch: _INTERNAL,
    ExecutionNotStarted: _INTERNAL,
    JobServiceUnavailable: _INTERNAL,
    JobRefused: _INTERNAL,
    MalformedStep: _INTERNAL,
    DelegationError: _INTERNAL,
}
"""Every error class of the service (a test finds those without a row)."""


def rule_of(kind: type[BaseException]) -> Rule:
    """The row of an error class."""
    if issubclass(kind, DelegationError) and kind in TABLE:
        return TABLE[kind]
    for ancestor in kind.__mro__:
        if ancestor in FAMILIES:
            return FAMILIES[ancestor]
    return _INTERNAL


def problem_of(error: BaseException) -> Problem:
    """An error as the answer that its caller gets."""
    rule = rule_of(type(error))
    code = rule.error_code or _code(error)
    headers = dict(rule.headers)
    if isinstance(error, edge.MethodNotAllowed):
        headers["Allow"] = ", ".join(error.allowed)
    details = "; ".join(error.others) if isinstance(error, edge.BadRequest) else None
    task_id = getattr(error, "task_id", None) if isinstance(error, DelegationError) else None
    body = ErrorResponse(
        error_code=code,
        message=rule.message or str(error),
        details=details or None,
        delegation_task_id=task_id if isinstance(task_id, str) else None,
    )
    return Problem(rule.status, code, render(body), headers)


def whereabouts(error: BaseException) -> list[str]:
    """Where an unforeseen error came from, for the log: its class and frames, never its text, which may quote data."""
    frames = traceback.extract_tb(error.__traceback__)
    return [type(error).__qualname__, *(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)]


def _code(error: BaseException) -> str:
    return error.code if isinstance(error, DelegationError) else INTERNAL_ERROR
