"""What operators do with tombstones (tables dropped by the gateway): list, show, restore, purge, dismiss."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from delegation.edge.answers import ApiResponse
from delegation.edge.api import lists
from delegation.edge.api.endpoints import (
    DISMISS_TOMBSTONE,
    PURGE_TOMBSTONE,
    RESTORE_TOMBSTONE,
    TOMBSTONE,
    TOMBSTONES,
    admitted,
)
from delegation.edge.api.management import Change, changed
from delegation.edge.api.routes import (
    Dependencies,
    Event,
    TombstoneEntry,
    TombstoneOperations,
    body_of,
    key_of,
    served,
)
from delegation.edge.errors import BadRequest, EdgeError
from delegation.edge.requests import read_model
from delegation.idempotency.keys import unread_body
from delegation.identifiers import TableIdentifier
from delegation.tasks.life.model import Caller
from delegation.wire.operators import ID_PATTERN, RestoreRequest

_LARGEST_PAGE: Final = 100
_ID: Final = re.compile(ID_PATTERN)
_CURSOR: Final = re.compile(r"[0-9a-f-]{1,120}")


@dataclass(frozen=True, slots=True)
class TombstoneRoutes:
    """Operations on tombstones; `problems` answers their DelegationErrors. Restore, purge and dismissal may be
    repeated: a repeat finishes the first request, and with its idempotency key gets its answer."""

    deps: Dependencies

    def list(self, event: Event) -> ApiResponse:
        admitted(event, TOMBSTONES)
        page = lists.read(event, of="tombstones", largest=_LARGEST_PAGE)
        if page.after is not None and not _CURSOR.fullmatch(page.after):
            raise lists.foreign_token()
        tombstones = self._operations().list(page.size, page.after)
        token = None if tombstones.cursor is None else page.token(tombstones.cursor)
        body = {"tombstones": [record.public() for record in tombstones.tombstones], "next_page_token": token}
        return served(body)

    def show(self, event: Event, tombstone_id: str) -> ApiResponse:
        admitted(event, TOMBSTONE)
        record = self._operations().get(tombstone_id_of(tombstone_id))
        return served(record.public())

    def restore(self, event: Event, tombstone_id: str) -> ApiResponse:
        """Rename a tombstone back, to its former name or to the body's."""
        caller = admitted(event, RESTORE_TOMBSTONE)
        key, valid_id, document = key_of(event, self.deps), tombstone_id_of(tombstone_id), _document(event)
        wanted = read_model(document, RestoreRequest).to

        def restore() -> TombstoneEntry:
            operations = self._operations()
            target = None
            if wanted is not None:
                target = _identifier(operations.get(valid_id).catalog, wanted.namespace, wanted.name)
            return operations.restore(valid_id, target)

        change = Change(caller, RESTORE_TOMBSTONE, key, document, lambda: restore().public(), valid_id)
        return changed(self.deps, change)

    def purge(self, event: Event, tombstone_id: str) -> ApiResponse:
        """Purge a tombstone now: end its grace period, or retry a failed purge."""
        caller = admitted(event, PURGE_TOMBSTONE)
        key, valid_id = key_of(event, self.deps), tombstone_id_of(tombstone_id)
        by = Caller(client_id=caller.client_id, subject=caller.subject)
        body = unread_body(event.get("body") or "")
        change = Change(
            caller, PURGE_TOMBSTONE, key, body, lambda: self._operations().run_now(valid_id, by=by).public(), valid_id
        )
        return changed(self.deps, change)

    def dismiss(self, event: Event, tombstone_id: str) -> ApiResponse:
        """End a failed tombstone: drop its entry, and keep its files."""
        caller = admitted(event, DISMISS_TOMBSTONE)
        key, valid_id = key_of(event, self.deps), tombstone_id_of(tombstone_id)
        body = unread_body(event.get("body") or "")
        change = Change(
            caller, DISMISS_TOMBSTONE, key, body, lambda: self._operations().dismiss(valid_id).public(), valid_id
        )
        return changed(self.deps, change)

    def _operations(self) -> TombstoneOperations:
        operations = self.deps.tombstones()
        if operations is None:
            raise EdgeError(
                "this deployment has no gateway, so it has no tombstones. To add a gateway, set delegation:gateway to "
                "true and deploy",
                code="NO_TOMBSTONES",
            )
        return operations


def tombstone_id_of(text: str) -> str:
    """Return a path's tombstone id. Raises BadRequest for any other text."""
    if not _ID.fullmatch(text):
        raise BadRequest("tombstoneId", "must be a tombstone_id that GET /v1/tombstones lists")
    return text


def _document(event: Event) -> Mapping[str, Any]:
    """Return the body of a request, an empty document without one. Raises as `body_of`."""
    return body_of(event) if event.get("body") else {}


def _identifier(catalog: str, namespace: tuple[str, ...], name: str) -> TableIdentifier:
    try:
        return TableIdentifier(catalog, namespace, name)
    except ValueError as error:
        raise BadRequest("to", str(error)) from None
