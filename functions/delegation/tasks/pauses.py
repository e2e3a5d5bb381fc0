"""Pauses: no attempt starts, and running ones stop unless the service drains. One record holds them."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Protocol

from pydantic import ValidationError

from delegation.tasks.errors import MalformedRecord, StoreUnavailable, TaskError
from delegation.tasks.life.declared import NO_TYPES, TaskTypes
from delegation.tasks.life.model import FORMAT, Caller, Labels, Task
from delegation.timestamps import isoformat

MOST_PAUSES: Final = 200
"""The most paused scopes. Every process reads the record, which has to stay small."""
LONGEST_REASON: Final = 300
"""The longest reason that is kept, in characters."""


class PauseMode(StrEnum):
    """What a pause holds: everything, or with `drain` only what has not started (before an upgrade)."""

    STOP = "stop"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class PauseScope:
    """Which tasks: all of the deployment, those of a realm, or those of one table (its dotted name with the catalog).
    The deployment's own tasks, such as maintenance, belong to no realm and continue."""

    realm: str | None = None
    table: str | None = None

    @property
    def text(self) -> str:
        if self.table is not None:
            return f"table {self.table}"
        return "all" if self.realm is None else f"realm {self.realm}"

    def covers(self, labels: Labels) -> bool:
        if self.table is not None:
            return labels.target == self.table
        return self.realm is None or labels.realm == self.realm


EVERYTHING: Final = PauseScope()


