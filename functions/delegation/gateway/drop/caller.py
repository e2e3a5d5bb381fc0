"""What a drop does as its caller: requests in its name, and what it has to prove before the rename."""

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import httpx

from delegation.gateway.drop.errors import DropError, purge_forbidden
from delegation.gateway.drop.tombstones import Tombstone
from delegation.gateway.errors import CatalogOutcomeUnknown
from delegation.gateway.forwarding import without
from delegation.gateway.messages import CatalogAnswer, CatalogRequest, Headers
from delegation.iceberg.metadata import parse_metadata
from delegation.identifiers import TableIdentifier, encoded, joined_levels
from delegation.polaris.answers import PolarisError, error_of, json_object
from delegation.polaris.client import loaded_table
from delegation.polaris.model import LoadedTable
from delegation.removal.paths import covered_roots, table_roots
from delegation.removal.purge.context import check_table
from delegation.removal.purge.requests import PurgeOptions
from delegation.storage.base import ObjectStore

Forward = Callable[[CatalogRequest], CatalogAnswer]
"""Sends a request to the catalog; raises CatalogUnavailable and CatalogOutcomeUnknown."""

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
"""Headers of the caller's request that mean something else in a request of the drop's own."""
_JSON: Final = ("Content-Type", "application/json")
_SCHEMA: Final = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "proof", "type": "int", "required": False}],
}


class CallerCatalog:
    """Loads and renames a table in the name of the caller whose DELETE `request` is."""

    def __init__(self, forward: Forward, request: CatalogRequest) -> None:
        self._forward = forward
        # …/namespaces/{namespace}/tables/{table}
        self._base = request.path.rsplit("/", 4)[0]
        self._headers = _own_headers(request)
        self._path = request.path

    def load(self, *, vend: bool) -> CatalogAnswer:
        """Load the table, with vended storage credentials for the caller or without."""
        asked = (("X-Iceberg-Access-Delegation", "vended-credentials"),) if vend else ()
        return self._forward(CatalogRequest("GET", self._path, "snapshots=all", (*self._headers, *asked)))

    def rename(self, source: TableIdentifier, destination: TableIdentifier) -> CatalogAnswer | None:
        """Rename the table; None without an answer. Raises CatalogUnavailable if the request was not sent."""
        ends = {"source": source, "destination": destination}
        body = {end: {"namespace": list(one.namespace), "name": one.name} for end, one in ends.items()}
        path, headers = f"{self._base}/tables/rename", (*self._headers, _JSON)
        try:
            return self._forward(CatalogRequest("POST", path, "", headers, json.dumps(body).encode()))
        except CatalogOutcomeUnknown:
            return None

    def is_view(self, identifier: TableIdentifier) -> bool:
        return self._has("HEAD", f"{self._namespace(self._base, identifier)}/views/{encoded(identifier.name)}")

    def is_generic_table(self, identifier: TableIdentifier) -> bool:
        """Return whether the name is a generic table's (Apache Polaris, generic-tables-api.yaml)."""
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
    """Return the catalog's refusal to let the caller create a table in a namespace, None if it may. Asks by a staged
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
        f"the catalog answered {answer.status} when it was asked whether the caller may create tables in the "
        "namespace, so nothing was restored; repeat the request",
        code="RESTORE_NOT_PROVED",
        status=503,
        retryable=True,
    )


def table_of(identifier: TableIdentifier, answer: CatalogAnswer) -> LoadedTable:
    """Return the table of a successful load; raises PolarisUnexpectedAnswer."""
    return loaded_table(identifier, json_object(_response(answer)))


def refusal_of(answer: CatalogAnswer) -> PolarisError:
    return error_of(_response(answer), write=True)


def _response(answer: CatalogAnswer) -> httpx.Response:
    """Return the answer as the catalog's client reads it, decompressed."""
    return httpx.Response(answer.status, headers=list(answer.headers), content=answer.body)


def check_purgeable(table: LoadedTable, options: PurgeOptions) -> None:
    """Apply the guards that metadata alone decides; raises GuardRefused and IcebergError, as the purge would later."""
    metadata = parse_metadata(table.metadata_location, table.metadata, experimental=options.experimental_format)
    check_table(metadata, options, table_uuid=table.table_uuid)
    table_roots(metadata, (), options)


def prove_privilege(table: LoadedTable, files: ObjectStore) -> None:
    """Delete a key that never existed below each location, with the caller's vended credentials. Polaris requires
    TABLE_DROP and TABLE_WRITE_DATA for a drop with purge, but only TABLE_DROP for a rename; without TABLE_WRITE_DATA it
    vends credentials that cannot delete. Raises DropError (PURGE_FORBIDDEN)."""
    if not table.credentials:
        raise purge_forbidden(str(table.identifier), "it vends none")
    for prefix in covered_roots(table).uris:
        refused = files.probe_delete(prefix)
        if refused is not None:
            raise purge_forbidden(str(table.identifier), refused)


_CLOCK_DRIFT: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class DropKey:
    """The key's scope, when it was first reserved, and whether an earlier request reserved it. `hold` extends the
    reservation and raises MutationInProgress if another request has the key. This request arrived at
    `arrived`."""

    scope: str
    since: datetime
    is_repeat: bool
    arrived: datetime
    hold: Callable[[], None]

    def is_of(self, record: Tombstone, caller: str) -> bool:
        """Return whether a request with this key wrote the record; caller and time decide for one without scope."""
        if record.scope is not None:
            return record.scope == self.scope
        return record.caller == caller and record.created_at >= self.since - _CLOCK_DRIFT
