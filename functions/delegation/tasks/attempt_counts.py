"""What one write counts of attempts: that one began, was lost, was throttled, or is followed by another."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from delegation.metrics import ATTEMPTS_RETRIED, ATTEMPTS_STARTED, ATTEMPTS_THROTTLED, TASKS_LOST, Metric, MetricLines
from delegation.tasks.endings import bounded_type
from delegation.tasks.life.model import Status, Task
from delegation.tasks.life.task_type import TaskTypes
from delegation.tasks.life.transitions import HANDED_OVER, LOST
from delegation.tasks.pauses.lookout import PAUSED

_CONTINUED: Final = frozenset({HANDED_OVER, PAUSED})
"""Codes of attempts that another one continues: nothing failed."""


def counts_of(before: Task | None, after: Task) -> Iterator[Metric]:
    """Yield what the step from one version or revision of a task to the next counts; `before` is None for a new one."""
    attempts = 0 if before is None else before.attempt_count
    if after.is_held and after.attempt_count > attempts:
        yield ATTEMPTS_STARTED
    if before is None or not before.is_held or after.is_held:
        return
    if after.error_code == LOST:
        yield TASKS_LOST
    if after.throttled_count > before.throttled_count:
        yield ATTEMPTS_THROTTLED
    if after.status is Status.RETRY_SCHEDULED and after.error_code not in _CONTINUED:
        yield ATTEMPTS_RETRIED


@dataclass(frozen=True, slots=True)
class AttemptCounts:
    """Prints a line of metrics for each write that begins or ends an attempt; `types` as for EndingLines."""

    lines: MetricLines
    types: TaskTypes = field(default_factory=TaskTypes)

    def __call__(self, before: Task | None, after: Task) -> None:
        """Print what the step from `before` to `after` counts, nothing for most steps."""
        counted = dict.fromkeys(counts_of(before, after), 1)
        if counted:
            task_type = bounded_type(after.task_type, self.types)
            labels = self.types.labels(after)
            said = {
                "table": labels.target,
                "correlation_id": labels.correlation_id,
                "attempt": after.attempt_count,
                "error_code": None if after.is_held else after.error_code,
            }
            more = {name: value for name, value in said.items() if value is not None}
            self.lines.put(counted, by={"kind": task_type}, action="attempt", task_id=after.task_id, **more)
