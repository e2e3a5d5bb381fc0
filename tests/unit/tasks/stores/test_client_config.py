"""The client of the task table never repeats a write without the store knowing."""

import pytest

from delegation.wiring.tasks import task_store
from polaris_common.dynamodb import client_config


def test_the_client_of_the_entry_points_makes_one_try_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("DELEGATION_TASKS_TABLE", "tasks")
    store = task_store()
    assert store.dynamodb.client.meta.config.retries["total_max_attempts"] == 1
    store.dynamodb.client.close()


def test_timeouts_can_be_configured_the_number_of_tries_cannot() -> None:
    config = client_config(read_timeout=60)
    assert (config.read_timeout, config.connect_timeout, config.retries) == (60, 2, {"total_max_attempts": 1})
