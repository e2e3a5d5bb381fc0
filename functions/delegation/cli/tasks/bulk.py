"""Changes of several tasks, one after the other; each is reported."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from delegation.wire.tasks import TaskRecord
from polaris_common.errors import DelegationError


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one task: its status afterwards, or the error that kept it as it is."""

    task_id: str
    status: str | None = None
    error: DelegationError | None = None

    def document(self) -> Mapping[str, Any]:
        """Return the members of the JSON document."""
        if self.error is None:
            return {"task_id": self.task_id, "status": self.status}
        code = getattr(self.error, "error_code", None) or self.error.code
        return {"task_id": self.task_id, "error_code": code, "message": str(self.error)}


def change_each(task_ids: Iterable[str], change: Callable[[str], TaskRecord]) -> Iterator[Change]:
    """Change each task; a task that cannot be changed does not stop the others."""
    for task_id in task_ids:
        try:
            yield Change(task_id, change(task_id).status)
        except DelegationError as error:
            yield Change(task_id, error=error)
