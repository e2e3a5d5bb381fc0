"""The requests for purges: what a body asks for, and how that relates to the purge which is stored."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

from delegation.operations.behaviors.requests import check_storage
from delegation.operations.purge.behavior.limits import OPTIONS, Limits
from delegation.operations.purge.behavior.options import options_of
from delegation.operations.purge.behavior.parameters import TablePurge
from delegation.operations.purge.behavior.relation import obstacle, replays, resumes
from delegation.operations.purge.behavior.traits import labels_of, traits_of
from delegation.tasks.life.admission.lanes import Traits
from delegation.tasks.life.model import Labels, Task
from delegation.tasks.submission.form import RequestSources, RequestWords, WantedTask
from delegation.tasks.submission.options import DRY_RUN, InvalidOption, callback_of
from delegation.wire.purges import OPERATIONS, PurgePayload, PurgeRequest
from delegation.wire.requests import TableState, files_of


@dataclass(frozen=True, slots=True)
class AskedPurge:
    """Asked, of one table's purge or of its plan (a dry run)."""

    purge: TablePurge
    task_id: str
    task_type: str
    payload: str
    traits: Traits
    labels: Labels
    callback: str | None
    payload_version: int = 1
    deadline: timedelta | None = None

    def obstacle(self, task: Task) -> str | None:
        """See Asked.obstacle."""
        return obstacle(task, self.purge)

    def replays(self, task: Task) -> bool:
        """See Asked.replays."""
        return replays(task, self.purge)

    def resumes(self, task: Task) -> bool:
        """See Asked.resumes."""
        return resumes(task, self.purge)


@lru_cache(maxsize=1)
def _limits_of(sources: RequestSources) -> Limits:
    return Limits.from_properties(sources.properties)


class PurgeForm:
    """RequestForm of purges."""

    operations: Final = OPERATIONS
    body: Final = PurgePayload
    options: Final = OPTIONS
    words: Final = RequestWords("Purging {} …", deletes=True)
    is_waited_for: Final = True
    waits_with_table: Final = True

    def request(self, wanted: WantedTask, *, synchronous: bool) -> Mapping[str, Any]:
        """See RequestForm.request."""
        table = None if wanted.table is None else TableState.of(wanted.table)
        purge = PurgeRequest(
            realm=wanted.realm,
            identifier=wanted.identifier,
            table=table,
            properties=wanted.properties,
            correlation_id=wanted.correlation_id,
            requested_at=wanted.requested_at,
        )
        return purge.request(synchronous=synchronous)

    def check(self, properties: Mapping[str, str]) -> None:
        """See RequestForm.check."""
        Limits.from_properties(properties)

    def refuse_waiting(self, body: PurgePayload) -> None:
        """See RequestForm.refuse_waiting: a dry run, because its caller drops the table after a 200."""
        if body.operation_parameters.properties.get(DRY_RUN, "").lower() == "true":
            expected = (
                "absent or false here, where 200 means that the files are deleted; send a dry run to POST /v1/tasks"
            )
            raise InvalidOption(DRY_RUN, expected)

    def asked(self, body: PurgePayload, document: Mapping[str, Any], sources: RequestSources) -> AskedPurge:
        """See RequestForm.asked; the table is loaded from the catalog if only its identity is given.

        Raises InvalidOption, DelegationError (PROPERTY_NOT_ALLOWED), and the errors of the catalog.
        """
        purge, metadata = _purge_of(body, document, sources)
        payload = purge.to_payload()
        traits = traits_at_submission(payload, metadata, sources.small_files)
        limits = _limits_of(sources)
        OPTIONS.chosen(purge.properties, limits.requests)
        callback = callback_of(purge.properties, sources.callbacks())
        if purge.is_dry_run:
            task_id = purge.dry_run_id(options_of(purge.properties, limits).recorded())
        else:
            task_id = purge.task_id
        return AskedPurge(purge, task_id, purge.task_type, payload, traits, labels_of(payload), callback)


def traits_at_submission(payload: str, metadata: Any, small_files: int) -> Traits:
    """Return the traits of a purge whose table metadata is at hand; a table of unknown size counts as small."""
    files = files_of(metadata)
    return replace(traits_of(payload), is_small=files is None or files <= small_files)


def _purge_of(body: PurgePayload, document: Mapping[str, Any], sources: RequestSources) -> tuple[TablePurge, Any]:
    """Return the purge that a body asks for, and the table's metadata."""
    request = PurgeRequest.of_payload(body)
    sources.check_catalog(request.identifier.catalog)
    if request.table is not None:
        table, metadata = request.table, document["operation_parameters"]["metadata"]
    else:
        loaded = sources.catalog().load_table(request.identifier, vend=False)
        table, metadata = TableState.of(loaded), loaded.metadata
    check_storage(table.metadata_location)
    return TablePurge(**{**dict(request), "realm": sources.realm, "table": table}), metadata
