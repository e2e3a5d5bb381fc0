"""The API's resources: each operation validates the event, calls the service and returns the answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from aws_lambda_powertools.utilities.typing import LambdaContext

from delegation.edge import headers
from delegation.edge.answers import ApiResponse
from delegation.edge.api.endpoints import CONFIG, ENDPOINTS, EXECUTE, STATUS, SUBMIT, Endpoint, admitted
from delegation.edge.errors import BadRequest, EdgeError, route_not_found, unsupported_media_type
from delegation.edge.requests import Document, read_body, read_payload
from delegation.edge.submission import Submission, Submissions
from delegation.edge.telemetry import Telemetry
from delegation.edge.trust.permissions import Permission
from delegation.identifiers import TableIdentifier
from delegation.tasks.life.declared import NO_TYPES, TaskTypes
from delegation.tasks.life.model import Caller, Task
from delegation.tasks.options import DRY_RUN, DRY_RUN_SPELLINGS, RequestForm
from delegation.tasks.work.reads import TaskReads
from delegation.tasks.work.service import TaskService
from delegation.wire.requests import KEY_RULE, is_key
from delegation.wire.responses import render_json
from delegation.wire.tasks import shown

if TYPE_CHECKING:
    from delegation.idempotency.mutations import Mutations
    from delegation.tasks.pauses import PauseControl
    from delegation.tasks.stores.admission import QueuePlace
    from delegation.wire.tables import PlanApproval

Event = Mapping[str, Any]


class ApprovesPlans(Protocol):
    """Records who approved a plan; implemented by the operations whose plans wait."""

    def __call__(self, task_id: str, wanted: "PlanApproval", *, by: Caller, is_operator: bool) -> Task: ...


class TombstoneEntry(Protocol):
    """A tombstone's record, implemented by the gateway's."""

    @property
    def catalog(self) -> str: ...

    def public(self) -> dict[str, Any]: ...


class TombstoneEntries(Protocol):
    """A page of records, and the cursor of the next one."""

    @property
    def tombstones(self) -> Sequence[TombstoneEntry]: ...

    @property
    def cursor(self) -> str | None: ...


class TombstoneOperations(Protocol):
    """Reads and changes tombstones, implemented by the gateway's Tombstones, whose errors they raise."""

    def list(self, limit: int = 100, cursor: str | None = None) -> TombstoneEntries: ...

    def get(self, tombstone_id: str) -> TombstoneEntry: ...

    def restore(self, tombstone_id: str, to: TableIdentifier | None = None) -> TombstoneEntry: ...

    def run_now(self, tombstone_id: str, *, by: Caller | None = None) -> TombstoneEntry: ...

    def dismiss(self, tombstone_id: str) -> TombstoneEntry: ...


def record_of(
    reads: TaskReads,
    task: Task,
    now: datetime | None = None,
    *,
    types: TaskTypes = NO_TYPES,
    holder: str | None = None,
) -> dict[str, Any]:
    """Return a task as the API shows it, with its recorded children and its outlook at `now`. `holder` is the lease
    holder for a caller that may see it; `types` know a task's progress."""
    children = {"children": reads.children(task.task_id)} if task.family.children else {}
    record = {**task.public(), "lease_owner": holder, **children}
    if now is not None:
        from delegation.edge.outlook import outlook_of  # noqa: PLC0415 - a submission does not need it

        record["outlook"] = outlook_of(task, now, types)
    return shown(record)


def without_pauses() -> "PauseControl":
    """Refuse to pause: this service's store keeps no pauses."""
    raise route_not_found()


