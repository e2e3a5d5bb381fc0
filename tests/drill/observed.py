"""Work that can be seen: each run appends what it does to a file, one line a write, whichever process it is in.

Named by `DELEGATION_BEHAVIORS`; the file by DRILL_LOG, which every process of the drill gets.
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

from delegation.tasks.work.behaviors import Behavior, Run
from delegation.tasks.work.service import TaskService

LOG = "DRILL_LOG"
START, STEP, END = "start", "step", "end"


class Piece(BaseModel):
    """A task of the drill: so many steps, with a pause after each; with `until`, as many as it takes for that to exist.

    One that is `blind` asks nobody whether it may go on.
    """

    name: str
    steps: int = 1
    pause_seconds: float = 0.02
    until: Path | None = None
    blind: bool = False


class Done(BaseModel):
    """Who did it."""

    attempt: int
    pid: int


@dataclass(frozen=True, slots=True)
class Line:
    """Something that a run did; the file's order is the order in which it happened."""

    task_id: str
    attempt: int
    pid: int
    what: str


def tell(task_id: str, attempt: int, what: str) -> None:
    line = json.dumps([task_id, attempt, os.getpid(), what]) + "\n"
    descriptor = os.open(os.environ[LOG], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def read(path: Path) -> Iterator[Line]:
    """All lines so far."""
    for line in path.read_text().splitlines() if path.exists() else ():
        yield Line(*json.loads(line))


def work(piece: Piece, run: Run) -> Done:
    task, pause = run.task, threading.Event()
    tell(task.task_id, task.attempt_count, START)
    for done in itertools.count():
        if done >= piece.steps if piece.until is None else piece.until.exists():
            break
        if not piece.blind:
            run.checkpoint()
        tell(task.task_id, task.attempt_count, STEP)
        pause.wait(piece.pause_seconds)
    run.checkpoint()
    tell(task.task_id, task.attempt_count, END)
    return Done(attempt=task.attempt_count, pid=os.getpid())


PIECE = Behavior("DRILL", Piece, work, result=Done, identify=lambda piece: piece.name)


def behaviors(_tasks: TaskService) -> Iterable[Behavior[Any, Any]]:
    """For DELEGATION_BEHAVIORS."""
    return [PIECE]
