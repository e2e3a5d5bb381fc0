"""Windows of upkeep: when they open, days on which clocks change, and bounds of what a policy may say."""

from datetime import UTC, date, datetime, timedelta
from itertools import takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegation.upkeep.errors import ScheduleInvalid
from delegation.upkeep.schedule import LONGEST, Window, day_of
from tests.effort import examples

HOUR = timedelta(hours=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_a_window_is_open_from_its_opening_until_just_before_its_end() -> None:
    window = Window("0 1 * * *", 3 * HOUR, "Europe/Berlin")
    opens = at("2026-01-10 00:00")  # 01:00 in Berlin
    assert not window.is_open(opens - timedelta(seconds=1))
    assert window.is_open(opens)
    assert window.is_open(opens + 3 * HOUR - timedelta(seconds=1))
    assert not window.is_open(opens + 3 * HOUR)
    assert window.opens_after(opens) == opens + timedelta(days=1)


def test_an_opening_that_the_change_of_clocks_leaves_out_is_right_after_the_gap() -> None:
    window = Window("30 2 * * *", HOUR, "Europe/Berlin")
    after_gap = at("2026-03-29 01:00")  # 03:00 in Berlin
    assert window.opens_after(at("2026-03-28 12:00")) == after_gap
    assert window.is_open(after_gap)


def test_an_opening_in_the_repeated_hour_happens_once() -> None:
    window = Window("30 2 * * *", HOUR / 2, "Europe/Berlin")
    first = at("2026-10-25 00:30")
    assert window.is_open(first)
    # An hour later the clocks show 02:30 again. The library, begun there, would return the first one.
    assert not window.is_open(first + HOUR)
    assert window.opens_after(first) == at("2026-10-26 01:30")
    assert window.opens_after(first + HOUR) == at("2026-10-26 01:30")


@pytest.mark.parametrize(
    ("cron", "lasts", "zone", "words"),
    [
        ("0 1 * *", HOUR, "UTC", "five fields"),
        ("0 0 1 * * *", HOUR, "UTC", "five fields"),
        ("0 25 * * *", HOUR, "UTC", "Bad hour"),
        ("0 1 30 2 *", HOUR, "UTC", "Bad day"),
        ("0 1 * * *", timedelta(0), "UTC", "one minute"),
        ("0 1 * * *", LONGEST + HOUR, "UTC", "seven days"),
        ("0 1 * * *", HOUR, "Europe/Nowhere", "not known"),
        ("0 1 * * *", HOUR, "../../etc/passwd", "not known"),
        ("0 1 * * *", HOUR, "x" * 100_000, "not known"),
        ("0" + "," * 200 + " 1 * * *", HOUR, "UTC", "100 characters"),
    ],
)
def test_a_window_that_cannot_be_used_is_refused(cron: str, lasts: timedelta, zone: str, words: str) -> None:
    with pytest.raises(ScheduleInvalid, match=words):
        Window(cron, lasts, zone)


ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])
CRONS = st.one_of(
    st.builds("{} {} * * *".format, st.integers(0, 59), st.integers(0, 23)),
    st.builds("{} {} * * {}".format, st.integers(0, 59), st.integers(0, 23), st.integers(0, 6)),
    st.builds("*/{} * * * *".format, st.integers(1, 59)),
    st.builds("{} */{} * * *".format, st.integers(0, 59), st.integers(1, 23)),
)
# Around the days on which the clocks of these zones change.
DAYS = st.sampled_from(
    [date(2026, 3, 8), date(2026, 3, 29), date(2026, 4, 5), date(2026, 10, 4), date(2026, 10, 25), date(2026, 11, 1)]
)


@settings(max_examples=examples(150), deadline=None)
@given(CRONS, ZONES, DAYS, st.integers(0, 72 * 60), st.integers(1, 30 * 60))
def test_a_window_is_open_exactly_while_an_opening_of_its_calendar_is_not_over(cron, zone, day, minutes, lasts):
    """Openings are enumerated from days before, where no clock changes; a look at one moment must agree."""
    window = Window(cron, timedelta(minutes=lasts), zone)
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(days=1)
    now = begin + timedelta(minutes=minutes)
    openings = list(takewhile(lambda one: one <= now, window.openings(begin - timedelta(days=9))))
    assert openings == sorted(set(openings))
    expected = [one for one in openings if one > now - window.lasts]
    assert window.opened_at(now) == (expected[0] if expected else None)
    assert window.opens_after(now) > now


def test_the_day_of_a_budget_is_one_of_its_zone_and_has_23_or_25_hours() -> None:
    def hours(first: str) -> int:
        begin = at(first)
        return sum(day_of(begin + n * HOUR, "Europe/Berlin") == day_of(begin, "Europe/Berlin") for n in range(30))

    assert day_of(at("2026-01-01 23:30"), "Europe/Berlin") == date(2026, 1, 2)
    assert hours("2026-03-28 23:00") == 23
    assert hours("2026-10-24 22:00") == 25
