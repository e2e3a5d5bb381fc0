"""A fleet of 40 processes on one head, in virtual time with 5 ms a call (tests.persistence.commits.fleet)."""

import pytest

from tests.persistence.commits.fleet import Commit, by_data, by_function, run_fleet


def test_ten_functions_a_second_take_less_than_a_second() -> None:
    report = run_fleet(10)
    assert report.contended == 0
    assert report.percentile(0.99) <= 1.0
    # An entity and a head each; a lost attempt writes its head in vain.
    assert report.rows <= 2.3 * report.total


@pytest.mark.parametrize("commit", [by_function, by_data], ids=["functions", "data"])
def test_fifty_changes_a_second_take_less_than_two_seconds(commit: Commit) -> None:
    """Issue 32, line 10: functions took 4.5 s, because who was next noticed it late."""
    report = run_fleet(50, seconds=10, commit=commit)
    assert report.contended == 0
    assert report.percentile(0.99) <= 2.0
