"""The behaviors that DELEGATION_BEHAVIORS names."""

from datetime import timedelta

import pytest

from delegation.tasks.authoring import behavior
from delegation.tasks.life.lanes import Caps
from delegation.tasks.life.policy import Policies
from delegation.tasks.work.plugins import BadPlugin, Plugins, load
from delegation.tasks.work.service import TaskService
from delegation.wiring.deployment import deployment
from delegation.wiring.settings import BehaviorSettings
from delegation.wiring.types import TYPES
from tests.kit.tasks.services import task_service

EXAMPLES = "tests.unit.wiring.example_behaviors"
TASK_TYPES = {"SHOUT", "ONCE", "WHOLE"}


def work() -> None: ...


@pytest.fixture
def tasks() -> TaskService:
    return task_service()


def test_a_function_may_return_any_form_of_behavior(tasks):
    added = load([f"{EXAMPLES}:behaviors"], tasks, existing=frozenset())
    assert added.task_types == TASK_TYPES
    assert added.fail_when_lost == {"ONCE"}
    assert added.deadlines == {"SHOUT": timedelta(hours=2)}


def test_a_module_is_named_for_the_behaviors_that_it_has(tasks):
    assert load([EXAMPLES, EXAMPLES], tasks, existing=frozenset()).task_types == {"SHOUT", "ONCE"}
    assert load([f"{EXAMPLES}:SHOUT"], tasks, existing=frozenset()).task_types == {"SHOUT"}


def test_concurrency_is_a_cap_of_the_task_type_below_that_of_the_properties():
    capped = [behavior("acme.one", concurrency=1)(work), behavior("acme.two", concurrency=2)(work)]
    properties = {"delegation.limits.all": "50", "delegation.limits.task-type.acme.two": "7"}
    policies = Plugins(tuple(capped)).policies(Policies.from_properties(properties))
    assert policies.limits == Caps(everything=50, task_types={"acme.one": 1, "acme.two": 7})
    assert Plugins(tuple(capped)).policies(Policies.from_properties({})).limits is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere.at_all:behaviors", "cannot be imported"),
        (f"{EXAMPLES}:", "is neither a module nor module:function"),
        ("tests.kit.tasks.builders", "declares no behavior"),
        (f"{EXAMPLES}:missing", "has no missing"),
        (f"{EXAMPLES}:NOT_A_FUNCTION", "is neither a behavior nor a function"),
        (f"{EXAMPLES}:purges", "the task type TABLE_PURGE already has a behavior"),
    ],
)
def test_an_unusable_plugin_is_refused_by_name(tasks, name, reason):
    with pytest.raises(BadPlugin, match=reason) as refused:
        load([name], tasks, existing=frozenset(TYPES))
    assert name in str(refused.value)


def test_two_plugins_cannot_both_run_a_kind(tasks):
    with pytest.raises(BadPlugin, match="the task type SHOUT already has a behavior"):
        load([f"{EXAMPLES}:behaviors", f"{EXAMPLES}:shouts"], tasks, existing=frozenset())


@pytest.fixture
def _environment(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("DELEGATION_TASKS_TABLE", "tasks")


@pytest.mark.usefixtures("_environment")
def test_a_deployment_has_the_named_behaviors(monkeypatch):
    monkeypatch.setenv("DELEGATION_BEHAVIORS", f" {EXAMPLES}:behaviors ,")
    assert BehaviorSettings.read().behaviors == (f"{EXAMPLES}:behaviors",)
    deployed = deployment()
    assert deployed.task_types == {**TYPES.known, "SHOUT": 3, "ONCE": 1, "WHOLE": 2}
    assert {kind for behavior in deployed.added for kind in behavior.task_types} == TASK_TYPES
    assert deployed.tasks.policies.fail_when_lost == {"ONCE"}
    deployed.store.dynamodb.client.close()


@pytest.mark.usefixtures("_environment")
def test_without_plugins_a_deployment_has_the_built_in_kinds(monkeypatch):
    monkeypatch.delenv("DELEGATION_BEHAVIORS", raising=False)
    deployed = deployment()
    drops = {"TABLE_DROP_WITH_PURGE", "TOMBSTONE_UPKEEP"}
    purges = {"TABLE_PURGE", "TABLE_PURGE_PLAN"}
    expiries = {"TABLE_EXPIRE_SNAPSHOTS", "TABLE_EXPIRE_SNAPSHOTS_PLAN"}
    upkeep = expiries | {"ORPHAN_FILES", "ORPHAN_FILES_PLAN"}
    upkeep |= {"TABLE_COMPACTION", "TABLE_COMPACTION_PLAN", "TABLE_REWRITE_MANIFESTS", "TABLE_REWRITE_MANIFESTS_PLAN"}
    own = {"STORE_MAINTENANCE", "REFERENCE_INDEX", "CATALOG_HEALTH", "CATALOG_UPKEEP", "REWRITE_WORKER"}
    assert set(deployed.task_types) == purges | drops | upkeep | own
    deployed.store.dynamodb.client.close()
