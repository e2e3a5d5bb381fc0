"""The table that a process opened to choose the engine, kept until the same process runs the attempt."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delegation.keeping.model import TableSource
from delegation.polaris.model import LoadedTable
from delegation.tasks.life.model import Task

if TYPE_CHECKING:
    from delegation.storage.listing.model import ListableStore


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table's source and files, and what the source loaded last."""

    source: TableSource = field(repr=False)
    store: "ListableStore" = field(repr=False)
    loaded: LoadedTable | None = None


class LastOpened:
    """Keeps the table of one attempt; another attempt, or the same one a second time, opens its table itself."""

    def __init__(self) -> None:
        self._kept: tuple[str, int, OpenTable] | None = None

    def keep(self, task: Task, table: OpenTable) -> None:
        self._kept = (task.task_id, task.attempt_count, table)

    def take(self, task: Task) -> OpenTable | None:
        """Return and forget the attempt's table; None if it is not the one that was kept."""
        kept, self._kept = self._kept, None
        if kept is None or kept[:2] != (task.task_id, task.attempt_count):
            return None
        return kept[2]
