"""Client of Polaris' Iceberg REST API: the operations that purges and drops need."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, Final

import httpx

from delegation.identifiers import TableIdentifier, encoded
from delegation.items import each_item
from delegation.polaris.answers import (
    CATALOG_UNSUPPORTED,
    NoSuchCatalog,
    NoSuchNamespace,
    NoSuchTable,
    PolarisError,
    PolarisForbidden,
    PolarisOutcomeUnknown,
    PolarisUnavailable,
    PolarisUnexpectedAnswer,
    json_object,
    why_unsupported,
)
from delegation.polaris.credentials import parse_credentials
from delegation.polaris.model import (
    GENERIC_TABLE,
    NO_SUCH_ENDPOINT,
    TABLE,
    GenericTable,
    LoadedTable,
    entities_path,
    name_in,
    with_uuid,
)
from delegation.polaris.requests import CatalogRequests, TokenSource, each_named, error_in, mapping_in
from delegation.polaris.transport import Transport
from polaris_common.errors import ErrorScope

_NO_SUCH_API = frozenset({400, 404, 405, 406, 501})
"""Answers of a catalog without generic tables: another server, an older Polaris, or one that disables them."""
_VENDED = {"X-Iceberg-Access-Delegation": "vended-credentials"}
_CATALOG_CHECK_SECONDS: Final = 2.0
"""How long a submission waits for Polaris' answer about a catalog."""
_KNOWN_SECONDS: Final = 300.0
_UNKNOWN_SECONDS: Final = 30.0
_REQUIRED_METADATA = ("table-uuid", "location", "format-version")


