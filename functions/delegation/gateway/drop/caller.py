"""What a drop does as its caller: requests in its name, and the proof of its privilege before the rename. A caller also
lists and restores the tables that it dropped, without an operator. The record must be its own, a staged create shows
that it may create the table, and the service renames."""

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import parse_qsl

import httpx
from pydantic import ValidationError

from delegation.gateway.drop.errors import (
    DropError,
    RestoreRefused,
    as_drop_errors,
    bad_tombstone_request,
    parameter_repeated,
    purge_forbidden,
    tombstone_not_found,
    word_unknown,
)
from delegation.gateway.drop.service import Tombstones
from delegation.gateway.drop.settings import MODE_HEADER, MODES, TABLE_UUID_HEADER
from delegation.gateway.drop.tombstones import Tombstone, caller_key
from delegation.gateway.forwarding import FORWARDED_BY, REALM_HEADER, GatewayCaller, without
from delegation.gateway.messages import CatalogAnswer, CatalogOutcomeUnknown, CatalogRequest, Headers, json_answer
from delegation.gateway.routing import DEFAULT_PATHS, PURGE, CatalogPaths, query_of
from delegation.iceberg.metadata import parse_metadata
from delegation.idempotency.answers import OWN_HEADERS
from delegation.identifiers import TableIdentifier, encoded, joined_levels
from delegation.polaris.answers import PolarisError, error_of, json_object
from delegation.polaris.client import loaded_table
from delegation.polaris.model import LoadedTable
from delegation.removal.path_guard import covered_roots, table_roots
from delegation.removal.purge.context import check_table
from delegation.removal.purge.requests import PurgeOptions
from delegation.storage.base import ObjectStore
from delegation.wire.operators import RestoreRequest
from polaris_common.errors import printable

Forward = Callable[[CatalogRequest], CatalogAnswer]
"""Sends a request to the catalog. Raises CatalogUnavailable and CatalogOutcomeUnknown."""

_OF_THE_DELETE: Final = frozenset({
    "accept",
    "accept-encoding",
    "content-encoding",
    "content-length",
    "content-type",
    "idempotency-key",
    "if-match",
    "if-none-match",
    "x-iceberg-access-delegation",
})  # fmt: skip
"""Headers of the caller's request that must not go with the drop's own requests."""
_REQUEST_HEADERS: Final = frozenset(header.lower() for header in (MODE_HEADER, TABLE_UUID_HEADER, FORWARDED_BY))
_JSON: Final = ("Content-Type", "application/json")
_SCHEMA: Final = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "proof", "type": "int", "required": False}],
}


class CallerCatalog:
    """Loads and renames a table in the name of the caller who sent the DELETE `request`."""

    def __init__(self, forward: Forward, request: CatalogRequest) -> None:
        self._forward = forward
        # …/namespaces/{namespace}/tables/{table}
        self._base = request.path.rsplit("/", 4)[0]
        self._headers = _own_headers(request)
        self._path = request.path

    def load(self, *, vend: bool) -> CatalogAnswer:
        """Load the table, with or without vended storage credentials for the caller."""
        asked = (("X-Iceberg-Access-Delegation", "vended-credentials"),) if vend else ()
        return self._forward(CatalogRequest("GET", self._path, "snapshots=all", (*self._headers, *asked)))

    def rename(self, source: TableIdentifier, destination: TableIdentifier) -> CatalogAnswer | None:
        """Rename the table; None if there is no answer. Raises CatalogUnavailable if the request was not sent."""
        ends = {"source": source, "destination": destination}
        body = {end: {"namespace": list(table.namespace), "name": table.name} for end, table in ends.items()}
        path, headers = f"{self._base}/tables/rename", (*self._headers, _JSON)
        try:
            return self._forward(CatalogRequest("POST", path, "", headers, json.dumps(body).encode()))
        except CatalogOutcomeUnknown:
            return None

    def is_view(self, identifier: TableIdentifier) -> bool:
        return self._has("HEAD", f"{self._namespace(self._base, identifier)}/views/{encoded(identifier.name)}")

    def is_generic_table(self, identifier: TableIdentifier) -> bool:
        """Return whether the name belongs to a generic table (Apache Polaris, generic-tables-api.yaml)."""
        namespace = self._namespace(f"polaris/{self._base}", identifier)
        return self._has("GET", f"{namespace}/generic-tables/{encoded(identifier.name)}")

    def _has(self, method: str, path: str) -> bool:
        return self._forward(CatalogRequest(method, path, "", self._headers)).is_success

    @staticmethod
    def _namespace(base: str, identifier: TableIdentifier) -> str:
        return f"{base}/namespaces/{encoded(joined_levels(identifier.namespace))}"


