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
from infra.environment import default_context
from infra.local.errors import CannotStartError
from infra.local.options import StackOptions
from infra.settings import Settings

LINE_11 = "issue 13, line 11: "
DRIFT = "delegation.task.lease.clock-drift-duration"
RETENTION = "delegation.maintenance.task-retention-duration"


def fault(text: str) -> pytest.MarkDecorator:
    return pytest.mark.xfail(strict=True, reason=LINE_11 + text)


def synthesized(properties: dict[str, str], **more: Any) -> Settings:
    return Settings.from_context({**default_context(), "delegation:properties": properties, **more})


@fault("a drift with which an attempt stops itself before it hands over is accepted")
@pytest.mark.parametrize("drift", ["11s", "10001ms", "1m", "20m"])
def test_a_drift_beyond_the_hand_over_is_refused_with_the_reason(drift: str) -> None:
    for read in (Policies.from_properties, synthesized):
        with pytest.raises((InvalidProperty, ValidationError), match=rf"{DRIFT}.*10s.*hand"):
            read({DRIFT: drift})


@fault("the longest drift is not known")
def test_every_lease_inside_a_function_outlasts_its_deadline_by_the_longest_drift() -> None:
    from delegation.tasks.life.policy import LONGEST_DRIFT

    assert Policies.from_properties({DRIFT: "10s"}).lease.clock_drift == LONGEST_DRIFT
    assert min(AFTER_DEADLINE, _LEASE_AFTER_DEADLINE) >= LONGEST_DRIFT


@fault("a retention is accepted with which a task submitted again cannot be dispatched")
@pytest.mark.parametrize("retention", ["1h", "7d", "90d"])
def test_a_retention_shorter_than_execution_names_live_is_refused_with_the_reason(retention: str) -> None:
    for read in (Policies.from_properties, synthesized):
        with pytest.raises((InvalidProperty, ValidationError), match=rf"{RETENTION}.*91d.*90 days"):
            read({RETENTION: retention})


@pytest.mark.parametrize("retention", ["91d", "100d", "P3650D"])
def test_a_longer_retention_is_accepted(retention: str) -> None:
    assert Policies.from_properties({RETENTION: retention}).maintenance.retention >= timedelta(days=91)


PRUGE = pytest.param(
    "TABLE_PRUGE", marks=fault("retry properties of a kind that nobody knows are accepted at synthesis")
)


@pytest.mark.parametrize("kind", [PRUGE, "TABLE-PURGE", "table_purge", "Table_Purge"])
def test_retry_properties_of_a_kind_that_nobody_knows_are_refused_at_synthesis(kind: str) -> None:
    name = f"delegation.retry.{kind}.max-attempts"
    with pytest.raises(ValidationError, match=rf"{name}.*(TABLE_PURGE|property)"):
        synthesized({name: "3"})
    with pytest.raises(CannotStartError, match=name):
        StackOptions(properties={name: "3"})


@fault("names such as acme.X are refused")
@pytest.mark.parametrize("kind", ["acme.X", "acme.report", "acme.daily_report.V2", "a.b-c", "acme.max-attempts"])
def test_the_kinds_of_added_behaviors_are_accepted(kind: str) -> None:
    name = f"delegation.retry.{kind}.max-attempts"
    assert synthesized({name: "3"}).properties == {name: "3"}
    assert Policies.from_properties({name: "3"}).retry(kind).max_attempts == 3


@fault("a kind of an added behavior that has no dot is unknown at synthesis")
def test_a_kind_without_a_dot_is_accepted_where_the_deployment_names_it() -> None:
    name = "delegation.retry.SHOUT.max-attempts"
    assert synthesized({name: "3"}, **{"delegation:added-kinds": "SHOUT, ONCE"}).properties == {name: "3"}


@pytest.mark.parametrize("kind", ["TABLE_PURGE", "TABLE_PURGE_PLAN", "STORE_MAINTENANCE", "REFERENCE_INDEX", "default"])
def test_the_kinds_of_this_service_are_known(kind: str) -> None:
    assert synthesized({f"delegation.retry.{kind}.max-attempts": "3"})


@fault("a process is silent about retry properties of a kind that nobody knows")
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


@fault("names such as acme.X are refused")
@settings(max_examples=50, deadline=None)
@given(st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,8}(\.[A-Za-z0-9_-]{1,8}){0,3}", fullmatch=True), st.sampled_from(KEYS))
def test_any_name_of_a_kind_has_its_own_policy(kind: str, key: str) -> None:
    policies = Policies.from_properties({f"delegation.retry.{kind}.{key}": VALUES[key]})
    assert set(policies.by_type) == {kind} - {"default"}
