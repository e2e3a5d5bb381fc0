"""Drops in a deployment: who runs their tasks, and what a table of tombstones switches on."""

import json
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from delegation.gateway.drop.behavior import DropBehavior
from delegation.gateway.forwarding import Forwarder
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.removal.expiry.behavior import ExpiryBehavior
from delegation.removal.expiry.task_type import PLAN_TASK_TYPE, TASK_TYPE
from delegation.removal.orphans import task_type as orphans
from delegation.removal.orphans.behavior import OrphansBehavior
from delegation.removal.purge.behavior import PurgeBehavior
from delegation.removal.purge.task_type import DROP_TASK_TYPE, UPKEEP_TASK_TYPE
from delegation.tasks.life.policy import InvalidProperty
from delegation.testing.tombstones import pending
from delegation.wiring.deployment import deployment
from delegation.wiring.drops import count_failed, drop_behavior, table_drops
from delegation.wiring.removals import expiry_behavior, orphans_behavior
from delegation.wiring.settings import TaskSettings
from delegation.wiring.spark import JobBehaviors, expire, remove
from delegation.wiring.steps import all_behaviors
from tests.aws import mock_aws


class Nowhere:
    """A catalog that no test calls."""

    def send(self, request: CatalogRequest, *, timeout: float) -> CatalogAnswer:
        raise AssertionError(request)


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    values = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "DELEGATION_TASKS_TABLE": "tasks",
        "DELEGATION_REFERENCES_TABLE": "references",
        "DELEGATION_IDEMPOTENCY_TABLE": "keys",
        "DELEGATION_PLAN_BUCKET": "plans",
        "DELEGATION_QUEUE_URL": "https://sqs.test/1/queue",
        "DELEGATION_POLARIS_URL": "http://catalog.test/api/catalog",
        "DELEGATION_POLARIS_SECRET_ARN": "arn",
        "DELEGATION_PROPERTIES": json.dumps({"delegation.drop.mode": "wait", "delegation.drop.grace": "1h"}),
        "DELEGATION_SYNCHRONOUS_BUDGET": "20",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("DELEGATION_TOMBSTONES_TABLE", raising=False)
    with mock_aws():
        yield


def test_a_table_of_tombstones_brings_the_behaviors_of_drops(monkeypatch):
    assert {DROP_TASK_TYPE, UPKEEP_TASK_TYPE}.isdisjoint(all_behaviors(deployment()))
    monkeypatch.setenv("DELEGATION_TOMBSTONES_TABLE", "tombstones")
    behaviors = all_behaviors(deployment())
    assert isinstance(behaviors[DROP_TASK_TYPE], DropBehavior)
    assert UPKEEP_TASK_TYPE in behaviors


def test_the_gateway_s_drops_follow_the_settings(monkeypatch):
    forwarder = Forwarder(Nowhere(), timeout=12)
    with pytest.raises(ValidationError, match="DELEGATION_TOMBSTONES_TABLE"):
        table_drops(forwarder, "R")
    monkeypatch.setenv("DELEGATION_TOMBSTONES_TABLE", "tombstones")
    drops = table_drops(forwarder, "R")
    assert (drops.realm, drops.budget) == ("R", timedelta(seconds=20))
    assert (drops.steps.settings.mode, drops.steps.settings.grace) == ("wait", timedelta(hours=1))
    monkeypatch.setenv("DELEGATION_PROPERTIES", json.dumps({"delegation.drop.mod": "wait"}))
    TaskSettings.read().policies()
    with pytest.raises(InvalidProperty, match=r"delegation\.drop\.mod"):
        table_drops(forwarder, "R")


def test_a_spark_job_runs_what_its_task_is(monkeypatch):
    monkeypatch.setenv("DELEGATION_TOMBSTONES_TABLE", "tombstones")
    monkeypatch.setattr(PurgeBehavior, "run_job", lambda *_arguments: "purged")
    monkeypatch.setattr(DropBehavior, "run_job", lambda *_arguments: "dropped")
    for behavior in (ExpiryBehavior, OrphansBehavior):
        monkeypatch.setattr(behavior, "run_job", lambda _self, engine, *_arguments: engine)
    deployed = deployment()
    purges = all_behaviors(deployed)["TABLE_PURGE"]
    assert isinstance(purges, PurgeBehavior)
    types = {"one": "TABLE_PURGE", "two": DROP_TASK_TYPE, "three": TASK_TYPE, "four": PLAN_TASK_TYPE}
    types |= {"five": orphans.TASK_TYPE, "six": orphans.PLAN_TASK_TYPE}
    reads = SimpleNamespace(get=lambda task_id: SimpleNamespace(task_type=types[task_id]))
    tasks: Any = SimpleNamespace(reads=reads)
    expiries = lambda: expiry_behavior(deployed.tasks)  # noqa: E731
    removals = lambda: orphans_behavior(deployed.tasks)  # noqa: E731
    drops = lambda: drop_behavior(deployed.tasks, purges)  # noqa: E731
    others: dict[str, Any] = {DROP_TASK_TYPE: (drops, None)}
    others |= dict.fromkeys((TASK_TYPE, PLAN_TASK_TYPE), (expiries, expire))
    others |= dict.fromkeys(orphans.TASK_TYPES, (removals, remove))
    jobs = JobBehaviors(tasks, purges, others)
    found = [jobs.run_job(lambda _ctx: None, task_id, 1) for task_id in types]
    assert found == ["purged", "dropped", expire, expire, remove, remove]


def test_a_failed_tombstone_is_counted(capsys):
    record = pending().model_copy(update={"task_id": "task"})
    count_failed(record)
    printed = json.loads(capsys.readouterr().out)
    assert (printed["TombstonesFailed"], printed["tombstone_id"]) == ([1.0], record.tombstone_id)
