"""The operator's settings of keys (Idempotency-Key proposal, Appendix B)."""

from datetime import timedelta

import pytest
from pydantic import ValidationError

from delegation.idempotency.settings import PREFIX, KeySettings
from delegation.tasks.life.policy import InvalidProperty
from delegation.wiring.settings import IdempotencySettings, TaskSettings
from infra.environment.context import default_context, default_properties
from infra.local.errors import CannotStartError
from infra.local.options import StackOptions
from infra.settings import Settings


def test_what_is_deployed_are_the_proposals_examples() -> None:
    stated = {name: value for name, value in default_properties().items() if name.startswith(PREFIX)}
    assert stated == {f"{PREFIX}enabled": "true", f"{PREFIX}lifetime": "PT30M", f"{PREFIX}cleanup.enabled": "true"}
    assert KeySettings.from_properties(stated) == KeySettings.from_properties({}) == KeySettings()


def test_each_setting_has_its_effect() -> None:
    read = KeySettings.from_properties({f"{PREFIX}enabled": "false", f"{PREFIX}cleanup.enabled": "false"})
    assert (read.advertised, read.cleanup) == (None, False)
    for text, lifetime in (("PT2H", timedelta(hours=2)), ("90s", timedelta(seconds=90)), ("P1D", timedelta(days=1))):
        assert KeySettings.from_properties({f"{PREFIX}lifetime": text}).advertised == lifetime


def test_polaris_own_name_of_the_lifetime_is_taken_and_both_must_not_differ() -> None:
    ttl, lifetime = f"{PREFIX}ttl", f"{PREFIX}lifetime"
    for given in ({ttl: "PT5M"}, {ttl: "PT5M", lifetime: "PT5M"}, {ttl: "PT5M", lifetime: "PT30M"}):
        assert KeySettings.from_properties(given).advertised == timedelta(minutes=5)
    assert KeySettings.from_properties({lifetime: "PT1H"}).advertised == timedelta(hours=1)
    with pytest.raises(InvalidProperty, match=r"'PT5M'.*polaris.idempotency.lifetime.*'PT1H'"):
        KeySettings.from_properties({ttl: "PT5M", lifetime: "PT1H"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("ttl", "PT0S"), ("enabled", "yes"), ("enabled", "True"), ("cleanup.enabled", ""), ("cleanup", "true")),
        *(("lifetime", text) for text in ("30", "PT0S", "1500ms", "PT0.5S", "P31D")),
        ("liftime", "PT30M"),
    ],
)
def test_a_wrong_setting_is_named_before_anything_is_deployed(name: str, value: str) -> None:
    given = {f"{PREFIX}{name}": value}
    with pytest.raises(InvalidProperty) as refused:
        KeySettings.from_properties(given)
    assert refused.value.name == f"{PREFIX}{name}"
    with pytest.raises(CannotStartError, match=PREFIX + name):
        StackOptions(properties=given)
    with pytest.raises(ValidationError, match=f"delegation:properties: {PREFIX}{name}: "):
        Settings.from_context({**default_context(), "delegation:package": "none", "delegation:properties": given})


def test_a_process_reads_them_beside_its_other_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "DELEGATION_PROPERTIES", '{"polaris.idempotency.lifetime": "PT1H", "delegation.limits.all": "9"}'
    )
    monkeypatch.setenv("DELEGATION_IDEMPOTENCY_TABLE", "records")
    monkeypatch.setenv("DELEGATION_TASKS_TABLE", "tasks")
    assert IdempotencySettings.read().keys().lifetime == timedelta(hours=1)
    assert TaskSettings.read().policies().limits is not None
