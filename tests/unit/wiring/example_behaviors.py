"""Behaviors as a deployment would add them."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel

from delegation.tasks.life.model import Task
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior, OnLost
from delegation.tasks.work.service import TaskService

NOT_A_FUNCTION = "text"


class Word(BaseModel):
    text: str


def shout(parameters: Word, _run: AttemptContext) -> Word:
    return Word(text=parameters.text.upper())


SHOUT = Behavior("SHOUT", Word, shout, result=Word, deadline=timedelta(hours=2), version=3)
ONCE = Behavior("ONCE", Word, shout, result=Word, on_lost=OnLost.FAIL)


class Whole:
    """A TaskBehavior that is not built from a function."""

    task_types = frozenset({"WHOLE"})
    payload_version = 2

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str | None:
        raise NotImplementedError

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        raise NotImplementedError


def behaviors(_tasks: TaskService) -> Iterable[Behavior[Any, Any] | Whole]:
    return [SHOUT, ONCE, Whole()]


def purges(_tasks: TaskService) -> Iterable[Behavior[Any, Any]]:
    return [Behavior("TABLE_PURGE", Word, shout)]


def shouts(_tasks: TaskService) -> Iterable[Behavior[Any, Any]]:
    return [Behavior("SHOUT", Word, shout)]
