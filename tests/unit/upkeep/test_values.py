"""Numbers, ages and words have bounds."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.upkeep.rules.limits import (
    DAY_MS,
    FOREVER_MS,
    MOST,
    age_in_days,
    age_in_ms,
    age_text,
    count_in_property,
    whole,
    word,
)
from tests.kit.outcomes import outcome

NO_NUMBERS: tuple[Any, ...] = (
    *(True, False, None, [], {}, -1, -0.5, 10**400, float("nan"), float("inf"), -(10**400), 2**63),
    *("", "-1", "+1", " 1", "1 ", "1e3", "0x1", "٣", "1_000", "NaN", "1." + "0" * 10, "9" * 20, "1.", ".5", "1,5"),
)


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_number_between_the_bounds_is_refused(value: Any) -> None:
    for read in (age_in_days, whole(1), whole(0, FOREVER_MS)):
        with pytest.raises(ValueError, match=r"^is "):
            read(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((0, 0), (7, 7 * DAY_MS), ("7", 7 * DAY_MS), (7.0, 7 * DAY_MS), (0.5, DAY_MS // 2), ("0.5", DAY_MS // 2)),
        *((0.1, 8_640_000), (1e-12, 1)),
    ],
)
def test_an_age_in_days_is_rounded_up_to_milliseconds(value: Any, expected: int) -> None:
    assert age_in_days(value) == expected


def test_an_age_is_at_most_javas_long_and_a_count_at_least_one() -> None:
    assert age_in_days(FOREVER_MS // DAY_MS) <= FOREVER_MS
    assert (age_in_ms(str(FOREVER_MS)), count_in_property("+5")) == (FOREVER_MS, 5)
    with pytest.raises(ValueError, match="is more than"):
        age_in_days(FOREVER_MS // DAY_MS + 1)
    for text in ("0", str(MOST + 1)):
        with pytest.raises(ValueError, match="whole number"):
            count_in_property(text)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "five", "9" * 400, " 1", "1L", str(FOREVER_MS + 1)])
def test_an_iceberg_property_is_a_long(text: str) -> None:
    with pytest.raises(ValueError, match="whole number"):
        age_in_ms(text)


@pytest.mark.parametrize("value", [0, 1.5, "1.5", MOST + 1])
def test_a_whole_number_is_whole(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a whole number from 1"):
        whole(1)(value)
    assert (whole(1)("3"), whole(1)(3.0)) == (3, 3)


@pytest.mark.parametrize("value", [1, None, "IGNORE", "ignore ", "delete"])
def test_a_word_is_one_of_a_list(value: Any) -> None:
    with pytest.raises(ValueError, match="is not one of"):
        word("error", "ignore")(value)


@given(st.one_of(st.integers(), st.floats(), st.text(), st.booleans()))
def test_a_value_is_read_between_the_bounds_or_refused(value: Any) -> None:
    found = outcome(lambda: age_in_days(value), ValueError)
    if isinstance(found, ValueError):
        assert str(found)
    else:
        assert 0 <= found <= FOREVER_MS


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        *((FOREVER_MS, "forever"), (DAY_MS, "1 day"), (5 * DAY_MS, "5 days"), (3_600_000 * 36, "36 hours")),
        *((90_000, "90 seconds"), (1, "1 ms"), (0, "0 days")),
    ],
)
def test_an_age_is_shown_in_its_greatest_unit(milliseconds: int, text: str) -> None:
    assert age_text(milliseconds) == text
