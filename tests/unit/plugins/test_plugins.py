"""Behaviors that DELEGATION_BEHAVIORS names."""

import pytest

from delegation import wiring
from delegation.plugins import BadPlugin, load
from delegation.settings import BehaviorSettings
from delegation.tasks.memory import MemoryTaskStore
from delegation.tasks.policy import Policies
from delegation.tasks.service import NoDispatchQueue, TaskService
from tests.unit.tasks.builders import Clock

EXAMPLES = "tests.unit.plugins.examples"
KINDS = {"SHOUT", "ONCE", "WHOLE"}


@pytest.fixture
def tasks() -> TaskService:
    return TaskService(MemoryTaskStore(), Policies.from_properties({}), NoDispatchQueue(), clock=Clock())


def test_what_a_function_answers_is_run_whatever_its_shape(tasks):
    added = load([f"{EXAMPLES}:behaviors"], tasks, taken=frozenset())
    assert added.kinds == KINDS
    assert added.fail_when_lost == {"ONCE"}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere.at_all:behaviors", "cannot be imported"),
        (EXAMPLES, "is not module:function"),
        (f"{EXAMPLES}:missing", "has no missing"),
        (f"{EXAMPLES}:NOT_A_FUNCTION", "is not a function"),
        (f"{EXAMPLES}:purges", "the kind TABLE_PURGE is there already"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(tasks, name, reason):
    with pytest.raises(BadPlugin, match=reason) as refused:
        load([name], tasks, taken=wiring.BUILT_IN_KINDS)
    assert name in str(refused.value)


def test_two_plugins_cannot_both_run_a_kind(tasks):
    with pytest.raises(BadPlugin, match="the kind SHOUT is there already"):
        load([f"{EXAMPLES}:behaviors"] * 2, tasks, taken=frozenset())


def test_every_process_of_a_deployment_knows_what_is_named(tasks, monkeypatch):
    monkeypatch.setenv("DELEGATION_BEHAVIORS", f" {EXAMPLES}:behaviors ,")
    assert BehaviorSettings().behaviors == (f"{EXAMPLES}:behaviors",)
    assert wiring.known_kinds(tasks) == wiring.BUILT_IN_KINDS | KINDS
    assert tasks.policies.fail_when_lost == {"ONCE"}


def test_without_any_there_are_those_of_this_release(tasks, monkeypatch):
    monkeypatch.delenv("DELEGATION_BEHAVIORS", raising=False)
    assert wiring.known_kinds(tasks) == {"TABLE_PURGE", "TABLE_PURGE_PLAN", "STORE_MAINTENANCE"}
