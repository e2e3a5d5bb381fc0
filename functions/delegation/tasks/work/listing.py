"""A page of a list of tasks; status and type are filtered in the page, target and correlation id by the store."""

from dataclasses import dataclass
from typing import Final, Protocol

from delegation.tasks.life.model import Status, Task
from delegation.tasks.stores.base import Received, ReceivedPage, Unreadable

MOST_READS: Final = 10
"""Reads of the store for one page at most; it may then have fewer tasks than wanted, although others follow."""
AT_ONCE: Final = 100
"""Tasks of one read at most."""


class Lister(Protocol):
    """Reads tasks in the order of lists; implemented by TaskReads."""

    def received(self, which: Received, *, before: str | None = None, limit: int = 100) -> ReceivedPage:
        """Return a page of tasks, the newest received first."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a list is to have: tasks of the store's list, of one of these statuses if any, and of this type if given."""

    which: Received
    statuses: frozenset[Status] = frozenset()
    task_type: str | None = None

    def has(self, entry: Task | Unreadable) -> bool:
        """Return whether the list has an entry; one that cannot be read is in every list: it may belong there."""
        if isinstance(entry, Unreadable):
            return True
        has_status = not self.statuses or entry.status in self.statuses
        return has_status and self.task_type in {None, entry.task_type}


def page_of(tasks: Lister, selection: Selection, *, before: str | None, size: int) -> ReceivedPage:
    """Return at most `size` entries after the position `before`; fewer, or none, when MOST_READS find no more."""
    found: list[tuple[str, Task | Unreadable]] = []
    is_filtered = bool(selection.statuses) or selection.task_type is not None
    for _ in range(MOST_READS):
        page = tasks.received(selection.which, before=before, limit=AT_ONCE if is_filtered else size - len(found))
        found += [one for one in page.entries if selection.has(one[1])]
        before = page.cursor
        if len(found) > size or (len(found) == size and before is not None):
            return ReceivedPage(tuple(found[:size]), found[size - 1][0])
        if before is None:
            break
    return ReceivedPage(tuple(found), before)
