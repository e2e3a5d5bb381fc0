"""Policies from the proposal's property names; an error names the property that is wrong."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.tasks.life.model import Dispatches
from delegation.tasks.life.policy import DispatchPolicy, InvalidProperty, LeasePolicy, Policies, RetryPolicy
from delegation.timestamps import parse_duration
from delegation.wiring.types import default_properties
from tests.kit.outcomes import outcome
from tests.kit.tasks.builders import HOUR, MINUTE, NOW, SECOND, submitted

LOST = "delegation.task.lease.lost-timeout-duration"
DRIFT = "delegation.task.lease.clock-drift-duration"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("30s", 30), ("5m", 300), ("1h", 3600), ("2d", 172_800), ("500ms", 0.5), (" 30s ", 30)),
        *(("PT1H", 3600), ("PT1M30S", 90), ("pt0.5s", 0.5), ("P1D", 86_400), ("P1DT2H", 93_600)),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        *("", "30", "s", "1.5h", "-30s", "0s", "PT0S", "-PT1H", "1h30m", "one hour", "P", "PT", "1w"),
        *("9" * 30 + "d", "100000d", "P999999999D"),
    ],
)
def test_a_text_that_is_no_duration_is_refused_and_quoted(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|positive|longer") as refusal:
        parse_duration(text)
    assert repr(text) in str(refusal.value)


@given(st.text(max_size=12) | st.from_regex(r"P?T?\d{1,40}[a-zA-Z]{1,2}", fullmatch=True))
def test_any_text_is_a_positive_duration_or_refused(text: str) -> None:
    parsed = outcome(lambda: parse_duration(text), ValueError)
    if isinstance(parsed, ValueError):
        assert repr(text.strip()) in str(parsed)
    else:
        assert timedelta(0) < parsed
        assert NOW + parsed > NOW


def test_the_example_of_the_proposal() -> None:
    policies = Policies.from_properties(default_properties())
    assert policies.lease == LeasePolicy(lost_timeout=HOUR)
    assert policies.default == RetryPolicy(5, timedelta(seconds=30), 2.0, HOUR)
    assert policies.retry("TABLE_PURGE") == RetryPolicy(10, MINUTE, 2.0, HOUR)
    assert policies.retry("ANOTHER_TYPE") == policies.default


def test_an_override_changes_the_configured_default_in_any_order() -> None:
    properties = {
        "delegation.retry.TABLE_PURGE.jitter": "true",
        "delegation.retry.default.max-attempts": "9",
        "delegation.retry.default.backoff-multiplier": "3",
        DRIFT: "2s",
        LOST: "PT10M",
    }
    policies = Policies.from_properties(properties)
    assert policies == Policies.from_properties(dict(reversed(properties.items())))
    assert policies.retry("TABLE_PURGE") == RetryPolicy(max_attempts=9, backoff_multiplier=3.0, jitter=True)
    assert policies.lease == LeasePolicy(timedelta(minutes=10), timedelta(seconds=2))


BAD: dict[str, tuple[str, ...]] = {
    LOST: ("soon", "-1h", "0s", "10s", "9" * 30 + "d"),
    DRIFT: ("5",),
    "delegation.task.lease.lost-timeout": ("1h",),
    "delegation.retry.default.max-attempts": ("-1", "0", "five", "1.5", ""),
    "delegation.retry.default.initial-backoff-duration": ("30",),
    "delegation.retry.default.max-backoff-duration": ("-1h", "1s"),
    "delegation.retry.default.backoff-multiplier": ("0.5", "-2", "nan", "inf", "9" * 400),
    "delegation.retry.default.jitter": ("yes",),
    "delegation.retry.default.max-tries": ("5",),
    "delegation.retry.TABLE_PURGE.max-attempts": ("0",),
    "delegation.retry.TABLE_PURGE.max-backoff-duration": ("1s",),
    "delegation.retry.max-attempts": ("5",),
    "delegation.retries.default.max-attempts": ("5",),
    "delegation.maintenance.task-retention-duration": ("30m", "soon"),
    "delegation.maintenance.interval-duration": ("500ms",),
    "quarkus.http.port": ("8080",),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_bad_property_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidProperty, match=name) as refusal:
        Policies.from_properties({**default_properties(), name: value})
    assert refusal.value.name == name
    assert not refusal.value.retryable


def test_the_backoff_grows_to_its_maximum() -> None:
    policy = RetryPolicy(
        initial_backoff=timedelta(seconds=30), backoff_multiplier=2.0, max_backoff=timedelta(minutes=5)
    )
    assert [policy.backoff(n).total_seconds() for n in (1, 2, 3, 4, 5, 6, 10_000)] == [30, 60, 120, 240, 300, 300, 300]


@given(
    initial=st.integers(1, 10_000),
    factor=st.floats(1, 1000),
    times=st.integers(1, 10_000),
    failures=st.integers(1, 10**6),
    drawn=st.floats(0, 1, exclude_max=True),
)
def test_a_backoff_stays_between_its_bounds_and_never_shrinks(initial, factor, times, failures, drawn):
    low, high = initial * SECOND, initial * times * SECOND
    policy = RetryPolicy(initial_backoff=low, backoff_multiplier=factor, max_backoff=high)
    wait = policy.backoff(failures)
    assert low <= wait <= high
    assert wait <= policy.backoff(failures + 1)
    jittered = RetryPolicy(initial_backoff=low, backoff_multiplier=factor, max_backoff=high, jitter=True)
    assert timedelta(0) <= jittered.backoff(failures, draw=lambda: drawn) <= wait


def test_dispatches_are_checked_ever_later_and_limited() -> None:
    policy = DispatchPolicy(grace=MINUTE, max_backoff=HOUR, max_dispatches=20)
    counts = (0, 1, 2, 5, 6, 19, 10**6)
    looks = [policy.next_check(submitted(dispatches=Dispatches(count=7 + n, base=7)), NOW) - NOW for n in counts]
    assert looks == [MINUTE, 2 * MINUTE, 4 * MINUTE, 32 * MINUTE, HOUR, HOUR, HOUR]
    given_up = [policy.exhausted(submitted(dispatches=Dispatches(count=7 + n, base=7))) for n in (0, 19, 20, 21)]
    assert given_up == [False, False, True, True]