def _own_headers(request: CatalogRequest) -> Headers:
    """Return the headers of a request that the drop sends in the caller's name."""
    kept = without(request.headers, *_OF_THE_DELETE)
    return (*kept, ("Accept", "application/json"), ("Accept-Encoding", "identity"))


def refusal_to_create(forward: Forward, request: CatalogRequest, namespace_path: str) -> CatalogAnswer | None:
    """Return the catalog's refusal to let the caller create a table in a namespace, None if it may. It sends a staged
    create of a random name, which has no effect (Iceberg REST Catalog API, createTable). Raises DropError
    (RESTORE_NOT_PROVED) for an answer that is not a catalog's, and the errors of `forward`."""
    body = {"name": f"restore_proof_{secrets.token_hex(8)}", "schema": _SCHEMA, "stage-create": True}
    answer = forward(
        CatalogRequest(
            "POST", f"{namespace_path}/tables", "", (*_own_headers(request), _JSON), json.dumps(body).encode()
        )
    )
    document = answer.document or {}
    if answer.is_success and isinstance(document.get("metadata"), dict):
        return None
    if 400 <= answer.status < 500 and (answer.status in {401, 419} or isinstance(document.get("error"), dict)):
        return answer
    raise DropError(
        "the check whether the caller may create tables in the namespace failed: the catalog answered "
        f"{answer.status}. Nothing was restored. Repeat the request",
        code="RESTORE_NOT_PROVED",
        status=503,
        retryable=True,
    )


def wanted_uuid(request: CatalogRequest) -> str | None:
    """Return the uuid of the only table that a request is for, None if it names none."""
    text = request.header(TABLE_UUID_HEADER)
    return None if text is None else text.strip().lower()


def check_words(request: CatalogRequest) -> None:
    """Raise DropError (INVALID_REQUEST) for a parameter or a header of the service that a drop would ignore."""
    names = [name for name, _ in parse_qsl(request.query, keep_blank_values=True)]
    for name in names:
        if name != PURGE:
            raise word_unknown(f"the query parameter {printable(name)}", name, (PURGE,))
    if len(names) > 1:
        raise parameter_repeated(PURGE)
    for name, value in request.headers:
        if name.lower().startswith(OWN_HEADERS) and name.lower() not in _REQUEST_HEADERS:
            raise word_unknown(printable(name), name, (MODE_HEADER, TABLE_UUID_HEADER))
        if name.lower() == MODE_HEADER.lower() and value not in MODES:
            raise word_unknown(f"{MODE_HEADER}: {printable(value)}", value, MODES)


def table_of(identifier: TableIdentifier, answer: CatalogAnswer) -> LoadedTable:
    """Return the table of a successful load. Raises PolarisUnexpectedAnswer."""
    return loaded_table(identifier, json_object(_response(answer)))


def refusal_of(answer: CatalogAnswer) -> PolarisError:
    return error_of(_response(answer), write=True)


def _response(answer: CatalogAnswer) -> httpx.Response:
    return httpx.Response(answer.status, headers=list(answer.headers), content=answer.body)