class PolarisClient:
    """Loads, lists, renames and drops tables as the token's principal; thread-safe.

    `base_url` is the `uri` of Iceberg clients, such as `https://polaris/api/catalog`. GETs are retried after transient
    failures, and any request once with a fresh token after a 401. Every method raises PolarisUnavailable,
    PolarisUnauthorized, PolarisForbidden, PolarisMisconfigured and PolarisUnexpectedAnswer besides the errors it names.
    `requests` are for the clients of its other APIs, such as PolicyClient.
    """

    def __init__(
        self,
        base_url: str,
        token: TokenSource,
        *,
        realm: str | None = None,
        transport: Transport | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.requests = CatalogRequests(base_url, token, realm=realm, transport=transport or Transport())
        self._without_generic_tables: set[str] = set()
        self._checked: dict[str, tuple[float, str | None]] = {}
        self._monotonic = monotonic
        self._lock = Lock()

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable:
        """Return the table's current metadata, with vended storage credentials unless `vend` is False. Raises
        NoSuchTable, NoSuchNamespace, NoSuchCatalog, TableMetadataMissing. Source: Iceberg REST specification, loadTable
        and LoadTableResult."""
        path = self.requests.catalog(identifier.catalog).table_path(identifier)
        headers = _VENDED if vend else {}
        return loaded_table(identifier, self.requests.get(path, {"snapshots": snapshots}, headers))

    def load_if_changed(self, identifier: TableIdentifier, etag: str | None) -> LoadedTable | None:
        """Load the table with vended credentials and all snapshots; None if `etag` is still its ETag. Raises as
        `load_table`. Source: Iceberg REST specification, loadTable, parameter If-None-Match."""
        path = self.requests.catalog(identifier.catalog).table_path(identifier)
        headers = {**_VENDED, **({} if etag is None else {"If-None-Match": etag})}
        response = self.requests.send("GET", path, {"snapshots": "all"}, headers)
        if response.status_code == 304:
            return None
        if response.status_code != 200:
            raise error_in(response)
        return loaded_table(identifier, json_object(response), response.headers.get("ETag"))

    def check_catalog(self, catalog: str) -> None:
        """Raise PolarisError (CATALOG_UNSUPPORTED) for a catalog known to be EXTERNAL or not on S3. Passes if the
        principal may not read it (CATALOG_READ_PROPERTIES), or without the management API. An answer is cached for five
        minutes; after a failure it is requested again after 30 s, and until then the last answer counts. Source: Apache
        Polaris, polaris-management-service.yml, getCatalog."""
        until, why = self._checked.get(catalog, (float("-inf"), None))
        if until <= self._monotonic():
            pause = _KNOWN_SECONDS
            try:
                path = f"../management/v1/catalogs/{encoded(catalog)}"
                why = why_unsupported(self.requests.get(path, {}, within=_CATALOG_CHECK_SECONDS))
            except PolarisUnavailable:
                pause = _UNKNOWN_SECONDS
            except PolarisError:
                why = None
            self._checked[catalog] = (self._monotonic() + pause, why)
        if why is not None:
            raise PolarisError(f"{catalog}: {why}", status=200, code=CATALOG_UNSUPPORTED)

    def unknown_endpoints(self, catalog: str) -> tuple[str, ...]:
        """Return the advertised endpoints of single tables that this release does not know. Raises NoSuchCatalog."""
        return self.requests.catalog(catalog).unknown

    def sign_in(self) -> None:
        """Obtain a token of the principal unless one is still valid. Raises the errors of the token endpoint."""
        self.requests.sign_in()

    def list_tables(self, catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]:
        """Yield the tables of one namespace, not of those below; pages are fetched on demand. Raises NoSuchNamespace,
        NoSuchCatalog, and after all others PolarisUnexpectedAnswer for a name that no request can carry. Source:
        Iceberg REST specification, listTables and PageToken."""
        path = self.requests.catalog(catalog).tables_path(namespace)
        yield from _listed(TABLE, catalog, namespace, self.requests.pages(path, {}, "identifiers"))

    def check_listing(self, catalog: str, namespace: tuple[str, ...]) -> None:
        """Raise NoSuchNamespace or PolarisForbidden unless the tables of a namespace may be listed."""
        path = self.requests.catalog(catalog).tables_path(namespace)
        next(self.requests.pages(path, {}, "identifiers", size=1), None)

    def list_namespaces(self, catalog: str, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        """Yield the namespaces one level below `parent`, by default the catalog's; pages are fetched on demand. Raises
        as `list_tables`. Source: Iceberg REST specification, listNamespaces."""
        known = self.requests.catalog(catalog)
        params = {"parent": known.joined(parent)} if parent else {}

        def named(entry: Any) -> tuple[str, ...]:
            if not isinstance(entry, list) or not entry or not all(isinstance(level, str) for level in entry):
                raise PolarisUnexpectedAnswer("Polaris listed a namespace that is not a list of names", status=200)
            return tuple(entry)

        yield from each_named(self.requests.pages(known.namespaces_path, params, "namespaces"), named)

    def list_others(self, kind: str, catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]:
        """Yield the views or generic tables of one namespace (`kind` is one of other_entities), none if the server
        lacks that kind. Raises as `list_tables`."""
        # Raises for an unknown catalog here; after this, a path that the server lacks gives 404 NotFoundException too.
        path = entities_path(kind, self.requests.catalog(catalog).namespace_path(namespace))
        try:
            yield from _listed(kind, catalog, namespace, self.requests.pages(path, {}, "identifiers"))
        except NoSuchNamespace:
            raise
        except PolarisError as error:
            if error.status not in NO_SUCH_ENDPOINT:
                raise

    def load_other(self, kind: str, identifier: TableIdentifier) -> Mapping[str, Any]:
        """Return a view's or a generic table's document. Raises NoSuchTable, NoSuchNamespace, NoSuchCatalog."""
        return json_object(self._other("GET", kind, identifier))

    def drop_other(self, kind: str, identifier: TableIdentifier) -> None:
        """Drop a view or a generic table. Raises as `drop_table`."""
        self._other("DELETE", kind, identifier)

    def _other(self, method: str, kind: str, identifier: TableIdentifier) -> httpx.Response:
        namespace = self.requests.catalog(identifier.catalog).namespace_path(identifier.namespace)
        response = self.requests.send(method, f"{entities_path(kind, namespace)}/{encoded(identifier.name)}", {}, {})
        if response.is_success:
            return response
        error = error_in(response)
        if response.status_code == 404 and not isinstance(error, NoSuchNamespace | NoSuchCatalog):
            raise NoSuchTable(str(error), status=404) from error
        raise error

    def generic_tables(
        self, catalog: str, namespace: tuple[str, ...], before: Callable[[], None] = lambda: None
    ) -> Iterator[GenericTable]:
        """Yield the generic tables of a namespace, none if the catalog has no such API, which is checked once. An
        unreadable one has no location. `before` is called before each request. Raises NoSuchNamespace, and after all
        others the errors of names and of tables without an answer. Source: Apache Polaris, generic-tables-api.yaml."""
        with self._lock:
            if catalog in self._without_generic_tables:
                return
        path = f"polaris/{self.requests.catalog(catalog).namespace_path(namespace)}/generic-tables"
        tables, failed = list[TableIdentifier](), list[Exception]()
        try:
            pages = self.requests.pages(path, {}, "identifiers", before)
            for identifier in _listed(GENERIC_TABLE, catalog, namespace, pages):
                tables.append(identifier)
        except PolarisError as error:
            if error.status in _NO_SUCH_API and not isinstance(error, NoSuchNamespace):
                with self._lock:
                    self._without_generic_tables.add(catalog)
                return
            if error.status != 200:
                raise
            failed.append(error)

        def load(identifier: TableIdentifier) -> GenericTable | None:
            try:
                table = self.requests.get(f"{path}/{encoded(identifier.name)}", {}).get("table")
            except (PolarisForbidden, PolarisUnexpectedAnswer):
                return GenericTable(identifier, None)
            except PolarisError as error:
                if error.status == 404:
                    return None  # dropped meanwhile
                raise
            location = table.get("base-location") if isinstance(table, dict) else None
            return GenericTable(identifier, location if isinstance(location, str) and location else None)

        for outcome in each_item(
            tables, load, name="polaris.generic-tables", stops=ErrorScope.CATALOG, checkpoint=before
        ):
            if outcome.result is not None:
                yield outcome.result
            elif outcome.error is not None:
                failed.append(outcome.error)
        if failed:
            raise failed[0]

    def has_namespace(self, catalog: str, namespace: tuple[str, ...]) -> bool:
        """Return whether a namespace exists. Raises NoSuchCatalog."""
        try:
            self.requests.get(self.requests.catalog(catalog).namespace_path(namespace), {})
        except NoSuchNamespace:
            return False
        return True

    def namespace_location(self, catalog: str, namespace: tuple[str, ...]) -> str | None:
        """Return a namespace's property `location`, None without one; Polaris gives every namespace one. Raises
        NoSuchNamespace, NoSuchCatalog. Source: Iceberg REST specification, loadNamespaceMetadata."""
        properties = self.requests.get(self.requests.catalog(catalog).namespace_path(namespace), {}).get("properties")
        location = properties.get("location") if isinstance(properties, dict) else None
        return location if isinstance(location, str) and location else None

    def create_namespace(self, catalog: str, namespace: tuple[str, ...]) -> None:
        """Create a namespace whose parent exists; an existing one is kept. Raises NoSuchNamespace, NoSuchCatalog."""
        body = {"namespace": list(namespace), "properties": {}}
        response = self.requests.send("POST", self.requests.catalog(catalog).namespaces_path, {}, {}, body)
        if not (response.is_success or response.status_code == 409):
            raise error_in(response)

    def drop_namespace(self, catalog: str, namespace: tuple[str, ...]) -> None:
        """Drop an empty namespace. Raises NamespaceNotEmpty, NoSuchNamespace (also if an earlier, unanswered request
        dropped it), NoSuchCatalog, and PolarisOutcomeUnknown if it may have been dropped."""
        response = self.requests.send("DELETE", self.requests.catalog(catalog).namespace_path(namespace), {}, {})
        if not response.is_success:
            raise error_in(response)

    def drop_table(self, identifier: TableIdentifier, *, purge: bool = False) -> None:
        """Drop the table; its files remain unless `purge`, which Polaris refuses by default (403). Raises NoSuchTable
        (also if an earlier, unanswered request dropped it), NoSuchNamespace, NoSuchCatalog, and PolarisOutcomeUnknown
        if it may have been dropped."""
        self._drop(identifier, purge, {})

    def purge_table(self, identifier: TableIdentifier, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Drop the table with its files through a gateway in front of Polaris, which gets `headers`. Returns the
        headers of its answer, case-insensitive. Raises as `drop_table`."""
        return self._drop(identifier, True, headers)

    def _drop(self, identifier: TableIdentifier, purge: bool, headers: Mapping[str, str]) -> Mapping[str, str]:
        path = self.requests.catalog(identifier.catalog).table_path(identifier)
        params = {"purgeRequested": "true" if purge else "false"}
        response = self.requests.send("DELETE", path, params, headers)
        # Polaris answers 204, the Iceberg project's reference server 200.
        if not response.is_success:
            raise error_in(response)
        return response.headers

    def own_tombstones(self, page_token: str | None = None) -> Mapping[str, Any]:
        """Return a page of the tables that the principal dropped through the gateway in front of Polaris."""
        return self.requests.get(
            "v1/tombstones", {"mine": "true", **({"page_token": page_token} if page_token else {})}
        )

    def restore_own_tombstone(self, tombstone_id: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Rename such a table as `document` states, through the gateway; a repeat finishes it. Raises NoSuchTable for
        another principal's tombstone, and TableAlreadyExists."""
        response = self.requests.send("POST", f"v1/tombstones/{encoded(tombstone_id)}/restore", {}, {}, document)
        if response.is_success:
            return json_object(response)
        error = error_in(response)
        raise NoSuchTable(str(error), status=404) if response.status_code == 404 else error

    def rename_table(self, identifier: TableIdentifier, destination: TableIdentifier) -> None:
        """Rename the table within its catalog; its uuid, location and files stay. Raises NoSuchTable (also if an
        earlier, unanswered request renamed it), NoSuchNamespace for the destination's, NoSuchCatalog,
        TableAlreadyExists, and PolarisOutcomeUnknown if it may have been renamed. Source: Iceberg REST specification,
        renameTable."""
        path = f"{self.requests.catalog(identifier.catalog).prefixed}tables/rename"
        ends = {"source": identifier, "destination": destination}
        document = {end: {"namespace": list(table.namespace), "name": table.name} for end, table in ends.items()}
        response = self.requests.send("POST", path, {}, {}, document)
        if not response.is_success:
            raise error_in(response)

    def commit_table(
        self,
        identifier: TableIdentifier,
        requirements: Sequence[Mapping[str, Any]],
        updates: Sequence[Mapping[str, Any]],
    ) -> LoadedTable:
        """Commit updates if the requirements hold; return the table as of the commit, without credentials. Raises
        CommitConflict, NoSuchTable, NoSuchNamespace, NoSuchCatalog, and PolarisOutcomeUnknown if the commit may have
        been applied. Source: Iceberg REST specification, updateTable."""
        path = self.requests.catalog(identifier.catalog).table_path(identifier)
        name = {"namespace": list(identifier.namespace), "name": identifier.name}
        document = {"identifier": name, "requirements": list(requirements), "updates": list(updates)}
        response = self.requests.send("POST", path, {}, {}, document)
        if not response.is_success:
            raise error_in(response)
        try:
            answer = json_object(response)
            metadata = {name: answer.get(name) for name in ("metadata", "metadata-location")}
            return loaded_table(identifier, metadata)
        except PolarisUnexpectedAnswer as error:
            raise PolarisOutcomeUnknown(
                f"Polaris' answer to the commit to {identifier} is unusable: {error}"
            ) from error


def _listed(kind: str, catalog: str, namespace: tuple[str, ...], entries: Iterable[Any]) -> Iterator[TableIdentifier]:
    def named(entry: Any) -> TableIdentifier:
        name = name_in(entry)
        if name is None:
            raise PolarisUnexpectedAnswer(f"Polaris listed a {kind} without a name", status=200)
        try:
            return TableIdentifier(catalog, namespace, name)
        except ValueError as error:
            raise PolarisUnexpectedAnswer(
                f"the {kind} {name!r} cannot be named in a request: {error}", status=200
            ) from None

    return each_named(entries, named)


def _is_usable(metadata: Mapping[str, Any]) -> bool:
    """Return whether metadata states which table it is, where, and of which format."""
    try:
        int(metadata["format-version"])
    except (KeyError, OverflowError, TypeError, ValueError):
        return False
    return isinstance(metadata.get("location"), str) and all(metadata.get(name) for name in _REQUIRED_METADATA)


def loaded_table(identifier: TableIdentifier, body: Mapping[str, Any], etag: str | None = None) -> LoadedTable:
    """Return the table of a LoadTableResult (Iceberg REST specification). Raises PolarisUnexpectedAnswer."""
    metadata, location = body.get("metadata"), body.get("metadata-location")
    if isinstance(metadata, dict):
        metadata = with_uuid(metadata, identifier.catalog, str(location))
    if not isinstance(metadata, dict) or not _is_usable(metadata):
        raise PolarisUnexpectedAnswer(
            f"Polaris' answer to the load of {identifier} has no usable table metadata", status=200
        )
    if not isinstance(location, str) or not location:
        raise PolarisUnexpectedAnswer(
            f"Polaris' answer to the load of {identifier} has no metadata-location", status=200
        )
    vended = body.get("storage-credentials") or []
    if not isinstance(vended, list):
        raise PolarisUnexpectedAnswer(
            f"Polaris' answer to the load of {identifier} has unusable storage-credentials", status=200
        )
    config = {name: str(value) for name, value in mapping_in(body, "config").items()}
    return LoadedTable(
        identifier=identifier,
        metadata_location=location,
        metadata=metadata,
        config=config,
        credentials=parse_credentials(config, vended),
        etag=etag,
    )
