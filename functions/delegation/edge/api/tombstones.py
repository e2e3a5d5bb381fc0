"""What operators do with tombstones, tables dropped by the gateway: list, show, restore, purge, dismiss."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from delegation.edge.api import lists
from delegation.edge.api.endpoints import (
    DISMISS_TOMBSTONE,
    PURGE_TOMBSTONE,
    RESTORE_TOMBSTONE,
    TOMBSTONE,
    TOMBSTONES,
    Admitted,
    Endpoint,
    admitted,
)
from delegation.edge.api.routes import (
    ApiResponse,
    Dependencies,
    Event,
    TombstoneEntry,
    TombstoneOperations,
    key_of,
    require_json,
)
from delegation.edge.document import read_body
from delegation.edge.errors import BadRequest, EdgeError
from delegation.edge.requests import bad_request
from delegation.edge.telemetry import Telemetry
from delegation.identifiers import TableIdentifier
from delegation.tasks.life.model import Caller
from delegation.wire.responses import render_json
from delegation.wire.tombstones import ID_PATTERN, RestoreRequest
from polaris_common.errors import DelegationError

if TYPE_CHECKING:
    from delegation.idempotency.mutations.answer import MutationAnswer

_LARGEST_PAGE: Final = 100
_ID: Final = re.compile(ID_PATTERN)
_CURSOR: Final = re.compile(r"[0-9a-f-]{1,120}")


@dataclass(frozen=True, slots=True)
class TombstoneRoutes:
    """Operations on tombstones; `problems` answers their DelegationErrors. Restore, purge and dismissal may be
    repeated: a repeat finishes what the first began, and with an idempotency key gets its answer."""

    deps: Dependencies
    telemetry: Telemetry

    def list(self, event: Event) -> ApiResponse:
        """Return a page of tombstones, the newest first."""
        admitted(event, TOMBSTONES)
        page = lists.read(event, of="tombstones", largest=_LARGEST_PAGE)
        if page.after is not None and not _CURSOR.fullmatch(page.after):
            raise lists.foreign_token()
        found = self._operations().list(page.size, page.after)
        token = None if found.cursor is None else page.token(found.cursor)
        body = {"tombstones": [record.public() for record in found.tombstones], "next_page_token": token}
        return self._served(TOMBSTONES, render_json(body))

    def show(self, event: Event, tombstone_id: str) -> ApiResponse:
        admitted(event, TOMBSTONE)
        record = self._operations().get(tombstone_id_of(tombstone_id))
        return self._served(TOMBSTONE, render_json(record.public()))

    def restore(self, event: Event, tombstone_id: str) -> ApiResponse:
        """Rename a tombstone back, to its former name or to that of the body."""
        caller = admitted(event, RESTORE_TOMBSTONE)
        key, found, document = key_of(event, self.deps), tombstone_id_of(tombstone_id), _document(event)
        wanted = _read(document).to

        def restore() -> TombstoneEntry:
            operations = self._operations()
            target = None
            if wanted is not None:
                target = _identifier(operations.get(found).catalog, wanted.namespace, wanted.name)
            return operations.restore(found, target)

        return self._changed(_Change(caller, RESTORE_TOMBSTONE, found, key, document, restore))

    def purge(self, event: Event, tombstone_id: str) -> ApiResponse:
        """Have a tombstone purged now: end its grace period, or retry a purge that failed."""
        caller = admitted(event, PURGE_TOMBSTONE)
        key, found = key_of(event, self.deps), tombstone_id_of(tombstone_id)
        by = Caller(client_id=caller.client_id, subject=caller.subject)
        body = _unread(event)
        return self._changed(
            _Change(caller, PURGE_TOMBSTONE, found, key, body, lambda: self._operations().run_now(found, by=by))
        )

    def dismiss(self, event: Event, tombstone_id: str) -> ApiResponse:
        """End a tombstone that failed: drop its entry, and keep its files."""
        caller = admitted(event, DISMISS_TOMBSTONE)
        key, found = key_of(event, self.deps), tombstone_id_of(tombstone_id)
        body = _unread(event)
        return self._changed(
            _Change(caller, DISMISS_TOMBSTONE, found, key, body, lambda: self._operations().dismiss(found))
        )

    def _changed(self, change: "_Change") -> ApiResponse:
        """Make a change, once for its key; one whose outcome is unknown is made again, with the same effect."""
        if change.key is None:
            return self._served(change.endpoint, render_json(change.make().public()))
        from delegation.idempotency.canonical import Scope, payload_hashes  # noqa: PLC0415 - only a key needs it
        from delegation.idempotency.mutations.service import AnswerSource, Mutation  # noqa: PLC0415

        endpoint, refusals = change.endpoint, list[DelegationError]()
        path = endpoint.path.replace("{tombstoneId}", change.tombstone_id)
        performed = self.deps.mutations().perform(
            Mutation(
                scope=Scope(change.caller.client_id, self.deps.realm, endpoint.method, path, change.key),
                payload_hash=payload_hashes(change.document),
                run=lambda _attempt: _answered(change.make, refusals),
                verify=lambda _attempt: None,
                observe=lambda: None,
            )
        )
        if refusals and performed.how is AnswerSource.EXECUTED:
            raise refusals[-1]
        self.telemetry.served(endpoint.operation, performed.answer.status)
        return ApiResponse(performed.answer.status, performed.answer.body, {})

    def _operations(self) -> TombstoneOperations:
        found = self.deps.tombstones()
        if found is None:
            raise EdgeError(
                "this deployment has no gateway, so it has no tombstones; switch the gateway on and deploy",
                code="NO_TOMBSTONES",
            )
        return found

    def _served(self, endpoint: Endpoint, body: bytes) -> ApiResponse:
        self.telemetry.served(endpoint.operation, 200)
        return ApiResponse(200, body, {})


@dataclass(frozen=True, slots=True)
class _Change:
    """A request to change a tombstone: `document` is what a repeat must equal, `make` makes the change."""

    caller: Admitted
    endpoint: Endpoint
    tombstone_id: str
    key: str | None
    document: Mapping[str, Any]
    make: Callable[[], TombstoneEntry]


def _unread(event: Event) -> Mapping[str, str]:
    from delegation.idempotency.canonical import unread_body  # noqa: PLC0415

    return unread_body(event.get("body") or "")


def _answered(make: Callable[[], TombstoneEntry], refusals: "list[DelegationError]") -> "MutationAnswer":
    """Return the answer to a change, or to its refusal, which is noted; raises errors that may pass."""
    from delegation.edge.answers import problem_of  # noqa: PLC0415
    from delegation.idempotency.mutations.answer import MutationAnswer  # noqa: PLC0415

    try:
        return MutationAnswer(200, render_json(make().public()))
    except DelegationError as error:
        problem = problem_of(error)
        if problem.status >= 500:
            raise
        refusals.append(error)
        return MutationAnswer(problem.status, problem.body)


def tombstone_id_of(text: str) -> str:
    """Return a path's tombstone id; raises BadRequest for a text that is none."""
    if not _ID.fullmatch(text):
        raise BadRequest("tombstoneId", "must be the tombstone_id of a tombstone")
    return text


def _read(document: Mapping[str, Any]) -> RestoreRequest:
    """Return the parameters of a restore; raises BadRequest, which names the first invalid field."""
    try:
        return RestoreRequest.model_validate(document)
    except ValidationError as error:
        raise bad_request(error, RestoreRequest) from None


def _document(event: Event) -> Mapping[str, Any]:
    """Return the body of a request, an empty document without one; raises what `read_body` and `require_json` raise."""
    body = event.get("body")
    if not body:
        return {}
    require_json(event)
    return read_body(body, is_base64=bool(event.get("isBase64Encoded")))


def _identifier(catalog: str, namespace: tuple[str, ...], name: str) -> TableIdentifier:
    try:
        return TableIdentifier(catalog, namespace, name)
    except ValueError as error:
        raise BadRequest("to", str(error)) from None
