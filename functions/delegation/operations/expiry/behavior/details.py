"""The fields that an expiry adds to its task's record."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Task
from delegation.worksets.attempt import PlanSegment


class ExpiryDetails(BaseModel):
    """The published plan and its progress; counts cover all attempts, sizes are bytes as the metadata states them.

    Of the files deleted the store said that it did not have `files_absent`, whose bytes do not count.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    plan_segments: tuple[PlanSegment, ...] = ()
    snapshots_expired: int = Field(default=0, ge=0)
    refs_expired: int = Field(default=0, ge=0)
    files_planned: int | None = None
    files_deleted: int = Field(default=0, ge=0)
    files_failed: int = Field(default=0, ge=0)
    files_absent: int = Field(default=0, ge=0)
    files_kept: int = Field(default=0, ge=0)
    bytes_deleted: int = Field(default=0, ge=0)

    @classmethod
    def of(cls, task: Task) -> Self:
        """Read a task's details; raise MalformedRecord with the name of a field that cannot be read."""
        try:
            return cls.model_validate(task.details)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise MalformedRecord(f"task {task.task_id}: {where}: {first['msg']}") from None
