"""The task that a submission asks for, made once its key turned out to be new, and how it relates to a stored one."""

from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from delegation.idempotency.service import Relation
from delegation.tasks.life.model import Caller, Task
from delegation.tasks.submission.form import AskedTask, RequestForm, RequestSources
from delegation.tasks.work.parts.submission import TaskSubmission


@dataclass(frozen=True)
class SubmittedWork:
    """The task that a validated body requests; the form runs once, because it may load the table. `payload` is the
    form's result for the `document`; methods raise the form's errors."""

    form: RequestForm
    payload: Any
    document: Any
    sources: RequestSources
    tasks: TaskSubmission
    _: KW_ONLY
    synchronous: bool
    requested_by: Caller

    @cached_property
    def asked(self) -> AskedTask:
        return self.form.asked(self.payload, self.document, self.sources)

    def first(self) -> Task:
        """Return version 1 of the task, not stored."""
        asked = self.asked
        return self.tasks.first(
            task_id=asked.task_id,
            task_type=asked.task_type,
            payload=asked.payload,
            payload_version=asked.payload_version,
            synchronous=self.synchronous,
            requested_by=self.requested_by,
            traits=asked.traits,
            callback=asked.callback,
            deadline=asked.deadline,
        )

    def relate(self, task: Task) -> Relation:
        if self.asked.obstacle(task) is not None:
            return Relation.CONFLICT
        if not task.is_terminal:
            return Relation.ATTACH
        return Relation.REPLAY if self.asked.replays(task) else Relation.RESUBMIT

    def conflict(self, task: Task) -> str:
        return self.asked.obstacle(task) or "is for another purpose"

    def again(self, task: Task, now: datetime) -> Task:
        """Return the next version of a stored task that ended, not stored."""
        asked = self.asked
        return self.tasks.resubmitted(
            task,
            now,
            payload=asked.payload,
            payload_version=asked.payload_version,
            synchronous=self.synchronous,
            resumes=asked.resumes(task),
            requested_by=self.requested_by,
            traits=asked.traits,
            callback=asked.callback,
        )
