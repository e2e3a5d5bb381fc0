"""The operator's settings of when and how much policies run."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.tasks.life.policy import InvalidProperty
from delegation.upkeep.rules.limits import UpkeepLimits, UpkeepSettings
from delegation.upkeep.schedule import Budget, PolicyTerms, Window

PREFIX = "delegation.upkeep."


def test_every_setting_is_read_and_limits_of_rules_ignore_them() -> None:
    properties = {
        f"{PREFIX}interval": "5m",
        f"{PREFIX}window": "0 1 * * *",
        f"{PREFIX}window-length": "3h",
        f"{PREFIX}time-zone": "Europe/Berlin",
        f"{PREFIX}daily-files": "1000",
        f"{PREFIX}daily-bytes": "5000",
        f"{PREFIX}daily-cost": "2.5",
        f"{PREFIX}at-once": "200",
    }
    window = Window("0 1 * * *", timedelta(hours=3), "Europe/Berlin")
    terms = PolicyTerms(window, Budget(files=1000, bytes=5000, micros=2_500_000), "Europe/Berlin")
    assert UpkeepSettings.from_properties(properties) == UpkeepSettings(terms, timedelta(minutes=5), 200)
    assert UpkeepSettings.from_properties({}) == UpkeepSettings()
    assert UpkeepLimits.from_properties(properties) == UpkeepLimits.from_properties({})


WRONG = {
    "interval": ["4s", "soon"],
    "window": ["0 1 * *", "0 1 30 2 *"],
    "window-length": ["30d"],
    "time-zone": ["Mars/Olympus"],
    "daily-files": ["0"],
    "daily-bytes": ["-1", "1" * 30],
    "daily-cost": ["0", "0.0000001", "-1", "1e3"],
    "policy.lake.gov.keep": ["1"],
    "policy.daily-files": ["1"],
    "policy.lake.keep.daily-files": ["0"],
    "policy.lake.keep.interval": ["5m"],
    "policy.lake.keep.time-zone": ["Mars/Olympus"],
    "at-once": ["257", "many"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_value_that_cannot_be_meant_is_refused_by_its_name(name: str, value: str) -> None:
    others = {f"{PREFIX}window": "0 1 * * *"} if name == "window-length" else {}
    named = "window" if name == "window-length" else name.removesuffix(".daily-files").removesuffix(".time-zone")
    with pytest.raises(InvalidProperty, match=named):
        UpkeepSettings.from_properties({**others, f"{PREFIX}{name}": value})


def test_a_policy_has_what_its_own_settings_leave_open_from_those_of_all() -> None:
    texts = {
        "daily-files": "1000",
        "time-zone": "Europe/Berlin",
        "policy.lake.gov.nightly.window": "0 1 * * *",
        "policy.lake.gov.nightly.daily-files": "none",
        "policy.lake.gov.nightly.daily-cost": "1",
    }
    properties = {PREFIX + name: value for name, value in texts.items()}
    settings = UpkeepSettings.from_properties(properties)
    of_all = PolicyTerms(None, Budget(files=1000), "Europe/Berlin")
    window = Window("0 1 * * *", timedelta(hours=6), "Europe/Berlin")
    own = PolicyTerms(window, Budget(micros=1_000_000), "Europe/Berlin")
    assert settings.terms_of(["lake.gov.nightly", "lake.gov.other"]) == {
        "lake.gov.nightly": own,
        "lake.gov.other": of_all,
    }
    assert UpkeepLimits.from_properties(properties) == UpkeepLimits.from_properties({})


@given(
    st.dictionaries(
        st.lists(st.sampled_from(["lake", "gov", "daily-files", "window", "a b"]), min_size=1, max_size=4).map(
            ".".join
        ),
        st.integers(1, 10**6),
        max_size=5,
    ),
    st.none() | st.integers(1, 10**6),
)
def test_each_policy_has_its_own_number_and_no_other_one_has_it(own: dict[str, int], of_all: int | None) -> None:
    """Whatever the dotted names are, those of settings included."""
    properties = {f"{PREFIX}policy.{name}.daily-files": str(number) for name, number in own.items()}
    properties |= {} if of_all is None else {f"{PREFIX}daily-files": str(of_all)}
    terms = UpkeepSettings.from_properties(properties).terms_of([*own, "another"])
    assert {name: one.budget.files for name, one in terms.items()} == {"another": of_all} | own


def test_settings_of_too_many_policies_are_refused() -> None:
    properties = {f"{PREFIX}policy.p{number}.daily-files": "1" for number in range(101)}
    with pytest.raises(InvalidProperty, match="101 policies"):
        UpkeepSettings.from_properties(properties)
