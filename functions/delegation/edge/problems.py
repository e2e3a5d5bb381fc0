"""The mapping from error classes to HTTP answers (Delegation Service proposal, Appendix, ErrorResponse).

A class has a rule of its own or that of its nearest ancestor in FAMILIES. Any other error is answered with 500 and a
message that reveals nothing about it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from delegation.edge.errors import BadRequest, MethodNotAllowed
from delegation.errors import DelegationError
from delegation.wire.responses import ErrorResponse, render

_INTERNAL_MESSAGE: Final = "the service failed unexpectedly; search its log for this request's X-Request-ID"
_AUTHENTICATE: Final = {"WWW-Authenticate": "Bearer"}
_RETRY: Final = {"Retry-After": "2"}


@dataclass(frozen=True, slots=True)
class Rule:
    """How errors of a class are answered; `error_code` defaults to the class's code, `message` to the error's text."""

    status: int
    error_code: str | None = None
    message: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as an HTTP answer; `error` is its code."""

    status: int
    error: str
    body: bytes
    headers: Mapping[str, str]


_INTERNAL: Final = Rule(500, DelegationError.code, _INTERNAL_MESSAGE)
_UNAVAILABLE: Final = Rule(503, headers=_RETRY)

FAMILIES: Final[Mapping[str, Rule]] = {
    "delegation.errors.GuardRefused": Rule(409),
    "delegation.polaris.errors.PolarisError": Rule(502),
    "delegation.storage.base.ObjectStoreError": Rule(502),
    "delegation.notifications.errors.NotificationError": _INTERNAL,
    "delegation.references.errors.ReferencesError": Rule(500),
    "delegation.upkeep.errors.UpkeepError": _INTERNAL,
    "delegation.persistence.errors.PersistenceError": _INTERNAL,
    "delegation.gateway.errors.GatewayError": _INTERNAL,  # answered by the gateway alone, in Iceberg's ErrorModel
}
"""Rules that also apply to every subclass without a rule of its own in TABLE."""


def _all(rule: Rule, *names: str) -> Mapping[str, Rule]:
    return dict.fromkeys(names, rule)


