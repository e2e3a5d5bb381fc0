"""The JSON line that a process prints for each end of a task; CloudWatch reads it as metrics too. All ends go through
WriteLoop, so functions, workers and job drivers print it. A crash between the write and the line leaves no line; the
record has the end."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from delegation.metrics import (
    ATTEMPTS_RETRIED,
    ATTEMPTS_STARTED,
    ATTEMPTS_THROTTLED,
    TASK_SECONDS,
    TASKS_CANCELLED,
    TASKS_ENDED_IN_FAILURE,
    TASKS_LOST,
    TASKS_SUCCEEDED,
    Metric,
    MetricLines,
)
from delegation.tasks.life.declared import TaskTypes
from delegation.tasks.life.model import Labels, Status, Task
from delegation.tasks.life.transitions import CANCELLED, HANDED_OVER, LOST
from delegation.tasks.pauses import PAUSED

OTHER: Final = "OTHER"
"""Replaces task types and codes of added behaviors in dimensions, which must have few values."""


def bounded_type(task_type: str, own: Collection[str]) -> str:
    return task_type if task_type in own else OTHER


def metric_of(task: Task) -> Metric:
    if task.status is Status.SUCCESS:
        return TASKS_SUCCEEDED
    return TASKS_CANCELLED if task.error_code == CANCELLED else TASKS_ENDED_IN_FAILURE


def seconds_of(task: Task) -> float:
    return (task.last_status_change_ts - task.received_timestamp).total_seconds()


def fields_of(task: Task, labels: Labels, counted: Collection[str] = ()) -> dict[str, Any]:
    """Return what the line states, with the `counted` details; unknown values are left out."""
    line = {
        "message": f"task ended: {task.status}",
        "level": "ERROR" if metric_of(task) is TASKS_ENDED_IN_FAILURE else "INFO",
        "action": "end",
        "task_id": task.task_id,
        "task_type": task.task_type,
        "status": task.status.value,
        "error_code": task.error_code,
        "summary": task.result_summary,
        "table": labels.target,
        "correlation_id": labels.correlation_id,
        "attempt": task.attempt_count,
        "engine": task.engine,
        "seconds": round(seconds_of(task), 3),
        **{name: task.details.get(name) for name in counted},
        "partly_deleted": task.is_left_partly_done or None,
    }
    return {name: value for name, value in line.items() if value is not None}


@dataclass(frozen=True, slots=True)
class EndingLines:
    """Prints the line of each end. Types other than the built-in `types` and codes not in `codes` become OTHER."""

    lines: MetricLines
    types: TaskTypes = field(default_factory=TaskTypes)
    codes: Callable[[], Collection[str]] = tuple

    def __call__(self, task: Task) -> None:
        counted: dict[Metric, float] = {metric_of(task): 1, TASK_SECONDS: max(0.0, seconds_of(task))}
        details = self.types.counted
        for name, metric in details.items():
            if metric is None:
                continue
            count = task.details.get(name)
            # The end is stored already. A detail of an added behavior can have any type and must not raise here.
            counted[metric] = float(count) if isinstance(count, int | float) else 0.0
        by = {"kind": bounded_type(task.task_type, self.types)}
        if task.error_code:
            by["code"] = self._code(task.error_code, task.task_type)
        self.lines.put(counted, by=by, **fields_of(task, self.types.labels(task), details))

    def _code(self, code: str, task_type: str) -> str:
        return code if task_type in self.types and code in self.codes() else OTHER


_CONTINUED: Final = frozenset({HANDED_OVER, PAUSED})
"""Codes of attempts that another attempt continues: nothing failed."""


def counts_of(before: Task | None, after: Task) -> Iterator[Metric]:
    """Yield the metrics to count for one write; `before` is None for a new task."""
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
        """Print what the write from `before` to `after` counts; for most writes nothing."""
        counted = dict.fromkeys(counts_of(before, after), 1)
        if counted:
            task_type = bounded_type(after.task_type, self.types)
            labels = self.types.labels(after)
            fields = {
                "table": labels.target,
                "correlation_id": labels.correlation_id,
                "attempt": after.attempt_count,
                "error_code": None if after.is_held else after.error_code,
            }
            more = {name: value for name, value in fields.items() if value is not None}
            self.lines.put(counted, by={"kind": task_type}, action="attempt", task_id=after.task_id, **more)