def without_plans(task_id: str, wanted: "PlanApproval", *, by: Caller, is_operator: bool) -> Task:  # noqa: ARG001
    """Refuse to approve: no task of this service waits for a person."""
    raise route_not_found()


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The API's dependencies; `clock` returns aware UTC, `idempotency_lifetime` is advertised, None ignores keys.

    `types` are the deployment's task types. `mutations` serves requests with a key that submit nothing. `receipt`
    returns a task's receipt as JSON, `estimate` its plan's forecast, both None without one. Each of `checks`, the parts
    that the service depends on, returns or raises a DelegationError. `resend` delivers a task's dead letters again.
    `tombstones` returns operations on tables dropped through the gateway, None without one. `waiting` returns what a
    task waits for, None if it needs no place. `pauses` shows and changes pauses. `maintenance` returns the limits of
    policies. `approve` records a caller's approval of a task's plan, and returns the task.
    """

    submissions: Submissions
    tasks: TaskService
    realm: str
    idempotency_lifetime: timedelta | None
    clock: Callable[[], datetime]
    receipt: Callable[[Task], bytes | None]
    checks: Mapping[str, Callable[[], object]]
    mutations: "Callable[[], Mutations]"
    types: TaskTypes
    estimate: Callable[[Task], Mapping[str, Any] | None] = lambda _task: None
    waiting: "Callable[[Task], QueuePlace | None]" = lambda _task: None
    resend: Callable[[str], object] = lambda _task_id: None
    tombstones: Callable[[], TombstoneOperations | None] = lambda: None
    pauses: Callable[[], "PauseControl"] = without_pauses
    maintenance: Callable[[], Mapping[str, Any]] = lambda: {"properties": {}, "policy_file": None, "error_code": None}
    approve: "ApprovesPlans" = without_plans


def served(body: Mapping[str, Any], task_id: str = "") -> ApiResponse:
    return ApiResponse(200, render_json(body), task_id)


GATEWAY_WAITS_SECONDS: Final = 29
"""Amazon API Gateway's integration timeout; a later answer reaches no caller."""


@dataclass(frozen=True, slots=True)
class Routes:
    """Submitting and reading tasks, and the configuration; `problems` answers their DelegationErrors. `forms` read the
    requests of each operation."""

    deps: Dependencies
    telemetry: Telemetry
    forms: Mapping[str, RequestForm]

    def execute(self, event: Event, context: LambdaContext) -> ApiResponse:
        """Run a task and answer with its outcome (Delegation Service proposal, Delegation Service REST API spec)."""
        submission = self._submission(event, EXECUTE, identity_only=False)
        now = self.deps.clock()
        return self.deps.submissions.execute(
            submission,
            received=_received_at(event, now),
            deadline=now + timedelta(milliseconds=context.get_remaining_time_in_millis()),
            owner=context.aws_request_id,
        )

    def submit(self, event: Event, _context: LambdaContext) -> ApiResponse:
        """Accept a task (Delegation Service proposal, Asynchronous Task Submission & Status Endpoints)."""
        submission = self._submission(event, SUBMIT, identity_only=True, dry_run=_asks_for_dry_run(event))
        return self.deps.submissions.submit(submission)

    def status(self, event: Event, task_id: str) -> ApiResponse:
        """Return the task's current version; a deployment serves one realm, so every task id belongs to it."""
        caller = admitted(event, STATUS)
        task = self.deps.tasks.reads.get(task_id_of(task_id))
        holder = task.lease.owner if Permission.MANAGE in caller.permissions else None
        record = record_of(self.deps.tasks.reads, task, self.deps.clock(), types=self.deps.types, holder=holder)
        return served(record, task.task_id)

    def config(self, event: Event) -> ApiResponse:
        """Return the configuration (Idempotency-Key proposal, Discovery (Server -> Client); Iceberg: CatalogConfig)."""
        admitted(event, CONFIG)
        body = {
            "defaults": {},
            "overrides": {},
            **_advertised(self.deps.idempotency_lifetime),
            "endpoints": [f"{endpoint.method} {endpoint.path}" for endpoint in ENDPOINTS],
        }
        return served(body)

    def _submission(
        self, event: Event, endpoint: Endpoint, *, identity_only: bool, dry_run: bool = False
    ) -> Submission:
        caller = admitted(event, endpoint)
        require_json(event)
        key = key_of(event, self.deps)
        document = read_body(event.get("body"), is_base64=bool(event.get("isBase64Encoded")))
        form, body = read_payload(document, self.forms, identity_only=identity_only)
        if dry_run:
            document = _as_dry_run(document)
            form, body = read_payload(document, self.forms, identity_only=identity_only)
        common = body.common_payload
        self.telemetry.correlate(common.polaris_correlation_id)
        if common.realm_identifier != self.deps.realm:
            raise EdgeError(
                "common_payload.realm_identifier: is not the realm of this deployment", code="REALM_MISMATCH"
            )
        return Submission(
            caller=caller.client_id,
            method=endpoint.method,
            path=endpoint.path,
            key=key,
            document=document,
            form=form,
            payload=body,
            subject=caller.subject,
        )


def key_of(event: Event, deps: Dependencies) -> str | None:
    """Return a request's idempotency key, None without one or if the service ignores keys. Raises BadRequest."""
    if deps.idempotency_lifetime is None:
        return None
    return read_idempotency_key(headers.values(event, "Idempotency-Key"))


