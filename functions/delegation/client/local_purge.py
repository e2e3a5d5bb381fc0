"""A purge in this process by the service's inline engine, with its plan in a directory or bucket (extra `service`)."""

import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Final

from delegation.client.executor import PurgedTable, WholeCatalog
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import TableMetadataMissing
from delegation.polaris.credentials import VendedCredentials
from delegation.removal.attempt import MemoryAttempt
from delegation.removal.neighbourhood import Neighbourhood, OneTable, OverlapScan, Pace, TableSource
from delegation.removal.purge.behavior import success
from delegation.removal.purge.context import PurgeContext, PurgeResult
from delegation.removal.purge.direct import DirectHead, DirectResources
from delegation.removal.purge.requests import OPTIONS, PurgeSettings, options_of
from delegation.removal.purge.run import purge_table
from delegation.storage.listing.model import ListableStore
from delegation.storage.s3 import S3ObjectStore
from delegation.wire.responses import ExecutionResult, KeptFiles, TaskSuccessResponse

_NAMESPACE: Final = "polaris-local-purge"


@dataclass(frozen=True, slots=True)
class LocallyPurged:
    """The outcome of a purge, the table as it was before it, and the metadata file that was deleted last."""

    outcome: TaskSuccessResponse
    table: PurgedTable
    deleted_location: str


class LocalHead(DirectHead):
    """The published segments of a table's purge; a table that was created again under the name starts afresh."""

    def claim(self, metadata_location: str, table_uuid: str) -> None:
        """Start with this table, unless the place is already its own."""
        if self.stored is None or self.stored["table_uuid"] != table_uuid:
            self._write({"metadata_location": metadata_location, "table_uuid": table_uuid, "segments": []})


@dataclass
class LocalPurge:
    """The purge of one table by its identifier; `run` may be called again, in another process too."""

    catalog: WholeCatalog
    identifier: TableIdentifier
    realm: str
    place: str
    scan: OverlapScan
    clock: Callable[[], datetime]
    store_of: Callable[[TableIdentifier], ListableStore] | None
    settings: PurgeSettings = field(default_factory=PurgeSettings)

    def __post_init__(self) -> None:
        names = [self.realm, self.identifier.catalog, *self.identifier.namespace, self.identifier.name]
        self.task_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{_NAMESPACE}:{json.dumps(names)}"))
        self._plans = DirectResources(f"{self.place.rstrip('/')}/{self.task_id}").plans()

    def run(self, properties: Mapping[str, str]) -> "LocallyPurged":
        """Purge the table. Raises what `purge_table` raises, and for an option DelegationError (INVALID_REQUEST)."""
        properties = OPTIONS.canonical(properties)
        head = LocalHead(self._plans)
        table = self._claimed(head)
        result = purge_table(self._context(head, table, properties))
        return LocallyPurged(self._outcome(result), table, result.metadata_location)

    def _claimed(self, head: LocalHead) -> PurgedTable:
        """Return the table as it was when its purge started; from the plan's place if its metadata file is deleted."""
        try:
            table = self.catalog.load_table(self.identifier, vend=False)
        except TableMetadataMissing:
            if not head.read():
                raise
        else:
            head.claim(table.metadata_location, table.table_uuid)
        stored = head.stored or {}
        return PurgedTable(self.identifier, stored["table_uuid"], stored["metadata_location"], self.task_id)

    def _context(self, head: LocalHead, table: PurgedTable, properties: Mapping[str, str]) -> PurgeContext:
        options = options_of(properties)
        source, store = self._opened()
        attempt = MemoryAttempt(self.task_id, head=head)
        pace = Pace(self.settings.neighbours_per_second, now=time.monotonic, sleep=time.sleep)
        return PurgeContext(
            attempt=attempt,
            identifier=self.identifier,
            table_uuid=table.table_uuid,
            tables=source,
            store=store,
            plans=self._plans,
            options=options,
            settings=self.settings,
            neighbours=Neighbourhood(
                self.catalog, self.identifier, self._files_of, self.scan, attempt.checkpoint, pace
            ),
            clock=self.clock,
            request={"identifier": asdict(self.identifier), "properties": dict(properties), "realm": self.realm},
        )

    def _opened(self) -> tuple[TableSource, ListableStore]:
        """Return the table's source and its files; each load of the source renews the files' credentials."""
        if self.store_of is not None:
            return OneTable(self.catalog, self.identifier), self.store_of(self.identifier)
        credentials = self._credentials(self.identifier)
        return credentials, S3ObjectStore(credentials)

    def _files_of(self, identifier: TableIdentifier) -> ListableStore:
        return self.store_of(identifier) if self.store_of else S3ObjectStore(self._credentials(identifier))

    def _credentials(self, identifier: TableIdentifier) -> VendedCredentials:
        return VendedCredentials(lambda: self.catalog.load_table(identifier), clock=self.clock)

    def _outcome(self, result: PurgeResult) -> TaskSuccessResponse:
        kept = tuple(KeptFiles(code=finding.code, count=finding.count) for finding in result.findings)
        return TaskSuccessResponse(
            delegation_task_id=self.task_id,
            status="COMPLETED_SUCCESS",
            message=success(result)[0],
            execution_result=ExecutionResult(
                files_deleted=result.files_deleted,
                bytes_deleted=result.bytes_deleted,
                files_kept=result.files_kept,
                findings=kept,
            ),
        )
