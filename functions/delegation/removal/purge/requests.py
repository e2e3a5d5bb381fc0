"""Requests for purges: parameters and options, how one relates to the stored task, and what the API shows of that."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, Self, cast

from delegation.identifiers import TableIdentifier
from delegation.removal.choice import EngineChoice
from delegation.removal.details import id_of_parts, purge_id
from delegation.removal.errors import PlanLost
from delegation.removal.purge.errors import PlanOutdated
from delegation.removal.purge.limits import OPTIONS, PLAN, Limits, fields_of
from delegation.removal.purge.names import (
    PLAN_TASK_TYPE,
    PRIORITY,
    TASK_TYPE,
    PurgeDetails,
    labels_of,
    state_of,
    traits_of,
)
from delegation.removal.purge.options import PurgeOptions
from delegation.removal.requests import check_storage
from delegation.tasks.errors import MalformedPayload, MalformedRecord
from delegation.tasks.life.lanes import Traits
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.task_type import Measured
from delegation.tasks.submission.form import AskedTask, RequestSources, WantedTask
from delegation.tasks.submission.options import CALLBACK, DRY_RUN, InvalidOption, SetBy, callback_of
from delegation.wire.requests import TableState, files_of
from delegation.wire.responses import ExecutionResult, KeptFiles
from delegation.wire.tables import OPERATIONS, PurgePayload, PurgeRequest
from polaris_common.errors import printable


class TablePurge(PurgeRequest):
    """A purge of a known table, without credentials and with only that metadata which identifies the table."""

    table: TableState

    @property
    def is_dry_run(self) -> bool:
        """Whether the purge ends with its plan (`properties.dry-run`)."""
        return self.properties.get(DRY_RUN, "false").lower() == "true"

    @property
    def task_type(self) -> str:
        """The stored task type."""
        return PLAN_TASK_TYPE if self.is_dry_run else TASK_TYPE

    @property
    def task_id(self) -> str:
        """The id of a purge: one per table uuid, so that no two purges of one table run at once."""
        if self.is_dry_run:
            raise ValueError("a dry run's id depends on its options: call dry_run_id")
        return purge_id(self.realm, self.identifier.catalog, self.table.table_uuid)

    def dry_run_id(self, options: Mapping[str, Any]) -> str:
        """Return the id of a dry run: another one for another state, identifier or option of the table's purge.

        So the same request attaches or is replayed, and the plan that was approved is found again after a commit.
        """
        parts = [
            *(self.realm, PLAN_TASK_TYPE, self.identifier.catalog, self.table.table_uuid.lower()),
            [self.identifier.catalog, *self.identifier.namespace, self.identifier.name],
            self.table.metadata_location,
            dict(options),
        ]
        return id_of_parts(parts)

    def to_payload(self) -> str:
        """Return `task_payload` as JSON text (Delegation Service proposal, Persistence)."""
        return json.dumps(self.document(self.task_type), sort_keys=True)

    @classmethod
    def of(cls, task: Task) -> Self:
        """Read a stored task's parameters; raise MalformedPayload if its payload is not that of a purge."""
        try:
            return cls.of_stored(task.task_payload)
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedPayload(task.task_id, type(error).__name__) from None


def identifier_text(identifier: TableIdentifier) -> str:
    """Return `purged_identifier` as a JSON array, because a dotted name is ambiguous if a level has a dot."""
    return json.dumps([identifier.catalog, *identifier.namespace, identifier.name], ensure_ascii=False)


_NO_LIMITS: Final = Limits()


def options_of(properties: Mapping[str, str], limits: Limits = _NO_LIMITS, *, accepted: bool = False) -> PurgeOptions:
    """Read a request's properties; raise InvalidOption or DelegationError (PROPERTY_NOT_ALLOWED), which name the
    property.

    In a request that was already `accepted`, a value that is looser than today's settings is replaced by the setting.
    """
    chosen = OPTIONS.chosen(properties, limits.requests, accepted=accepted)
    return replace(
        limits.base,
        **fields_of(SetBy.BOTH, chosen),
        engine=cast("EngineChoice | None", chosen["engine"] or None),
        dry_run=chosen[DRY_RUN] == "true",
        execute_plan=chosen.get(PLAN),
    )


_NAMES: Final = 5
_LONGEST_NAME: Final = 64


def replays(task: Task, wanted: TablePurge) -> bool:
    """Return whether a task already succeeded in purging this identifier at this metadata file or a later one, or in
    planning that."""
    if task.status is not Status.SUCCESS:
        return False
    if wanted.is_dry_run:
        return True  # its id names the identifier, the metadata file and the options
    details = PurgeDetails.of(task)
    if details.purged_identifier != identifier_text(wanted.identifier):
        return False
    location = wanted.table.metadata_location
    return details.purged_metadata_location == location or state_of(location) in details.purged_states


