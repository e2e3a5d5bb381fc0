"""A behavior whose runs append what they do to a file, one line in one write, in every process.

`DELEGATION_BEHAVIORS` names it; the variable DRILL_LOG, which every process of the drill gets, names the file.
"""

import itertools
import json
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks.work.service import TaskService

LOG = "DRILL_LOG"
START, STEP, END = "start", "step", "end"


class Piece(BaseModel):
    """A task of the drill: `steps` steps with a pause after each; with `until`, steps until that file exists.

    A `blind` task does not check its lease between steps.
    """

    name: str
    steps: int = 1
    pause_seconds: float = 0.02
    until: Path | None = None
    blind: bool = False


class Done(BaseModel):
    """The result: the attempt and the process that ran the task."""

    attempt: int
    pid: int


@dataclass(frozen=True, slots=True)
class Line:
    """One event of a run; the lines are in the order of the events."""

    task_id: str
    attempt: int
    pid: int
    what: str


def append(task_id: str, attempt: int, what: str) -> None:
    line = json.dumps([task_id, attempt, os.getpid(), what]) + "\n"
    descriptor = os.open(os.environ[LOG], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def read(path: Path) -> Iterator[Line]:
    """Yield the lines written so far."""
    for line in path.read_text().splitlines() if path.exists() else ():
        yield Line(*json.loads(line))


def work(piece: Piece, run: AttemptContext) -> Done:
    task, pause = run.task, threading.Event()
    append(task.task_id, task.attempt_count, START)
    for done in itertools.count():
        if done >= piece.steps if piece.until is None else piece.until.exists():
            break
        if not piece.blind:
            run.checkpoint()
        append(task.task_id, task.attempt_count, STEP)
        pause.wait(piece.pause_seconds)
    run.checkpoint()
    append(task.task_id, task.attempt_count, END)
    return Done(attempt=task.attempt_count, pid=os.getpid())


PIECE = Behavior("DRILL", Piece, work, result=Done, identify=lambda piece: piece.name)


def behaviors(_tasks: TaskService) -> Iterable[Behavior[Any, Any]]:
    """Return the behavior, for DELEGATION_BEHAVIORS."""
    return [PIECE]
