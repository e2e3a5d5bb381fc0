"""`TaskService` is composed: few members of its own, and parts that hold none of each other's verbs."""

import inspect
from itertools import combinations
from typing import Any

from delegation.tasks.work.service import TaskService
from tests.kit.tasks.services import task_service

PARTS = ("reads", "writes", "submission", "messages", "dispatching", "leases", "operators")


def members(value: Any) -> set[str]:
    return {name for name, _ in inspect.getmembers(value) if not name.startswith("_")}


def test_the_service_inherits_nothing_and_has_few_members() -> None:
    assert TaskService.__bases__ == (object,)
    assert members(task_service()) == {
        *PARTS,
        *("clock", "policies", "types", "pauses"),
        *("having", "holding", "holding_as", "drain", "is_draining"),
    }


def test_each_verb_is_one_part_s() -> None:
    made = task_service()
    for one, other in combinations(PARTS, 2):
        assert members(getattr(made, one)) & members(getattr(made, other)) <= {"clock", "hooks"}, (one, other)
    for name in PARTS:
        verbs = [verb for verb, _ in inspect.getmembers(type(getattr(made, name)), inspect.isfunction)]
        assert len([verb for verb in verbs if verb[0] != "_"]) <= 13, (name, verbs)


def test_a_holder_writes_through_parts_of_its_own() -> None:
    made = task_service()
    held = made.submission.first(task_id="a", task_type="A", payload="{}")
    bound = made.holding(held)
    assert (bound.writes.held, made.writes.held) == (held, None)
    assert bound.leases._writes is bound.writes
    bound.drain()
    assert made.is_draining
