"""What operators do with tombstones, the tables that were dropped through the gateway: list, show, restore, purge."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from delegation.edge.api import paging
from delegation.edge.api.callers import admitted
from delegation.edge.api.endpoints import PURGE_TOMBSTONE, RESTORE_TOMBSTONE, TOMBSTONE, TOMBSTONES, Endpoint
from delegation.edge.api.routes import Event, Served
from delegation.edge.document import read_body
from delegation.edge.errors import BadRequest, NoTombstones
from delegation.edge.requests import read_restore
from delegation.edge.telemetry import Telemetry
from delegation.identifiers import TableIdentifier
from delegation.tasks.life.model import Caller
from delegation.wire.responses import render_json
from delegation.wire.tombstones import ID_PATTERN

_LARGEST_PAGE: Final = 100
_ID: Final = re.compile(ID_PATTERN)
_CURSOR: Final = re.compile(r"[0-9a-f-]{1,120}")


class TombstoneEntry(Protocol):
    """A tombstone's record, implemented by the gateway's."""

    @property
    def catalog(self) -> str: ...

    def public(self) -> dict[str, Any]:
        """Return the members of TombstoneRecord."""


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

    def purge_now(self, tombstone_id: str, *, by: Caller | None = None) -> TombstoneEntry: ...


@dataclass(frozen=True, slots=True)
class TombstoneRoutes:
    """The operations; `tombstones` returns None in a deployment without a gateway.

    The DelegationErrors that they raise are answered by `problems`. A restore and a purge may be repeated: each
    finishes what the first request began, so neither needs an idempotency key.
    """

    tombstones: Callable[[], TombstoneOperations | None]
    telemetry: Telemetry

    def list(self, event: Event) -> Served:
        """Return a page of tombstones, the newest first."""
        admitted(event, TOMBSTONES)
        page = paging.read(event, of="tombstones", largest=_LARGEST_PAGE)
        if page.after is not None and not _CURSOR.fullmatch(page.after):
            raise paging.foreign_token()
        found = self._operations().list(page.size, page.after)
        token = None if found.cursor is None else page.token(found.cursor)
        body = {"tombstones": [record.public() for record in found.tombstones], "next_page_token": token}
        return self._served(TOMBSTONES, body)

    def show(self, event: Event, tombstone_id: str) -> Served:
        """Return one tombstone as it is now."""
        admitted(event, TOMBSTONE)
        return self._served(TOMBSTONE, self._operations().get(tombstone_id_of(tombstone_id)).public())

    def restore(self, event: Event, tombstone_id: str) -> Served:
        """Rename a tombstone back, to its former name or to that of the body."""
        admitted(event, RESTORE_TOMBSTONE)
        found = tombstone_id_of(tombstone_id)
        wanted = _target(event)
        operations = self._operations()
        target = None
        if wanted is not None:
            target = _identifier(operations.get(found).catalog, *wanted)
        return self._served(RESTORE_TOMBSTONE, operations.restore(found, target).public())

    def purge(self, event: Event, tombstone_id: str) -> Served:
        """Have a tombstone purged now: end its grace period, or retry a purge that failed."""
        caller = admitted(event, PURGE_TOMBSTONE)
        by = Caller(client_id=caller.client_id, subject=caller.subject)
        return self._served(
            PURGE_TOMBSTONE, self._operations().purge_now(tombstone_id_of(tombstone_id), by=by).public()
        )

    def _operations(self) -> TombstoneOperations:
        found = self.tombstones()
        if found is None:
            raise NoTombstones
        return found

    def _served(self, endpoint: Endpoint, body: Mapping[str, Any]) -> Served:
        self.telemetry.served(endpoint.operation, 200)
        return Served(200, render_json(body), {})


def tombstone_id_of(text: str) -> str:
    """Return a path's tombstone id; raises BadRequest for a text that is none."""
    if not _ID.fullmatch(text):
        raise BadRequest("tombstoneId", "must be the tombstone_id of a tombstone")
    return text


def _target(event: Event) -> tuple[tuple[str, ...], str] | None:
    """Return namespace and name of the body's `to`, None without a body or without it."""
    body = event.get("body")
    if not body:
        return None
    wanted = read_restore(read_body(body, is_base64=bool(event.get("isBase64Encoded")))).to
    return None if wanted is None else (wanted.namespace, wanted.name)


def _identifier(catalog: str, namespace: tuple[str, ...], name: str) -> TableIdentifier:
    try:
        return TableIdentifier(catalog, namespace, name)
    except ValueError as error:
        raise BadRequest("to", str(error)) from None
