"""The catalog's operations on tables and views, which raise RestError."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from delegation.iceberg.avro.manifests import read_manifest_list, read_paths
from delegation.identifiers import encoded, joined_levels
from infra.local.catalog import errors
from infra.local.catalog.access import AccessControl, CatalogCaller
from infra.local.catalog.entities import VIEW, CatalogEntities, CatalogEntry, Namespace, TableKey, dotted
from infra.local.catalog.layout import ALLOW_PURGE, LOCATION, PURGE_VIEWS, TableLayout, Warehouse, check_names, used_by
from infra.local.catalog.metadata import (
    CredentialVendor,
    JsonObject,
    MetadataFiles,
    committed,
    committed_view,
    new_metadata,
    version_of,
)
from polaris_persistence.iceberg.updates.change import LAST_ADDED


def reached_by(metadata: Mapping[str, Any], metadata_location: str, read: Callable[[str], bytes]) -> Iterator[str]:
    """Yield the table's files, those that others name last; `read` returns the content of a file."""
    lists = [snapshot["manifest-list"] for snapshot in metadata.get("snapshots") or () if "manifest-list" in snapshot]
    manifests = dict.fromkeys(
        manifest.manifest_path for path in lists for manifest in read_manifest_list(read(path), path)
    )
    for manifest in manifests:
        for entries in read_paths(read(manifest), manifest):
            yield from dict.fromkeys(path for _status, _content, path, _size in entries)
    yield from manifests
    yield from lists
    for kind in ("statistics", "partition-statistics"):
        yield from (part["statistics-path"] for part in metadata.get(kind) or ())
    yield from (entry["metadata-file"] for entry in metadata.get("metadata-log") or ())
    yield metadata_location


