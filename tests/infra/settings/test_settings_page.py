"""service.json and docs/settings.md have every setting of the deployment, every property and every variable."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from delegation.cli.deployment.config import (
    REQUIRED,
    context_of,
    described,
    pattern_of,
    shown_deployment,
    shown_properties,
    shown_variables,
)
from delegation.gateway.drop.settings import DropSettings
from delegation.idempotency.settings import KeySettings
from delegation.removal.orphans.requests import OrphanLimits
from delegation.removal.purge import requests
from delegation.removal.purge.requests import Limits
from delegation.removal.requests import foreign_locations
from delegation.rewrites.terms import CompactionLimits, ManifestLimits
from delegation.tasks.life.lanes import _EACH
from delegation.tasks.life.policy import InvalidProperty
from delegation.upkeep.rules.limits import UpkeepLimits, UpkeepSettings
from delegation.wiring.types import TYPES, policies_of
from infra.environment.resources import VARIABLES
from infra.settings import Settings
from infra.settings_page import DESCRIBED
from tests.paths import ROOT

DOCUMENT: dict[str, Any] = json.loads(DESCRIBED.read_text(encoding="utf-8"))
CDK = context_of(ROOT / "cdk.json")
NAMED = {group: [each.name for each in settings] for group, settings in described().items()}


def test_every_setting_of_the_model_and_of_cdk_json_has_a_sentence() -> None:
    model = [f"delegation:{name.replace('_', '-')}" for name in Settings.model_fields]
    assert sorted(NAMED["deployment"]) == sorted(model)
    assert CDK.keys() <= {*NAMED["deployment"]}
    for group in DOCUMENT.values():
        assert [name for name, each in group.items() if not re.fullmatch(r"[^a-z\n].*\.|`.*\.", each["meaning"])] == []


def variables_that_are_read() -> Iterator[str]:
    """The variables in the code of the service's processes; the command and the client have their own."""
    for path in (ROOT / "functions/delegation").rglob("*.py"):
        if not {"cli", "client", "persistence"} & set(path.relative_to(ROOT / "functions/delegation").parts):
            yield from re.findall(r'alias="([A-Z][A-Z_]+)"', path.read_text(encoding="utf-8"))


def test_every_variable_that_a_function_reads_is_a_setting_or_has_a_sentence() -> None:
    of_settings = {VARIABLES[name] for name in Settings.model_fields if name in VARIABLES}
    missing = {*variables_that_are_read(), *VARIABLES.values()} - of_settings - {*NAMED["variables"]}
    assert missing == set()


def read(properties: dict[str, str]) -> tuple[object, ...]:
    readers = (
        DropSettings,
        UpkeepLimits,
        UpkeepSettings,
        KeySettings,
        requests.ReferenceSettings,
        Limits,
        OrphanLimits,
        CompactionLimits,
        ManifestLimits,
    )
    return (
        policies_of(properties),
        foreign_locations(properties),
        Limits.from_properties(properties),
        *(each.from_properties(properties) for each in readers),
    )


@pytest.mark.parametrize("name", NAMED["properties"])
def test_a_property_is_read_and_its_default_changes_nothing(name: str) -> None:
    text = next(each.default for each in described()["properties"] if each.name == name) or ""
    value = text.partition(",")[0].partition(";")[0]
    full = name.replace("TYPE", "default" if "retry" in name else "TABLE_PURGE").replace("NAME", "cat")
    if value == "none" or value.startswith("that of"):
        values = ["5", "https://receiver.acme.io/end", "5h", "snapshot-expiry", "0 2 * * *", "Europe/Berlin"]
        values += ["tag", "s3://reports/lake/", "lake=arn:aws:iam::123456789012:role/lake"]
        assert any(accepted(full, each) for each in values)
        return
    assert read({full: value}) == read({})


def accepted(name: str, value: str) -> bool:
    try:
        return read({name: value}) != read({})
    except InvalidProperty:
        return False


def test_every_property_that_the_service_knows_has_a_sentence() -> None:
    known = [
        *(each.name for form in TYPES.forms for each in form.options.settings()),
        *(f"delegation.purge.{each}" for each in requests.REFERENCE_SETTINGS),
        *(f"delegation.limits.{each}" for each in _EACH),
        *CDK["delegation:properties"],
    ]
    assert [each for each in known if not any(pattern_of(name).fullmatch(each) for name in NAMED["properties"])] == []


def test_each_cap_of_a_task_type_is_shown() -> None:
    caps = {"delegation.limits.task-type.A": "3", "delegation.limits.task-type.B": "4"}
    given = {each.name: each.value for each in shown_properties({"cdk.json": {"delegation:properties": caps}})}
    assert given.items() >= caps.items()


def test_a_stage_file_precedes_cdk_json_and_what_is_absent_is_the_default() -> None:
    layers = {"cdk.json": CDK, "test.json": {"delegation:stage": "test", "delegation:properties": {"a.b": "1"}}}
    shown = {each.name: (each.value, each.source) for each in shown_deployment(layers)}
    assert shown["delegation:stage"] == ("test", "test.json")
    assert shown["delegation:realm"] == ("POLARIS", "cdk.json")
    assert shown["delegation:emr-max-runs"] == ("15", "default")
    assert shown["delegation:vpc-id"] == (None, None)
    assert {name: value for name, value in shown.items() if value[0] == REQUIRED} == {}
    retries = {each.name: each.value for each in shown_properties({"cdk.json": CDK}) if ".retry." in each.name}
    assert retries["delegation.retry.TABLE_PURGE.max-attempts"] == "10"
    assert retries["delegation.retry.TYPE.jitter"] == "false"
    variables = {each.name: each.value for each in shown_variables({"DELEGATION_TASKS_TABLE": "tasks"})}
    assert variables["DELEGATION_TASKS_TABLE"] == "tasks"
    assert variables["DELEGATION_QUEUE_URL"] is None
