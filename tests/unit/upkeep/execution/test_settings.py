"""The operator's settings of when and how much policies run."""

from datetime import timedelta

import pytest

from delegation.tasks.life.policy import InvalidProperty
from delegation.upkeep.execution.settings import UpkeepSettings
from delegation.upkeep.rules.limits import UpkeepLimits
from delegation.upkeep.schedule.amounts import Budget
from delegation.upkeep.schedule.choice import PolicyTerms
from delegation.upkeep.schedule.windows import Window

PREFIX = "delegation.upkeep."


def test_by_default_a_policy_runs_at_any_time_without_a_budget() -> None:
    assert UpkeepSettings.from_properties({}) == UpkeepSettings()


def test_every_setting_is_read_and_limits_of_rules_ignore_them() -> None:
    properties = {
        f"{PREFIX}interval": "5m",
        f"{PREFIX}window": "0 1 * * *",
        f"{PREFIX}window-length": "3h",
        f"{PREFIX}time-zone": "Europe/Berlin",
        f"{PREFIX}daily-files": "1000",
        f"{PREFIX}daily-bytes": "5000",
        f"{PREFIX}at-once": "2",
    }
    window = Window("0 1 * * *", timedelta(hours=3), "Europe/Berlin")
    terms = PolicyTerms(window, Budget(files=1000, bytes=5000), "Europe/Berlin")
    assert UpkeepSettings.from_properties(properties) == UpkeepSettings(terms, timedelta(minutes=5), 2)
    assert UpkeepLimits.from_properties(properties) == UpkeepLimits.from_properties({})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("interval", "5s"),
        ("interval", "soon"),
        ("window", "0 1 * *"),
        ("window", "0 1 30 2 *"),
        ("window-length", "30d"),
        ("time-zone", "Mars/Olympus"),
        ("daily-files", "0"),
        ("daily-bytes", "-1"),
        ("daily-bytes", "1" * 30),
        ("at-once", "17"),
        ("at-once", "many"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_by_its_name(name: str, value: str) -> None:
    given = {f"{PREFIX}window": "0 1 * * *"} if name == "window-length" else {}
    with pytest.raises(InvalidProperty, match="window" if name == "window-length" else name):
        UpkeepSettings.from_properties({**given, f"{PREFIX}{name}": value})
