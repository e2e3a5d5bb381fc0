"""The fields that a plan and its execution add to a task's record, whatever the operation is."""

from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, Json, ValidationError

from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Task
from delegation.tasks.life.transitions import held_by
from delegation.worksets.attempt import PlanSegment, StepsDone


class FindingCount(BaseModel):
    """A finding of a guard without its sample, which the plan's index has."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    code: str
    count: int = Field(ge=0)


class ReferencesMoment(BaseModel):
    """The number of the pass that had begun last in each catalog when a purge was acquired, first or after a hold.

    It is that of the submission which was received at `submitted`; another submission has another moment. In the
    catalogs in `relaxed` an earlier pass was enough by the operator's `reference-max-age`.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    submitted: datetime
    passes: dict[str, int]
    relaxed: tuple[str, ...] = ()


class PlanDetails(BaseModel):
    """The published plan of a task and its progress.

    Counts cover all segments and all attempts; sizes are bytes, as the table's metadata states them. The store
    reported `files_absent` of those deleted as absent, whose bytes do not count. `steps_done` is for a plan
    that is lost, `references_moment` is what the task needs of the reference index, as JSON text.
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
        """Read a task's details; raise MalformedRecord with the name of a field that cannot be read."""
        try:
            return cls.model_validate(task.details)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise MalformedRecord(f"task {task.task_id}: {where}: {first['msg']}") from None


class HandedDetails(PlanDetails):
    """The details of a task whose attempts may hand over: `next_engine` is to what, until that begins."""

    next_engine: str | None = None


def changed(kind: type[PlanDetails] | None = None, /, **fields: Any) -> dict[str, Any]:
    """Return the details to set on a task; a field with its default value becomes None, which removes it.

    `kind` has the fields of an operation beside those of every plan.
    """
    defaults = {name: field.default for name, field in (kind or PlanDetails).model_fields.items()}
    return {name: None if value == defaults[name] else value for name, value in fields.items()}


def published(task: Task, attempt: int, segment: PlanSegment, *, seen: int, files_planned: int) -> Task:
    """Return the task with `segment` appended if it has exactly `seen` segments, else the unchanged task.

    The first plan wins: a planner that was paused meanwhile changes nothing. `files_planned` is the total over all
    segments, this one included. Raises LeaseLost.
    """
    segments = PlanDetails.of(held_by(task, attempt)).plan_segments
    if len(segments) != seen:
        return task
    stored = [asdict(one) for one in (*segments, segment)]
    return task.with_details(changed(plan_segments=stored, files_planned=files_planned))


def replaced(task: Task, attempt: int, segment: PlanSegment, *, seen: int, files_planned: int) -> Task:
    """Return the task with `segment` in place of exactly `seen` lost ones, else the unchanged task; raise LeaseLost."""
    details = PlanDetails.of(held_by(task, attempt))
    if len(details.plan_segments) != seen:
        return task
    done = None if details.steps_done is None else asdict(replace(details.steps_done, of=segment.id))
    return task.with_details(changed(plan_segments=[asdict(segment)], files_planned=files_planned, steps_done=done))


def recorded(task: Task, attempt: int, done: StepsDone) -> Task:
    """Return the task with the steps that are deleted; raise LeaseLost."""
    return held_by(task, attempt).with_details(changed(steps_done=asdict(done)))
