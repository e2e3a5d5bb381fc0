"""The ended runs of one table's maintenance, bounded. A table's task has one id for each kind and records only its last
submission, so earlier runs are kept here."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

MOST_PAST: Final = 10
"""Ended runs that are kept of each kind."""
LONGEST_PAST: Final = 2_048
"""Bytes of all of them as they are stored, compressed."""
_LONGEST_POLICY: Final = 300
_LONGEST_WORD: Final = 100


@dataclass(frozen=True, slots=True)
class PastRun:
    """One ended run: its task, its policy, how it ended, and what it deleted. `task_id` is empty if it was refused
    before it began. `snapshots` are those removed, None if this kind removes none. Times are in whole seconds."""

    task_type: str
    task_id: str
    policy: str
    began: datetime
    ended: datetime
    outcome: str
    files: int = 0
    bytes: int = 0
    snapshots: int | None = None

    def bounded(self) -> "PastRun":
        return PastRun(
            self.task_type[:_LONGEST_WORD],
            self.task_id[:_LONGEST_WORD],
            self.policy[:_LONGEST_POLICY],
            self.began.replace(microsecond=0),
            self.ended.replace(microsecond=0),
            self.outcome[:_LONGEST_WORD],
            self.files,
            self.bytes,
            self.snapshots,
        )


def newest_of_each_type(past: Iterable[PastRun]) -> tuple[PastRun, ...]:
    """Return at most MOST_PAST runs of each kind as stored, newest first."""
    kept: list[PastRun] = []
    of_type: Counter[str] = Counter()
    for one in sorted(past, key=lambda each: each.ended, reverse=True):
        of_type[one.task_type] += 1
        if of_type[one.task_type] <= MOST_PAST:
            kept.append(one.bounded())
    return tuple(kept)


def rows_of_past(past: Sequence[PastRun]) -> list[list[Any]]:
    return [
        [
            one.task_type,
            one.task_id,
            one.policy,
            int(one.began.timestamp()),
            int(one.ended.timestamp()),
            one.outcome,
            one.files,
            one.bytes,
            one.snapshots,
        ]
        for one in past
    ]


def past_of_rows(rows: Iterable[Sequence[Any]]) -> tuple[PastRun, ...]:
    """Return the runs that `rows_of_past` wrote; columns of a later release are left out."""
    return tuple(
        PastRun(task_type, task_id, policy, _moment(began), _moment(ended), outcome, files, size, snapshots)
        for task_type, task_id, policy, began, ended, outcome, files, size, snapshots, *_ in rows
    )


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