@dataclass(frozen=True, slots=True)
class WorkPause:
    scope: PauseScope
    since: datetime
    by: Caller
    reason: str = ""
    mode: PauseMode = PauseMode.STOP

    @property
    def text(self) -> str:
        who = f"{self.by.client_id} ({self.by.subject})" if self.by.subject else self.by.client_id
        why = f": {self.reason}" if self.reason else ""
        done = "drained" if self.mode is PauseMode.DRAIN else "paused"
        return f"{done} by {who} since {self.since:%Y-%m-%dT%H:%M:%SZ} ({self.scope.text}){why}"

    def document(self) -> dict[str, Any]:
        return {
            "scope": "table" if self.scope.table else "realm" if self.scope.realm else "all",
            "realm": self.scope.realm,
            "table": self.scope.table,
            "mode": self.mode.value,
            "since": isoformat(self.since),
            "by": {"client_id": self.by.client_id, "subject": self.by.subject},
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class PauseRecord:
    """All pauses of a store, at a revision that each change raises."""

    revision: int = 0
    pauses: tuple[WorkPause, ...] = ()

    def of(self, labels: Labels) -> WorkPause | None:
        """Return the pause that holds a task with these labels; one that stops it comes before one that only drains."""
        covering = [pause for pause in self.pauses if pause.scope.covers(labels)]
        return min(covering, key=lambda pause: (pause.mode is PauseMode.DRAIN, pause.since), default=None)

    @property
    def of_everything(self) -> WorkPause | None:
        """The pause of all tasks, None without one."""
        return next((pause for pause in self.pauses if pause.scope == EVERYTHING), None)

    @property
    def is_by_label(self) -> bool:
        return any(pause.scope != EVERYTHING for pause in self.pauses)

    def with_pause(self, pause: WorkPause) -> "PauseRecord":
        """Return the record with a pause added; an existing one of the same scope and mode keeps its time."""
        known = next((present for present in self.pauses if present.scope == pause.scope), None)
        if known is not None and known.mode is pause.mode:
            return self
        others = tuple(present for present in self.pauses if present.scope != pause.scope)
        return PauseRecord(self.revision + 1, (*others, pause))

    def without(self, scope: PauseScope) -> "PauseRecord":
        """Return the record without the pause of a scope; the same record if there is none."""
        left = tuple(pause for pause in self.pauses if pause.scope != scope)
        return self if len(left) == len(self.pauses) else PauseRecord(self.revision + 1, left)


def pauses_item(record: PauseRecord) -> dict[str, Any]:
    pauses = [{name: value for name, value in pause.document().items() if value is not None} for pause in record.pauses]
    return {"format": FORMAT, "revision": record.revision, "pauses": pauses}


def pauses_of(item: Mapping[str, Any]) -> PauseRecord:
    """Return a stored record. Raises MalformedRecord for one of a newer release."""
    if item.get("format") != FORMAT:
        raise MalformedRecord(
            f"this release cannot read the record of pauses: its format is {item.get('format')!r}. Deploy the newer "
            "release that wrote it"
        )
    try:
        return PauseRecord(int(item["revision"]), tuple(map(pause_of, item["pauses"])))
    except (ValidationError, ValueError, KeyError, TypeError) as error:
        raise MalformedRecord(f"the record of pauses is damaged: {type(error).__name__}") from None


def pause_of(stored: Mapping[str, Any]) -> WorkPause:
    """Return a pause from its document. Raises ValueError, KeyError or ValidationError."""
    return WorkPause(
        scope=PauseScope(stored.get("realm"), stored.get("table")),
        since=datetime.fromisoformat(stored["since"]),
        by=Caller.model_validate(stored["by"]),
        reason=str(stored.get("reason", "")),
        mode=PauseMode(stored.get("mode", PauseMode.STOP)),
    )


class PauseStore(Protocol):
    """A single record. Both methods raise StoreUnavailable, `write` OutcomeUnknown too, `read` MalformedRecord."""

    def read(self) -> PauseRecord:
        """Return the record, read consistently; an empty one if there was never a pause."""

    def write(self, record: PauseRecord) -> bool:
        """Store a record if the stored one has the revision before it; return whether it was stored."""


class MemoryPauseStore:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._record = PauseRecord()

    def read(self) -> PauseRecord:
        with self._lock:
            return self._record

    def write(self, record: PauseRecord) -> bool:
        with self._lock:
            if self._record.revision != record.revision - 1:
                return False
            self._record = record
            return True


_RACES: Final = 10
"""Tries to write the record; each lost race means that another operator changed it."""


class PauseControl:
    """Changes the record of pauses; both changes may be repeated. Raises the store's errors."""

    def __init__(self, store: PauseStore, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock

    def shown(self) -> PauseRecord:
        return self._store.read()

    def pause(
        self, scope: PauseScope, *, by: Caller, reason: str = "", mode: PauseMode = PauseMode.STOP
    ) -> PauseRecord:
        """Pause a scope and return the record; an equal pause keeps author and time. Raises TaskError
        (TOO_MANY_PAUSES)."""
        wanted = WorkPause(scope, self._clock(), by, reason.strip()[:LONGEST_REASON], mode)
        return self._changed(lambda record: record.with_pause(wanted))

    def resume(self, scope: PauseScope) -> PauseRecord:
        """End the pause of a scope and return the record; pauses of other scopes stay."""
        return self._changed(lambda record: record.without(scope))

    def _changed(self, change: Callable[[PauseRecord], PauseRecord]) -> PauseRecord:
        for _ in range(_RACES):
            before = self._store.read()
            after = change(before)
            if after is before:
                return before
            if len(after.pauses) > max(MOST_PAUSES, len(before.pauses)):
                raise TaskError(
                    f"{MOST_PAUSES} scopes are already paused. Resume some of them, or pause the whole realm",
                    code="TOO_MANY_PAUSES",
                )
            if self._store.write(after):
                return after
        raise StoreUnavailable("other operators kept changing the pauses, so nothing was written. Repeat the request")


logger = logging.getLogger(__name__)
READ_EVERY: Final = timedelta(seconds=20)
"""A pause reaches every process within 20 s; work stops at its next batch, within a minute."""
PAUSED: Final = "PAUSED"
"""The error code of an attempt that was handed over because of a pause; it counts against no limit."""
PAUSED_WAIT: Final = timedelta(seconds=30)
"""When a paused task is due again. A short pause costs its execution one wait, a longer one ends it."""
_UNREADABLE: Final = WorkPause(
    EVERYTHING,
    datetime(1970, 1, 1, tzinfo=UTC),
    Caller(client_id="unknown"),
    "a newer release wrote the pauses, and this release cannot read them. Use the `delegation` command of that release",
)


class ReadPauses:
    """The present pauses, from a record that is read again after READ_EVERY. Thread-safe. If it cannot be read, the
    last one is used; without one all methods raise StoreUnavailable. A record that this release cannot read pauses
    everything: a newer release's pause must not be overridden."""

    def __init__(
        self,
        read: Callable[[], PauseRecord],
        types: TaskTypes = NO_TYPES,
        *,
        monotonic: Callable[[], float],
    ) -> None:
        self._read = read
        self._types = types
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._record: PauseRecord | None = None
        self._read_at = float("-inf")

    def start(self, task: Task) -> WorkPause | None:
        """Return the pause that keeps attempts at a task from starting, None without one."""
        record = self.now()
        return record.of(self._types.labels(task)) if record.is_by_label else record.of_everything

    def work(self, task: Task) -> WorkPause | None:
        """Return the pause that stops a started attempt at a task, None without one."""
        pause = self.start(task)
        return pause if pause is not None and pause.mode is PauseMode.STOP else None

    def everything(self) -> WorkPause | None:
        """Return the pause that keeps every task from starting, None without one."""
        return self.now().of_everything

    def now(self) -> PauseRecord:
        with self._lock:
            at = self._monotonic()
            if self._record is None or at - self._read_at >= READ_EVERY.total_seconds():
                self._record = self._read_again()
                self._read_at = at
            return self._record

    def _read_again(self) -> PauseRecord:
        try:
            return self._read()
        except MalformedRecord:
            return PauseRecord(pauses=(_UNREADABLE,))
        except StoreUnavailable as error:
            if self._record is None:
                raise
            logger.warning(
                "the pauses could not be read; the last known pauses still apply",
                extra={"action": "pause", "error_code": error.code},
            )
            return self._record


def nothing_paused() -> ReadPauses:
    """Return the pauses for a process whose store has none."""
    return ReadPauses(PauseRecord, monotonic=time.monotonic)
