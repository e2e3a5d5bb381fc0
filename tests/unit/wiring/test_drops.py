"""Drops in a deployment: who runs their tasks, and what a table of tombstones switches on."""

import json
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
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
from delegation.wiring.drops import count_failed, table_drops
from delegation.wiring.settings import TaskSettings
from delegation.wiring.spark import run_attempt
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
    for behavior in (PurgeBehavior, DropBehavior, ExpiryBehavior, OrphansBehavior):

        def run_job(self: object, engine: Any, *_arguments: object) -> tuple[type, object]:
            return type(self), engine("context")

        monkeypatch.setattr(behavior, "run_job", run_job)
    monkeypatch.setattr("delegation.wiring.spark.job_resources", lambda: "resources")
    engines = {"purge": "purge_in_session", "expiry": "expire_in_session", "orphans": "remove_in_session"}
    for operation, engine in engines.items():
        called = partial(lambda name, *given: (name, *given), operation)
        monkeypatch.setattr(f"delegation.removal.{operation}.spark.{engine}", called)
    types = {
        "TABLE_PURGE": (PurgeBehavior, "purge"),
        DROP_TASK_TYPE: (DropBehavior, "purge"),
        TASK_TYPE: (ExpiryBehavior, "expiry"),
        PLAN_TASK_TYPE: (ExpiryBehavior, "expiry"),
        orphans.TASK_TYPE: (OrphansBehavior, "orphans"),
        orphans.PLAN_TASK_TYPE: (OrphansBehavior, "orphans"),
    }
    tasks = deployment().tasks
    stored = SimpleNamespace(get=lambda task_type: SimpleNamespace(task_type=task_type))
    monkeypatch.setattr(tasks, "reads", stored)
    found = {task_type: run_attempt(tasks, task_type, 1) for task_type in types}
    assert found == {name: (made, (engine, "context", "resources")) for name, (made, engine) in types.items()}


def test_a_failed_tombstone_is_counted(capsys):
    record = pending().model_copy(update={"task_id": "task"})
    count_failed(record)
    printed = json.loads(capsys.readouterr().out)
    assert (printed["TombstonesFailed"], printed["tombstone_id"]) == ([1.0], record.tombstone_id)