def read_idempotency_key(values: list[str]) -> str | None:
    """Return the idempotency key, None without the header. Blanks around it do not count (RFC 9110, Section 5.5).
    Raises BadRequest if it is repeated or malformed."""
    if not values:
        return None
    if len(values) > 1:
        raise BadRequest("Idempotency-Key", "must not be repeated")
    key = values[0].strip(" \t")
    if not is_key(key):
        raise BadRequest("Idempotency-Key", f"must be {KEY_RULE}")
    return key


def _advertised(lifetime: timedelta | None) -> dict[str, Any]:
    """Return what a client reads about keys: two properties, and the lifetime at the top for Iceberg's clients. Those
    take its presence as support (Iceberg REST Catalog API, CatalogConfig)."""
    if lifetime is None:
        return {"properties": {"idempotency-key-supported": "false"}}
    text = _iso_8601(lifetime)
    properties = {"idempotency-key-supported": "true", "idempotency-key-lifetime": text}
    return {"properties": properties, "idempotency-key-lifetime": text}


def _received_at(event: Event, now: datetime) -> datetime:
    """Return when API Gateway received the request: its timeout starts then, before a cold start. Returns `now` for an
    event without time, or with one after `now` or longer ago than the timeout."""
    epoch_ms = (event.get("requestContext") or {}).get("requestTimeEpoch")
    if not isinstance(epoch_ms, int):
        return now
    age_seconds = now.timestamp() - epoch_ms / 1000
    return now - timedelta(seconds=age_seconds) if 0 <= age_seconds < GATEWAY_WAITS_SECONDS else now


def body_of(event: Event) -> Document:
    """Return a request's body. Raises what `require_json` and `read_body` raise."""
    require_json(event)
    return read_body(event.get("body"), is_base64=bool(event.get("isBase64Encoded")))


def require_json(event: Event) -> None:
    """Raise EdgeError unless the single Content-Type is application/json, with no charset but UTF-8. Raises EdgeError
    (UNSUPPORTED_CONTENT_ENCODING) for a body in any coding but identity."""
    kind, *parameters = (headers.single(event, "Content-Type") or "").split(";")
    if kind.strip().lower() != "application/json":
        raise unsupported_media_type()
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in {"utf-8", "utf8"}:
            raise unsupported_media_type()
    _require_identity_encoding(event)


def _require_identity_encoding(event: Event) -> None:
    """Raise EdgeError (UNSUPPORTED_CONTENT_ENCODING) unless every coding is identity (RFC 9110, Section 15.5.16)."""
    codings = ",".join(headers.values(event, "Content-Encoding")).split(",")
    if any(coding.strip().lower() not in {"", "identity"} for coding in codings):
        raise EdgeError(
            "Content-Encoding: must be absent or identity. Send the body without compression",
            code="UNSUPPORTED_CONTENT_ENCODING",
        )


def _asks_for_dry_run(event: Event) -> bool:
    """Return whether the query has `dry-run=true`. Raises BadRequest for another value than true or false."""
    given = (event.get("queryStringParameters") or {}).get(DRY_RUN)
    if given not in {None, "true", "false"}:
        raise BadRequest(f"query {DRY_RUN}", "must be true or false")
    return given == "true"


def _as_dry_run(document: Document) -> Document:
    """Return a validated body with the property `dry-run`, as if the caller had set it there."""
    parameters = document["operation_parameters"]
    given = (parameters.get("properties") or {}).items()
    properties = {**{name: value for name, value in given if name not in DRY_RUN_SPELLINGS}, DRY_RUN: "true"}
    return Document({**document, "operation_parameters": {**parameters, "properties": properties}})


def task_id_of(text: str) -> str:
    """Return a path's task id in lower case. Raises BadRequest unless it is a UUID of 36 characters."""
    try:
        task_id = str(UUID(text))
    except ValueError:
        task_id = ""
    if task_id != text.lower():
        raise BadRequest("taskId", "must be a UUID in its 36-character form")
    return task_id


def _iso_8601(duration: timedelta) -> str:
    """Return a duration of whole seconds in ISO 8601, in minutes and seconds only (`PT30M`, `PT1M30S`)."""
    minutes, seconds = divmod(int(duration.total_seconds()), 60)
    return "PT" + (f"{minutes}M" if minutes else "") + (f"{seconds}S" if seconds or not minutes else "")
