"""The checks of a run: pure functions of what was observed."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from delegation.tasks.life.model import Status, Task
from delegation.tasks.pauses import READ_EVERY
from tests.chaos.load import Make, TableOfLoad
from tests.faults.shared.histories import broken_rules

PROTECTED_CODE: Final = "GC_DISABLED"
"""With this the purge of a protected table fails."""
PAUSE_SLACK: Final = timedelta(seconds=5)
"""How much later than READ_EVERY an attempt may still begin: it had been decided before the pause was read."""
_LEAST_SERVER_ERROR: Final = 500


class Found(StrEnum):
    """What a check may find."""

    NOT_ACCEPTED = "a request was not accepted"
    UNFINISHED = "a task did not end"
    OUTCOME = "a task ended otherwise than it should"
    HISTORY = "a task's history breaks a rule"
    RECEIPT = "a receipt does not match its table"
    LEFT = "a file of a purged table is left"
    WRONGLY_DELETED = "a file was deleted that had to stay"
    NOT_REPEATED = "no repeat of a failed request worked"
    PAUSED = "an attempt began during the pause"
    OLD_RELEASE = "a function still runs the release before the deployment"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: what was found, and where."""

    found: Found
    where: str

    def __str__(self) -> str:
        return f"{self.found}: {self.where}"


@dataclass(frozen=True, slots=True)
class Call:
    """An answer to a caller: `key` is the idempotency key, else method and path; `status` None if there was none."""

    key: str
    status: int | None

    @property
    def failed(self) -> bool:
        return self.status is None or self.status >= _LEAST_SERVER_ERROR


@dataclass(frozen=True, slots=True)
class ObservedTable:
    """A table after the run; `files` were its own before it, `needed` are those that other tables need.

    `task_id` is None if no request was accepted; `refusal` says why. `rows` are the versions of the task.
    """

    asked: TableOfLoad
    files: frozenset[str]
    needed: frozenset[str] = frozenset()
    task_id: str | None = None
    refusal: str = ""
    head: Task | None = None
    rows: Sequence[Task] = ()
    receipt: Mapping[str, Any] | None = None

    @property
    def must_go(self) -> frozenset[str]:
        return self.files - self.needed if self.asked.is_purged else frozenset()

    @property
    def must_stay(self) -> frozenset[str]:
        return self.files - self.must_go

    @property
    def name(self) -> str:
        return f"{self.asked.namespace}.{self.asked.name} ({self.asked.make})"


@dataclass(frozen=True, slots=True)
class Observed:
    """What a run left behind: tables, strangers (files of no table), the bucket's content, the callers' answers.

    `paused` is from when until when a pause was on. `old_release` names functions with a process of before the
    deployment.
    """

    tables: Sequence[ObservedTable]
    strangers: frozenset[str]
    content: frozenset[str]
    calls: Sequence[Call] = ()
    paused: tuple[datetime, datetime] | None = None
    old_release: Sequence[str] = ()

    @property
    def deleted(self) -> int:
        """How many files were deleted that had to be."""
        return sum(len(table.must_go - self.content) for table in self.tables)


def examine(observed: Observed) -> list[Finding]:
    """Return all findings."""
    return [
        *(finding for table in observed.tables for finding in _of_task(table)),
        *_of_files(observed),
        *_of_calls(observed.calls),
        *_of_pause(observed),
        *(Finding(Found.OLD_RELEASE, name) for name in observed.old_release),
    ]


def _of_task(table: ObservedTable) -> Iterator[Finding]:
    """Check that a purge was accepted, ended as it should, by legal steps, and that its receipt says so."""
    if table.asked.make is Make.LIVE:
        return
    if table.head is None:
        yield Finding(Found.NOT_ACCEPTED, f"{table.name}: {table.refusal or 'no answer'}")
        return
    where, head = f"{table.name}, task {table.head.task_id}", table.head
    yield from (Finding(Found.HISTORY, f"{where}: {rule}") for rule in broken_rules(head, table.rows))
    if not head.is_terminal:
        yield Finding(Found.UNFINISHED, f"{where}: {head.status}, attempt {head.attempt_count}, {head.error_code}")
        return
    if table.asked.make is Make.PROTECTED:
        if (head.status, head.error_code) != (Status.FAILURE, PROTECTED_CODE):
            yield Finding(Found.OUTCOME, f"{where}: {head.status} {head.error_code}, although gc.enabled is false")
    elif head.status is not Status.SUCCESS:
        yield Finding(Found.OUTCOME, f"{where}: {head.status} {head.error_code}: {head.result_summary}")
    elif table.asked.is_purged:
        yield from (Finding(Found.RECEIPT, f"{where}: {wrong}") for wrong in _of_receipt(table, head))


def _of_receipt(table: ObservedTable, head: Task) -> Iterator[str]:
    receipt = table.receipt
    if receipt is None:
        yield "there is none"
        return
    expected = {"task_id": head.task_id, "status": "PURGED", "files_planned": len(table.must_go), "files_failed": 0}
    for name, value in expected.items():
        if receipt.get(name) != value:
            yield f"{name} is {receipt.get(name)!r}, not {value!r}"
    if receipt.get("files_deleted") != len(table.must_go):
        yield f"files_deleted is {receipt.get('files_deleted')!r} of {len(table.must_go)}"


def _of_files(observed: Observed) -> Iterator[Finding]:
    """Check that all files of purged tables are gone, and no other file is."""
    for table in observed.tables:
        ended = table.head is not None and table.head.status is Status.SUCCESS
        if ended:
            yield from (
                Finding(Found.LEFT, f"{table.name}: {file}") for file in sorted(table.must_go & observed.content)
            )
        gone = sorted(table.must_stay - observed.content)
        yield from (Finding(Found.WRONGLY_DELETED, f"{table.name}: {file}") for file in gone)
    yield from (
        Finding(Found.WRONGLY_DELETED, f"of no table: {f}") for f in sorted(observed.strangers - observed.content)
    )


def _of_calls(calls: Iterable[Call]) -> Iterator[Finding]:
    """Check that the last answer to each request is none of a failing server; a definite refusal is an answer."""
    by_key: defaultdict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_key[call.key].append(call)
    for key, answers in by_key.items():
        if answers[-1].failed:
            yield Finding(Found.NOT_REPEATED, f"{key}: {', '.join(str(each.status) for each in answers[-5:])}")


def _of_pause(observed: Observed) -> Iterator[Finding]:
    """Check that no attempt began while a pause was on, from when every process must have read it."""
    if observed.paused is None:
        return
    since, until = observed.paused[0] + READ_EVERY + PAUSE_SLACK, observed.paused[1]
    for table in observed.tables:
        for before, row in zip(table.rows, table.rows[1:], strict=False):
            began = row.attempt_count > before.attempt_count
            if began and since < row.last_status_change_ts < until:
                yield Finding(Found.PAUSED, f"{table.name}: attempt {row.attempt_count} at {row.last_status_change_ts}")
