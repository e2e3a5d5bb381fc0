"""Settings that cannot be safe are refused with the reason, and names of task types that nobody knows with theirs."""

import logging
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from delegation.edge.submission import _LEASE_AFTER_DEADLINE
from delegation.orchestration.steps import AFTER_DEADLINE
from delegation.tasks.life.policy import InvalidProperty, Policies
from infra.environment.context import default_context
from infra.local.errors import CannotStartError
from infra.local.options import StackOptions
from infra.settings import Settings

DRIFT = "delegation.task.lease.clock-drift-duration"
ALONE = {**default_context(), "delegation:package": "none"}
RETENTION = "delegation.maintenance.task-retention-duration"


def synthesized(properties: dict[str, str], **more: Any) -> Settings:
    return Settings.from_context({**ALONE, "delegation:properties": properties, **more})


@pytest.mark.parametrize("drift", ["11s", "10001ms", "1m", "20m"])
def test_a_drift_beyond_the_hand_over_is_refused_with_the_reason(drift: str) -> None:
    for read in (Policies.from_properties, synthesized):
        with pytest.raises((InvalidProperty, ValidationError), match=rf"{DRIFT}.*10s.*hand"):
            read({DRIFT: drift})


def test_every_lease_inside_a_function_outlasts_its_deadline_by_the_longest_drift() -> None:
    from delegation.tasks.life.policy import LONGEST_DRIFT

    assert Policies.from_properties({DRIFT: "10s"}).lease.clock_drift == LONGEST_DRIFT
    assert min(AFTER_DEADLINE, _LEASE_AFTER_DEADLINE) >= LONGEST_DRIFT


@pytest.mark.parametrize("retention", ["1h", "7d", "90d"])
def test_a_retention_shorter_than_execution_names_live_is_refused_with_the_reason(retention: str) -> None:
    for read in (Policies.from_properties, synthesized):
        with pytest.raises((InvalidProperty, ValidationError), match=rf"{RETENTION}.*91d.*90 days"):
            read({RETENTION: retention})


@pytest.mark.parametrize("kind", ["TABLE_PRUGE", "TABLE-PURGE", "table_purge", "Table_Purge"])
def test_retry_properties_of_a_kind_that_nobody_knows_are_refused_at_synthesis(kind: str) -> None:
    name = f"delegation.retry.{kind}.max-attempts"
    with pytest.raises(ValidationError, match=rf"{name}.*(TABLE_PURGE|property)"):
        synthesized({name: "3"})
    with pytest.raises(CannotStartError, match=name):
        StackOptions(properties={name: "3"})


@pytest.mark.parametrize("kind", ["acme.X", "acme.report", "acme.daily_report.V2", "a.b-c", "acme.max-attempts"])
def test_the_kinds_of_added_behaviors_are_accepted(kind: str) -> None:
    name = f"delegation.retry.{kind}.max-attempts"
    assert synthesized({name: "3"}).properties == {name: "3"}
    assert Policies.from_properties({name: "3"}).retry(kind).max_attempts == 3


def test_a_kind_without_a_dot_is_accepted_where_the_deployment_names_it() -> None:
    name = "delegation.retry.SHOUT.max-attempts"
    assert synthesized({name: "3"}, **{"delegation:added-task-types": "SHOUT, ONCE"}).properties == {name: "3"}


def test_a_running_process_warns_once_and_starts(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """In a rolling deployment an older process may get the properties of a newer one."""
    from delegation.wiring.deployment import deployment

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("DELEGATION_TASKS_TABLE", "tasks")
    monkeypatch.setenv("DELEGATION_BEHAVIORS", "tests.unit.wiring.example_behaviors:behaviors")
    monkeypatch.setenv(
        "DELEGATION_PROPERTIES",
        '{"delegation.retry.TABLE_PRUGE.max-attempts": "3", "delegation.retry.TABLE_PRUGE.jitter": "true",'
        ' "delegation.retry.acme.X.jitter": "true", "delegation.retry.SHOUT.max-attempts": "2"}',
    )
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            deployment().store.dynamodb.client.close()
    [warning] = [record.getMessage() for record in caplog.records]
    assert "TABLE_PRUGE" in warning
    assert "acme.X" in warning
    assert "SHOUT" not in warning


KEYS = ["max-attempts", "jitter", "backoff-multiplier"]
VALUES = {"max-attempts": "3", "jitter": "true", "backoff-multiplier": "2"}


@settings(max_examples=50, deadline=None)
@given(st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,8}(\.[A-Za-z0-9_-]{1,8}){0,3}", fullmatch=True), st.sampled_from(KEYS))
def test_any_name_of_a_kind_has_its_own_policy(kind: str, key: str) -> None:
    policies = Policies.from_properties({f"delegation.retry.{kind}.{key}": VALUES[key]})
    assert set(policies.by_type) == {kind} - {"default"}


@pytest.mark.parametrize("retention", ["91d", "100d", "P3650D"])
def test_a_longer_retention_is_accepted(retention: str) -> None:
    assert Policies.from_properties({RETENTION: retention}).maintenance.retention >= timedelta(days=91)
