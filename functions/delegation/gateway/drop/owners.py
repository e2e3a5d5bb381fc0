"""Callers list and restore the tables that they dropped, without an operator. The record must be the caller's, and a
staged create shows that it may create the table; the service renames."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from delegation.gateway.answers import json_answer
from delegation.gateway.callers import REALM_HEADER, GatewayCaller
from delegation.gateway.drop.caller import Forward, refusal_to_create
from delegation.gateway.drop.errors import RestoreRefused, bad_tombstone_request, tombstone_not_found
from delegation.gateway.drop.mapping import as_drop_errors
from delegation.gateway.drop.service import Tombstones
from delegation.gateway.drop.tombstones import Tombstone, caller_key
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.gateway.routing import DEFAULT_PATHS, CatalogPaths, query_of
from delegation.identifiers import TableIdentifier, encoded
from delegation.wire.tombstones import RestoreRequest

_LARGEST_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class OwnersTombstones:
    """Answers requests for the caller's own tombstones; `tombstones` is called for the first one."""

    tombstones: Callable[[], Tombstones]
    forward: Forward
    realm: str
    paths: CatalogPaths = DEFAULT_PATHS

    def list(self, request: CatalogRequest, caller: GatewayCaller) -> CatalogAnswer:
        """Return a page of the caller's dropped tables, newest first (`page_size`, `page_token`). Raises DropError
        (BAD_TOMBSTONE_REQUEST)."""
        query = query_of(request.query)
        size, cursor = query.get("page_size", str(_LARGEST_PAGE)), query.get("page_token") or None
        if not (size.isascii() and size.isdigit() and 1 <= int(size) <= _LARGEST_PAGE):
            raise bad_tombstone_request(f"page_size: must be a number from 1 to {_LARGEST_PAGE}")
        if cursor is not None and not all(one in "0123456789abcdef-" for one in cursor):
            raise bad_tombstone_request("page_token: must be the next_page_token of an earlier answer")
        if self._is_foreign(request):
            return json_answer(200, {"tombstones": [], "next_page_token": None})
        with as_drop_errors("the list of dropped tables"):
            found = self.tombstones().list(int(size), cursor, caller=_key(caller))
        shown = [one.public() for one in found.tombstones if one.realm == self.realm]
        return json_answer(200, {"tombstones": shown, "next_page_token": found.cursor})

    def restore(self, request: CatalogRequest, caller: GatewayCaller, tombstone_id: str) -> CatalogAnswer:
        """Rename a dropped table back, to its former name or the body's `to`; a repeat finishes it. Raises DropError
        (TOMBSTONE_NOT_FOUND, also for another caller's; RESTORE_NOT_PROVED, BAD_TOMBSTONE_REQUEST), RestoreRefused,
        NameTaken, and the errors of the catalog and the store."""
        tombstones = self.tombstones()
        with as_drop_errors(f"the restore of {tombstone_id}"):
            record = None if self._is_foreign(request) else tombstones.store.get(tombstone_id)
            if record is None or record.caller != _key(caller) or record.realm != self.realm:
                raise tombstone_not_found(tombstone_id)
            wanted = _wanted(record, request.body)
            target = wanted or record.restore_identifier
            place = self.paths.namespace(encoded(record.catalog), target.namespace)
            refusal = refusal_to_create(self.forward, request, place)
            if refusal is not None:
                return refusal
            return json_answer(200, tombstones.restore(tombstone_id, wanted).public())

    def _is_foreign(self, request: CatalogRequest) -> bool:
        realms = {value for name, value in request.headers if name.lower() == REALM_HEADER.lower()}
        return not realms <= {self.realm}


def _key(caller: GatewayCaller) -> str:
    return caller_key(caller.principal, caller.authorization)


def _wanted(record: Tombstone, body: bytes) -> TableIdentifier | None:
    """Return the body's `to`, None without one. Raises DropError (BAD_TOMBSTONE_REQUEST) and RestoreRefused."""
    try:
        asked = RestoreRequest.model_validate_json(body or b"{}").to
        wanted = None if asked is None else TableIdentifier(record.catalog, asked.namespace, asked.name)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise bad_tombstone_request(f"{where}: {first['msg']}") from None
    except ValueError as error:
        raise bad_tombstone_request(f"to: {error}") from None
    if wanted is not None and record.table_uuid != record.expected_uuid:
        raise RestoreRefused(
            f"the tombstone {record.tombstone_id} is not known to be the table that its caller dropped, and gets its "
            "own name back"
        )
    return wanted
