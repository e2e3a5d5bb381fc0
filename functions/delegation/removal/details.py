"""The fields that tasks for work on a table have in common, and the traits, labels and answers that task types read
from a stored payload without its models."""

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, Json, ValidationError

from delegation.removal.attempt import PlanSegment, StepsDone, receipt_key
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.declared import Measured, TaskType
from delegation.tasks.life.lanes import HIGHEST, NORMAL, Traits
from delegation.tasks.life.model import Labels, Task
from delegation.tasks.life.transitions import held_by

if TYPE_CHECKING:
    from delegation.removal.index import Finding


class FindingCount(BaseModel):
    """A guard's finding without its sample, which is in the plan's index."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    code: str
    count: int = Field(ge=0)


class ReferencesMoment(BaseModel):
    """The number of the last pass in each catalog when a purge was acquired, first or after a hold. It belongs to the
    submission received at `submitted`; another submission has another moment. For the catalogs in `relaxed` an earlier
    pass was enough, by the operator's `reference-max-age`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    submitted: datetime
    passes: dict[str, int]
    relaxed: tuple[str, ...] = ()


class PlanDetails(BaseModel):
    """The published plan of a task and its progress.

    Counts cover all segments and all attempts; sizes are the bytes in the table's metadata. `files_absent` are deleted
    files that the store reported as absent, whose bytes do not count. `steps_done` is for a lost plan.
    `references_moment` is what the task needs of the reference index, as JSON text.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    plan_segments: tuple[PlanSegment, ...] = ()
    files_planned: int | None = None
    files_deleted: int = Field(default=0, ge=0)
    files_failed: int = Field(default=0, ge=0)
    files_absent: int = Field(default=0, ge=0)
    bytes_deleted: int = Field(default=0, ge=0)
    files_kept: int = Field(default=0, ge=0)
    findings: tuple[FindingCount, ...] = ()
    files_per_second: int | None = Field(default=None, ge=0)
    references_moment: Json[ReferencesMoment] | None = None
    steps_done: StepsDone | None = None

    @classmethod
    def of(cls, task: Task) -> Self:
        """Read a task's details. Raises MalformedRecord with the name of an unreadable field."""
        try:
            return cls.model_validate(task.details)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise MalformedRecord(f"task {task.task_id}: {where}: {first['msg']}") from None


class HandedDetails(PlanDetails):
    """The details of a task whose attempts may hand over. `next_engine` is the next attempt's until it starts."""

    next_engine: str | None = None


def counts_of(findings: "Iterable[Finding]") -> Any:
    """Return a plan's findings for a task's details, without samples; () removes them."""
    return [{"code": finding.code, "count": finding.count} for finding in findings] or ()


def changed(kind: type[PlanDetails] | None = None, /, **fields: Any) -> dict[str, Any]:
    """Return the details to set on a task. A field with its default value becomes None, which removes it. `kind` has an
    operation's own fields beside those of every plan."""
    defaults = {name: field.default for name, field in (kind or PlanDetails).model_fields.items()}
    return {name: None if value == defaults[name] else value for name, value in fields.items()}


def published(task: Task, attempt: int, segment: PlanSegment, *, seen: int, files_planned: int) -> Task:
    """Return the task with `segment` appended if it has exactly `seen` segments, else the unchanged task. The first
    plan wins: a planner that was paused meanwhile changes nothing. `files_planned` is the total over all segments,
    including this one. Raises LeaseLost."""
    segments = PlanDetails.of(held_by(task, attempt)).plan_segments
    if len(segments) != seen:
        return task
    stored = [asdict(each) for each in (*segments, segment)]
    return task.with_details(changed(plan_segments=stored, files_planned=files_planned))


def replaced(task: Task, attempt: int, segment: PlanSegment, *, seen: int, files_planned: int) -> Task:
    """Return the task with `segment` in place of exactly `seen` lost ones, else unchanged. Raises LeaseLost."""
    details = PlanDetails.of(held_by(task, attempt))
    if len(details.plan_segments) != seen:
        return task
    done = None if details.steps_done is None else asdict(replace(details.steps_done, of=segment.id))
    return task.with_details(changed(plan_segments=[asdict(segment)], files_planned=files_planned, steps_done=done))


def recorded(task: Task, attempt: int, done: StepsDone) -> Task:
    """Return the task with the steps that are deleted. Raises LeaseLost."""
    return held_by(task, attempt).with_details(changed(steps_done=asdict(done)))


if TYPE_CHECKING:
    DetailsModel = Callable[[], type[PlanDetails]]
    """Loads the model of an operation's details, which most processes do not need."""

FILES: Final = "files"


def id_of_parts(parts: list[Any]) -> str:
    """Return the uuid5 of canonical JSON (RFC 8785)."""
    import rfc8785  # noqa: PLC0415 - the command lists task types without the extra `service`

    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"polaris-delegation:{rfc8785.dumps(parts).decode()}"))


