"""What a purge keeps on its task's record, beside the fields that every task has."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Task
from delegation.tasks.life.transitions import held_by
from delegation.worksets.attempt import PlanSegment


class PurgeDetails(BaseModel):
    """The published plan, how far it is executed, and what the last file of a finished purge was.

    Files are counted over all segments of the plan and all attempts; sizes are bytes, as metadata states them.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    plan_segments: tuple[PlanSegment, ...] = ()
    files_planned: int | None = None
    files_deleted: int = Field(default=0, ge=0)
    files_failed: int = Field(default=0, ge=0)
    bytes_deleted: int = Field(default=0, ge=0)
    files_per_second: int | None = Field(default=None, ge=0)
    purged_identifier: str | None = None
    purged_metadata_location: str | None = None

    @classmethod
    def of(cls, task: Task) -> Self:
        """Read a task's details; MalformedRecord names the one that this release cannot read."""
        try:
            return cls.model_validate(task.details)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise MalformedRecord(f"task {task.task_id}: {where}: {first['msg']}") from None


def changed(**fields: Any) -> dict[str, Any]:
    """Details to be set on a task; one that has its default value is as good as none, and removed."""
    defaults = {name: field.default for name, field in PurgeDetails.model_fields.items()}
    return {name: None if value == defaults[name] else value for name, value in fields.items()}


def published(task: Task, attempt: int, segment: PlanSegment, *, seen: int, files_planned: int) -> Task:
    """The task with one more segment of its plan, if it still has the `seen` ones that the author knew; else as it is.

    So the first plan wins, and a paused planner that wakes up changes nothing (DESIGN §5). `files_planned` is the total
    over all segments, this one included. Raises LeaseLost.
    """
    segments = PurgeDetails.of(held_by(task, attempt)).plan_segments
    if len(segments) != seen:
        return task
    stored = [asdict(one) for one in (*segments, segment)]
    return task.with_details(changed(plan_segments=stored, files_planned=files_planned))


class PurgeDetailRules:
    """DetailRules of purges: one that began to delete can only be finished by its plan (DESIGN §2)."""

    def goes_on(self, task: Task) -> bool:
        """See DetailRules.goes_on."""
        return task.effects_began_ts is not None

    def anew(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        """See DetailRules.anew."""
        return {name: value for name, value in details.items() if name not in PurgeDetails.model_fields}
