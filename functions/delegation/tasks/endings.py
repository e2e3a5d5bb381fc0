"""What a process prints when it wrote the end of a task: one JSON line, which CloudWatch also reads as metrics.

Every driver writes ends through TaskChanges, so none is without its line: functions, workers and drivers of jobs print
it to their standard output. A crash between the write and the line leaves none; the record has it all the same.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from delegation.tasks.life.model import Labels, LabelsOf, Status, Task
from delegation.tasks.life.transitions import CANCELLED

SUCCEEDED_METRIC: Final = "TasksSucceeded"
FAILED_METRIC: Final = "TasksEndedInFailure"
CANCELLED_METRIC: Final = "TasksCancelled"
SECONDS_METRIC: Final = "TaskSeconds"
_COUNTED: Final = {"files_deleted": "FilesDeleted", "bytes_deleted": "BytesDeleted"}
"""Details of a task that are metrics, too."""
OTHER: Final = "OTHER"
"""The dimension instead of the codes of behaviors that a deployment added, which may be any number."""


def metric_of(task: Task) -> str:
    """Return the metric that counts this end."""
    if task.status is Status.SUCCESS:
        return SUCCEEDED_METRIC
    return CANCELLED_METRIC if task.error_code == CANCELLED else FAILED_METRIC


def seconds_of(task: Task) -> float:
    """Return how long the task took from when it was received."""
    return (task.last_status_change_ts - task.received_timestamp).total_seconds()


def fields_of(task: Task, labels: Labels) -> dict[str, Any]:
    """Return what the line says; what is unknown is left out."""
    line = {
        "message": f"task ended: {task.status}",
        "level": "ERROR" if metric_of(task) == FAILED_METRIC else "INFO",
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
        **{name: task.details.get(name) for name in (*_COUNTED, "files_kept")},
        "partly_deleted": task.is_left_partly_done or None,
    }
    return {name: value for name, value in line.items() if value is not None}


@dataclass(frozen=True, slots=True)
class EndingLines:
    """Prints the line of each end. `own_kinds` are the task types whose error codes are a bounded number."""

    namespace: str
    service: str
    labels: Mapping[str, LabelsOf] = field(default_factory=dict)
    own_kinds: Collection[str] = ()

    def __call__(self, task: Task) -> None:
        """Print the line of a task that just ended (Amazon CloudWatch User Guide, "Embedded metric format").

        Powertools is imported here, because most writes end no task.
        """
        from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit  # noqa: PLC0415

        metrics = EphemeralMetrics(namespace=self.namespace, service=self.service)
        metrics.add_metric(metric_of(task), MetricUnit.Count, 1)
        metrics.add_metric(SECONDS_METRIC, MetricUnit.Seconds, max(0.0, seconds_of(task)))
        for name, metric in _COUNTED.items():
            unit = MetricUnit.Bytes if name == "bytes_deleted" else MetricUnit.Count
            count = task.details.get(name)
            # The end is written: a detail of an added behavior, which may be anything, must not fail it now.
            metrics.add_metric(metric, unit, float(count) if isinstance(count, int | float) else 0.0)
        by_code = {"code": self._code(task)} if task.error_code else {}
        kind = task.task_type if task.task_type in self.own_kinds else OTHER
        metrics.add_dimensions(service=self.service, kind=kind, **by_code)
        labels_of = self.labels.get(task.task_type)
        labels = Labels() if labels_of is None else labels_of(task.task_payload)
        for name, value in fields_of(task, labels).items():
            metrics.add_metadata(name, value)
        metrics.flush_metrics()

    def _code(self, task: Task) -> str:
        return task.error_code or "" if task.task_type in self.own_kinds else OTHER
