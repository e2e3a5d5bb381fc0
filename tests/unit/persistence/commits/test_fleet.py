"""A fleet of 40 processes on one head, in virtual time with 5 ms a call (tests.unit.persistence.commits.fleet)."""

from tests.unit.persistence.commits.fleet import by_data, run_fleet


def test_ten_functions_a_second_take_less_than_a_second() -> None:
    report = run_fleet(10)
    assert report.contended == 0
    assert report.percentile(0.99) <= 1.0
    # An entity and a head each; a lost attempt writes its head in vain.
    assert report.rows <= 2.3 * report.total


def test_fifty_changes_a_second_take_less_than_two_seconds() -> None:
    report = run_fleet(50, seconds=10, commit=by_data)
    assert report.contended == 0
    assert report.percentile(0.99) <= 2.0