@dataclass(eq=False)
class LocalTables:
    """The tables of one catalog; each operation checks the principal's privileges as Polaris does."""

    _warehouse: Warehouse
    _entities: CatalogEntities
    _files: MetadataFiles
    _access: AccessControl
    layout: TableLayout
    _vendor: CredentialVendor
    unknown_commits: int = 0
    """So many of the next commits are applied, and answered as of an unknown outcome."""

    def create(self, who: CatalogCaller, name: TableKey, request: Mapping[str, Any], *, vend: bool) -> JsonObject:
        """Return LoadTableResult of a new table, or of a staged one, which exists only after its first commit."""
        check_names(*name[0], name[1])
        staged = bool(request.get("stage-create"))
        operation = f"CREATE_TABLE_{'STAGED' if staged else 'DIRECT'}{'_WITH_WRITE_DELEGATION' if vend else ''}"
        self._access.require(who, operation, self._entities.path(name[0]))
        if self._entities.find(name) is not None:
            raise errors.already_exists(f"Table {dotted(*name)}")
        if self._entities.has_view(name):
            raise errors.already_exists(f"View {dotted(*name)}")
        location = str(request.get(LOCATION) or f"{self.layout.of_namespace(name[0])}/{name[1]}").rstrip("/")
        metadata = new_metadata(request, location, now_ms=self._warehouse.now_ms())
        metadata_location = self._files.next(metadata, 0)
        self.layout.check_new(name, metadata, metadata_location)
        if staged:
            return self._load_result(name, None, metadata, writable=vend or None)
        self._add(name, metadata, metadata_location)
        return self._load_result(name, metadata_location, metadata, writable=vend or None)

    def register(self, who: CatalogCaller, name: TableKey, metadata_location: str, *, vend: bool) -> JsonObject:
        """Return LoadTableResult of a table that gets the metadata file of another, or of a dropped one."""
        check_names(*name[0], name[1])
        self._access.require(who, "REGISTER_TABLE", self._entities.path(name[0]))
        if self._entities.find(name) is not None:
            raise errors.already_exists(f"Table {dotted(*name)}")
        # Its place is checked before it is read, so that nobody learns what lies elsewhere.
        self.layout.check_place(name, metadata_location)
        metadata = self._files.read(metadata_location)
        self.layout.check_new(name, metadata, metadata_location)
        self._entities.add(name, _entry(metadata, metadata_location))
        return self._load_result(name, metadata_location, metadata, writable=vend or None)

    def load(self, who: CatalogCaller, name: TableKey, *, vend: bool, snapshots: str = "all") -> JsonObject:
        """Return LoadTableResult; `snapshots` is "all" or "refs"."""
        entry = self._entities.get(name)
        writable = self._authorize_load(who, name, vend=vend)
        metadata = self._files.read(entry.metadata_location)
        self.layout.check_load(name, metadata)
        match snapshots.lower():
            case "all":
                pass
            case "refs":
                kept = {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}
                known = metadata.get("snapshots", [])
                metadata["snapshots"] = [snapshot for snapshot in known if snapshot["snapshot-id"] in kept]
            case _:
                raise errors.invalid_argument(f"Unrecognized snapshots: {snapshots}")
        return self._load_result(name, entry.metadata_location, metadata, writable=writable)

    def metadata_location(self, who: CatalogCaller, name: TableKey, *, vend: bool) -> str:
        """Return what the table's ETag is made of, for a conditional load."""
        location = self._entities.get(name).metadata_location
        self._authorize_load(who, name, vend=vend)
        return location

    def _authorize_load(self, who: CatalogCaller, name: TableKey, *, vend: bool) -> bool | None:
        """Return whether the credentials may write, None if the load has none; like Polaris, tell nobody otherwise."""
        path = self._entities.path(*name)
        if not vend:
            self._access.require(who, "LOAD_TABLE", path)
            return None
        if self._access.allows(who, "LOAD_TABLE_WITH_WRITE_DELEGATION", path):
            return True
        self._access.require(who, "LOAD_TABLE_WITH_READ_DELEGATION", path)
        return False

    def exists(self, who: CatalogCaller, name: TableKey) -> None:
        """Raise RestError unless the table exists and has its metadata file, which Polaris reads for this too."""
        entry = self._entities.get(name)
        self._access.require(who, "TABLE_EXISTS", self._entities.path(*name))
        self._files.read(entry.metadata_location)

    def credentials(self, who: CatalogCaller, name: TableKey) -> JsonObject:
        """Return LoadCredentialsResponse, for clients that refresh credentials; the metadata file is not read."""
        entry = self._entities.get(name)
        writable = bool(self._authorize_load(who, name, vend=True))
        vended = self._vend(name, entry.used, writable=writable)
        return {"storage-credentials": [{"prefix": entry.location, "config": vended}]}

    def report(self, who: CatalogCaller, name: TableKey, report: Mapping[str, Any]) -> None:
        """Accept a metrics report; raise RestError 400 for what is none."""
        kind = report.get("report-type")
        if kind not in {"scan-report", "commit-report"}:
            raise errors.invalid_argument(f"Cannot parse metrics report: missing or unknown report-type {kind}")
        operation = "REPORT_READ_METRICS" if kind == "scan-report" else "REPORT_WRITE_METRICS"
        self._access.require(who, operation, self._entities.path(*name))

    def commit(self, who: CatalogCaller, name: TableKey, request: Mapping[str, Any]) -> JsonObject:
        """Return CommitTableResponse; a concurrent commit causes 409 CommitFailedException and leaves no file."""
        requirements: Sequence[Mapping[str, Any]] = request.get("requirements") or []
        updates: Sequence[Mapping[str, Any]] = request.get("updates") or []
        if any(requirement["type"] == "assert-create" for requirement in requirements):
            return self._commit_staged(who, name, requirements, updates)
        entry = self._entities.get(name)
        self._access.require(who, "UPDATE_TABLE", self._entities.path(*name))
        base = self._files.read(entry.metadata_location)
        metadata = self._committed(entry, base, requirements, updates)
        if metadata == base:
            return {"metadata-location": entry.metadata_location, "metadata": base}
        written = self._files.next(metadata, version_of(entry.metadata_location) + 1)
        self.layout.check_commit(name, base, metadata, written)
        new = _entry(metadata, written)
        self._files.write_for(lambda: self._entities.swap(name, entry, new), metadata, written)
        if self.unknown_commits:
            self.unknown_commits -= 1
            raise errors.outcome_unknown("no answer in time", newer=self._warehouse.newer)
        return {"metadata-location": written, "metadata": metadata}

    def commit_all(self, who: CatalogCaller, changes: Sequence[Mapping[str, Any]]) -> None:
        """Commit to several tables or to none; like Polaris, create none and move none."""
        names = [(tuple(change["identifier"]["namespace"]), str(change["identifier"]["name"])) for change in changes]
        for name in names:
            self._access.require(who, "COMMIT_TRANSACTION", self._entities.path(*name))
        swaps: dict[TableKey, tuple[CatalogEntry, CatalogEntry]] = {}
        written: list[str] = []
        try:
            for name, change in zip(names, changes, strict=True):
                requirements, updates = change.get("requirements") or [], change.get("updates") or []
                _refuse_in_transaction(requirements, updates)
                entry = self._entities.get(name)
                base = self._files.read(entry.metadata_location)
                metadata = self._committed(entry, base, requirements, updates)
                if metadata == base:
                    continue
                location = self._files.next(metadata, version_of(entry.metadata_location) + 1)
                self.layout.check_commit(name, base, metadata, location)
                self._files.write(metadata, location)
                written.append(location)
                swaps[name] = (entry, _entry(metadata, location))
            self._entities.swap_all(swaps)
        except errors.RestError:
            for location in written:
                self._files.delete(location)
            raise

    def _committed(
        self,
        entry: CatalogEntry,
        base: JsonObject,
        requirements: Sequence[Mapping[str, Any]],
        updates: Sequence[Mapping[str, Any]],
    ) -> JsonObject:
        location, now_ms = entry.metadata_location, self._warehouse.now_ms()
        newer = self._warehouse.newer
        return committed(base, requirements, updates, now_ms=now_ms, previous_location=location, newer=newer)

    def _commit_staged(
        self,
        who: CatalogCaller,
        name: TableKey,
        requirements: Sequence[Mapping[str, Any]],
        updates: Sequence[Mapping[str, Any]],
    ) -> JsonObject:
        self._access.require(who, "UPDATE_TABLE_FOR_STAGED_CREATE", self._entities.path(name[0]))
        if self._entities.find(name) is not None:
            raise errors.commit_failed("Requirement failed: table already exists")
        place = {"action": "set-location", "location": f"{self.layout.of_namespace(name[0])}/{name[1]}"}
        metadata = committed(None, requirements, [place, *updates], now_ms=self._warehouse.now_ms())
        written = self._files.next(metadata, 0)
        self.layout.check_new(name, metadata, written)
        self._add(name, metadata, written)
        return {"metadata-location": written, "metadata": metadata}

    def _add(self, name: TableKey, metadata: JsonObject, written: str) -> None:
        self._files.write_for(lambda: self._entities.add(name, _entry(metadata, written)), metadata, written)

    def drop(self, who: CatalogCaller, name: TableKey, *, purge: bool) -> None:
        """Remove the table's name; its files too with `purge`, if the catalog's flag allows that."""
        entry = self._entities.get(name)
        self._access.require(who, f"DROP_TABLE_WITH{'' if purge else 'OUT'}_PURGE", self._entities.path(*name))
        if not purge:
            self._entities.drop(name)
            return
        metadata = self._files.read(entry.metadata_location)
        if not self._warehouse.flag(ALLOW_PURGE):
            raise errors.purge_not_enabled(name[1])
        self._entities.drop(name)
        for path in list(reached_by(metadata, entry.metadata_location, self._files.content)):
            self._files.delete(path)

    def rename(self, who: CatalogCaller, source: TableKey, destination: TableKey) -> None:
        """Rename a table; its location stays."""
        check_names(*destination[0], destination[1])
        # Polaris answers 404 and 409 before it checks privileges.
        self._entities.check_rename(source, destination)
        self._access.require(who, "RENAME_TABLE", self._entities.path(*source), self._entities.path(destination[0]))
        self._entities.rename(source, destination)

    def _load_result(
        self, name: TableKey, metadata_location: str | None, metadata: JsonObject, *, writable: bool | None
    ) -> JsonObject:
        """Return a LoadTableResult with credentials that may write or not, or with none if `writable` is None."""
        # Where the storage configuration names an endpoint, a load without credentials has it too.
        place = {
            "s3.endpoint": self._warehouse.s3_endpoint,
            "s3.path-style-access": "true",
            "client.region": self._warehouse.region,
        }
        result: JsonObject = {"metadata": metadata, "config": place}
        if metadata_location is not None:
            result["metadata-location"] = metadata_location
        if writable is None:
            return result
        vended = self._vend(name, used_by(metadata), writable=writable)
        namespace = f"v1/{encoded(self._warehouse.name)}/namespaces/{encoded(joined_levels(name[0]))}"
        result["config"] = {
            **vended,
            **place,
            "client.refresh-credentials-endpoint": f"{namespace}/tables/{encoded(name[1])}/credentials",
        }
        # The prefix is the table's location alone, although the policy covers the write paths too.
        result["storage-credentials"] = [{"prefix": metadata[LOCATION], "config": vended}]
        return result

    def _vend(self, name: TableKey, used: Iterable[str], *, writable: bool) -> dict[str, str]:
        if not self._warehouse.vends:
            reason = f"Credential vending was requested for table {dotted(*name)}, but no credentials are available"
            raise errors.invalid_argument(reason)
        return self._vendor.vend(sorted(used), writable=writable)