def purge_id(realm: str, catalog: str, table_uuid: str) -> str:
    """Return the id of a table's purge. Other operations use it without importing purges."""
    return id_of_parts([realm, "TABLE_PURGE", catalog, table_uuid.lower()])


PRIORITY: Final = "priority"
"""The property of a purge's request; a higher priority is admitted first."""
PRIORITIES: Final = tuple(str(priority) for priority in (NORMAL, *range(NORMAL), *range(NORMAL + 1, HIGHEST + 1)))
"""Its values, the default first."""
DROPPED_TABLE: Final = "dropped-table"
"""The property in a drop's payload with the table's former dotted name. Its table identity is the tombstone's."""


_NOTHING: Final = Traits()


def table_traits(payload: str, known: Traits = _NOTHING, *, is_small: bool = True) -> Traits:
    """Return `known` with the stored payload's catalog as the tenant, its table's bucket and its request's priority.
    Work of a policy is in the background, so that no caller's task waits for it."""
    try:
        parameters = json.loads(payload)["operation_parameters"]
        catalog, location = parameters["table_identity"]["catalog_name"], parameters["metadata"]["location"]
        priority = str(parameters.get("properties", {}).get(PRIORITY))
        return Traits(
            str(catalog),
            urlsplit(str(location)).netloc,
            is_small,
            int(priority) if priority in PRIORITIES else known.priority,
            known.is_background or "policy" in parameters,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return known


def table_place(payload: Any) -> tuple[str, str] | None:
    """Return the uuid and the location of a stored payload's table, None without a table."""
    try:
        metadata = json.loads(payload)["operation_parameters"]["metadata"]
        return str(metadata["table-uuid"]).lower(), str(metadata["location"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def is_without_table(payload: Any) -> bool:
    """Return whether a stored payload is a document without a table, such as that of a maintenance."""
    try:
        document = json.loads(payload)
    except (ValueError, TypeError):
        return False
    return isinstance(document, dict) and "operation_parameters" not in document


def catalog_of(payload: Any) -> str:
    """Return the catalog of a stored payload's table, "" if there is none."""
    try:
        catalog = json.loads(payload)["operation_parameters"]["table_identity"]["catalog_name"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    return catalog if isinstance(catalog, str) else ""


def table_labels(payload: str) -> Labels:
    """Return the labels of a stored payload: its table's dotted name, its request's correlation id and its realm. The
    table of a drop is the one that lost its name, not the tombstone."""
    try:
        document = json.loads(payload)
        identity = document["operation_parameters"]["table_identity"]
        parts = [identity["catalog_name"], *identity["namespace_levels"], identity["table_name"]]
        former = document["operation_parameters"].get("properties", {}).get(DROPPED_TABLE)
        common = document["common_payload"]
        labels = (common.get(name) for name in ("polaris_correlation_id", "realm_identifier"))
        correlation_id, realm = (text if isinstance(text, str) else None for text in labels)
        return Labels(former if isinstance(former, str) else ".".join(map(str, parts)), correlation_id, realm)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Labels()


@dataclass(frozen=True, slots=True)
class PlanDetailRules:
    """DetailRules of work with a plan: work that has started to change its table is resumed with its plan.

    After a FAILURE with a code in `ends_plan` it is not, because that plan must delete nothing more. Another submission
    keeps the details in `kept` and none of the model's others. Answers also show what is read with the `model`.
    """

    model: "DetailsModel"
    ends_plan: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()

    def resumes(self, task: Task) -> bool:
        return task.effects_began_ts is not None and task.error_code not in self.ends_plan

    def restarted(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        gone = self.model().model_fields.keys() - self.kept
        return {name: value for name, value in details.items() if name not in gone}

    def measured(self, task: Task) -> Measured | None:
        """Return the number of planned files that are deleted, None for details that this release cannot read."""
        try:
            details = self.model().of(task)
        except MalformedRecord:
            return None
        return Measured(details.files_deleted, details.files_planned, FILES, details.files_per_second)

    def receipt_key(self, task: Task) -> str | None:
        """Return the key of the receipt in the plan bucket, beside the last executed plan; None without a plan. Raises
        MalformedRecord."""
        segments = self.model().of(task).plan_segments
        return receipt_key(segments[-1].id) if segments else None


def task_types_of(
    rules: PlanDetailRules,
    name: str,
    dry_run: str,
    *,
    properties: str,
    requests: str,
    known: Traits = _NOTHING,
    **shared: Any,
) -> tuple[TaskType, TaskType]:
    """Return the task types of work on a table and of its dry run. `shared` are other fields of both."""
    plan = TaskType(
        name=dry_run,
        labels=table_labels,
        traits=partial(table_traits, known=known),
        details=rules,
        receipt_key=rules.receipt_key,
        **shared,
    )
    # More patient than the proposal's default, because it mostly waits for another system.
    retry = {"max-attempts": "10", "initial-backoff-duration": "1m"}
    work = replace(plan, name=name, retry=retry, properties=properties, requests=requests, measured=rules.measured)
    return work, plan
