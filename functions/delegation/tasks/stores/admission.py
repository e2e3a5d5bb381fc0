"""What a store answers about admission: which tasks wait, which run, and what was admitted just now."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any, Final, Protocol

from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.admission.choice import Queued, Running
from delegation.tasks.life.admission.lanes import Lane, Stage, stage_of
from delegation.tasks.life.model import FORMAT, Task
from delegation.timestamps import isoformat

RUNNING: Final = "running"
QUEUED: Final = "queued"


@dataclass(frozen=True, slots=True)
class Recent:
    """An admission that `running` may not show yet."""

    task_id: str
    lane: Lane
    at: datetime


@dataclass(frozen=True, slots=True)
class Register:
    """The recent admissions; a process that admits tasks writes them here first, at the next revision."""

    revision: int = 0
    recent: tuple[Recent, ...] = ()


class AdmissionStore(Protocol):
    """The tasks in lanes, derived from their heads: the write that ends an attempt also frees its place.

    All methods raise StoreUnavailable, `write_register` OutcomeUnknown too.
    """

    def queued(self, now: datetime, *, each: int) -> Sequence[Queued]:
        """Return the tasks that wait since `now` or longer: of every lane at most the `each` that wait longest.

        They may have been admitted since.
        """

    def running(self) -> Sequence[Running]:
        """Return the admitted tasks; a change of the last seconds may be missing."""

    def register(self) -> Register:
        """Return the register, read consistently."""

    def write_register(self, register: Register) -> bool:
        """Store a register if the stored one has the revision before it; return whether it was stored."""


def place_of(task: Task) -> tuple[str, str] | None:
    """Return the place of a head for admission: QUEUED or RUNNING, and its key there; None for nowhere."""
    match stage_of(task):
        case None:
            return None
        case Stage.QUEUED:
            since = task.next_scheduled_run_ts or task.last_status_change_ts
            return QUEUED, f"{task.lane}/{isoformat(since)}"
        case stage:
            return RUNNING, f"{stage}/{task.lane}"


def queued_entry(task_id: str, key: str) -> Queued:
    """Return the entry of a key of QUEUED."""
    lane, _, since = key.rpartition("/")
    return Queued(task_id, Lane.parse(lane), datetime.fromisoformat(since))


def running_entry(task_id: str, key: str) -> Running:
    """Return the entry of a key of RUNNING."""
    stage, _, lane = key.partition("/")
    return Running(task_id, Lane.parse(lane), stage == Stage.HELD)


def first_of_each(entries: Iterable[Queued], each: int) -> Iterator[Queued]:
    """Yield the entries that wait longest in every lane."""
    ordered = sorted(entries, key=lambda one: (one.lane.text, one.since, one.task_id))
    for _, alike in groupby(ordered, key=lambda one: one.lane):
        yield from (one for one, _ in zip(alike, range(each), strict=False))


def register_item(register: Register) -> dict[str, Any]:
    """Return a register as it is stored."""
    recent = [[one.task_id, one.lane.text, isoformat(one.at)] for one in register.recent]
    return {"format": FORMAT, "revision": register.revision, "recent": recent}


def register_of(item: Mapping[str, Any] | None) -> Register:
    """Return a stored register, an empty one for None; raises MalformedRecord."""
    if item is None:
        return Register()
    if item.get("format") != FORMAT:
        raise MalformedRecord(f"the register of admissions: format: {item.get('format')!r} is not {FORMAT}")
    recent = (Recent(task_id, Lane.parse(lane), datetime.fromisoformat(at)) for task_id, lane, at in item["recent"])
    return Register(int(item["revision"]), tuple(recent))
