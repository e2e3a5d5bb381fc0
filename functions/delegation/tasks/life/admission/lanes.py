"""In which lane a task waits for its admission, and whether it waits or runs: pure functions of the record."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self
from urllib.parse import quote, unquote

from delegation.tasks.life.model import HELD, WAITING, Status, Task

HIGHEST: Final = 9
NORMAL: Final = 5
_INLINE: Final = "inline"
_LONGEST: Final = 200
"""Characters of one part of a lane; five parts and a time fit a sort key of DynamoDB (1,024 bytes)."""

_TEXT: Final = re.compile(r"(\d)/([^/]*)/([^/]*)/([^/]*)/(b?)([sl])")


class Stage(StrEnum):
    """How far the admission of a task is: it waits, it was dispatched and has no holder yet, or it has one.

    The work of a large task that is PREPARING has not begun: its job may wait for the job service for hours.
    """

    QUEUED = "queued"
    STARTING = "starting"
    PREPARING = "preparing"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of a task before it runs: for whom, on which bucket, whether it is short, its priority (0 to 9).

    No task that is not `is_background` waits for one that is, whatever its priority.
    """

    tenant: str = ""
    bucket: str = ""
    is_small: bool = True
    priority: int = NORMAL
    is_background: bool = False


TraitsOf = Callable[[str], Traits]
"""The traits of a task, of its stored payload."""


@dataclass(frozen=True, slots=True)
class Lane:
    """Tasks that are alike for admission; `tenant`, `bucket` and `task_type` are encoded for keys (`part`).

    `priority` is 0 to HIGHEST; tasks of a higher one are admitted first. One that `is_background` has the lowest.
    """

    tenant: str
    bucket: str
    task_type: str
    priority: int = NORMAL
    is_small: bool = True
    is_background: bool = False

    @classmethod
    def of(cls, task_type: str, traits: Traits) -> Self:
        """Return the lane of a task; ValueError names a priority outside of 0 to 9."""
        if not 0 <= traits.priority <= HIGHEST:
            raise ValueError(f"priority: {traits.priority} is not between 0 and {HIGHEST}")
        priority = 0 if traits.is_background else traits.priority
        names = part(traits.tenant), part(traits.bucket), part(task_type)
        return cls(*names, priority, traits.is_small, traits.is_background)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the lane of its text; one that a newer release wrote otherwise is of an unknown task type."""
        match = _TEXT.fullmatch(text)
        if match is None:
            return cls("", "", part(text))
        urgency, tenant, bucket, task_type, background, size = match.groups()
        return cls(tenant, bucket, task_type, HIGHEST - int(urgency), size == "s", bool(background))

    @property
    def text(self) -> str:
        """The lane as part of a sort key: the highest priority sorts first."""
        size = f"{'b' if self.is_background else ''}{'s' if self.is_small else 'l'}"
        return f"{HIGHEST - self.priority}/{self.tenant}/{self.bucket}/{self.task_type}/{size}"

    @property
    def words(self) -> str:
        """The lane for people; a name that was too long for a key is cut."""
        named = [f"tenant {unquote(self.tenant)}"] if self.tenant else []
        named += [f"bucket {unquote(self.bucket)}"] if self.bucket else []
        size = "small" if self.is_small else "large"
        rank = "in the background" if self.is_background else f"priority {self.priority}"
        return ", ".join((*named, f"{size} {unquote(self.task_type)}", rank))


def part(value: str) -> str:
    """Return a name as part of a lane: without separators, at most 200 characters, another one for another name."""
    encoded = quote(value, safe="")
    if len(encoded) <= _LONGEST:
        return encoded
    digest = hashlib.sha256(encoded.encode()).hexdigest()[:32]
    return f"{encoded[: _LONGEST - 33]}~{digest}"


def stage_of(task: Task) -> Stage | None:
    """Return the stage of a task that is subject to admission, None for one that is not or has ended."""
    lane = task.admission.lane
    if lane is None:
        return None
    if task.status is Status.ACQUIRING_RESOURCES and not _has_begun(task) and not Lane.parse(lane).is_small:
        return Stage.PREPARING
    if task.status in HELD:
        return Stage.HELD
    if task.status in WAITING:
        return Stage.STARTING if task.admission.admitted_ts is not None else Stage.QUEUED
    return None


def _has_begun(task: Task) -> bool:
    """Return whether an attempt is known to work: in this process, or in a job that has shown a sign of life."""
    if task.engine == _INLINE:
        return True
    began = task.lease.acquired_ts
    return task.progress_ts is not None and (began is None or task.progress_ts >= began)