def check_purgeable(table: LoadedTable, options: PurgeOptions) -> None:
    """Apply the guards that need only metadata. Raises GuardRefused and IcebergError, as the purge would later."""
    metadata = parse_metadata(table.metadata_location, table.metadata, experimental=options.experimental_format)
    check_table(metadata, options, table_uuid=table.table_uuid)
    table_roots(metadata, (), options)


def prove_privilege(table: LoadedTable, files: ObjectStore) -> None:
    """Delete a key that never existed below each location, with the caller's vended credentials. Polaris requires
    TABLE_DROP and TABLE_WRITE_DATA for a drop with purge, but only TABLE_DROP for a rename; without TABLE_WRITE_DATA it
    vends credentials that cannot delete. Raises DropError (PURGE_FORBIDDEN)."""
    if not table.credentials:
        raise purge_forbidden(str(table.identifier), "the catalog vended none")
    for prefix in covered_roots(table).uris:
        refused = files.probe_delete(prefix)
        if refused is not None:
            raise purge_forbidden(str(table.identifier), refused)


_CLOCK_DRIFT: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class DropKey:
    """The key's scope, when it was first reserved, and whether an earlier request reserved it. `hold` extends the
    reservation, and raises MutationInProgress if another request has the key. This request arrived at `arrived`."""

    scope: str
    since: datetime
    is_repeat: bool
    arrived: datetime
    hold: Callable[[], None]

    def is_of(self, record: Tombstone, caller: str) -> bool:
        """Return whether a request with this key wrote the record; without scope, caller and time decide."""
        if record.scope is not None:
            return record.scope == self.scope
        return record.caller == caller and record.created_at >= self.since - _CLOCK_DRIFT


_LARGEST_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class OwnersTombstones:
    """Answers requests for the caller's own tombstones; `tombstones` is called once, for the first one."""

    tombstones: Callable[[], Tombstones]
    forward: Forward
    realm: str
    paths: CatalogPaths = DEFAULT_PATHS

    def list(self, request: CatalogRequest, caller: GatewayCaller) -> CatalogAnswer:
        """Return a page of the caller's dropped tables, newest first (`page_size`, `page_token`). Raises DropError."""
        query = query_of(request.query)
        size, cursor = query.get("page_size", str(_LARGEST_PAGE)), query.get("page_token") or None
        if not (size.isascii() and size.isdigit() and 1 <= int(size) <= _LARGEST_PAGE):
            raise bad_tombstone_request(f"page_size: must be a number from 1 to {_LARGEST_PAGE}")
        if cursor is not None and not all(character in "0123456789abcdef-" for character in cursor):
            raise bad_tombstone_request("page_token: must be the next_page_token of an earlier answer")
        if self._is_foreign(request):
            return json_answer(200, {"tombstones": [], "next_page_token": None})
        with as_drop_errors("the list of dropped tables", "the dropped tables were not listed"):
            page = self.tombstones().list(int(size), cursor, caller=_key(caller))
        shown = [tombstone.public() for tombstone in page.tombstones if tombstone.realm == self.realm]
        return json_answer(200, {"tombstones": shown, "next_page_token": page.cursor})

    def restore(self, request: CatalogRequest, caller: GatewayCaller, tombstone_id: str) -> CatalogAnswer:
        """Rename a dropped table back, to its former name or the body's `to`; a repeat finishes it. Raises DropError
        (TOMBSTONE_NOT_FOUND, also for another caller's; RESTORE_NOT_PROVED, BAD_TOMBSTONE_REQUEST), RestoreRefused,
        NameTaken, and the errors of the catalog and the store."""
        tombstones = self.tombstones()
        with as_drop_errors(f"the restore of {tombstone_id}", f"the tombstone {tombstone_id} was not restored"):
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
            f"the tombstone {record.tombstone_id} may hold another table than the one that its caller dropped, so it "
            "can be restored only to its former name. Send the request without `to`"
        )
    return wanted