_ROWS: Final[Mapping[str, Mapping[str, Rule]]] = {
    "errors": {"DelegationError": _INTERNAL},
    "edge.errors": {
        **_all(Rule(400), "EdgeError", "BadRequest", "InvalidJson"),
        **_all(Rule(403), "Forbidden", "CertificateRefused", "ScopeMissing", "RealmMismatch"),
        **_all(Rule(403), "PermissionMissing", "ClientRefused"),
        **_all(Rule(409), "TaskEnded", "TaskNotFailed"),
        **_all(Rule(404), "EstimateNotFound", "ReceiptNotFound", "NoTombstones"),
        **_all(Rule(401, headers=_AUTHENTICATE), "CallerUnknown", "Unauthorized"),
        "PayloadTooLarge": Rule(413),
        "UnsupportedMediaType": Rule(415, headers={"Accept": "application/json"}),
        "UnsupportedContentEncoding": Rule(415, headers={"Accept-Encoding": "identity"}),
        "RouteNotFound": Rule(404),
        "MethodNotAllowed": Rule(405),
        **_all(_UNAVAILABLE, "KeysUnavailable", "RevocationListUnavailable"),
    },
    "tasks.submission.form": {"NotWaitedFor": Rule(400)},
    "tasks.submission.options": {
        "InvalidOption": Rule(400),
        "OptionNotAllowed": Rule(403),
        "CallbackNotAllowed": Rule(403),
    },
    # Idempotency-Key proposal, Status Codes
    "idempotency.canonical": {"NotCanonicalizable": Rule(400)},
    "idempotency.errors": {
        "IdempotencyError": _INTERNAL,
        "RequestInProgress": Rule(409, headers=_RETRY),
        "KeyConflict": Rule(422),
        "TaskConflict": Rule(409),
        "RecordConflict": _UNAVAILABLE,
        "ResubmittedTooSoon": Rule(503),
        "ResubmitsExhausted": Rule(409),
    },
    "idempotency.mutations.errors": {
        "MutationInProgress": Rule(409, headers=_RETRY),
        **_all(_UNAVAILABLE, "ReservationConflict", "RecordsUnavailable", "RecordOutcomeUnknown"),
        "MalformedReservation": _INTERNAL,
    },
    "tasks.errors": {
        "TaskNotFound": Rule(404),
        "TaskExists": Rule(409),
        **_all(_UNAVAILABLE, "StaleTask", "RevisionConflict", "StoreUnavailable", "OutcomeUnknown"),
        **_all(_INTERNAL, "TaskError", "LeaseLost", "IllegalTransition"),
        "StoreRefused": Rule(500),
        "TaskPayloadTooLarge": Rule(413),
        **_all(_INTERNAL, "ResultTooLarge", "WaitsForItself"),  # errors of a task, not of a request
        **_all(_INTERNAL, "AwaitedTaskFailed", "DeadlineExceeded", "MalformedRecord", "MalformedPayload"),
        **_all(_INTERNAL, "RunPostponed", "NoOutcomeYet"),  # of tasks, never of requests
    },
    "tasks.life.policy": {"InvalidProperty": _INTERNAL},
    "tasks.life.progress": {"BadReport": _INTERNAL},
    "tasks.pauses.control": {"TooManyPauses": Rule(409)},
    "tasks.recovery.copying": {"NotPaused": _INTERNAL},  # an error of the command, not of a request
    "tasks.stores.dynamodb": {"CompanionRefused": _UNAVAILABLE},
    "tasks.calls": _all(_INTERNAL, "BadBehavior", "IllegalResult"),
    "tasks.work.lease_keeper": {"WorkOutlivedLease": _INTERNAL},
    "tasks.work.plugins": {"BadPlugin": _INTERNAL},
    "tasks.life.declared.recurrence": {"BadSchedule": _INTERNAL},
    "tasks.authoring.context": _all(_INTERNAL, "ChildFailed", "BadCursor", "ChildChanged"),
    "tasks.authoring.retired": {"KindRetired": _INTERNAL},
    # Raised while the service loads the table for a request that names only its identity.
    "polaris.errors": {
        **_all(Rule(404), "NoSuchTable", "NoSuchNamespace", "NoSuchCatalog"),
        "TableMetadataMissing": Rule(409),
    },
    "storage.credentials": {"CredentialsUnavailable": Rule(502)},
    "iceberg.errors": _all(
        Rule(500), "IcebergError", "CorruptMetadata", "ManifestMissing", "CorruptManifestError", "ManifestMismatchError"
    ),
    "worksets.errors": {
        **_all(Rule(500), "WorksetError", "PlanTampered", "PlanLost", "SortingFailed", "EngineFailed"),
        **_all(Rule(500), "FilesNotDeleted", "FilesNotDeletedYet", "FilesThrottled"),
    },
    "keeping.errors": {"NeighbourChanged": Rule(500)},
    "operations.expiry.errors": _all(
        Rule(500),
        "ExpiryError",
        "RefLost",
        "RefsUnknown",
        "CommitRefused",
        "CommitsForestalled",
        "TableChangesTooOften",
    ),
    "operations.orphans.errors": _all(Rule(500), "OrphansError", "CommitsTooFrequent", "ClaimUnknown"),
    "operations.purge.errors": _all(Rule(500), "PurgeError", "TableGone", "FilesLeftUnknown", "TableIsWrittenTo"),
    "gateway.drop.errors": {
        "TombstoneNotFound": Rule(404),
        **_all(Rule(409), "RestoreRefused", "NameTaken", "PurgeNotPossible", "DismissalRefused"),
        **_all(_UNAVAILABLE, "TombstonesUnavailable", "TombstoneOutcomeUnknown"),
    },
    "gateway.drop.store": {"TombstoneConflict": _UNAVAILABLE},
    # Not raised while a request is answered.
    "upkeep.rules.content": {"PolicyInvalid": _INTERNAL},
    "upkeep.policy_file": {"PolicyFileInvalid": _INTERNAL},
    "orchestration.dispatch": _all(_INTERNAL, "MalformedDispatch", "ExecutionNotStarted"),
    "orchestration.job_runs": _all(_INTERNAL, "JobServiceUnavailable", "JobRefused", "JobRunUnknown"),
    "orchestration.step_input": {"MalformedStep": _INTERNAL},
}
TABLE: Final[Mapping[str, Rule]] = {**FAMILIES} | {
    f"delegation.{module}.{name}": rule for module, rules in _ROWS.items() for name, rule in rules.items()
}
"""The rule of every error class, by qualified name so that no module is imported for it; a test finds gaps."""


def name_of(kind: type[BaseException]) -> str:
    """Return the qualified name by which TABLE lists a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def rule_of(kind: type[BaseException]) -> Rule:
    """Return the rule of an error class."""
    own = TABLE.get(name_of(kind))
    if own is not None:
        return own
    found = (FAMILIES.get(name_of(ancestor)) for ancestor in kind.__mro__)
    return next((rule for rule in found if rule is not None), _INTERNAL)


def problem_of(error: BaseException) -> Problem:
    """Return the HTTP answer for an error."""
    rule = rule_of(type(error))
    code = rule.error_code or (error.code if isinstance(error, DelegationError) else DelegationError.code)
    retryable = _retryable(rule, error)
    headers = {**rule.headers, **_own_headers(error, retryable=retryable)}
    details = "; ".join(error.others) if isinstance(error, BadRequest) else None
    task_id = getattr(error, "task_id", None) if isinstance(error, DelegationError) else None
    body = ErrorResponse(
        error_code=code,
        message=rule.message or str(error),
        details=details or None,
        delegation_task_id=task_id if isinstance(task_id, str) else None,
        retryable=retryable,
    )
    return Problem(rule.status, code, render(body), headers)


def _retryable(rule: Rule, error: BaseException) -> bool | None:
    """Return whether the request may be repeated as it is: True with 503, the error's word with 502, else None."""
    if rule.status == 502:
        return isinstance(error, DelegationError) and error.retryable
    return True if rule.status == 503 else None


def _own_headers(error: BaseException, *, retryable: bool | None) -> dict[str, str]:
    """Return the headers that this very error has: the methods it allows, or the seconds that it knows to wait."""
    if isinstance(error, MethodNotAllowed):
        return {"Allow": ", ".join(error.allowed)}
    seconds: object = getattr(error, "retry_after", None)
    if retryable and isinstance(seconds, float):
        return {"Retry-After": str(max(1, math.ceil(seconds)))}
    return {}