def _refuse_in_transaction(requirements: Iterable[Mapping[str, Any]], updates: Iterable[Mapping[str, Any]]) -> None:
    if any(requirement["type"] == "assert-create" for requirement in requirements):
        raise errors.bad_request("Unsupported operation: commitTransaction with updateForStagedCreate")
    if any(update.get("action") == "set-location" for update in updates):
        raise errors.bad_request("Unsupported operation: commitTransaction containing SetLocation")


def _entry(metadata: JsonObject, metadata_location: str) -> CatalogEntry:
    return CatalogEntry(
        metadata_location=metadata_location,
        table_uuid=metadata["table-uuid"],
        location=metadata[LOCATION],
        used=tuple(sorted(used_by(metadata))),
    )


_SUMMARY = {"iceberg-version": "Apache Iceberg 1.11.0"}


@dataclass(frozen=True, eq=False)
class LocalViews:
    """The views of one catalog; each operation checks the principal's privileges as Polaris does."""

    _warehouse: Warehouse
    _entities: CatalogEntities
    _files: MetadataFiles
    _access: AccessControl
    _layout: TableLayout

    def list(self, who: CatalogCaller, namespace: Namespace) -> list[str]:
        self._access.require(who, "LIST_VIEWS", self._entities.path(namespace))
        return self._entities.names(namespace, VIEW)

    def create(self, who: CatalogCaller, name: TableKey, request: Mapping[str, Any]) -> JsonObject:
        """Return LoadViewResult of a new view."""
        check_names(*name[0], name[1])
        self._access.require(who, "CREATE_VIEW", self._entities.path(name[0]))
        if self._entities.has_view(name):
            raise errors.already_exists(f"View {dotted(*name)}")
        if self._entities.find(name) is not None:
            raise errors.already_exists(f"Table {dotted(*name)}")
        location = str(request.get("location") or f"{self._layout.of_namespace(name[0])}/{name[1]}").rstrip("/")
        now_ms = self._warehouse.now_ms()
        # Polaris builds the first version anew: it has the server's time, and the server's release as summary.
        own = {"timestamp-ms": now_ms, "summary": dict(_SUMMARY), "schema-id": LAST_ADDED}
        metadata = committed_view(
            None,
            [],
            [
                {"action": "set-location", "location": location},
                {"action": "set-properties", "updates": dict(request.get("properties") or {})},
                {"action": "add-schema", "schema": request["schema"]},
                {"action": "add-view-version", "view-version": {**request["view-version"], **own}},
                {"action": "set-current-view-version", "view-version-id": LAST_ADDED},
            ],
            now_ms=now_ms,
        )
        written = self._files.next(metadata, 0)
        self._files.write_for(lambda: self._entities.add_view(name, written), metadata, written)
        return _load_result(metadata, written)

    def load(self, who: CatalogCaller, name: TableKey) -> JsonObject:
        location = self._entities.view(name)
        self._access.require(who, "LOAD_VIEW", self._entities.path(*name, kind=VIEW))
        return _load_result(self._files.read(location), location)

    def exists(self, who: CatalogCaller, name: TableKey) -> None:
        self._entities.view(name)
        self._access.require(who, "VIEW_EXISTS", self._entities.path(*name, kind=VIEW))

    def replace(self, who: CatalogCaller, name: TableKey, request: Mapping[str, Any]) -> JsonObject:
        """Return LoadViewResult after a commit; a concurrent one causes 409 CommitFailedException."""
        location = self._entities.view(name)
        self._access.require(who, "REPLACE_VIEW", self._entities.path(*name, kind=VIEW))
        base = self._files.read(location)
        metadata = committed_view(
            base,
            request.get("requirements") or [],
            request.get("updates") or [],
            now_ms=self._warehouse.now_ms(),
        )
        if metadata == base:
            return _load_result(base, location)
        written = self._files.next(metadata, version_of(location) + 1)
        self._files.write_for(lambda: self._entities.swap_view(name, location, written), metadata, written)
        return _load_result(metadata, written)

    def drop(self, who: CatalogCaller, name: TableKey) -> None:
        """Remove a view; like Polaris, refuse it where its metadata would have to be deleted and may not."""
        self._entities.view(name)
        self._access.require(who, "DROP_VIEW", self._entities.path(*name, kind=VIEW))
        if self._warehouse.flag(PURGE_VIEWS, default=True) and not self._warehouse.flag(ALLOW_PURGE):
            raise errors.purge_not_enabled(name[1])
        self._entities.drop(name, VIEW)

    def rename(self, who: CatalogCaller, source: TableKey, destination: TableKey) -> None:
        check_names(*destination[0], destination[1])
        self._entities.check_rename(source, destination, VIEW)
        path = self._entities.path(*source, kind=VIEW)
        self._access.require(who, "RENAME_VIEW", path, self._entities.path(destination[0]))
        self._entities.rename(source, destination, VIEW)


def _load_result(metadata: JsonObject, location: str) -> JsonObject:
    return {"metadata-location": location, "metadata": metadata, "config": {}}
