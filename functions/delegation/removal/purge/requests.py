"""Requests for purges: parameters and options, how one relates to the stored task, and what the API shows of that."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self, cast

from delegation.identifiers import TableIdentifier
from delegation.removal.choice import EngineChoice
from delegation.removal.details import id_of_parts
from delegation.removal.errors import PlanLost
from delegation.removal.purge.errors import PlanOutdated
from delegation.removal.purge.limits import OPTIONS, Limits, fields_of
from delegation.removal.purge.options import PurgeOptions
from delegation.removal.purge.task_type import PLAN_TASK_TYPE, TASK_TYPE, PurgeDetails, state_of
from delegation.removal.requests import PLAN, TableCheck, TableForm, TableWork
from delegation.tasks.life.model import Status, Task
from delegation.tasks.submission.form import RequestSources
from delegation.tasks.submission.options import DRY_RUN, InvalidOption, SetBy
from delegation.wire.requests import TableRequest
from delegation.wire.responses import ExecutionResult, KeptFiles
from delegation.wire.tables import OPERATIONS, PurgePayload, PurgeRequest


class TablePurge(TableWork):
    """A purge of a known table."""

    work_task_type: ClassVar[str] = TASK_TYPE
    plan_task_type: ClassVar[str] = PLAN_TASK_TYPE
    does: ClassVar[str] = "purges"
    half_done: ClassVar[str] = (
        "the table is half deleted and can only be purged as it was begun; send its own properties, which its payload "
        "has"
    )

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

    def replays(self, task: Task) -> bool:
        """Return whether a task succeeded in purging this identifier at this metadata file or a later one, or in
        planning that."""
        if task.status is not Status.SUCCESS:
            return False
        if self.is_dry_run:
            return True  # its id names the identifier, the metadata file and the options
        details = PurgeDetails.of(task)
        if details.purged_identifier != identifier_text(self.identifier):
            return False
        location = self.table.metadata_location
        return details.purged_metadata_location == location or state_of(location) in details.purged_states

    def is_same(self, task: Task, current: Self) -> bool:
        """See TableWork.is_same; also without its `plan`, which failed as a commit made it stale or as it is lost."""
        rest = {name: value for name, value in current.of_the_work().items() if name != PLAN}
        without_plan = task.error_code in {PlanOutdated.code, PlanLost.code} and self.of_the_work() == rest
        return super().is_same(task, current) or without_plan


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeForm(TableForm[TablePurge]):
    """RequestForm of purges, whose callers may wait, with the loaded table."""

    deletes: ClassVar[bool] = True
    is_waited_for: ClassVar[bool] = True
    waits_with_table: ClassVar[bool] = True

    def request(self, wanted: TableRequest, *, synchronous: bool) -> Mapping[str, Any]:
        return PurgeRequest(**dict(wanted)).request(synchronous=synchronous)

    def refuse_waiting(self, body: PurgePayload) -> None:
        """See RequestForm.refuse_waiting: a dry run, because its caller drops the table after a 200."""
        if body.operation_parameters.properties.get(DRY_RUN, "").lower() == "true":
            expected = (
                "absent or false here, where 200 means that the files are deleted; send a dry run to POST /v1/tasks"
            )
            raise InvalidOption(DRY_RUN, expected)

    def plan_id(self, work: TablePurge, limits: Limits) -> str:
        return work.dry_run_id(options_of(work.properties, limits).recorded())


def _checks(properties: Mapping[str, str], limits: Limits, _sources: RequestSources) -> TableCheck:
    """Check a request's options; raise InvalidOption and DelegationError (PROPERTY_NOT_ALLOWED)."""
    OPTIONS.chosen(properties, limits.requests)
    return bool


PURGE_FORM: Final = PurgeForm(
    operations=OPERATIONS,
    body=PurgePayload,
    options=OPTIONS,
    running="Purging {} …",
    work_type=TablePurge,
    limits=Limits.from_properties,
    checks=_checks,
)
"""The form of requests for purges."""


def execution_result(task: Task) -> ExecutionResult:
    """Return the totals of a purge that succeeded; raises MalformedRecord."""
    details = PurgeDetails.of(task)
    return ExecutionResult(
        files_deleted=details.files_deleted,
        bytes_deleted=details.bytes_deleted,
        files_kept=details.files_kept,
        findings=tuple(KeptFiles(code=one.code, count=one.count) for one in details.findings),
    )
