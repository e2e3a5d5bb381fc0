"""A behavior that is made for its first task."""

from datetime import UTC, datetime
from typing import Any

from delegation.tasks.life.model import Task
from delegation.tasks.work.behaviors import Behaviors, BehaviorWhenNeeded

LATER = datetime(2026, 11, 23, tzinfo=UTC)


class Made:
    """Records its calls and answers each of them."""

    task_types = frozenset({"A", "B"})

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, datetime | None]] = []

    def prepare(self, task: Task, *, hand_over_at: datetime | None = None) -> str | None:
        self.calls.append(("prepare", task, hand_over_at))
        return "spark"

    def run(self, task: Task, *, hand_over_at: datetime | None) -> Task:
        self.calls.append(("run", task, hand_over_at))
        return task


def test_it_is_made_once_and_only_for_a_task() -> None:
    made: list[Made] = []

    def make() -> Made:
        made.append(Made())
        return made[-1]

    behavior = BehaviorWhenNeeded(Made.task_types, make, payload_version=3)
    behaviors = Behaviors([behavior])
    assert set(behaviors) == {"A", "B"}
    assert (behaviors.task_types["A"], made) == (3, [])

    task: Any = object()
    assert behaviors["A"].prepare(task, hand_over_at=LATER) == "spark"
    assert behaviors["B"].run(task, hand_over_at=None) is task
    assert [one.calls for one in made] == [[("prepare", task, LATER), ("run", task, None)]]