def obstacle(task: Task, wanted: TablePurge) -> str | None:
    """Return why `wanted` conflicts with the task and what to do next, None if it can attach to it or start it anew.

    A purge that failed after its first delete must be finished with its plan: its manifests may be deleted already. One
    that ended and cannot be read is replaced. A dry run has no conflicts, because its id names all that matters.
    """
    if task.status is Status.SUCCESS or wanted.is_dry_run:
        return None
    current = _stored(task)
    if current is None:
        return None if task.is_terminal else f"is {task.status} and its payload cannot be read; wait until it ends"
    if task.status is Status.FAILURE:
        joins = _same_properties(current, wanted) or _without_its_plan(task, current, wanted)
        if joins or not resumes(task, wanted):
            return None
        return (
            f"failed after its first delete ({task.error_code}) with {_other_properties(current, wanted)}: the table "
            "is half deleted and can only be purged as it was begun; send its own properties, which its payload has"
        )
    if current.identifier == wanted.identifier and _same_properties(current, wanted):
        return None
    if current.identifier != wanted.identifier:
        return (
            f"is {task.status} and purges {printable(str(current.identifier))}, a table with the same table-uuid: "
            "clones share one task; wait until it ends, then send this request again"
        )
    other = _other_properties(current, wanted)
    return f"is {task.status} with {other}; wait until it ends, or send the same request"


def resumes(task: Task, wanted: TablePurge) -> bool:
    """Return whether a terminal purge is resumed with its plan: a FAILURE that began to delete. Others plan anew.

    If its payload cannot be read, its plan has the identifier too, and is refused for another one.
    """
    if task.status is not Status.FAILURE or task.effects_began_ts is None:
        return False
    current = _stored(task)
    return current is None or current.identifier == wanted.identifier


def _stored(task: Task) -> TablePurge | None:
    """Return the task's parameters, None if this release cannot read them."""
    try:
        return TablePurge.of(task)
    except MalformedPayload:
        return None


def _same_properties(current: TablePurge, wanted: TablePurge) -> bool:
    return _of_the_work(current) == _of_the_work(wanted)


def _of_the_work(purge: TablePurge) -> dict[str, str]:
    """Return the properties that decide what is done, not when and who is notified."""
    return {name: value for name, value in purge.properties.items() if name not in {PRIORITY, CALLBACK}}


def _other_properties(current: TablePurge, wanted: TablePurge) -> str:
    before, now = current.properties, wanted.properties
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    listed = ", ".join(printable(name, _LONGEST_NAME) for name in names[:_NAMES])
    return f"other properties ({listed}{', …' if len(names) > _NAMES else ''})"


def _without_its_plan(task: Task, current: TablePurge, wanted: TablePurge) -> bool:
    """Return whether `wanted` is the same purge without its `plan`, which failed as a commit made it stale or as it is
    lost."""
    rest = {name: value for name, value in _of_the_work(current).items() if name != PLAN}
    return task.error_code in {PlanOutdated.code, PlanLost.code} and _of_the_work(wanted) == rest


@lru_cache(maxsize=1)
def _limits_of(sources: RequestSources) -> Limits:
    return Limits.from_properties(sources.properties)


class PurgeForm:
    """RequestForm of purges."""

    operations: Final = OPERATIONS
    body: Final = PurgePayload
    options: Final = OPTIONS
    running: Final = "Purging {} …"
    deletes: Final = True
    is_waited_for: Final = True
    waits_with_table: Final = True

    def request(self, wanted: WantedTask, *, synchronous: bool) -> Mapping[str, Any]:
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
        Limits.from_properties(properties)

    def refuse_waiting(self, body: PurgePayload) -> None:
        """See RequestForm.refuse_waiting: a dry run, because its caller drops the table after a 200."""
        if body.operation_parameters.properties.get(DRY_RUN, "").lower() == "true":
            expected = (
                "absent or false here, where 200 means that the files are deleted; send a dry run to POST /v1/tasks"
            )
            raise InvalidOption(DRY_RUN, expected)

    def asked(self, body: PurgePayload, document: Mapping[str, Any], sources: RequestSources) -> AskedTask:
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
        return AskedTask(
            task_id=task_id,
            task_type=purge.task_type,
            payload=payload,
            obstacle=lambda task: obstacle(task, purge),
            replays=lambda task: replays(task, purge),
            resumes=lambda task: resumes(task, purge),
            traits=traits,
            labels=labels_of(payload),
            callback=callback,
        )


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


FILES: Final = "files"


def measured(task: Task) -> Measured | None:
    """Return the files deleted of those planned; None for details that this release cannot read."""
    try:
        details = PurgeDetails.of(task)
    except MalformedRecord:
        return None
    return Measured(details.files_deleted, details.files_planned, FILES, details.files_per_second)


def execution_result(task: Task) -> ExecutionResult:
    """Return the totals of a purge that succeeded; raises MalformedRecord."""
    details = PurgeDetails.of(task)
    return ExecutionResult(
        files_deleted=details.files_deleted,
        bytes_deleted=details.bytes_deleted,
        files_kept=details.files_kept,
        findings=tuple(KeptFiles(code=one.code, count=one.count) for one in details.findings),
    )
